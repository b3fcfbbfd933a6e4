"""Sums of the ledger's recorded series by step of time: what charts are drawn from.

`telemetry.time_view` and `telemetry.job_view` fill it. A step in which nothing was recorded has no value, not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from windlass.telemetry.activity import COMPUTING, HELD_IDLE, SPINNING
from windlass.telemetry.ledger import ALLOCATED_STATES, FREE, RESERVED, STATES, STRANDED
from windlass.telemetry.usage_history import COVERED, SLOT_SECONDS, SUM, split_name

MAX_STEPS = 288
Line = list[float | None]
Key = tuple[str, ...]
Sums = Mapping[Key, int]


class StepTable:
    """Models are added up, except those of free GPUs and of waiting work."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = slot_range(start, end)
        self.step = step_seconds(self.start, self.end)
        self.steps: list[dict[Key, int]] = [{} for _ in range(-(-(self.end - self.start) // self.step))]
        self.totals: dict[Key, int] = {}
        self._keys: dict[str, tuple[Key, ...]] = {}

    @property
    def covered(self) -> int:
        return self.totals.get((COVERED,), 0)

    def mean_milli(self, key: Key) -> float:
        return self.totals.get(key, 0) / max(1, self.covered)

    def add(self, name: str, at: int, value: int) -> None:
        step = self.steps[(at - self.start) // self.step]
        keys = self._keys.get(name)
        if keys is None:
            keys = self._keys[name] = _keys_of(name)
        for key in keys:
            step[key] = step.get(key, 0) + value
            self.totals[key] = self.totals.get(key, 0) + value

    def line(self, key: Key) -> Line:
        """Mean GPUs in every step; None where nothing was recorded."""
        return [mean_gpus(step.get(key, 0), step.get((COVERED,), 0)) for step in self.steps]

    def sum_line(self, *keys: Key) -> Line:
        return [mean_gpus(sum(step.get(key, 0) for key in keys), step.get((COVERED,), 0)) for step in self.steps]

    def ratio_line(self, parts: Callable[[Sums], tuple[int, int]]) -> Line:
        return [ratio(*parts(step)) for step in self.steps]

    @staticmethod
    def held_of_all(sums: Sums) -> tuple[int, int]:
        amounts = {state: sums.get((SUM, state), 0) for state in STATES}
        return sum(amounts[state] for state in ALLOCATED_STATES), sum(amounts.values())

    @staticmethod
    def busy(sums: Sums) -> tuple[int, int]:
        """(busy, measured) milli-GPU-seconds."""
        busy = sums.get((SUM, COMPUTING), 0) + sums.get((SUM, SPINNING), 0)
        return busy, busy + sums.get((SUM, HELD_IDLE), 0)


def slot_range(start: int, end: int) -> tuple[int, int]:
    """Whole slots that begin with the one of `start` and are as many as the range needs."""
    first = start // SLOT_SECONDS * SLOT_SECONDS
    return first, first + max(1, -(-(end - first) // SLOT_SECONDS)) * SLOT_SECONDS


def step_seconds(start: int, end: int) -> int:
    """The least whole number of slots with which the range has no more than `MAX_STEPS` steps."""
    slots = max(1, -(-(end - start) // SLOT_SECONDS))
    return -(-slots // MAX_STEPS) * SLOT_SECONDS


def _keys_of(name: str) -> tuple[Key, ...]:
    parts = tuple(split_name(name))
    if parts[0] == SUM and len(parts) == 3:
        unused = ((FREE, parts[2]),) if parts[1] in (FREE, STRANDED, RESERVED) else ()
        return ((SUM, parts[1]), *unused)
    return (parts,)


def mean_gpus(milli_seconds: int, seconds: int) -> float | None:
    return round(milli_seconds / seconds / 1000, 3) if seconds else None


def ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
