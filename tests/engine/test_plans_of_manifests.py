"""What was not submitted yet is planned as it would be decided once its controller has created the pods."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.plain_objects import node, planned, pod

from windlass.model.unstructured import Unstructured

GANG = {
    "labels": {"kueue.x-k8s.io/pod-group-name": "ring"},
    "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
}


def urgent(kind: str, gpus: int = 8, **metadata: Any) -> Unstructured:
    spec = {"priority": 9, "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]}
    template = {"metadata": metadata, "spec": spec}
    api, size = ("batch/v1", "parallelism") if kind == "Job" else ("apps/v1", "replicas")
    meta = {"name": "urgent", "namespace": "default"}
    return {"apiVersion": api, "kind": kind, "metadata": meta, "spec": {size: 2, "template": template}}


def low(number: int) -> Unstructured:
    return pod(f"low-{number}", on=f"n{number}", priority=1)


@pytest.mark.parametrize("metadata", [{}, GANG])
@pytest.mark.parametrize("kind", ["Job", "Deployment"])
def test_each_of_its_pods_preempts(kind: str, metadata: dict[str, Any]) -> None:
    plan, _ = planned(node("n1"), node("n2"), low(1), low(2), urgent(kind, **metadata))
    assert sorted(evict.workload for evict in plan.evicts) == ["default/low-1", "default/low-2"]
    assert [(part.count, part.nodes) for part in plan.admits[0].pod_sets] == [(2, {"n1": 1, "n2": 1})]


def test_a_group_starts_whole_or_not_at_all() -> None:
    alone, _ = planned(node("n1"), low(1), urgent("Job"))
    assert [part.count for part in alone.admits[0].pod_sets] == [1]
    gang, _ = planned(node("n1"), low(1), urgent("Job", **GANG))
    assert not gang.admits
    assert not gang.evicts


def test_its_second_pod_comes_before_lower_priorities() -> None:
    waiting = pod("patient", priority=1)
    plan, _ = planned(node("n1"), node("n2"), urgent("Job"), waiting)
    assert [part.count for part in plan.admits[0].pod_sets] == [2]
    assert [hold.workload for hold in plan.holds] == ["default/patient"]
