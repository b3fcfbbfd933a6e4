"""Nodes that advertise more `nvidia.com/gpu` than any machine has: time-slicing, vGPU or MIG, labelled or not."""

from __future__ import annotations

import pytest
from tests.engine.plain_objects import node, planned, pod

COUNT, REPLICAS, STRATEGY = (f"nvidia.com/gpu.{name}" for name in ("count", "replicas", "sharing-strategy"))


def many(gpus: int, **labels: str) -> dict[str, object]:
    made = node("n1", gpus)
    made["metadata"]["labels"] = {"kubernetes.io/hostname": "n1", **labels}
    made["status"]["allocatable"] = made["status"]["capacity"] = {
        "cpu": "1000",
        "memory": "4000Gi",
        "pods": "500",
        "nvidia.com/gpu": str(gpus),
    }
    return made


@pytest.mark.parametrize("gpus", [17, 20, 32, 33, 56, 80])
@pytest.mark.parametrize(
    "labels", [{}, {COUNT: "8"}, {COUNT: "56"}, {COUNT: "8", REPLICAS: "10", STRATEGY: "time-slicing"}]
)
def test_every_advertised_gpu_is_used_and_no_more(gpus: int, labels: dict[str, str]) -> None:
    plan, _ = planned(many(gpus, **labels), *(pod(f"p{number:03}", 1) for number in range(gpus + 3)))
    assert len(plan.binds) == gpus
    assert {hold.verdict.code for hold in plan.holds} == {"GPU_FULL"}


def test_a_pod_of_several() -> None:
    plan, _ = planned(many(32), pod("a", 12), pod("b", 12), pod("c", 12))
    assert [bind.pod for bind in plan.binds] == ["default/a", "default/b"]
