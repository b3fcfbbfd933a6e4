"""Failing and healing nodes and GPUs, and what the cluster makes of it."""

from __future__ import annotations

import pytest
from tests.embedded.in_process_cluster import conditions, template
from tests.embedded.runtime.sandbox import GPU, Sandbox

from windlass.embedded.runtime.container_runtime import ContainerExit
from windlass.model.errors import InputError
from windlass.model.unstructured import Unstructured


@pytest.fixture
def world() -> Sandbox:
    return Sandbox()


def node(world: Sandbox, name: str) -> Unstructured:
    return world.verbs.get("nodes", "", name)


def names(world: Sandbox) -> set[str]:
    return {pod["metadata"]["name"] for pod in world.pods()}


def taints(world: Sandbox, name: str) -> list[tuple[str, str]]:
    return [(taint["key"], taint["effect"]) for taint in node(world, name)["spec"].get("taints", ())]


class TestGpu:
    def test_its_pods_fail_and_the_device_is_gone(self, world: Sandbox) -> None:
        world.start("hit", "h100-0", limits={GPU: "2"}, wish="2,3")
        world.start("beside", "h100-0", limits={GPU: "2"}, wish="4,5")
        said = world.nodes.faults.fail("gpu/h100-0:3", 79)
        world.step()
        assert "Xid 79 (GPU has fallen off the bus; drain the node and reboot it); 1 pod failed" in said
        pod = world.get("pods", "hit")
        assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "GPUUnhealthy")
        assert conditions(pod)["DisruptionTarget"] == "True"
        assert world.phase("beside") == "Running"
        assert node(world, "h100-0")["status"]["allocatable"][GPU] == "7"
        assert node(world, "h100-0")["status"]["capacity"][GPU] == "8"
        assert node(world, "h100-0")["metadata"]["annotations"]["windlass.dev/unhealthy-devices"] == "3"
        events = [event for event in world.verbs.list("events") if event["reason"] == "GPUUnhealthy"]
        assert {event["involvedObject"]["kind"] for event in events} == {"Node", "Pod"}

    def test_no_pod_gets_it_until_it_is_healed(self, world: Sandbox) -> None:
        world.nodes.faults.fail("gpu/h100-0:0")
        assert world.start("a", "h100-0", limits={GPU: "8"})["status"]["phase"] == "Failed"
        assert world.nodes.faults.active_faults()[0]["target"] == "gpu/h100-0:0"
        world.nodes.faults.heal("gpu/h100-0:0")
        assert world.start("b", "h100-0", limits={GPU: "8"})["status"]["phase"] == "Running"
        assert node(world, "h100-0")["status"]["allocatable"][GPU] == "8"
        assert world.nodes.faults.active_faults() == []

    def test_an_xid_of_the_application_s_own_making(self, world: Sandbox) -> None:
        world.start("p", "h100-0", limits={GPU: "1"}, wish="0")
        said = world.nodes.faults.fail("gpu/h100-0:0", 31)
        assert "stays healthy" in said
        assert world.phase("p") == "Running"
        assert node(world, "h100-0")["status"]["allocatable"][GPU] == "8"

    def test_a_job_gets_another_pod(self, world: Sandbox) -> None:
        spec = template({}, "Never")
        world.apply("jobs.batch", "train", {"template": spec})
        world.step()
        pod = world.pods()[0]["metadata"]["name"]
        world.verbs.bind("default", pod, "cpu-0")
        world.step()
        world.nodes.kubelet.fail_pod(f"default/{pod}", "GPUUnhealthy", "gone", world.now, ContainerExit(1))
        world.pass_time(11)
        assert len(world.pods()) == 2
        assert world.get("jobs.batch", "train")["status"]["failed"] == 1

    def test_a_slice_of_a_cut_gpu(self, world: Sandbox) -> None:
        world.nodes.faults.fail("gpu/a100-mig-0:0")
        allocatable = node(world, "a100-mig-0")["status"]["allocatable"]
        assert allocatable["nvidia.com/mig-1g.10gb"] == "9", "seven of sixteen were on it"


