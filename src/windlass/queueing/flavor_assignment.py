"""The result of flavor assignment: which flavor serves which resource of which pod set, and why one can't be served.

Made by `flavor_assigner`; read by `nominator`, `cycle` and `tournament`. The values of `PreemptionMode` and
`FlavorAssignmentMode` are ordered: higher is better.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from windlass.model.queue import Fungibility
from windlass.queueing.outcome import FLAVOR_MISMATCH, QUOTA_INSUFFICIENT, QUOTA_MISCONFIGURED
from windlass.queueing.placement_interface import PodSetChoice
from windlass.queueing.quota_node import FlavorResource, Usage


class PreemptionMode(IntEnum):
    """What it takes to use a flavor."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    """Preemption is allowed, but finds no victims."""
    PREEMPT = 2
    RECLAIM = 3
    """As PREEMPT, with no victim in the workload's own queue."""
    FIT = 4


class FlavorAssignmentMode(IntEnum):
    """What it takes to admit the workload."""

    NO_FIT = 0
    PREEMPT = 1
    DEFERRED = 2
    """It fits once victims of this cycle have ended."""
    FIT = 3


class GranularMode(NamedTuple):
    """How well a flavor serves a request. `borrowing_level`: height in the tree that quota comes from; 0: own queue."""

    preemption_mode: PreemptionMode
    borrowing_level: int


BEST = GranularMode(PreemptionMode.FIT, 0)
WORST = GranularMode(PreemptionMode.NO_FIT, 1 << 30)


def is_preferred(first: GranularMode, second: GranularMode, policy: Fungibility) -> bool:
    if PreemptionMode.NO_FIT in (first.preemption_mode, second.preemption_mode):
        return first.preemption_mode != PreemptionMode.NO_FIT
    no_candidates = PreemptionMode.NO_CANDIDATES
    if (first.preemption_mode == no_candidates) != (second.preemption_mode == no_candidates):
        return second.preemption_mode == no_candidates
    gain, cost = (
        first.preemption_mode - second.preemption_mode,
        first.borrowing_level - second.borrowing_level,
    )
    if policy.preference == "PreemptionOverBorrowing":
        return (-cost, gain) > (0, 0)
    return (gain, -cost) > (0, 0)


class FlavorAssignment(NamedTuple):
    """One resource of a pod set, and the flavor that serves it."""

    flavor: str
    preemption_mode: PreemptionMode
    borrowing_level: int
    tried_flavor_index: int
    """Index of the last flavor that was tried; -1: all were."""


class PodSetFlavorAssignment:
    """Resource → flavor of one pod set. `reasons` is empty where everything fits; no flavors: it doesn't fit."""

    __slots__ = ("count", "flavors", "name", "reasons", "severity")

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count
        self.flavors: dict[str, FlavorAssignment] = {}
        self.reasons: list[str] = []
        self.severity = 0

    @property
    def mode(self) -> FlavorAssignmentMode:
        if not self.reasons:
            return FlavorAssignmentMode.FIT
        if not self.flavors:
            return FlavorAssignmentMode.NO_FIT
        return min(_mode(served.preemption_mode) for served in self.flavors.values())


def _mode(preemption_mode: PreemptionMode) -> FlavorAssignmentMode:
    if preemption_mode == PreemptionMode.FIT:
        return FlavorAssignmentMode.FIT
    return FlavorAssignmentMode.NO_FIT if preemption_mode == PreemptionMode.NO_FIT else FlavorAssignmentMode.PREEMPT


WAITING, EXCEEDS_MAXIMUM, NO_MATCH, NOT_COVERED = 1, 2, 3, 4
"""Severity of a refusal: the higher, the less waiting helps. The highest decides the code of the hold."""
_CODES = {0: QUOTA_INSUFFICIENT, WAITING: QUOTA_INSUFFICIENT, EXCEEDS_MAXIMUM: QUOTA_INSUFFICIENT}
_CODES |= {NO_MATCH: FLAVOR_MISMATCH, NOT_COVERED: QUOTA_MISCONFIGURED}


class Assignment:
    """The assignments of all pod sets of a workload, and the quota that they use."""

    __slots__ = ("borrowing_level", "mode", "placement_failed", "pod_sets", "usage")

    def __init__(self) -> None:
        self.pod_sets: list[PodSetFlavorAssignment] = []
        self.usage: Usage = {}
        self.borrowing_level = 0
        self.mode = FlavorAssignmentMode.NO_FIT
        self.placement_failed = False
        """Quota suffices, but the pods don't fit on the nodes."""

    def append(self, part: PodSetFlavorAssignment, totals: dict[str, int]) -> None:
        self.pod_sets.append(part)
        for resource, served in part.flavors.items():
            self.borrowing_level = max(self.borrowing_level, served.borrowing_level)
            amount = totals.get(resource, 0)
            if amount:
                cell = (served.flavor, resource)
                self.usage[cell] = self.usage.get(cell, 0) + amount

    def finish(self) -> Assignment:
        self.mode = min((part.mode for part in self.pod_sets), default=FlavorAssignmentMode.NO_FIT)
        return self

    @property
    def needs_preemption(self) -> frozenset[FlavorResource]:
        """Cells that preemption has to free; all of them where quota suffices and node room is missing."""
        if self.placement_failed:
            return frozenset(self.usage)
        return frozenset(
            (served.flavor, resource)
            for part in self.pod_sets
            for resource, served in part.flavors.items()
            if _mode(served.preemption_mode) == FlavorAssignmentMode.PREEMPT
        )

    @property
    def choices(self) -> tuple[PodSetChoice, ...]:
        return tuple(
            PodSetChoice(part.name, part.count, {name: served.flavor for name, served in part.flavors.items()})
            for part in self.pod_sets
        )

    @property
    def tried_flavors(self) -> tuple[dict[str, int], ...]:
        return tuple(
            {name: served.tried_flavor_index for name, served in part.flavors.items()} for part in self.pod_sets
        )

    @property
    def has_flavors_left(self) -> bool:
        return any(served.tried_flavor_index != -1 for part in self.pod_sets for served in part.flavors.values())

    @property
    def waits_for_quota(self) -> bool:
        """Whether it doesn't fit now, and would with quota that others use."""
        severities = [part.severity for part in self.pod_sets]
        is_waiting = self.mode == FlavorAssignmentMode.NO_FIT and max(severities, default=0) == WAITING
        return is_waiting or self.mode == FlavorAssignmentMode.PREEMPT

    @property
    def code(self) -> str:
        return _CODES[max((part.severity for part in self.pod_sets), default=0)]

    @property
    def message(self) -> str:
        """In Kueue's wording."""
        return "; ".join(
            f"couldn't assign flavors to pod set {part.name}: {', '.join(sorted(part.reasons))}"
            for part in self.pod_sets
            if part.reasons
        )
