"""The score table has a row for each shape: whoever asks for a row sees the grown table, and its memory is bounded."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest
from tests.engine.plain_objects import holds, node, planned, pod

from windlass import jit
from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import EngineCache, decide_without_explanations
from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.unstructured import Unstructured
from windlass.planner import engine_config

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


MAX_BYTES_OF_A_DECISION = 140 << 20
"""Of which the cells of the score table take 96 MiB."""


def test_three_thousand_pods_that_are_all_different_take_a_bounded_amount_of_memory() -> None:
    """What a tenant can submit in a minute: it must not end the scheduler for everybody."""
    config = msgspec.structs.replace(engine_config(Settings()), max_explained_holds=0)
    nodes = [node(f"n{number:04}") for number in range(1000)]
    pods = [pod(f"p{number}", 1, nodeSelector={"shape": str(number)}) for number in range(3000)]
    store, cache = Store(), EngineCache()
    store.apply(Put(decode_object(obj)) for obj in (*nodes, *pods))
    snapshot = store.snapshot(0)
    jit.kernels(small=False)
    tracemalloc.start()
    plan, _ = decide_without_explanations(snapshot, config, 0.0, cache)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(plan.holds) == 3000
    assert most < MAX_BYTES_OF_A_DECISION
