"""An overlay on a few objects, by interpreted kernels, and the rows of its pods by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reference.park import Desk
from windlass import jit
from windlass.cluster.snapshot import Snapshot
from windlass.model.configuration import WorkloadClass
from windlass.model.pod import Pod
from windlass.placement.overlay import Overlay
from windlass.placement.policies import SCORERS, PlacementConfig, make_scoring_rule
from windlass.placement.score_table import ScoreTable
from windlass.placement.scorer_selector import ScorerSelector
from windlass.placement.workload_mix import WorkloadMix, mix_arrays


def snapshot_of(*objects: object) -> Snapshot:
    return Desk(*objects).store.snapshot()


def table_of(snapshot: Snapshot, policy: str = "pack", classes: Sequence[WorkloadClass] = ()) -> ScoreTable:
    mix = mix_arrays(WorkloadMix(), snapshot.gpu_models, snapshot.node_state)
    return ScoreTable(snapshot, mix, ScorerSelector(SCORERS[policy], classes))


def overlay_on(
    snapshot: Snapshot, policy: str = "pack", seed: int = 0, classes: Sequence[WorkloadClass] = ()
) -> Overlay:
    rule = make_scoring_rule(PlacementConfig(policy, seed), snapshot.node_state)
    with np.errstate(over="ignore"):
        return Overlay(snapshot, table_of(snapshot, policy, classes), rule, jit.interpreted())


def pod_row(snapshot: Snapshot, name: str) -> int:
    (found,) = [row for row in range(len(snapshot.pods.marks)) if snapshot.pods.objects[row].metadata.name == name]
    return found


def pod_of(overlay: Overlay, name: str) -> Pod:
    return overlay.snapshot.pods.objects[pod_row(overlay.snapshot, name)]


def table_row(overlay: Overlay, name: str) -> int:
    """The pod's row of the score table."""
    snapshot = overlay.snapshot
    return overlay.table.row(snapshot.shapes[int(snapshot.pods.shape[pod_row(snapshot, name)])], snapshot)
