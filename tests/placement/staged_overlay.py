"""An overlay of some objects, and rows of its score table, to test what works on overlays without the engine."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from windlass import jit
from windlass.cluster.delta import Put
from windlass.cluster.shape import Shape, make_shape
from windlass.cluster.store import Store
from windlass.model.pod import Pod
from windlass.placement.gang import PendingPodSet
from windlass.placement.overlay import Overlay
from windlass.placement.policies import SCORERS, PlacementConfig, make_scoring_rule
from windlass.placement.score_table import ScoreTable
from windlass.placement.scorer_selector import ScorerSelector
from windlass.placement.workload_mix import WorkloadMix, mix_arrays


def overlay_on(*objects: Any, now: int = 0, **changes: Any) -> Overlay:
    """`changes`: fields of the snapshot that are set by hand."""
    store = Store()
    store.apply([Put(object_) for object_ in objects])
    snapshot = msgspec.structs.replace(store.snapshot(now), **changes)
    mix = mix_arrays(WorkloadMix(), snapshot.gpu_models, snapshot.node_state)
    table = ScoreTable(snapshot, mix, ScorerSelector(SCORERS["windlass"]))
    with np.errstate(over="ignore"):
        rule = make_scoring_rule(PlacementConfig("windlass"), snapshot.node_state)
        return Overlay(snapshot, table, rule, jit.kernels(small=True))


def shape_and_row(overlay: Overlay, pod: Pod) -> tuple[Shape, int]:
    shape = make_shape(pod)
    return shape, overlay.table.row(shape, overlay.snapshot, pod)


def pending(overlay: Overlay, pod: Pod, count: int = 1, name: str = "main") -> PendingPodSet:
    return PendingPodSet(name, count, pod, shape_and_row(overlay, pod)[0])
