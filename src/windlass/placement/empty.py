"""What can never fit: more than the nodes have even when nothing else runs.

`placement.site` asks before it places anything, so that nobody is evicted for what can't start, and the hold can say so
at once. A bound, worked out from sums: what it lets pass may still find no place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from windlass.cluster.facts import Bools
from windlass.cluster.state import DEV_END, DEV_FIRST, HEALTHY, MODEL, REPLICAS, Ints
from windlass.model.mig import MIG_RESOURCE_PREFIX
from windlass.model.topology import level_name
from windlass.placement.gang import Part
from windlass.placement.overlay import Overlay
from windlass.placement.topology import DomainTree
from windlass.placement.verdicts import reason_of

PLENTY = 1 << 31
TOO_LARGE = "REQUEST_EXCEEDS_CLUSTER"


class Never(NamedTuple):
    """Why it can't fit."""

    code: str
    message: str


class EmptyCluster:
    """Remembers what it was asked: within one decision the answer stays the same."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._counts: dict[bytes, Ints] = {}

    def never_fits(self, parts: Sequence[Part]) -> Never | None:
        """Of parts that may be anywhere."""
        for part in parts:
            counts = self.counts(part)
            most = int(counts.sum())
            if part.count and not most:
                return self._no_node(part)
            if part.count > most:
                pods = "pod" if part.count == 1 else "pods"
                return Never(TOO_LARGE, f"on the empty cluster only {most} of {part.count} {pods} would fit")
        return None

    def never_fits_close(self, parts: Sequence[Part], tree: DomainTree) -> Never | None:
        """Of parts that have to be in one domain each, or in slices that have to."""
        for part in parts:
            wanted = part.topology
            if wanted is None or not part.count:
                continue
            asks = [(wanted.level, part.count)] if wanted.mode == "required" else []
            asks += [(wanted.slice_level, wanted.slice_size)] if wanted.slice_level else []
            for level, pods in asks:
                domains = tree.domains(level, self._overlay.snapshot.facts.size)
                most = max((int(self.counts(part)[domain].sum()) for domain in domains), default=0)
                if most < pods:
                    where = level_name(level)
                    return Never(TOO_LARGE, f"the largest {where}, empty, has room for {most} of {pods} pods")
        return None

    def counts(self, part: Part) -> Ints:
        """By node, how many pods of the part it would take if it were empty."""
        overlay = self._overlay
        row = overlay.table.row(part.shape, overlay.snapshot, part.pod)
        known = self._counts.get(part.shape.key)
        if known is None:
            known = self._counts[part.shape.key] = self._count(part, overlay.table.cells.static[row] == 0)
        return known

    def _count(self, part: Part, allowed: Bools) -> Ints:
        state, snapshot = self._overlay.state, self._overlay.snapshot
        counts: Ints = np.where(allowed, PLENTY, 0).astype(np.int64)
        profile = part.shape.gpu is not None and bool(part.shape.gpu.profile)
        for name, amount in part.shape.requests:
            if profile and name.startswith(MIG_RESOURCE_PREFIX):
                continue  # instances are made as they are needed
            column = snapshot.resources.column(name)
            if column < state.total.shape[1]:
                np.minimum(counts, state.total[:, column] // max(1, amount), out=counts)
            elif amount > 0:
                counts[:] = 0
        gpu = part.shape.gpu
        if gpu is not None and not profile:
            each = max(1, gpu.count)
            slots = 1 if gpu.milli == 1000 or not gpu.milli else max(1, 1000 // gpu.milli)
            devices = self._devices(snapshot.models.mask(gpu.models))
            room = np.where(state.node[:, REPLICAS] > 1, PLENTY, devices * slots // each)
            if not gpu.milli:  # by memory: how many go on one device depends on the device
                room = np.where(devices >= each, PLENTY, 0)
            np.minimum(counts, room, out=counts)
        return np.maximum(counts, 0, out=counts)

    def _devices(self, models: int) -> Ints:
        """By node, GPUs of these models, healthy or not: one that is ill may be repaired."""
        state = self._overlay.state
        right = (models >> np.maximum(state.device[:, MODEL], 0) & 1 == 1) & (state.device[:, HEALTHY] >= 0)
        sums = np.concatenate([[0], np.cumsum(right.astype(np.int64))])
        found: Ints = sums[state.node[:, DEV_END]] - sums[state.node[:, DEV_FIRST]]
        return found

    def _no_node(self, part: Part) -> Never:
        overlay = self._overlay
        row = overlay.table.row(part.shape, overlay.snapshot, part.pod)
        static = overlay.table.cells.static[row]
        if not len(static) or (static == 0).any():
            return Never(TOO_LARGE, "no node is large enough, even empty")
        counts = [int(np.count_nonzero(static >> np.uint64(bit) & np.uint64(1))) for bit in range(64)]
        bit = int(np.argmax(counts))
        words = [f"{nodes} {reason_of(part.shape, at).kube}" for at, nodes in enumerate(counts) if nodes]
        message = f"0/{len(static)} nodes are available: {', '.join(sorted(words))}."
        return Never(reason_of(part.shape, bit).code, message)
