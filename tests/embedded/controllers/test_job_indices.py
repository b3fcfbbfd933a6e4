"""Indexed Jobs whose indices fail and succeed on their own, and pods of Jobs that are gone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.embedded.controllers.test_job import JOBS, active, end, job, make, status
from tests.embedded.in_process_cluster import InProcessCluster, conditions, template

from windlass.embedded.controllers.index_set import IndexSet
from windlass.embedded.controllers.job_indices import (
    FAILURE_COUNT_ANNOTATION,
    IGNORED_FAILURE_COUNT_ANNOTATION,
    matched_success_rule,
)
from windlass.embedded.controllers.job_pods import TRACKING_FINALIZER, index_of
from windlass.embedded.in_process_client import InProcessClient
from windlass.embedded.registry.registry import Registry
from windlass.model.unstructured import Unstructured


@pytest.fixture
def world() -> InProcessCluster:
    return InProcessCluster().run()


def indexed(world: InProcessCluster, completions: int = 3, **spec: Any) -> None:
    make(world, parallelism=completions, completions=completions, completionMode="Indexed", **spec)


def pod_of(world: InProcessCluster, index: int) -> Unstructured:
    (found,) = (pod for pod in active(world) if index_of(pod) == index)
    return found


def indices(world: InProcessCluster) -> list[int]:
    return sorted(map(index_of, active(world)))


class TestLimitPerIndex:
    def test_an_index_has_pauses_and_failures_of_its_own(self, world: InProcessCluster) -> None:
        indexed(world, backoffLimitPerIndex=1)
        end(world, pod_of(world, 1), "Failed")
        assert indices(world) == [0, 2]
        assert "failed" not in status(world), "counted once the next pod bears the number"
        world.pass_time(9)
        assert indices(world) == [0, 2]
        world.pass_time(2)
        assert indices(world) == [0, 1, 2]
        assert pod_of(world, 1)["metadata"]["annotations"][FAILURE_COUNT_ANNOTATION] == "1"
        assert status(world)["failed"] == 1
        end(world, pod_of(world, 1), "Failed")
        world.pass_time(3600)
        assert indices(world) == [0, 2]
        assert (status(world)["failedIndexes"], status(world)["failed"]) == ("1", 2)

    def test_the_others_go_on_and_the_job_fails_in_the_end(self, world: InProcessCluster) -> None:
        indexed(world, backoffLimitPerIndex=0)
        end(world, pod_of(world, 0), "Failed")
        assert conditions(job(world)) == {}
        for index in (1, 2):
            end(world, pod_of(world, index))
        assert conditions(job(world)) == {"FailureTarget": "True", "Failed": "True"}
        assert (status(world)["completedIndexes"], status(world)["failedIndexes"]) == ("1,2", "0")

    def test_an_ignored_failure_is_no_failure_and_is_counted_apart(self, world: InProcessCluster) -> None:
        rule = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [9]}}
        indexed(world, backoffLimitPerIndex=0, podFailurePolicy={"rules": [rule]})
        end(world, pod_of(world, 0), "Failed", code=9)
        world.pass_time(11)
        marks = pod_of(world, 0)["metadata"]["annotations"]
        assert (marks[FAILURE_COUNT_ANNOTATION], marks[IGNORED_FAILURE_COUNT_ANNOTATION]) == ("0", "1")
        assert status(world)["failedIndexes"] == ""


class TestSuccessPolicy:
    def test_the_rest_is_stopped(self, world: InProcessCluster) -> None:
        indexed(world, successPolicy={"rules": [{"succeededIndexes": "0"}]})
        end(world, pod_of(world, 0))
        world.step()
        assert active(world) == []
        (met,) = (
            condition for condition in job(world)["status"]["conditions"] if condition["type"] == "SuccessCriteriaMet"
        )
        assert (met["reason"], met["message"]) == ("SuccessPolicy", "Matched rules at index 0")

    @given(done=st.sets(st.integers(0, 9)), named=st.sets(st.integers(0, 9), min_size=1), least=st.integers(1, 9))
    def test_rules(self, done: set[int], named: set[int], least: int) -> None:
        text = IndexSet(named).format()
        both = {"succeededIndexes": text, "succeededCount": least}
        for rule, met in (
            ({"succeededIndexes": text}, named <= done),
            ({"succeededCount": least}, len(done) >= least),
            (both, len(done & named) >= least),
        ):
            spec = {"spec": {"successPolicy": {"rules": [rule]}}}
            assert (matched_success_rule(spec, IndexSet(done)) == 0) == met


class TestLeftBehind:
    """A pod must never be kept for good by the finalizer of a Job that will not count it."""

    def test_the_job_is_made_anew_under_its_name(self, world: InProcessCluster) -> None:
        make(world)
        (old,) = world.pods()
        world.verbs.delete(JOBS, "default", "train")
        world.apply(JOBS, "train", {"template": template({}, "Never")})
        world.step()
        assert [pod["metadata"]["uid"] for pod in world.pods()] != [old["metadata"]["uid"]]
        assert len(world.pods()) == 1

    def test_and_the_process_was_killed_in_between(self, world: InProcessCluster) -> None:
        make(world)
        (old,) = world.pods()
        world.verbs.delete(JOBS, "default", "train")
        world.apply(JOBS, "train", {"template": template({}, "Never")})
        assert TRACKING_FINALIZER in old["metadata"]["finalizers"]
        again = restarted(world)
        assert old["metadata"]["uid"] not in [pod["metadata"]["uid"] for pod in again.pods()]
        assert len(again.pods()) == 1

    def test_a_pod_without_a_node_that_is_deleted_is_replaced(self, world: InProcessCluster) -> None:
        """With podReplacementPolicy Failed only a failed pod is replaced; nobody but the controllers can say so."""
        make(world, podReplacementPolicy="Failed")
        (old,) = world.pods()
        world.verbs.delete("pods", "default", old["metadata"]["name"])
        world.pass_time(11)
        assert [pod["metadata"]["uid"] for pod in world.pods()] != [old["metadata"]["uid"]]
        assert (len(active(world)), status(world)["failed"]) == (1, 1)


def restarted(world: InProcessCluster) -> InProcessCluster:
    """Other controllers on the same store, which remember nothing."""
    again = InProcessCluster()
    again.now = world.now
    again.verbs = InProcessClient(Registry(world.verbs.registry.store, clock=lambda: again.now))
    again.cache = type(world.cache)(again.verbs)
    return again.run()
