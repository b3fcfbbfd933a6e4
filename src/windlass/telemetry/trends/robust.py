"""Statistics that a few wrong values don't move: medians, Theil–Sen, spread by the median deviation.

Used by all detectors. Series are (time in seconds, value), in order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import combinations
from operator import itemgetter
from statistics import median

Series = Sequence[tuple[float, float]]
_NORMAL = 1.4826
"""The standard deviation of a normal distribution in units of its median deviation."""


def slope_per_hour(series: Series) -> float:
    """Theil–Sen: the median of the slopes between all pairs; 0 where there is no pair."""
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(series, 2) if b[0] != a[0]]
    return median(slopes) * 3600 if slopes else 0.0


def window_minima(series: Series, seconds: int, end: float, count: int) -> list[tuple[float, float]] | None:
    """The minimum of each of the last `count` windows before `end`; None where one of them has no value."""
    start = end - seconds * count
    minima: list[float | None] = [None] * count
    for place in range(bisect_left(series, start, key=itemgetter(0)), len(series)):
        at, value = series[place]
        if at >= end:
            break
        window = int((at - start) // seconds)
        known = minima[window]
        minima[window] = value if known is None else min(known, value)
    found = [(start + place * seconds, value) for place, value in enumerate(minima) if value is not None]
    return found if len(found) == count else None


def deviations(value: float, others: Sequence[float], least_spread: float = 0.0) -> float:
    """How far from the median of the others, in their own (robust) standard deviations."""
    middle = median(others)
    spread = _NORMAL * median(abs(other - middle) for other in others)
    return (value - middle) / max(spread, least_spread, 1e-12)
