"""Makes verdicts, with names and formatted amounts, from the arrays that the kernels have counted.

`placement.single_pod_placer` and `placement.overlay` keep the arrays as `NoNodeFound`; the text is made only when
a verdict is read, since most are never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from windlass.cluster.node_columns import NodeColumns
from windlass.cluster.node_state import Ints, Uint64s
from windlass.cluster.shape import Shape
from windlass.model.names.nvidia import MIG_RESOURCE_PREFIX
from windlass.model.reasons import FIRST_RESOURCE_BIT, Reason, insufficient_reason, reason_of_bit
from windlass.model.requests import format_amount
from windlass.model.verdict import NearMiss, ReasonCount, Verdict
from windlass.placement.kernel_arrays import MAX_REQUESTS, NEAREST_NODES, PlacementArrays
from windlass.queueing.placement_interface import HoldMessage


class VerdictArrays(NamedTuple):
    """Copies of the kernels' verdict arrays (`kernel_arrays.PlacementArrays`), one row a verdict."""

    counts: Ints
    near: Ints
    near_why: Uint64s
    short: Ints
    free: Ints

    @staticmethod
    def copy_from(outcome: PlacementArrays, verdicts: int) -> VerdictArrays:
        return VerdictArrays(
            outcome.verdict_counts[:verdicts].copy(),
            outcome.verdict_near[:verdicts].copy(),
            outcome.verdict_near_why[:verdicts].copy(),
            outcome.verdict_short[:verdicts].copy(),
            outcome.verdict_free[:verdicts].copy(),
        )


class NoNodeFound(msgspec.Struct, frozen=True, eq=False):
    """Why one shape found no node, at the moment of the decision."""

    shape: Shape
    nodes: NodeColumns
    arrays: VerdictArrays
    row: int
    """Row of the arrays."""

    def verdict(self) -> Verdict:
        merged: dict[str, ReasonCount] = {}
        for reason, nodes in self._reason_counts():
            merged[reason.kube_words] = ReasonCount(reason.code, reason.kube_words, nodes)
        counts = tuple(sorted(merged.values(), key=lambda count: (-count.nodes, count.kube)))
        nearest = tuple(
            self._near_miss(place) for place in range(NEAREST_NODES) if self.arrays.near[self.row, place] >= 0
        )
        return Verdict(code=self.code, nodes=self.nodes.size, counts=counts, nearest=nearest)

    def _reason_counts(self) -> list[tuple[Reason, int]]:
        counted = self.arrays.counts[self.row]
        return [(reason_of(self.shape, bit), int(counted[bit])) for bit in np.flatnonzero(counted).tolist()]

    @property
    def code(self) -> str:
        """The first reason of the nearest miss (devices come before resources: too few advertised GPUs follow from
        unhealthy ones), else the most frequent reason."""
        if self.arrays.near[self.row, 0] >= 0:
            bits = bits_of(int(self.arrays.near_why[self.row, 0]))
            return reason_of(self.shape, bits[0]).code if bits else "UNKNOWN"
        counts = sorted(self._reason_counts(), key=lambda entry: (-entry[1], entry[0].kube_words))
        return counts[0][0].code if counts else "NODE_UNSCHEDULABLE"

    def _near_miss(self, place: int) -> NearMiss:
        arrays = self.arrays
        why = int(arrays.near_why[self.row, place])
        reasons = tuple(reason_of(self.shape, bit).kube_words for bit in bits_of(why))
        short, left = arrays.short[self.row, place], arrays.free[self.row, place]
        lacks, free = {}, {}
        gpu = self.shape.gpu
        for j, (name, asked) in enumerate(self.shape.requests):
            available, missing = int(left[j]), int(short[j])
            if gpu and gpu.profile and name.startswith(MIG_RESOURCE_PREFIX):
                # Where instances are created on demand none are advertised, so that those in use make a negative rest.
                available, missing = max(0, available), min(asked, missing)
            free[name] = format_amount(name, available)
            if missing:
                lacks[name] = format_amount(name, missing)
        if gpu and not gpu.profile:
            what = "GPUs" if gpu.milli == 1000 else f"GPUs with {gpu.milli or 'enough'} milli free"
            free[what] = str(left[MAX_REQUESTS])
            if short[MAX_REQUESTS]:
                lacks[what] = str(short[MAX_REQUESTS])
        return NearMiss(self.nodes.names[int(arrays.near[self.row, place])], reasons, lacks, free)


def make_verdict(code: str, message: HoldMessage, nodes: int, remedy: str = "") -> Verdict:
    """The verdict of a hold: from the text of the stage that held it, or from counts by node."""
    if isinstance(message, str):
        return Verdict(code, nodes, detail=message, remedy=remedy)
    return message.verdict()


def reason_of(shape: Shape, bit: int) -> Reason:
    if bit >= FIRST_RESOURCE_BIT:
        return insufficient_reason(shape.requests[bit - FIRST_RESOURCE_BIT][0])
    return reason_of_bit(bit)


def bits_of(why: int) -> Sequence[int]:
    return [bit for bit in range(64) if why >> bit & 1]
