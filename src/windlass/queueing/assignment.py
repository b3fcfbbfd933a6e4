"""The answer of a search for flavors: which flavor serves which resource of which pod set, and what stands in the
way.

Made by `flavors`, read by `cycle`, `tournament` and `preemption`. The numbers of `Possibility` and `Mode` are an
order: higher is better.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from windlass.model.queue import Fungibility
from windlass.queueing.node import Cell, Usage
from windlass.queueing.outcome import FLAVOR_MISMATCH, QUOTA_INSUFFICIENT, QUOTA_MISCONFIGURED
from windlass.queueing.site import PodSetChoice


class Possibility(IntEnum):
    """What it takes to use a flavor."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    """Preemption would be allowed, but nobody may be preempted."""
    PREEMPT = 2
    RECLAIM = 3
    """As PREEMPT, and nobody of the own queue has to go."""
    FIT = 4


class Mode(IntEnum):
    """What it takes to admit the workload."""

    NO_FIT = 0
    PREEMPT = 1
    DEFERRED = 2
    """It fits once evictions of this round are done."""
    FIT = 3


class Fitness(NamedTuple):
    """How well a flavor serves: the possibility, and how far up the tree the quota comes from (0: the own queue)."""

    possibility: Possibility
    borrowing: int


BEST = Fitness(Possibility.FIT, 0)
WORST = Fitness(Possibility.NO_FIT, 1 << 30)


def is_preferred(one: Fitness, other: Fitness, policy: Fungibility) -> bool:
    if Possibility.NO_FIT in (one.possibility, other.possibility):
        return one.possibility != Possibility.NO_FIT
    hopeless = Possibility.NO_CANDIDATES
    if (one.possibility == hopeless) != (other.possibility == hopeless):
        return other.possibility == hopeless
    gain, cost = one.possibility - other.possibility, one.borrowing - other.borrowing
    if policy.preference == "PreemptionOverBorrowing":
        return (-cost, gain) > (0, 0)
    return (gain, -cost) > (0, 0)


class Served(NamedTuple):
    """One resource of a pod set, and the flavor that serves it."""

    flavor: str
    possibility: Possibility
    borrowing: int
    tried: int
    """Place of the last flavor that was looked at; -1: all of them were."""


class SetAssignment:
    """The flavors of one pod set. Without any it doesn't fit; `reasons` are empty where everything fits."""

    __slots__ = ("count", "name", "reasons", "served", "severity")

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count
        self.served: dict[str, Served] = {}
        self.reasons: list[str] = []
        self.severity = 0

    @property
    def mode(self) -> Mode:
        if not self.reasons:
            return Mode.FIT
        if not self.served:
            return Mode.NO_FIT
        return min(_mode(served.possibility) for served in self.served.values())


def _mode(possibility: Possibility) -> Mode:
    if possibility == Possibility.FIT:
        return Mode.FIT
    return Mode.NO_FIT if possibility == Possibility.NO_FIT else Mode.PREEMPT


WAITING, EXCEEDS_MAXIMUM, NO_MATCH, NOT_COVERED = 1, 2, 3, 4
"""How final a refusal is."""
_CODES = {0: QUOTA_INSUFFICIENT, WAITING: QUOTA_INSUFFICIENT, EXCEEDS_MAXIMUM: QUOTA_INSUFFICIENT}
_CODES |= {NO_MATCH: FLAVOR_MISMATCH, NOT_COVERED: QUOTA_MISCONFIGURED}


class Assignment:
    """All pod sets together."""

    __slots__ = ("borrowing", "mode", "placement_failed", "sets", "usage")

    def __init__(self) -> None:
        self.sets: list[SetAssignment] = []
        self.usage: Usage = {}
        self.borrowing = 0
        self.mode = Mode.NO_FIT
        self.placement_failed = False
        """Quota would do, but the pods find no room."""

    def append(self, part: SetAssignment, totals: dict[str, int]) -> None:
        self.sets.append(part)
        for resource, served in part.served.items():
            self.borrowing = max(self.borrowing, served.borrowing)
            amount = totals.get(resource, 0)
            if amount:
                cell = (served.flavor, resource)
                self.usage[cell] = self.usage.get(cell, 0) + amount

    def close(self) -> Assignment:
        self.mode = min((part.mode for part in self.sets), default=Mode.NO_FIT)
        return self

    @property
    def contested(self) -> frozenset[Cell]:
        """What preemption has to free; everything, where quota would do and room is lacking."""
        if self.placement_failed:
            return frozenset(self.usage)
        return frozenset(
            (served.flavor, resource)
            for part in self.sets
            for resource, served in part.served.items()
            if _mode(served.possibility) == Mode.PREEMPT
        )

    @property
    def choices(self) -> tuple[PodSetChoice, ...]:
        return tuple(
            PodSetChoice(part.name, part.count, {name: served.flavor for name, served in part.served.items()})
            for part in self.sets
        )

    @property
    def tried(self) -> tuple[dict[str, int], ...]:
        return tuple({name: served.tried for name, served in part.served.items()} for part in self.sets)

    @property
    def has_flavors_left(self) -> bool:
        """The search stopped before the last flavor."""
        return any(served.tried != -1 for part in self.sets for served in part.served.values())

    @property
    def code(self) -> str:
        return _CODES[max((part.severity for part in self.sets), default=0)]

    @property
    def message(self) -> str:
        """In Kueue's words."""
        return "; ".join(
            f"couldn't assign flavors to pod set {part.name}: {', '.join(sorted(part.reasons))}"
            for part in self.sets
            if part.reasons
        )
