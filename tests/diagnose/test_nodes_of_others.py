"""Tainted nodes that are kept for others, and full: the taint is not what has to be changed."""

from __future__ import annotations

import pytest
from tests.diagnose.objects import GPU, ask, event, node, pod, thing

from windlass.model.unstructured import Unstructured

KEPT = [{"key": "dedicated", "value": "vision", "effect": "NoSchedule"}]
THEIRS = node("v1", 2, taints=KEPT)
HELD = pod("v", 2, on="v1", spec={"tolerations": [{"operator": "Exists"}]})
SLICES = node("g1", {"nvidia.com/mig-3g.40gb": 4}, labels={"nvidia.com/gpu.present": "true"})


def test_a_node_of_its_own_that_has_the_devices_under_another_name() -> None:
    found = ask("pod/asked", SLICES, THEIRS, HELD, pod("asked", 1))
    assert found.code == "RESOURCE_NAME_MISMATCH"
    assert "ode g1, which the pod may use, has nvidia.com/mig-3g.40gb and no nvidia.com/gpu" in found.headline
    assert found.chain[0].code == "TAINT_NOT_TOLERATED"  # the engine's own words come first


def test_with_room_behind_the_taint_the_taint_is_the_cause() -> None:
    assert ask("pod/asked", SLICES, THEIRS, pod("asked", 1)).code == "TAINT_NOT_TOLERATED"


def test_a_taint_that_stands_for_gpus_is_to_be_tolerated_also_where_they_are_full() -> None:
    taint = [{"key": GPU, "value": "present", "effect": "NoSchedule"}]
    full = (node("v1", 2, taints=taint), HELD)
    assert ask("pod/asked", node("m1"), *full, pod("asked", 1)).code == "TAINT_NOT_TOLERATED"


def at_maximum(message: str) -> Unstructured:
    return event("Pod/asked", "NotTriggerScaleUp", message, "cluster-autoscaler")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("pod didn't trigger scale-up: 1 max node group size reached", "AUTOSCALER_MAX_SIZE"),
        ("pod didn't trigger scale-up: 1 node(s) had untolerated taint {dedicated: vision}", "TAINT_NOT_TOLERATED"),
    ],
)
def test_a_node_of_its_own_that_does_not_come(message: str, code: str) -> None:
    assert ask("pod/asked", node("m1"), THEIRS, HELD, pod("asked", 1), at_maximum(message)).code == code


def test_a_pool_that_is_not_ready() -> None:
    ready = {"type": "Ready", "status": "False", "reason": "NodeClassNotReady", "message": "no subnet matches"}
    spec = {"template": {"spec": {"requirements": [{"key": "x", "values": ["g6.xlarge"]}]}}}
    pool = thing("NodePool", "gpu", spec, "karpenter.sh/v1", status={"conditions": [ready]})
    found = ask("pod/asked", node("m1"), THEIRS, HELD, pod("asked", 1), pool)
    assert found.code == "AUTOSCALER_NO_MATCHING_GROUP"
    assert "no subnet matches" in found.headline
