"""Counters of errors (PCIe replays, NVLink CRC, corrected ECC) that grow faster than those of the fleet.

A total says nothing, and neither does one corrected error: what counts is a rate that has changed. CUSUM adds up how
much more there was in each hour than is usual, and forgets it again while there is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import msgspec

from windlass.telemetry.trends.robust import Series

HOUR = 3600


class GrowthRules(msgspec.Struct, frozen=True):
    factor: float = 10.0
    """How many times the usual rate is to be found."""
    least_rate: float = 0.1
    """Errors an hour that are usual at least: of a fleet that never had any, nothing is known."""
    threshold: float = 8.0
    """In errors beyond the usual; higher is later and quieter."""


class Growth(msgspec.Struct, frozen=True):
    since: float
    """Since when the rate is raised, in seconds since 1970."""
    per_hour: float
    usual_per_hour: float


DEFAULT_RULES = GrowthRules()


def hourly_increments(counter: Series) -> Series:
    """(hour, increase). A counter that goes back was reset, by a new driver or a reboot: it begins at 0 again."""
    found: dict[int, float] = {}
    previous: float | None = None
    for at, value in counter:
        if previous is not None:
            hour = int(at // HOUR) * HOUR
            found[hour] = found.get(hour, 0.0) + (value - previous if value >= previous else value)
        previous = value
    return [(float(hour), value) for hour, value in sorted(found.items())]


def find_growth(increments: Series, usual_per_hour: float, rules: GrowthRules = DEFAULT_RULES) -> Growth | None:
    """`usual_per_hour` is the median rate of the other GPUs of that model."""
    usual = max(usual_per_hour, rules.least_rate)
    raised = rules.factor * usual
    allowance = (raised - usual) / (log(raised) - log(usual))  # the best split between two Poisson rates
    total, since = 0.0, 0.0
    for place, (at, count) in enumerate(increments):
        if not total:
            since = at
        total = max(0.0, total + count - allowance)
        if total > rules.threshold:
            rest = [value for hour, value in increments[: place + 1] if hour >= since]
            return Growth(since, _mean(rest), usual_per_hour)
    return None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
