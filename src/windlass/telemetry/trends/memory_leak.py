"""Memory that grows and is never given back.

Looked at is the lower envelope: the least that was in use in each half hour. Caching allocators keep what they took, so
that their curve is a record of peaks which flattens; a leak goes on. Services follow the day and are compared with the
same hours of the days before. Decision 0043 has the rates of false alarms beside those of `predict_linear`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import msgspec

from windlass.telemetry.trends.robust import Series, slope_per_hour, window_minima

HOUR, DAY = 3600, 86_400


class LeakRules(msgspec.Struct, frozen=True):
    window_seconds: int = 1800
    windows: int = 8
    rising_share: float = 0.85
    """Of the steps from window to window."""
    most_fall: float = 0.01
    """Of the memory: no step may fall by more."""
    least_growth: float = 0.01
    """Of the memory, over all windows."""
    horizon_hours: float = 168.0
    """Out of memory within this time, at the slope found."""
    most_step: float = 2.5
    """Of the median step."""
    steady_share: float = 0.6
    """The slope of the second half has to be at least this part of the whole one's."""
    quick_seconds: int = 1200
    quick_used: float = 0.6
    quick_horizon_hours: float = 1.0
    service_hours: int = 6
    service_days: int = 2


class Leak(msgspec.Struct, frozen=True):
    mib_per_hour: float
    used_mib: float
    full_at: float
    """When the memory is full, if it goes on, in seconds since 1970."""
    rule: str
    """`envelope`, `quick` or `service`."""


DEFAULT_RULES = LeakRules()


def find_leak(series: Series, total_mib: float, now: float, rules: LeakRules = DEFAULT_RULES) -> Leak | None:
    """Of a job: samples of the memory in use since it started, up to `now`."""
    return _quick(series, total_mib, now, rules) or _envelope(series, total_mib, now, rules)


def find_service_leak(series: Series, total_mib: float, now: float, rules: LeakRules = DEFAULT_RULES) -> Leak | None:
    """Of a service, whose memory follows the day: hours in a row that need more than the same hours a day before, on
    several days."""
    hours, days = rules.service_hours, rules.service_days
    minima = window_minima(series, HOUR, now // HOUR * HOUR, 24 * days + hours)
    if minima is None:
        return None
    values = [value for _, value in minima]
    for day in range(days):
        last = len(values) - 24 * day
        recent, before = values[last - hours : last], values[last - hours - 24 : last - 24]
        if any(now_used - then < rules.least_growth * total_mib for now_used, then in zip(recent, before, strict=True)):
            return None
    slope = (sum(values[-hours:]) - sum(values[-hours - 24 : -24])) / hours / 24
    return _leak(slope, values[-1], total_mib, now, "service")


def _envelope(series: Series, total_mib: float, now: float, rules: LeakRules) -> Leak | None:
    minima = window_minima(series, rules.window_seconds, now, rules.windows)
    if minima is None:
        return None
    steps = [after[1] - before[1] for before, after in pairwise(minima)]
    if sum(step > 0 for step in steps) < rules.rising_share * len(steps):
        return None
    if min(steps) < -rules.most_fall * total_mib or minima[-1][1] - minima[0][1] < rules.least_growth * total_mib:
        return None
    slope = slope_per_hour(minima)
    late = slope_per_hour(minima[len(minima) // 2 :])
    if slope <= 0 or late < rules.steady_share * slope or not _is_steady(steps, rules):
        return None
    if (total_mib - minima[-1][1]) / slope > rules.horizon_hours:
        return None
    return _leak(slope, minima[-1][1], total_mib, now, "envelope")


def _is_steady(steps: Sequence[float], rules: LeakRules) -> bool:
    """A leak grows by about the same in every window. Records of peaks, a larger batch or a new model jump."""
    usual = median(steps)
    return max(steps) <= rules.most_step * usual


def _quick(series: Series, total_mib: float, now: float, rules: LeakRules) -> Leak | None:
    """Fast growth that is out of memory within the hour: minutes count."""
    parts = 4
    minima = window_minima(series, rules.quick_seconds // parts, now, parts)
    if minima is None or minima[-1][1] < rules.quick_used * total_mib:
        return None
    steps = [after[1] - before[1] for before, after in pairwise(minima)]
    if min(steps) <= 0 or max(steps) > 2 * min(steps):
        return None
    slope = slope_per_hour(minima)
    if (total_mib - minima[-1][1]) / slope > rules.quick_horizon_hours:
        return None
    return _leak(slope, minima[-1][1], total_mib, now, "quick")


def _leak(slope: float, used: float, total: float, now: float, rule: str) -> Leak:
    return Leak(slope, used, now + max(0.0, total - used) / slope * HOUR, rule)