class TestNode:
    def test_it_falls_silent_and_comes_back(self, world: Sandbox) -> None:
        world.nodes.faults.fail("node/cpu-0")
        world.pass_time(35)
        assert conditions(node(world, "cpu-0"))["Ready"] == "True"
        world.pass_time(15)
        found = node(world, "cpu-0")
        assert conditions(found)["Ready"] == "Unknown"
        ready = next(condition for condition in found["status"]["conditions"] if condition["type"] == "Ready")
        assert (ready["reason"], ready["message"]) == (
            "NodeStatusUnknown",
            "Kubelet stopped posting node status.",
        )
        assert set(taints(world, "cpu-0")) == {
            ("node.kubernetes.io/unreachable", "NoSchedule"),
            ("node.kubernetes.io/unreachable", "NoExecute"),
        }
        world.nodes.faults.heal("node/cpu-0")
        world.pass_time(1)
        assert conditions(node(world, "cpu-0"))["Ready"] == "True"
        assert taints(world, "cpu-0") == []
        reasons = {
            event["reason"] for event in world.verbs.list("events") if event["involvedObject"]["name"] == "cpu-0"
        }
        assert {"NodeNotReady", "NodeReady"} <= reasons

    def test_pods_are_evicted_after_what_they_tolerate(self, world: Sandbox) -> None:
        world.start("patient", "cpu-0", restartPolicy="Always")
        short = [
            {
                "key": "node.kubernetes.io/unreachable",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 5,
            }
        ]
        world.start("hasty", "cpu-0", restartPolicy="Always", tolerations=short)
        forever = [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}]
        world.start("stubborn", "cpu-0", restartPolicy="Always", tolerations=forever)
        world.nodes.faults.fail("node/cpu-0")
        world.pass_time(60)
        assert "deletionTimestamp" in world.get("pods", "hasty")["metadata"]
        assert "deletionTimestamp" not in world.get("pods", "patient")["metadata"]
        assert conditions(world.get("pods", "patient"))["Ready"] == "False"
        world.pass_time(300)
        assert "deletionTimestamp" in world.get("pods", "patient")["metadata"]
        assert conditions(world.get("pods", "patient"))["DisruptionTarget"] == "True"
        assert "deletionTimestamp" not in world.get("pods", "stubborn")["metadata"]
        assert "TaintManagerEviction" in world.reasons("Pod", "patient")
        world.nodes.faults.heal()
        world.pass_time(5)
        names = [pod["metadata"]["name"] for pod in world.pods()]
        assert names == ["stubborn"], "the kubelet is back and has let them go"

    def test_pods_that_were_bound_while_it_was_silent_start_or_go_when_it_is_back(self, world: Sandbox) -> None:
        world.nodes.faults.fail("node/h100-0")
        world.start("stays", "h100-0")
        world.start("goes", "h100-0")
        world.verbs.delete("pods", "default", "goes")
        world.step()
        assert names(world) == {"stays", "goes"}
        world.nodes.faults.heal("node/h100-0")
        world.pass_time(5)
        assert names(world) == {"stays"}
        assert world.phase("stays") == "Running"

    def test_a_pod_that_outlived_it_is_restarted(self, world: Sandbox) -> None:
        world.start("p", "cpu-0", restartPolicy="Always")
        world.start("once", "cpu-0", restartPolicy="Never", command=["sleep", "infinity"])
        world.nodes.faults.fail("node/cpu-0")
        world.pass_time(20)
        world.nodes.faults.heal("node/cpu-0")
        world.pass_time(20)
        assert world.phase("p") == "Running"
        assert world.get("pods", "p")["status"]["containerStatuses"][0]["restartCount"] == 1
        assert world.phase("once") == "Failed"

    def test_pods_of_a_node_that_was_deleted(self, world: Sandbox) -> None:
        world.start("p", "cpu-0", restartPolicy="Always")
        world.verbs.delete("nodes", "", "cpu-0")
        world.pass_time(60)
        assert world.verbs.find("pods", "default", "p") is None

    def test_a_taint_that_doesn_t_say_when_it_came(self, world: Sandbox) -> None:
        """Such as one of `kubectl taint`: the seconds are counted from when it was first seen."""
        toleration = {"key": "sick", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
        for name, tolerations in (
            ("patient", [toleration]),
            ("staying", [{"operator": "Exists"}]),
            ("hasty", []),
        ):
            world.start(name, "cpu-0", tolerations=tolerations)
        world.verbs.patch("nodes", "", "cpu-0", {"spec": {"taints": [{"key": "sick", "effect": "NoExecute"}]}})
        world.pass_time(25)
        assert names(world) == {"patient", "staying"}
        world.pass_time(10)
        assert names(world) == {"staying"}

    def test_a_cordoned_node_is_tainted(self, world: Sandbox) -> None:
        world.verbs.patch("nodes", "", "cpu-0", {"spec": {"unschedulable": True}})
        world.step()
        assert taints(world, "cpu-0") == [("node.kubernetes.io/unschedulable", "NoSchedule")]
        world.verbs.patch("nodes", "", "cpu-0", {"spec": {"unschedulable": None}})
        world.step()
        assert taints(world, "cpu-0") == []

    def test_a_node_without_a_kubelet_is_left_alone(self, world: Sandbox) -> None:
        world.verbs.create("nodes", "", {"metadata": {"name": "foreign"}})
        world.pass_time(1000)
        assert taints(world, "foreign") == []

    def test_broken_from_the_start(self) -> None:
        faults = [{"node": 1, "notReady": True}, {"node": 0, "devices": [2]}]
        world = Sandbox([{"name": "g", "count": 2, "gpus": [{"model": "H100", "count": 4}], "faults": faults}])
        assert ("node.kubernetes.io/not-ready", "NoSchedule") in taints(world, "g-1")
        assert node(world, "g-0")["status"]["allocatable"][GPU] == "3"
        assert {fault["target"] for fault in world.nodes.faults.active_faults()} == {"node/g-1", "gpu/g-0:2"}


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("h100-0", "is not a node or GPU"),
        ("rack/1", "is not a node or GPU"),
        ("node/nope", "no simulated node 'nope'"),
        ("gpu/h100-0:8", "has no GPU '8'"),
        ("gpu/h100-0", "has no GPU ''"),
        ("gpu/cpu-0:0", "the node has no GPUs"),
        ("node/h100-0:1", "names a GPU"),
    ],
)
def test_what_can_t_be_broken_is_said(world: Sandbox, target: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        world.nodes.faults.fail(target)


def test_signs_of_life_of_a_large_park_are_spread() -> None:
    world = Sandbox([{"name": "n", "count": 1000, "cpu": 8}])
    assert world.nodes.heartbeat.interval == 50
    writes = 0

    def count(kind: str, new: Unstructured, old: Unstructured | None) -> None:
        nonlocal writes
        writes += 1

    world.verbs.subscribe("leases.coordination.k8s.io", count)
    world.pass_time(100)
    assert writes <= 3000
    assert {conditions(item)["Ready"] for item in world.verbs.list("nodes")} == {"True"}
