"""Cooling that gets worse: the thermal resistance of a GPU against its own past and against its peers.

Degrees alone say nothing: they follow the load and the room. Thermal resistance, (temperature − quiet temperature) /
power under load, follows paste, dust, fans and air. A GPU that drifts alone has a problem of its own; if its peers
drift with it, it is the rack's air.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from windlass.telemetry.trends.robust import Series, deviations, slope_per_hour

DAY = 86_400


class HeatRules(msgspec.Struct, frozen=True):
    load_share: float = 0.5
    """Of the power limit: below it, the quotient is noise."""
    least_samples: int = 60
    """Under load, for a day to count."""
    base_days: int = 14
    recent_days: int = 7
    least_kelvin: float = 5.0
    """At the power limit, between then and now."""
    peer_deviations: float = 3.5
    least_peers: int = 3


class HeatSample(msgspec.Struct, frozen=True, gc=False):
    at: float
    celsius: float
    watts: float


class HeatDrift(msgspec.Struct, frozen=True):
    kelvin: float
    """How much warmer it is at the same power than in its first weeks, or than its peers."""
    kind: str
    """`own` (this GPU), `rack` (its peers drift as well) or `peers` (it was always worse than they are)."""


DEFAULT_RULES = HeatRules()


def daily_resistance(samples: Sequence[HeatSample], power_limit: float, rules: HeatRules = DEFAULT_RULES) -> Series:
    """(day, kelvin per watt): the median of every day with enough samples under load.

    The quiet temperature is the 5th percentile of the day: what the GPU cools down to in that air.
    """
    days: dict[int, list[HeatSample]] = {}
    for sample in samples:
        days.setdefault(int(sample.at // DAY), []).append(sample)
    found = []
    for day, entries in sorted(days.items()):
        loaded = [entry for entry in entries if entry.watts >= rules.load_share * power_limit]
        if len(loaded) < rules.least_samples:
            continue
        quiet = sorted(entry.celsius for entry in entries)[len(entries) // 20]
        found.append((float(day * DAY), median((entry.celsius - quiet) / entry.watts for entry in loaded)))
    return found


def find_heat_drift(
    own: Series, peers: Mapping[str, Series], power_limit: float, rules: HeatRules = DEFAULT_RULES
) -> HeatDrift | None:
    """`own` and `peers` are of `daily_resistance`; peers are GPUs of the same model in the same rack."""
    change = _change(own, power_limit, rules)
    if change is None:
        return None
    changes = [found for peer in peers.values() if (found := _change(peer, power_limit, rules)) is not None]
    if change >= rules.least_kelvin and slope_per_hour(own) > 0:
        is_shared = len(changes) >= rules.least_peers and median(changes) >= rules.least_kelvin / 2
        return HeatDrift(change, "rack" if is_shared else "own")
    now = [_recent(peer, rules) * power_limit for peer in peers.values() if len(peer) >= rules.recent_days]
    if len(now) >= rules.least_peers:
        here = _recent(own, rules) * power_limit
        excess = here - median(now)
        if excess >= rules.least_kelvin and deviations(here, now, least_spread=1.0) > rules.peer_deviations:
            return HeatDrift(excess, "peers")
    return None


def _change(series: Series, power_limit: float, rules: HeatRules) -> float | None:
    """Kelvin at the power limit between the first weeks and the last days; None where there is too little of either."""
    if len(series) < rules.base_days + rules.recent_days:
        return None
    base = median(value for _, value in series[: rules.base_days])
    return (_recent(series, rules) - base) * power_limit


def _recent(series: Series, rules: HeatRules) -> float:
    return median(value for _, value in series[-rules.recent_days :])
