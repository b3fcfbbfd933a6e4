"""Verdicts out of the kernels' arrays, in words and numbers that people read.

`placement.place` hands over what the deciding pass counted; the verdict is only put into words when somebody reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from windlass.cluster.facts import NodeFacts
from windlass.cluster.shape import Shape
from windlass.cluster.state import Ints, Words
from windlass.model.reasons import FIRST_RESOURCE_BIT, Reason, insufficient, reason_of_bit
from windlass.model.requests import format_amount
from windlass.model.verdict import NearMiss, ReasonCount, Verdict
from windlass.placement.arrays import MAX_REQUESTS, NEAREST, Outcome


class Refusal(NamedTuple):
    """Why one shape found no node, at the moment of the decision."""

    shape: Shape
    facts: NodeFacts
    counts: Ints
    """[bit] nodes that have the reason."""
    near: Ints
    near_why: Words
    short: Ints
    free: Ints

    def verdict(self) -> Verdict:
        reasons = [
            (reason_of(self.shape, bit), int(self.counts[bit]))
            for bit in np.flatnonzero(self.counts).tolist()
        ]
        merged: dict[str, ReasonCount] = {}
        for reason, nodes in reasons:
            merged[reason.kube] = ReasonCount(reason.code, reason.kube, nodes)
        counts = tuple(sorted(merged.values(), key=lambda count: (-count.nodes, count.kube)))
        nearest = tuple(self._near_miss(place) for place in range(NEAREST) if self.near[place] >= 0)
        return Verdict(code=self._code(counts), nodes=self.facts.size, counts=counts, nearest=nearest)

    def _code(self, counts: tuple[ReasonCount, ...]) -> str:
        """What binds it: the reason of the nearest miss, since the others would not have helped anyway."""
        if self.near[0] >= 0:
            bits = bits_of(int(self.near_why[0]))
            return reason_of(self.shape, bits[-1]).code if bits else "UNKNOWN"
        return counts[0].code if counts else "NODE_UNSCHEDULABLE"

    def _near_miss(self, place: int) -> NearMiss:
        reasons = tuple(reason_of(self.shape, bit).kube for bit in bits_of(int(self.near_why[place])))
        lacks, free = {}, {}
        for j, (name, _) in enumerate(self.shape.requests):
            free[name] = format_amount(name, int(self.free[place, j]))
            if self.short[place, j]:
                lacks[name] = format_amount(name, int(self.short[place, j]))
        gpu = self.shape.gpu
        if gpu and not gpu.profile:
            what = "GPUs" if gpu.milli == 1000 else f"GPUs with {gpu.milli or 'enough'} milli free"
            free[what] = str(self.free[place, MAX_REQUESTS])
            if self.short[place, MAX_REQUESTS]:
                lacks[what] = str(self.short[place, MAX_REQUESTS])
        return NearMiss(self.facts.names[int(self.near[place])], reasons, lacks, free)


def refusal_of(shape: Shape, facts: NodeFacts, outcome: Outcome, v: int) -> Refusal:
    """Keep verdict `v` before the arrays are used again."""
    return Refusal(
        shape,
        facts,
        outcome.verdict_counts[v].copy(),
        outcome.verdict_near[v].copy(),
        outcome.verdict_near_why[v].copy(),
        outcome.verdict_short[v].copy(),
        outcome.verdict_free[v].copy(),
    )


def reason_of(shape: Shape, bit: int) -> Reason:
    if bit >= FIRST_RESOURCE_BIT:
        return insufficient(shape.requests[bit - FIRST_RESOURCE_BIT][0])
    return reason_of_bit(bit)


def bits_of(why: int) -> Sequence[int]:
    return [bit for bit in range(64) if why >> bit & 1]
