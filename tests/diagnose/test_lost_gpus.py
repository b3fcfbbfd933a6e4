"""GPUs that a machine has and its node does not even count as unhealthy."""

from __future__ import annotations

import pytest
from tests.diagnose.objects import ask, node, pod

ADAPTER = "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0xffff:1127)"
OFF_THE_BUS = "NVRM: Xid (PCI:0000:a4:00): 79, GPU has fallen off the bus."
KIND = {"node.kubernetes.io/instance-type": "p5.48xlarge"}
NAMED = {"node.kubernetes.io/instance-type": "k3s"}


@pytest.mark.parametrize("line", [ADAPTER, OFF_THE_BUS, f"{ADAPTER}\n{ADAPTER}"])
def test_a_gpu_that_the_kernel_can_not_start_is_why_the_node_offers_too_few(line: str) -> None:
    full = (node("g2", 4), pod("busy", 4, on="g2"))
    found = ask("pod/asked", node("g1", 3), *full, pod("asked", 4), hosts={"g1": line})
    assert (found.code, found.confidence) == ("GPU_HW_FAULT", "high")
    assert "g1" in found.headline


def test_a_gpu_that_is_gone_is_no_cause_where_the_node_would_not_take_the_pod_with_it() -> None:
    full = (node("g2", 8), pod("busy", 8, on="g2"))
    found = ask("pod/asked", node("g1", 3), *full, pod("asked", 8), hosts={"g1": ADAPTER})
    assert found.code == "GPU_FULL"


def test_a_gpu_that_is_gone_counts_only_if_the_machine_had_it() -> None:
    """Four and one more are no usual number: the node still counts the GPU that the line is about."""
    found = ask("pod/asked", node("g1", 4), pod("busy", 2, on="g1"), pod("asked", 3), hosts={"g1": ADAPTER})
    assert found.code == "GPU_FULL"


def test_fewer_than_every_other_machine_of_the_type_is_said_without_certainty() -> None:
    others = (node("g2", 8, labels=KIND), pod("busy", 8, on="g2"))
    found = ask("pod/asked", node("g1", 7, labels=KIND), *others, pod("asked", 8))
    assert (found.code, found.confidence) == ("DEVICE_UNHEALTHY", "low")
    assert "ode g1 offers 7 nvidia.com/gpu, every other machine of its type (p5.48xlarge) 8" in found.headline


def test_a_type_that_says_nothing_about_gpus_is_not_compared() -> None:
    others = (node("g2", 8, labels=NAMED), pod("busy", 8, on="g2"))
    assert ask("pod/asked", node("g1", 7, labels=NAMED), *others, pod("asked", 8)).code == "GPU_FULL"
