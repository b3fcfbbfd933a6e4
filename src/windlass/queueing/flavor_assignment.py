"""The answer of a search for flavors: which flavor serves which resource of which pod set, and what stands in the
way.

Made by `flavors`, read by `cycle`, `tournament` and `preemption`. The numbers of `PreemptionMode` and
`FlavorAssignmentMode` are an order: higher is better.
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
    """Preemption would be allowed, but nobody may be preempted."""
    PREEMPT = 2
    RECLAIM = 3
    """As PREEMPT, and nobody of the own queue has to go."""
    FIT = 4


class FlavorAssignmentMode(IntEnum):
    """What it takes to admit the workload."""

    NO_FIT = 0
    PREEMPT = 1
    DEFERRED = 2
    """It fits once evictions of this round are done."""
    FIT = 3


class GranularMode(NamedTuple):
    """How well a flavor serves: the possibility, and how far up the tree the quota comes from (0: the own queue)."""

    preemption_mode: PreemptionMode
    borrowing_level: int


BEST = GranularMode(PreemptionMode.FIT, 0)
WORST = GranularMode(PreemptionMode.NO_FIT, 1 << 30)


def is_preferred(one: GranularMode, other: GranularMode, policy: Fungibility) -> bool:
    if PreemptionMode.NO_FIT in (one.preemption_mode, other.preemption_mode):
        return one.preemption_mode != PreemptionMode.NO_FIT
    hopeless = PreemptionMode.NO_CANDIDATES
    if (one.preemption_mode == hopeless) != (other.preemption_mode == hopeless):
        return other.preemption_mode == hopeless
    gain, cost = one.preemption_mode - other.preemption_mode, one.borrowing_level - other.borrowing_level
    if policy.preference == "PreemptionOverBorrowing":
        return (-cost, gain) > (0, 0)
    return (gain, -cost) > (0, 0)


class FlavorAssignment(NamedTuple):
    """One resource of a pod set, and the flavor that serves it."""

    flavor: str
    preemption_mode: PreemptionMode
    borrowing_level: int
    tried_flavor_index: int
    """Place of the last flavor that was looked at; -1: all of them were."""


class PodSetFlavorAssignment:
    """The flavors of one pod set. Without any it doesn't fit; `reasons` are empty where everything fits."""

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


def _mode(possibility: PreemptionMode) -> FlavorAssignmentMode:
    if possibility == PreemptionMode.FIT:
        return FlavorAssignmentMode.FIT
    return (
        FlavorAssignmentMode.NO_FIT if possibility == PreemptionMode.NO_FIT else FlavorAssignmentMode.PREEMPT
    )


WAITING, EXCEEDS_MAXIMUM, NO_MATCH, NOT_COVERED = 1, 2, 3, 4
"""How final a refusal is."""
_CODES = {0: QUOTA_INSUFFICIENT, WAITING: QUOTA_INSUFFICIENT, EXCEEDS_MAXIMUM: QUOTA_INSUFFICIENT}
_CODES |= {NO_MATCH: FLAVOR_MISMATCH, NOT_COVERED: QUOTA_MISCONFIGURED}


class Assignment:
    """All pod sets together."""

    __slots__ = ("borrowing_level", "mode", "placement_failed", "pod_sets", "usage")

    def __init__(self) -> None:
        self.pod_sets: list[PodSetFlavorAssignment] = []
        self.usage: Usage = {}
        self.borrowing_level = 0
        self.mode = FlavorAssignmentMode.NO_FIT
        self.placement_failed = False
        """Quota would do, but the pods find no room."""

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
        """What preemption has to free; everything, where quota would do and room is lacking."""
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
            PodSetChoice(
                part.name, part.count, {name: served.flavor for name, served in part.flavors.items()}
            )
            for part in self.pod_sets
        )

    @property
    def tried_flavors(self) -> tuple[dict[str, int], ...]:
        return tuple(
            {name: served.tried_flavor_index for name, served in part.flavors.items()}
            for part in self.pod_sets
        )

    @property
    def has_flavors_left(self) -> bool:
        """The search stopped before the last flavor."""
        return any(
            served.tried_flavor_index != -1 for part in self.pod_sets for served in part.flavors.values()
        )

    @property
    def code(self) -> str:
        return _CODES[max((part.severity for part in self.pod_sets), default=0)]

    @property
    def message(self) -> str:
        """In Kueue's words."""
        return "; ".join(
            f"couldn't assign flavors to pod set {part.name}: {', '.join(sorted(part.reasons))}"
            for part in self.pod_sets
            if part.reasons
        )
