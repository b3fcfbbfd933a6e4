"""DaemonSets: one pod on every node that fits."""

from __future__ import annotations

from typing import Any

import pytest
from tests.embedded.in_process_cluster import InProcessCluster, template

from windlass.embedded.controllers.daemonset import node_of
from windlass.model.unstructured import Unstructured

SETS = "daemonsets.apps"


@pytest.fixture
def world() -> InProcessCluster:
    world = InProcessCluster().run()
    for name, zone in (("a", "one"), ("b", "two")):
        add_node(world, name, {"zone": zone})
    return world


def add_node(world: InProcessCluster, name: str, labels: dict[str, str], **spec: Any) -> None:
    world.verbs.create("nodes", "", {"metadata": {"name": name, "labels": labels}, "spec": spec})


def make(world: InProcessCluster, **pod: Any) -> None:
    labels = {"app": "agent"}
    world.apply(SETS, "agent", {"selector": {"matchLabels": labels}, "template": template(labels, **pod)})
    world.step()


def where(world: InProcessCluster) -> list[str]:
    return sorted(node_of(pod) for pod in world.pods())


def status(world: InProcessCluster) -> Unstructured:
    found: Unstructured = world.get(SETS, "agent")["status"]
    return found


def test_one_on_every_node_and_on_those_that_come(world: InProcessCluster) -> None:
    make(world)
    assert where(world) == ["a", "b"]
    add_node(world, "c", {})
    world.step()
    assert where(world) == ["a", "b", "c"]
    world.start_all()
    assert status(world)["numberReady"] == status(world)["desiredNumberScheduled"] == 3


def test_pods_go_through_the_scheduler_and_tolerate_what_nodes_go_through(world: InProcessCluster) -> None:
    make(world)
    pod = world.pods()[0]
    assert "nodeName" not in pod["spec"]
    keys = {toleration.get("key") for toleration in pod["spec"]["tolerations"]}
    assert {"node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready"} <= keys


def test_a_selector_and_its_change(world: InProcessCluster) -> None:
    make(world, nodeSelector={"zone": "two"})
    assert where(world) == ["b"]
    world.verbs.patch("nodes", "", "a", {"metadata": {"labels": {"zone": "two"}}})
    world.step()
    assert where(world) == ["a", "b"]
    world.verbs.patch("nodes", "", "b", {"metadata": {"labels": {"zone": "three"}}})
    world.step()
    assert where(world) == ["a"]


def test_an_untolerated_taint_keeps_new_pods_away(world: InProcessCluster) -> None:
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    add_node(world, "gpu", {}, taints=[taint])
    make(world)
    assert where(world) == ["a", "b"]


def test_what_a_taint_keeps_out_is_not_missed(world: InProcessCluster) -> None:
    """`kubectl rollout status` waits for as many as are desired."""
    add_node(world, "kept", {}, taints=[{"key": "kept", "effect": "NoSchedule"}])
    make(world)
    world.start_all()
    found = status(world)
    assert (found["desiredNumberScheduled"], found["numberAvailable"], where(world)) == (2, 2, ["a", "b"])
    world.verbs.patch("nodes", "", "b", {"spec": {"taints": [{"key": "late", "effect": "NoSchedule"}]}})
    world.step()
    assert where(world) == ["a", "b"], "what runs there stays"
    assert (status(world)["desiredNumberScheduled"], status(world)["numberMisscheduled"]) == (1, 1)


def test_a_failed_pod_is_replaced(world: InProcessCluster) -> None:
    make(world)
    pod = world.pods()[0]
    world.set_phase(pod, "Failed")
    world.step()
    assert where(world) == ["a", "b"]
    assert pod["metadata"]["name"] not in [pod["metadata"]["name"] for pod in world.pods()]
    assert "FailedDaemonPod" in world.reasons("DaemonSet", "agent")


def test_rolls_one_node_at_a_time(world: InProcessCluster) -> None:
    make(world)
    world.start_all()
    containers = [{"name": "main", "image": "new"}]
    world.verbs.patch(SETS, "default", "agent", {"spec": {"template": {"spec": {"containers": containers}}}})
    world.step()
    images = [pod["spec"]["containers"][0]["image"] for pod in world.pods()]
    assert sorted(images) == ["new", "train"]
    world.start_all()
    assert {pod["spec"]["containers"][0]["image"] for pod in world.pods()} == {"new"}
    assert status(world)["updatedNumberScheduled"] == 2
