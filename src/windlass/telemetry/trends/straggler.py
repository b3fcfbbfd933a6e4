"""The slow GPU of a gang: all others wait for it in every collective.

It is the one that is busier than the rest, or as busy, while its clock or its power is lower. One window says little,
so that it has to be the same GPU in most of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec


class StragglerRules(msgspec.Struct, frozen=True):
    least_gpus: int = 4
    least_windows: int = 6
    window_share: float = 0.75
    clock_share: float = 0.92
    """Of the median clock: less is slow."""
    power_share: float = 0.85
    least_busy: float = 50.0
    """Percent, of the gang's median: an idle gang has no stragglers."""


class GpuWindow(msgspec.Struct, frozen=True, gc=False):
    """Means of one GPU over one window of some minutes."""

    busy_percent: float
    clock_mhz: float
    power_watts: float


class Straggler(msgspec.Struct, frozen=True):
    gpu: str
    windows: int
    clock_share: float
    """Of the others' median."""
    power_share: float


DEFAULT_RULES = StragglerRules()


def find_straggler(
    windows: Sequence[Mapping[str, GpuWindow]], rules: StragglerRules = DEFAULT_RULES
) -> Straggler | None:
    """`windows`: GPU → what it did, one after the other; GPUs that were not measured are left out."""
    usable = [window for window in windows if len(window) >= rules.least_gpus and _is_working(window, rules)]
    if len(usable) < rules.least_windows:
        return None
    slow = Counter(gpu for window in usable for gpu in window if _is_slow(gpu, window, rules))
    if not slow:
        return None
    gpu, count = max(slow.items(), key=lambda item: (item[1], item[0]))
    if count < rules.window_share * len(usable):
        return None
    shares = [_shares(gpu, window) for window in usable if gpu in window]
    return Straggler(gpu, count, median(share[0] for share in shares), median(share[1] for share in shares))


def _is_working(window: Mapping[str, GpuWindow], rules: StragglerRules) -> bool:
    return median(found.busy_percent for found in window.values()) >= rules.least_busy


def _is_slow(gpu: str, window: Mapping[str, GpuWindow], rules: StragglerRules) -> bool:
    clock, power = _shares(gpu, window)
    others = [found.busy_percent for name, found in window.items() if name != gpu]
    is_busy = window[gpu].busy_percent >= median(others) - 2.0
    return is_busy and (clock <= rules.clock_share or power <= rules.power_share)


def _shares(gpu: str, window: Mapping[str, GpuWindow]) -> tuple[float, float]:
    clock = median(found.clock_mhz for name, found in window.items() if name != gpu)
    power = median(found.power_watts for name, found in window.items() if name != gpu)
    return window[gpu].clock_mhz / max(clock, 1.0), window[gpu].power_watts / max(power, 1.0)
