"""What can never fit: more than the nodes have even when nothing else runs.

`placement.workload_placer` asks before it places anything, so that nobody is evicted for what can't start, and the
hold can say so at once. A bound, worked out from sums: what it lets pass may still find no place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import DEV_END, DEV_FIRST, MODEL, REPLICAS, Ints, Uint64s
from windlass.model.mig import MIG_RESOURCE_PREFIX
from windlass.model.node import Node
from windlass.model.reasons import WHY_TAINT, WHY_UNSCHEDULABLE
from windlass.model.topology import HOSTNAME, level_name
from windlass.model.verdict import format_reason_counts
from windlass.placement.gang import PendingPodSet
from windlass.placement.overlay import Overlay
from windlass.placement.verdicts import reason_of

UNLIMITED = 1 << 31
TOO_LARGE = "REQUEST_EXCEEDS_CLUSTER"


TRANSIENT_REASONS = WHY_UNSCHEDULABLE | WHY_TAINT
"""Reasons that go away by themselves on a node that is cordoned or not well."""
CONDITION_TAINT_PREFIX = "node.kubernetes.io/"


class NeverFits(NamedTuple):
    """Why it can't fit."""

    code: str
    message: str


class EmptyCluster:
    """Remembers what it was asked: within one decision the answer stays the same."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._counts: dict[bytes, Ints] = {}
        self._away: Bools | None = None

    def never_fits(self, pod_sets: Sequence[PendingPodSet]) -> NeverFits | None:
        """Of parts that may be anywhere."""
        for part in pod_sets:
            most = int(self.pods_per_empty_node(part).sum())
            if part.count and not most:
                return self._no_node(part)
            if part.count > most:
                return NeverFits(
                    TOO_LARGE, f"on the empty cluster only {most} of {part.count} pods would fit"
                )
        return None

    def never_fits_topology(self, pod_sets: Sequence[PendingPodSet]) -> NeverFits | None:
        """Of parts that have to be in one domain each, or in slices that have to."""
        for part in pod_sets:
            wanted = part.topology
            if wanted is None or part.tree is None or not part.count:
                continue
            asks = [(wanted.level, part.count)] if wanted.mode == "required" else []
            asks += [(wanted.slice_level, wanted.slice_size)] if wanted.slice_level else []
            for level, pods in asks:
                most = self._most_in_one(part, part.tree.levels, level)
                if most < pods:
                    where = level_name(level)
                    return NeverFits(
                        TOO_LARGE, f"the largest {where}, empty, has room for {most} of {pods} pods"
                    )
        return None

    def _most_in_one(self, part: PendingPodSet, levels: Sequence[str], level: str) -> int:
        """Pods that the largest domain would take; a rack's name may come again in another zone."""
        counts, facts = self.pods_per_empty_node(part), self._overlay.snapshot.nodes
        if level not in levels:
            return UNLIMITED
        if level == HOSTNAME:
            return int(counts.max(initial=0))
        columns = [facts.label(one) for one in levels[: levels.index(level) + 1]]
        inside = np.logical_and.reduce([column.present for column in columns])
        codes = np.stack([column.codes for column in columns], axis=1)[inside]
        if not len(codes):
            return 0
        _, domain = np.unique(codes, axis=0, return_inverse=True)
        sums = np.zeros(len(codes), dtype=np.int64)
        np.add.at(sums, domain.reshape(-1), counts[inside])
        return int(sums.max())

    def pods_per_empty_node(self, pod_set: PendingPodSet) -> Ints:
        """By node, how many pods of the part it would take if it were empty."""
        overlay = self._overlay
        known = self._counts.get(pod_set.shape.key)
        if known is None:
            row = overlay.table.row(pod_set.shape, overlay.snapshot, pod_set.pod)
            allowed = self._may_come(overlay.table.cells.static[row])
            known = self._counts[pod_set.shape.key] = self._count(pod_set, allowed)
        return known

    def pods_per_empty_node_without_rules(self, pod_set: PendingPodSet) -> Ints:
        """The same, as if no rule kept the part off any node."""
        return self._count(pod_set, np.ones(self._overlay.snapshot.nodes.size, dtype=np.bool_))

    def _may_come(self, static: Uint64s) -> Bools:
        """Nodes that allow the pod, or would again once they are well and uncordoned."""
        if self._away is None:
            self._away = np.array(
                [_is_away(node) for node in self._overlay.snapshot.nodes.objects], dtype=np.bool_
            )
        allowed: Bools = np.where(self._away, static & ~np.uint64(TRANSIENT_REASONS) == 0, static == 0)
        return allowed

    def _count(self, part: PendingPodSet, allowed: Bools) -> Ints:
        state, snapshot = self._overlay.state, self._overlay.snapshot
        counts: Ints = np.where(allowed, UNLIMITED, 0).astype(np.int64)
        profile = part.shape.gpu is not None and bool(part.shape.gpu.profile)
        for name, amount in part.shape.requests:
            if profile and name.startswith(MIG_RESOURCE_PREFIX):
                continue  # instances are made as they are needed
            column = snapshot.resources.column(name)
            if column < state.allocatable.shape[1]:
                np.minimum(counts, state.allocatable[:, column] // max(1, amount), out=counts)
            elif amount > 0:
                counts[:] = 0
        gpu = part.shape.gpu
        if gpu is not None and not profile:
            each = max(1, gpu.count)
            slots = 1 if gpu.milli == 1000 or not gpu.milli else max(1, 1000 // gpu.milli)
            devices = self._devices(snapshot.gpu_models.mask(gpu.models))
            room = np.where(state.node_info[:, REPLICAS] > 1, UNLIMITED, devices * slots // each)
            if not gpu.milli:  # by memory: how many go on one device depends on the device
                room = np.where(devices >= each, UNLIMITED, 0)
            np.minimum(counts, room, out=counts)
        return np.maximum(counts, 0, out=counts)

    def _devices(self, models: int) -> Ints:
        """By node, GPUs of these models, healthy or not: one that is ill may be repaired."""
        state = self._overlay.state
        right = models >> np.maximum(state.device_info[:, MODEL], 0) & 1 == 1
        sums = np.concatenate([[0], np.cumsum(right.astype(np.int64))])
        found: Ints = sums[state.node_info[:, DEV_END]] - sums[state.node_info[:, DEV_FIRST]]
        return found

    def _no_node(self, part: PendingPodSet) -> NeverFits:
        overlay = self._overlay
        row = overlay.table.row(part.shape, overlay.snapshot, part.pod)
        static = overlay.table.cells.static[row]
        if not len(static) or (static == 0).any():
            return NeverFits(TOO_LARGE, "no node is large enough, even empty")
        counts = [int(np.count_nonzero(static >> np.uint64(bit) & np.uint64(1))) for bit in range(64)]
        bit = int(np.argmax(counts))
        words = format_reason_counts(
            (reason_of(part.shape, at).kube, nodes) for at, nodes in enumerate(counts) if nodes
        )
        message = f"0/{len(static)} nodes are available: {words}."
        return NeverFits(reason_of(part.shape, bit).code, message)


def _is_away(node: Node) -> bool:
    """Cordoned, or with nothing but taints that Kubernetes takes off again."""
    hard = [taint.key for taint in node.spec.taints if taint.effect != "PreferNoSchedule"]
    return (node.spec.unschedulable or bool(hard)) and all(
        key.startswith(CONDITION_TAINT_PREFIX) for key in hard
    )
