"""Made curves: what memory, heat, clocks and errors of GPUs look like when all is well, and when it is not."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sin
from random import Random

TOTAL_MIB = 81_559
STEP = 30
HOURS = 12
DAY = 86_400
Curve = list[tuple[float, float]]


def _sampled(rng: Random, value: Callable[[float], float], hours: float = HOURS, step: int = STEP) -> Curve:
    """Whole MiB, with the little noise that contexts of other processes make."""
    times = range(0, round(hours * 3600), step)
    return [(float(at), float(round(max(0.0, min(value(at / 3600) + rng.gauss(0, 4), TOTAL_MIB))))) for at in times]


def plateau(rng: Random) -> Curve:
    """Fills up in steps in its first two hours, and stays."""
    base, steps = rng.uniform(5_000, 40_000), sorted(rng.uniform(0, 2) for _ in range(rng.randint(2, 8)))
    sizes = [rng.uniform(100, 4_000) for _ in steps]
    return _sampled(rng, lambda hour: base + sum(size for at, size in zip(steps, sizes, strict=True) if hour >= at))


def caching_allocator(rng: Random) -> Curve:
    """Keeps what its largest step so far has needed: a record of random peaks."""
    base, scale = rng.uniform(10_000, 40_000), rng.uniform(500, 5_000)
    held, peak = [], 0.0
    for _ in range(HOURS * 3600 // STEP):
        peak = max(peak, rng.expovariate(1 / scale) if rng.random() < 0.05 else 0.0)
        held.append(base + peak)
    return _sampled(rng, lambda hour: held[min(len(held) - 1, round(hour * 3600 / STEP))])


def evaluations(rng: Random) -> Curve:
    """Training with an evaluation now and then, which needs more."""
    base, more = rng.uniform(20_000, 50_000), rng.uniform(2_000, 20_000)
    period, length = rng.uniform(0.4, 3), rng.uniform(0.05, 0.3)
    return _sampled(rng, lambda hour: base + (more if hour % period < length else 0.0))


def epochs(rng: Random) -> Curve:
    """Grows within an epoch, and gives it back at its end."""
    base, more, period = rng.uniform(10_000, 40_000), rng.uniform(1_000, 20_000), rng.uniform(0.5, 3)
    return _sampled(rng, lambda hour: base + more * (hour % period) / period)


def notebook(rng: Random) -> Curve:
    """Up and down, with restarts of the kernel."""
    changes = sorted((rng.uniform(0, HOURS), rng.choice((0.0, rng.uniform(0, 60_000)))) for _ in range(12))
    return _sampled(rng, lambda hour: max([(at, value) for at, value in changes if at <= hour] or [(0.0, 0.0)])[1])


def larger_batch(rng: Random) -> Curve:
    """Flat, and at some time one step up."""
    base, at, more = rng.uniform(10_000, 40_000), rng.uniform(1, 11), rng.uniform(1_000, 20_000)
    return _sampled(rng, lambda hour: base + (more if hour >= at else 0.0))


def leak(rate: float) -> Callable[[Random], Curve]:
    """`rate` MiB an hour, under evaluations and epochs."""

    def made(rng: Random) -> Curve:
        base, more, period = rng.uniform(5_000, 30_000), rng.uniform(0, 3_000), rng.uniform(0.1, 0.4)
        return _sampled(rng, lambda hour: base + rate * hour + (more if hour % period < period / 3 else 0.0))

    return made


HEALTHY: dict[str, Callable[[Random], Curve]] = {
    "plateau": plateau,
    "caching allocator": caching_allocator,
    "evaluations": evaluations,
    "epochs": epochs,
    "notebook": notebook,
    "larger batch": larger_batch,
}
LEAKS: dict[str, Callable[[Random], Curve]] = {f"leak {rate:,} MiB/h": leak(rate) for rate in (480, 960, 1_920, 10_240)}


def service(rng: Random, leak_rate: float = 0.0, growth: float = 0.0, days: int = 5) -> Curve:
    """Follows the day; `growth` of its load a day."""
    base, swing, shift = rng.uniform(10_000, 25_000), rng.uniform(3_000, 15_000), rng.uniform(0, 24)

    def value(hour: float) -> float:
        load = (1 + sin((hour + shift) / 24 * 2 * pi)) / 2 * (1 + growth) ** (hour // 24)
        return base + swing * load + leak_rate * hour

    return _sampled(rng, value, hours=24 * days, step=300)
