"""Why a node is not ready, in its own words; and nodes that are not there at all."""

from __future__ import annotations

import pytest
from tests.diagnose.objects import ask, event, node, pod

from windlass.model.unstructured import Unstructured

NOT_READY = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
NO_CRI = "rpc error: code = Unimplemented desc = unknown service runtime.v1.RuntimeService"


def down(message: str, gpus: int = 0) -> Unstructured:
    found = node("g1", gpus, taints=NOT_READY, labels={"nvidia.com/gpu.present": "true"})
    found["status"]["conditions"] = [{"type": "Ready", "status": "False", "message": message}]
    return found


@pytest.mark.parametrize("gpus", [0, 4])
def test_a_runtime_whose_configuration_does_not_load_is_why_the_node_is_not_ready(gpus: int) -> None:
    found = ask("pod/asked", down(f"container runtime is down: {NO_CRI}", gpus), pod("asked", 1))
    assert found.code == "RUNTIME_NOT_CONFIGURED"
    assert "NODE_UNSCHEDULABLE" in [link.code for link in found.chain] + list(found.contributing)


def test_the_kubelets_events_say_the_same() -> None:
    said = event("Node/g1", "ContainerGCFailed", NO_CRI, "kubelet") | {"type": "Warning"}
    assert ask("pod/asked", down("not ready", 4), pod("asked", 1), said).code == "RUNTIME_NOT_CONFIGURED"


@pytest.mark.parametrize("gpus", [0, 4])
def test_what_else_keeps_it_from_being_ready_is_quoted(gpus: int) -> None:
    found = ask("pod/asked", down("cni plugin not initialized", gpus), pod("asked", 1))
    assert found.code == "NODE_UNSCHEDULABLE"
    assert any("condition Ready of node g1: cni plugin not initialized" in line for line in found.evidence)


def test_a_node_that_is_ready_says_nothing_of_it() -> None:
    well = node("g1", 4)
    well["status"]["conditions"] = [{"type": "Ready", "status": "True", "message": f"{NO_CRI}, long ago"}]
    assert ask("pod/asked", well, pod("busy", 4, on="g1"), pod("asked", 1)).code == "GPU_FULL"


def test_a_pod_that_names_a_node_which_does_not_exist() -> None:
    found = ask("pod/asked", node("g1", 4), pod("asked", 1, on="g9", phase="Pending"))
    assert found.code == "NODE_UNSCHEDULABLE"
    assert "there is no node g9" in found.headline.lower()
    assert "spec.nodeName" in found.headline


def test_a_pod_that_runs_has_a_node_also_where_that_is_not_known() -> None:
    assert ask("pod/asked", node("g1", 4), pod("asked", 1, on="g9")).code == "NONE"


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("node.kubernetes.io/pid-pressure", "short of process ids (PIDPressure)"),
        ("node.kubernetes.io/memory-pressure", "short of memory (MemoryPressure)"),
        ("node.cloudprovider.kubernetes.io/uninitialized", "cloud-controller-manager"),
    ],
)
def test_the_sentence_says_what_the_taint_stands_for(key: str, words: str) -> None:
    found = ask("pod/asked", node("g1", 4, taints=[{"key": key, "effect": "NoSchedule"}]), pod("asked", 1))
    assert found.code == "NODE_UNSCHEDULABLE"
    assert words in found.headline
