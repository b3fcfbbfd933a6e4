"""The scheduler and `why` say the same of GPUs in repair: one code, one sentence."""

from __future__ import annotations

from typing import Any

import pytest
from tests.operator.play import Play, fleet, is_up

from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.names.windlass import HELD_DEVICES_ANNOTATION, REPAIR_UNTIL_ANNOTATION
from windlass.model.repair_state import node_repair
from windlass.planner import plan_objects

NOW = 1_800_000_000


def node(**annotations: str) -> dict[str, Any]:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8"}
    marks = {"windlass.dev/unhealthy-devices": "3,5", **annotations}
    amounts = {"nvidia.com/gpu": "8", "cpu": "64", "memory": "512Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "gpu-7", "labels": labels, "annotations": marks},
        "status": {
            "capacity": amounts,
            "allocatable": amounts | {"nvidia.com/gpu": "6"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "team", "uid": "u"},
    "spec": {
        "schedulerName": "windlass",
        "containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
    },
}


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({}, ""),
        (
            {HELD_DEVICES_ANNOTATION: "3,5", REPAIR_UNTIL_ANNOTATION: "2027-01-15T14:20:00Z"},
            "2 of 8 GPUs on gpu-7 are in repair until about 14:20 UTC",
        ),
        (
            {HELD_DEVICES_ANNOTATION: "3", REPAIR_UNTIL_ANNOTATION: "person"},
            "1 of 8 GPUs on gpu-7 is in repair, and needs a person",
        ),
        ({HELD_DEVICES_ANNOTATION: "3,x,"}, "1 of 8 GPUs on gpu-7 is in repair"),
    ],
)
def test_a_held_pod_is_told_until_when_gpus_are_in_repair(annotations: dict[str, str], words: str) -> None:
    plan, _ = plan_objects([decode_object(tree) for tree in (node(**annotations), POD)], Settings(), NOW)
    (hold,) = plan.holds
    assert hold.verdict.code == "DEVICE_UNHEALTHY"
    text = "; ".join(obstacle.text for obstacle in hold.verdict.obstacles)
    assert "node gpu-7 would take a pod if its GPUs 3, 5 were healthy" in text
    assert words in text
    assert ("in repair" in text) == bool(words)
    assert node_repair("gpu-7", node(**annotations)["metadata"]["annotations"], 8) == words


def test_the_operator_writes_until_when_and_takes_it_away() -> None:
    world = fleet(2)
    play = Play(world).run(lambda: is_up(world))
    world.fail_gpu("gpu-000", 3)
    marks = world.nodes["gpu-000"].annotations
    play.run(lambda: HELD_DEVICES_ANNOTATION in marks, 600)
    repair = world.repair("gpu-000-3-1")
    assert marks[REPAIR_UNTIL_ANNOTATION] == repair.status.deadline
    play.run(lambda: not world.repair("gpu-000-3-1").is_open, 7200)
    play.run(seconds=60)
    assert HELD_DEVICES_ANNOTATION not in marks
    assert REPAIR_UNTIL_ANNOTATION not in marks


def test_a_repair_that_waits_for_hands_says_so() -> None:
    world = fleet(2)
    play = Play(world).run(lambda: is_up(world))
    world.fail_gpu("gpu-000", 3, action="ticket", heals_by="")
    play.run(
        lambda: "gpu-000-3-1" in world.objects["GPURepair"] and world.repair("gpu-000-3-1").status.phase == "Ticket"
    )
    play.run(seconds=60)
    assert world.nodes["gpu-000"].annotations[REPAIR_UNTIL_ANNOTATION] == "person"
