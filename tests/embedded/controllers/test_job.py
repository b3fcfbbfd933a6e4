"""The Job controller: counts, order, back-off, deadlines, suspension, failure policies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.embedded.in_process_cluster import InProcessCluster, conditions, template

from windlass.embedded.api.timestamps import format_time
from windlass.embedded.controllers.index_set import IndexSet
from windlass.embedded.controllers.job_pods import COMPLETION_INDEX
from windlass.model.unstructured import Unstructured

JOBS = "jobs.batch"


@pytest.fixture
def world() -> InProcessCluster:
    return InProcessCluster().run()


def make(world: InProcessCluster, restart: str = "Never", **spec: Any) -> Unstructured:
    world.apply(JOBS, "train", {"template": template({}, restart), **spec})
    return job(world.step())


def job(world: InProcessCluster) -> Unstructured:
    return world.get(JOBS, "train")


def status(world: InProcessCluster) -> Unstructured:
    found: Unstructured = job(world)["status"]
    return found


def active(world: InProcessCluster) -> list[Unstructured]:
    return [
        pod
        for pod in world.pods()
        if pod["status"]["phase"] in ("Pending", "Running") and "deletionTimestamp" not in pod["metadata"]
    ]


def end(world: InProcessCluster, pod: Unstructured, phase: str = "Succeeded", code: int = 1) -> None:
    moment = pod["metadata"]["creationTimestamp"]
    state = {
        "terminated": {
            "exitCode": 0 if phase == "Succeeded" else code,
            "finishedAt": _now(world),
            "startedAt": moment,
        }
    }
    statuses = [{"name": "main", "image": "train", "imageID": "", "ready": False, "restartCount": 0, "state": state}]
    world.set_phase(pod, phase, containerStatuses=statuses)
    world.step()


def _now(world: InProcessCluster) -> str:
    return format_time(world.now)


class TestCompletion:
    def test_runs_to_its_end(self, world: InProcessCluster) -> None:
        make(world, parallelism=2, completions=3)
        assert len(active(world)) == 2
        assert status(world)["active"] == 2
        for pod in active(world):
            end(world, pod)
        assert len(active(world)) == 1
        end(world, active(world)[0])
        found = status(world)
        assert found["succeeded"] == 3
        assert "active" not in found
        assert conditions(job(world)) == {"SuccessCriteriaMet": "True", "Complete": "True"}
        assert found["completionTime"]
        assert world.reasons("Job", "train") == ["Completed", "SuccessfulCreate"]

    def test_pods_carry_the_labels_that_people_select_by(self, world: InProcessCluster) -> None:
        make(world)
        labels = world.pods("job-name=train,batch.kubernetes.io/job-name=train")[0]["metadata"]["labels"]
        assert labels["controller-uid"] == job(world)["metadata"]["uid"]

    def test_without_completions_one_success_is_enough(self, world: InProcessCluster) -> None:
        make(world, parallelism=2, completions=None)
        first, second = active(world)
        end(world, first)
        assert len(active(world)) == 1
        assert conditions(job(world)) == {}
        end(world, second)
        assert conditions(job(world))["Complete"] == "True"

    def test_a_success_counts_after_its_pod_is_gone(self, world: InProcessCluster) -> None:
        make(world, parallelism=1, completions=2)
        first = active(world)[0]
        end(world, first)
        world.verbs.delete("pods", "default", first["metadata"]["name"])
        world.step()
        assert first["metadata"]["name"] not in [pod["metadata"]["name"] for pod in world.pods()]
        assert status(world)["succeeded"] == 1

    def test_ttl_removes_it_with_its_pods(self, world: InProcessCluster) -> None:
        make(world, ttlSecondsAfterFinished=60)
        end(world, active(world)[0])
        world.pass_time(59)
        assert world.verbs.find(JOBS, "default", "train") is not None
        world.pass_time(2)
        assert world.verbs.find(JOBS, "default", "train") is None
        assert world.pods() == []

    def test_parallelism_can_be_changed(self, world: InProcessCluster) -> None:
        make(world, parallelism=4, completions=8)
        world.verbs.patch(JOBS, "default", "train", {"spec": {"parallelism": 1}})
        world.step()
        assert len(active(world)) == 1
        assert status(world).get("failed") is None, "pods that were scaled away have not failed"


class TestIndexed:
    def test_every_index_runs_once(self, world: InProcessCluster) -> None:
        make(world, parallelism=2, completions=3, completionMode="Indexed")
        first = {pod["metadata"]["annotations"][COMPLETION_INDEX]: pod for pod in active(world)}
        assert sorted(first) == ["0", "1"]
        pod = first["1"]
        assert pod["metadata"]["labels"][COMPLETION_INDEX] == "1"
        assert pod["metadata"]["name"].startswith("train-1-")
        assert pod["spec"]["hostname"] == "train-1"
        assert [variable["name"] for variable in pod["spec"]["containers"][0]["env"]] == ["JOB_COMPLETION_INDEX"]
        end(world, first["1"])
        assert status(world)["completedIndexes"] == "1"
        assert sorted(pod["metadata"]["annotations"][COMPLETION_INDEX] for pod in active(world)) == ["0", "2"]

    def test_a_failed_index_is_tried_again(self, world: InProcessCluster) -> None:
        make(world, parallelism=1, completions=1, completionMode="Indexed")
        end(world, active(world)[0], "Failed")
        world.pass_time(11)
        assert [pod["metadata"]["annotations"][COMPLETION_INDEX] for pod in active(world)] == ["0"]

    @given(st.sets(st.integers(0, 40)))
    def test_indices_are_written_and_read_back(self, indices: set[int]) -> None:
        assert set(IndexSet.parse(IndexSet(indices).format())) == indices

    def test_how_indices_are_written(self) -> None:
        assert IndexSet({1, 3, 4, 5, 7, 8}).format() == "1,3-5,7,8"


class TestFailure:
    def test_pauses_double(self, world: InProcessCluster) -> None:
        make(world, backoffLimit=10)
        for pause in (10, 20, 40, 80):
            end(world, active(world)[0], "Failed")
            world.pass_time(pause - 1)
            assert active(world) == [], pause
            world.pass_time(1)
            assert len(active(world)) == 1, pause

    def test_beyond_the_limit_it_fails(self, world: InProcessCluster) -> None:
        make(world, parallelism=2, completions=2, backoffLimit=0)
        first, second = active(world)
        end(world, first, "Failed")
        assert conditions(job(world)) == {"FailureTarget": "True", "Failed": "True"}
        assert second["metadata"]["name"] not in [pod["metadata"]["name"] for pod in active(world)]
        failed = next(condition for condition in status(world)["conditions"] if condition["type"] == "Failed")
        assert failed["reason"] == "BackoffLimitExceeded"
        assert failed["message"] == "Job has reached the specified backoff limit"
        assert "BackoffLimitExceeded" in world.reasons("Job", "train")

    def test_restarts_count_where_pods_restart_themselves(self, world: InProcessCluster) -> None:
        make(world, "OnFailure", backoffLimit=2)
        statuses = [{"name": "main", "image": "x", "imageID": "", "ready": True, "restartCount": 2, "state": {}}]
        world.set_phase(active(world)[0], "Running", containerStatuses=statuses)
        world.step()
        assert conditions(job(world))["FailureTarget"] == "True"

    def test_deadline(self, world: InProcessCluster) -> None:
        make(world, activeDeadlineSeconds=30)
        world.pass_time(29)
        assert conditions(job(world)) == {}
        world.pass_time(2)
        failed = next(condition for condition in status(world)["conditions"] if condition["type"] == "Failed")
        assert failed["reason"] == "DeadlineExceeded"
        assert active(world) == []

    def test_an_evicted_pod_counts_as_failed(self, world: InProcessCluster) -> None:
        make(world)
        pod = active(world)[0]
        world.verbs.bind("default", pod["metadata"]["name"], "somewhere")
        world.verbs.delete("pods", "default", pod["metadata"]["name"])
        world.step()
        assert status(world)["failed"] == 1
        assert status(world)["terminating"] == 1

    @pytest.mark.parametrize(("action", "failed"), [("Ignore", None), ("Count", 1)])
    def test_policy_on_conditions(self, world: InProcessCluster, action: str, failed: int | None) -> None:
        rule = {"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        make(world, podFailurePolicy={"rules": [rule]})
        pod = active(world)[0]
        target = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": _now(world)}
        world.verbs.patch(
            "pods",
            "default",
            pod["metadata"]["name"],
            {"status": {"phase": "Failed", "conditions": [target]}},
            "status",
        )
        world.step()
        assert status(world).get("failed") == failed

    def test_policy_fails_the_job(self, world: InProcessCluster) -> None:
        rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
        make(world, podFailurePolicy={"rules": [rule]})
        name = active(world)[0]["metadata"]["name"]
        end(world, active(world)[0], "Failed", 42)
        failed = next(condition for condition in status(world)["conditions"] if condition["type"] == "Failed")
        assert failed["reason"] == "PodFailurePolicy"
        assert failed["message"] == (
            f"Container main for pod default/{name} failed with exit code 42 matching FailJob rule at index 0"
        )


class TestSuspension:
    def test_pods_go_and_come_back(self, world: InProcessCluster) -> None:
        make(world, parallelism=2, completions=2)
        world.verbs.patch(JOBS, "default", "train", {"spec": {"suspend": True}})
        world.step()
        assert active(world) == []
        assert conditions(job(world)) == {"Suspended": "True"}
        assert "startTime" not in status(world)
        world.pass_time(100)
        world.verbs.patch(JOBS, "default", "train", {"spec": {"suspend": False}})
        world.step()
        assert len(active(world)) == 2
        assert conditions(job(world)) == {"Suspended": "False"}
        assert status(world)["startTime"] == _now(world)
        assert status(world).get("failed") is None
        assert {"Suspended", "Resumed"} <= set(world.reasons("Job", "train"))

    def test_a_suspended_job_has_no_deadline(self, world: InProcessCluster) -> None:
        make(world, suspend=True, activeDeadlineSeconds=10)
        world.pass_time(1000)
        assert conditions(job(world)) == {"Suspended": "True"}


def test_a_refused_pod_is_tried_again(world: InProcessCluster) -> None:
    quota = {"hard": {"pods": "0"}}
    world.apply("resourcequotas", "none", quota)
    world.step()
    make(world)
    assert world.pods() == []
    assert "FailedCreate" in world.reasons("Job", "train")
    world.verbs.delete("resourcequotas", "default", "none")
    world.pass_time(120)
    assert len(world.pods()) == 1


@settings(max_examples=25, deadline=None)
@given(
    parallelism=st.integers(1, 4),
    completions=st.integers(1, 6),
    indexed=st.booleans(),
    draws=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["Succeeded", "Failed", "delete"])), max_size=25),
)
def test_never_too_many_and_never_lost(
    parallelism: int, completions: int, indexed: bool, draws: list[tuple[int, str]]
) -> None:
    world = InProcessCluster().run()
    mode = "Indexed" if indexed else "NonIndexed"
    make(world, parallelism=parallelism, completions=completions, completionMode=mode, backoffLimit=100)
    succeeded = 0
    for which, what in draws:
        pods = active(world)
        assert len(pods) <= min(parallelism, completions - succeeded)
        if indexed:
            indices = [pod["metadata"]["annotations"][COMPLETION_INDEX] for pod in pods]
            assert len(set(indices)) == len(indices)
        if not pods:
            break
        pod = pods[which % len(pods)]
        if what == "delete":
            world.verbs.delete("pods", "default", pod["metadata"]["name"])
        else:
            end(world, pod, what)
            succeeded += what == "Succeeded"
        world.pass_time(700)
        assert status(world).get("succeeded", 0) == succeeded
    assert ("Complete" in conditions(job(world))) == (succeeded == completions)
