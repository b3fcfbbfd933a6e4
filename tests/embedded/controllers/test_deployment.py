"""Deployments and ReplicaSets: rolling, recreating, pausing, undoing; adopting and letting go."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.embedded.in_process_cluster import InProcessCluster, conditions, template

from windlass.embedded.controllers.deployment import REVISION_ANNOTATION
from windlass.embedded.controllers.pod_template import POD_TEMPLATE_HASH
from windlass.model.unstructured import Unstructured

DEPLOYMENTS, SETS = "deployments.apps", "replicasets.apps"


@pytest.fixture
def world() -> InProcessCluster:
    return InProcessCluster().run()


def make(world: InProcessCluster, replicas: int = 3, **spec: Any) -> None:
    labels = {"app": "web"}
    base = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template(labels)}
    world.apply(DEPLOYMENTS, "web", {**base, **spec})
    world.step()


def image(world: InProcessCluster, name: str) -> None:
    containers = [{"name": "main", "image": name}]
    world.verbs.patch(DEPLOYMENTS, "default", "web", {"spec": {"template": {"spec": {"containers": containers}}}})
    world.step()


def web(world: InProcessCluster) -> Unstructured:
    return world.get(DEPLOYMENTS, "web")


def sizes(world: InProcessCluster) -> dict[str, int]:
    """Image → pods that are wanted of it."""
    return {
        item["spec"]["template"]["spec"]["containers"][0]["image"]: item["spec"]["replicas"]
        for item in world.verbs.list(SETS, "default")
    }


def progress(world: InProcessCluster) -> str:
    found = [condition for condition in web(world)["status"]["conditions"] if condition["type"] == "Progressing"]
    return str(found[0]["reason"])


class TestRolling:
    def test_comes_up(self, world: InProcessCluster) -> None:
        make(world)
        world.start_all()
        status = web(world)["status"]
        assert (status["replicas"], status["updatedReplicas"], status["availableReplicas"]) == (3, 3, 3)
        assert conditions(web(world)) == {"Available": "True", "Progressing": "True"}
        assert progress(world) == "NewReplicaSetAvailable"
        assert web(world)["metadata"]["annotations"][REVISION_ANNOTATION] == "1"
        assert world.reasons("Deployment", "web") == ["ScalingReplicaSet"]
        pod = world.pods()[0]
        assert pod["metadata"]["name"].startswith(f"web-{pod['metadata']['labels'][POD_TEMPLATE_HASH]}-")

    def test_goes_over_to_a_new_template(self, world: InProcessCluster) -> None:
        make(world)
        world.start_all()
        image(world, "new")
        assert sizes(world) == {"train": 3, "new": 1}, "a quarter more at first, and none less"
        world.start_all()
        assert sizes(world) == {"train": 0, "new": 3}
        assert web(world)["metadata"]["annotations"][REVISION_ANNOTATION] == "2"

    def test_a_template_that_comes_back_gets_the_newest_number(self, world: InProcessCluster) -> None:
        make(world)
        world.start_all()
        image(world, "new")
        world.start_all()
        image(world, "train")
        world.start_all()
        assert sizes(world) == {"train": 3, "new": 0}
        revisions = {
            item["spec"]["template"]["spec"]["containers"][0]["image"]: item["metadata"]["annotations"][
                REVISION_ANNOTATION
            ]
            for item in world.verbs.list(SETS, "default")
        }
        assert revisions == {"train": "3", "new": "2"}

    def test_a_new_template_that_never_gets_ready_leaves_the_old_one(self, world: InProcessCluster) -> None:
        make(world, progressDeadlineSeconds=60)
        world.start_all()
        image(world, "broken")
        world.pass_time(59)
        assert progress(world) != "ProgressDeadlineExceeded"
        world.pass_time(5)
        assert progress(world) == "ProgressDeadlineExceeded"
        assert conditions(web(world))["Available"] == "True"
        assert sizes(world) == {"train": 3, "broken": 1}

    def test_pause_and_resume(self, world: InProcessCluster) -> None:
        make(world)
        world.start_all()
        world.verbs.patch(DEPLOYMENTS, "default", "web", {"spec": {"paused": True}})
        image(world, "new")
        assert sizes(world) == {"train": 3}
        assert progress(world) == "DeploymentPaused"
        world.verbs.patch(DEPLOYMENTS, "default", "web", {"spec": {"replicas": 5}})
        world.step()
        assert sizes(world) == {"train": 5}, "a paused one can still be scaled"
        world.verbs.patch(DEPLOYMENTS, "default", "web", {"spec": {"paused": False}})
        world.step().start_all()
        assert sizes(world) == {"train": 0, "new": 5}
        assert progress(world) == "NewReplicaSetAvailable"

    def test_scaled_in_the_middle_of_a_rollout(self, world: InProcessCluster) -> None:
        make(world, 10)
        world.start_all()
        image(world, "new")
        before = sizes(world)
        world.verbs.patch(DEPLOYMENTS, "default", "web", {"spec": {"replicas": 20}})
        world.step()
        after = sizes(world)
        assert sum(after.values()) == 25
        assert after["train"] > before["train"]
        assert after["new"] > before["new"]

    def test_a_pod_that_falls_over_is_no_new_rollout(self, world: InProcessCluster) -> None:
        make(world, 2, progressDeadlineSeconds=60)
        world.start_all()
        world.set_phase(world.pods()[0], "Pending")
        world.step()
        assert conditions(web(world))["Available"] == "False"
        world.pass_time(600)
        assert progress(world) == "NewReplicaSetAvailable"

    def test_scaled_up_while_it_is_paused_and_has_nothing(self, world: InProcessCluster) -> None:
        make(world, 0)
        world.verbs.patch(DEPLOYMENTS, "default", "web", {"spec": {"paused": True}})
        image(world, "new")
        world.verbs.patch(DEPLOYMENTS, "default", "web", {"spec": {"replicas": 2}})
        world.step()
        assert sizes(world) == {"train": 2}

    def test_pods_that_are_refused_are_the_deployment_s_trouble(self, world: InProcessCluster) -> None:
        world.apply("resourcequotas", "none", {"hard": {"pods": "0"}})
        world.step()
        make(world, 1)
        assert conditions(web(world))["ReplicaFailure"] == "True"
        world.verbs.delete("resourcequotas", "default", "none")
        world.pass_time(60)
        world.start_all()
        assert "ReplicaFailure" not in conditions(web(world))
        assert [conditions(item) for item in world.verbs.list(SETS, "default")] == [{}]

    def test_old_sets_beyond_the_limit_go(self, world: InProcessCluster) -> None:
        make(world, revisionHistoryLimit=1)
        world.start_all()
        for name in ("one", "two", "three"):
            image(world, name)
            world.start_all()
        assert set(sizes(world)) == {"two", "three"}

    @settings(max_examples=20, deadline=None)
    @given(
        replicas=st.integers(1, 8),
        surge=st.one_of(st.integers(0, 4), st.sampled_from(["25%", "50%", "100%"])),
        unavailable=st.one_of(st.integers(0, 4), st.sampled_from(["25%", "50%"])),
        data=st.data(),
    )
    def test_never_too_few_and_never_too_many(
        self, replicas: int, surge: int | str, unavailable: int | str, data: st.DataObject
    ) -> None:
        if surge == 0 and unavailable == 0:
            unavailable = 1
        world = InProcessCluster().run()
        rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
        make(world, replicas, strategy={"type": "RollingUpdate", "rollingUpdate": rolling})
        world.start_all()
        image(world, "new")
        most = replicas + _of(surge, replicas, up=True)
        least = replicas - _of(unavailable, replicas, up=False)
        if most == least:
            least -= 1
        for _ in range(200):
            pods = [pod for pod in world.pods() if "deletionTimestamp" not in pod["metadata"]]
            assert len(pods) <= most
            assert sum(pod["status"]["phase"] == "Running" for pod in pods) >= least
            waiting = [pod for pod in pods if pod["status"]["phase"] == "Pending"]
            if not waiting:
                break
            world.set_phase(data.draw(st.sampled_from(waiting)), "Running")
            world.step()
        assert sizes(world) == {"train": 0, "new": replicas}


def _of(value: int | str, whole: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    share = int(value[:-1]) * whole
    return -(-share // 100) if up else share // 100


class TestRecreate:
    def test_all_old_pods_go_first(self, world: InProcessCluster) -> None:
        make(world, 2, strategy={"type": "Recreate"})
        world.start_all()
        for pod in world.pods():
            world.verbs.bind("default", pod["metadata"]["name"], "somewhere")
        image(world, "new")
        assert sizes(world) == {"train": 0, "new": 0}, "the old ones are still on their way out"
        world.start_all()
        assert sizes(world) == {"train": 0, "new": 2}
        assert {pod["spec"]["containers"][0]["image"] for pod in world.pods()} == {"new"}


class TestReplicaSet:
    @pytest.fixture
    def web_set(self, world: InProcessCluster) -> InProcessCluster:
        labels = {"app": "web"}
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template(labels)}
        world.apply(SETS, "web", spec)
        return world.step()

    def test_a_pod_that_no_longer_matches_is_let_go_and_replaced(self, web_set: InProcessCluster) -> None:
        pod = web_set.pods()[0]
        web_set.verbs.patch("pods", "default", pod["metadata"]["name"], {"metadata": {"labels": {"app": "odd"}}})
        web_set.step()
        assert len(web_set.pods("app=web")) == 2
        assert "ownerReferences" not in web_set.pods("app=odd")[0]["metadata"]

    def test_an_orphan_that_matches_is_adopted(self, web_set: InProcessCluster) -> None:
        web_set.verbs.create(
            "pods",
            "default",
            {
                "metadata": {"name": "mine", "labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "x"}]},
            },
        )
        web_set.step()
        assert len(web_set.pods()) == 2, "one of three was too many"

    def test_the_least_useful_pods_go_first(self, web_set: InProcessCluster) -> None:
        ready = web_set.pods()[1]
        web_set.set_phase(ready, "Running")
        web_set.verbs.patch(SETS, "default", "web", {"spec": {"replicas": 1}})
        web_set.step()
        assert [pod["metadata"]["name"] for pod in web_set.pods()] == [ready["metadata"]["name"]]

    def test_of_equal_pods_the_crowded_go_first(self, web_set: InProcessCluster) -> None:
        web_set.verbs.patch(SETS, "default", "web", {"spec": {"replicas": 3}})
        web_set.step()
        names = sorted(pod["metadata"]["name"] for pod in web_set.pods())
        for node in ("a", "b"):
            web_set.verbs.create("nodes", "", {"metadata": {"name": node}})
        for name, node in zip(names, ("a", "b", "b"), strict=True):
            web_set.verbs.bind("default", name, node)
        web_set.start_all()
        web_set.verbs.patch(SETS, "default", "web", {"spec": {"replicas": 2}})
        web_set.step().start_all()
        assert sorted(pod["spec"]["nodeName"] for pod in web_set.pods()) == ["a", "b"]

    def test_a_failed_pod_is_replaced(self, web_set: InProcessCluster) -> None:
        web_set.set_phase(web_set.pods()[0], "Failed")
        web_set.step()
        assert [pod["status"]["phase"] for pod in web_set.pods()].count("Pending") == 2
        assert web_set.get(SETS, "web")["status"]["replicas"] == 2
