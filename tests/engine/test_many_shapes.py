"""The score table grows by a row for each shape: whoever asks for a row sees the grown table."""

from __future__ import annotations

import pytest
from tests.engine.plain_objects import holds, node, planned, pod

from windlass.model.unstructured import Unstructured

TOGETHER: Unstructured = {
    "affinity": {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "gang"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
}


@pytest.mark.parametrize("others", range(13, 20))
def test_a_gang_with_affinity_to_itself_is_placed_however_many_shapes_there_are(others: int) -> None:
    labels = {"app": "gang", "kueue.x-k8s.io/pod-group-name": "gang"}
    meta = {"labels": labels, "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"}}
    gang = [pod(f"g{number}", 1, metadata=meta, priority=-1, **TOGETHER) for number in range(2)]
    singles = [pod(f"p{number}", 0, nodeSelector={"shape": str(number)}) for number in range(others)]
    plan, _ = planned(node("n1"), node("n2"), *singles, *gang)
    assert {bind.pod for bind in plan.binds} == {"default/g0", "default/g1"}
    assert "INTERNAL_ERROR" not in holds(plan).values()
