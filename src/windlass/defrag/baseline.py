"""The cluster before any move: what runs, what starts anyway, and what still waits.

`defrag.planner` builds it from objects, takes overlays to search on from it, and asks it whether moves help.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from windlass import jit
from windlass.cluster.delta import Put
from windlass.cluster.shape import make_shape
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.store import Store
from windlass.cluster.workloads import group_workloads, grouping_inputs
from windlass.engine import MAX_INTERPRETED_CELLS, EngineCache, EngineConfig, decide
from windlass.model.decision import device_indices
from windlass.model.defrag import Move
from windlass.model.disruption import PodDisruptionBudget
from windlass.model.names.windlass import ALLOCATED_DEVICES_ANNOTATION, DEVICES_ANNOTATION
from windlass.model.plan import Plan
from windlass.model.pod import Pod
from windlass.model.workload import Workload
from windlass.placement.overlay import Overlay
from windlass.placement.policies import make_scoring_rule
from windlass.placement.workload_mix import WorkloadMix
from windlass.placement.workload_pieces import is_above_minimum, pieces_to_decide, workload_key
from windlass.placement.workload_placer import WorkloadPlacer


class DefragBaseline:
    def __init__(self, objects: Sequence[object], config: EngineConfig, now: int) -> None:
        self._objects, self.config, self._now = objects, config, now
        self.snapshot = _snapshot(objects, now)
        self.workloads = self.snapshot.workloads or group_workloads(grouping_inputs(objects, now)).workloads
        self.pieces = pieces_to_decide(self.snapshot.queue_system, self.workloads)
        self.budgets = [object_ for object_ in objects if isinstance(object_, PodDisruptionBudget)]
        self.plan_before = decide(self.snapshot, config, now)
        pods = self.snapshot.pods
        self._bound = {pods.objects[row].key for row in np.flatnonzero((pods.alive == 1) & (pods.node != -1)).tolist()}
        self.started = self.started_by(self.plan_before)

    # Waiting pieces

    def waiting(self) -> list[Workload]:
        """Pieces that neither run nor start now without an eviction, in order."""
        found = [
            piece
            for piece in self.pieces
            if piece.key not in self.started and not self._runs(piece) and piece.active and not piece.hold
        ]
        return sorted(
            found,
            key=lambda piece: (is_above_minimum(piece.key), -piece.priority, piece.queued_at, piece.key),
        )

    def started_by(self, plan: Plan) -> frozenset[str]:
        """Pieces that this plan starts without an eviction."""
        binds = {bind.pod for bind in plan.binds if not bind.after}
        admits = {admit.workload for admit in plan.admits if not admit.after}
        return frozenset(
            piece.key for piece in self.pieces if not self._runs(piece) and self._starts(piece, binds, admits)
        )

    def _runs(self, piece: Workload) -> bool:
        keys = [key for pod_set in piece.pod_sets for key in pod_set.pod_keys]
        if not keys:
            return piece.admission is not None
        return all(key in self._bound for key in keys)

    def _starts(self, piece: Workload, binds: set[str], admits: set[str]) -> bool:
        keys = [key for pod_set in piece.pod_sets for key in pod_set.pod_keys]
        if not keys:
            return workload_key(piece.key) in admits
        return all(key in binds or key in self._bound for key in keys)

    # Overlays

    def overlay(self) -> tuple[Overlay, WorkloadPlacer]:
        """A new overlay with everything that runs or starts anyway."""
        snapshot, config = self.snapshot, self.config
        table = EngineCache().score_table(snapshot, config, config.expected_mix or WorkloadMix())
        small = snapshot.nodes.size * max(1, len(snapshot.shapes)) <= MAX_INTERPRETED_CELLS
        overlay = Overlay(snapshot, table, make_scoring_rule(config.placement, snapshot.node_state), jit.kernels(small))
        placer = WorkloadPlacer(
            overlay,
            snapshot.queue_system,
            self.pieces,
            config.gangs.resources,
            topology_levels=config.gangs.topology_levels,
        )
        self._assume_starting(overlay)
        return overlay, placer

    def _assume_starting(self, overlay: Overlay) -> None:
        snapshot = self.snapshot
        rows, index = overlay.pod_rows(), snapshot.nodes.index
        for bind in self.plan_before.binds:
            if not bind.after:
                shape = snapshot.shapes[int(snapshot.pods.shape[rows[bind.pod]])]
                table_row = overlay.table.row(shape, snapshot)
                overlay.assume_unchecked(snapshot.pods.objects[rows[bind.pod]], table_row, index[bind.node])
        by_key = {workload.key: workload for workload in self.workloads}
        for admit in self.plan_before.admits:
            if admit.after or admit.workload not in by_key:
                continue
            for pod_set in by_key[admit.workload].pod_sets:
                for part in admit.pod_sets if not pod_set.pod_keys else ():
                    if part.name == pod_set.name:
                        _assume_on_nodes(overlay, pod_set.template, part.nodes)

    # Confirmation

    def plan_after(self, moves: Sequence[Move]) -> Plan:
        """What the engine decides after these moves."""
        return decide(_snapshot(objects_after_moves(self._objects, moves), self._now), self.config, self._now)

    def is_improvement(self, plan: Plan, piece: Workload, already_started: frozenset[str]) -> bool:
        """Whether the piece starts, everything started before still does, and no further pod is evicted."""
        started = self.started_by(plan)
        evicted = {pod for evict in self.plan_before.evicts for pod in evict.pods}
        return (
            piece.key in started
            and already_started <= started
            and all(pod in evicted for evict in plan.evicts for pod in evict.pods)
        )


def objects_after_moves(objects: Sequence[object], moves: Sequence[Move]) -> list[object]:
    """The objects after the moves."""
    last: Mapping[str, Move] = {move.pod: move for move in moves}
    return [
        _moved(object_, last[object_.key]) if isinstance(object_, Pod) and object_.key in last else object_
        for object_ in objects
    ]


def _moved(pod: Pod, move: Move) -> Pod:
    annotations = {key: text for key, text in pod.metadata.annotations.items() if key != ALLOCATED_DEVICES_ANNOTATION}
    if move.devices:
        annotations[DEVICES_ANNOTATION] = device_indices(move.devices)
    replace = msgspec.structs.replace
    return replace(
        pod,
        metadata=replace(pod.metadata, annotations=annotations),
        spec=replace(pod.spec, node_name=move.to_node),
    )


def _snapshot(objects: Sequence[object], now: int) -> Snapshot:
    store = Store()
    store.apply(Put(object_) for object_ in objects)
    return store.snapshot(now)


def _assume_on_nodes(overlay: Overlay, pod: Pod, nodes: Mapping[str, int]) -> None:
    row = overlay.table.row(make_shape(pod), overlay.snapshot)
    for name, count in nodes.items():
        for _ in range(count):
            overlay.assume_unchecked(pod, row, overlay.snapshot.nodes.index[name])
