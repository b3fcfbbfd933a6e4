"""`make trends`: how often each rule for memory leaks is wrong, and how soon it is right, on curves that no setting was
chosen on: the settings were chosen with seed 2, so measure with another one.

Beside ours: `predict_linear` over an hour, four hours ahead, as most alert rules have it, and 90 % in use.
"""

from __future__ import annotations

import argparse
from bisect import bisect_left
from collections.abc import Callable
from operator import itemgetter
from random import Random
from statistics import median

from tests.telemetry.curves import HEALTHY, HOURS, LEAKS, TOTAL_MIB, Curve, service

from windlass.telemetry.trends.memory_leak import find_leak, find_service_leak

HOUR, DAY = 3600, 86_400
TICK = 600
Rule = Callable[[Curve, float], bool]


def ours(curve: Curve, now: float) -> bool:
    return find_leak(curve, TOTAL_MIB, now) is not None


def ours_for_services(curve: Curve, now: float) -> bool:
    return now >= 2 * DAY + 6 * HOUR and find_service_leak(curve, TOTAL_MIB, now) is not None


def predict_linear(curve: Curve, now: float) -> bool:
    """`predict_linear(DCGM_FI_DEV_FB_USED[1h], 4 * 3600) > total`: least squares."""
    points = _since(curve, now - HOUR, now)
    if len(points) < 2:
        return False
    mean_at = sum(at for at, _ in points) / len(points)
    mean = sum(value for _, value in points) / len(points)
    below = sum((at - mean_at) ** 2 for at, _ in points)
    slope = sum((at - mean_at) * (value - mean) for at, value in points) / below
    return mean + slope * (now - mean_at + 4 * HOUR) > TOTAL_MIB


def threshold(curve: Curve, now: float) -> bool:
    points = _since(curve, now - 60, now)
    return bool(points) and points[-1][1] > 0.9 * TOTAL_MIB


RULES: dict[str, Rule] = {"ours": ours, "predict_linear": predict_linear, "90 % in use": threshold}


def first_alarm(curve: Curve, rule: Rule, tick: int = TICK) -> float | None:
    """Seconds from the start to the first alarm; None without one."""
    end = curve[-1][0]
    now = 2.0 * tick
    while now <= end:
        if rule(curve, now):
            return now
        now += tick
    return None


def _since(curve: Curve, start: float, end: float) -> Curve:
    first, last = (bisect_left(curve, at, key=itemgetter(0)) for at in (start, end))
    return curve[first:last]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--count", type=int, default=200)
    given = parser.parse_args()
    print(f"{given.count} curves of {HOURS} h each, seed {given.seed}; false alarms as a share of curves\n")
    print(f"| curve | {' | '.join(RULES)} |\n| --- |{' ---: |' * len(RULES)}")
    wrong = dict.fromkeys(RULES, 0)
    for name, make in HEALTHY.items():
        cells = []
        for label, rule in RULES.items():
            alarms = sum(_alarm(name, make, rule, given.seed, n) is not None for n in range(given.count))
            wrong[label] += alarms
            cells.append(f"{alarms / given.count:.1%}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    for name, make in LEAKS.items():
        cells = []
        for rule in RULES.values():
            found = [_alarm(name, make, rule, given.seed, n) for n in range(given.count)]
            times = [at for at in found if at is not None]
            cells.append(f"{len(times) / given.count:.0%} found, {_hours(times)}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    curves = given.count * len(HEALTHY)
    per_month = (f"{label} {count / curves * 30 * 24 / HOURS:.2f}" for label, count in wrong.items())
    print(f"\nFalse alarms per GPU-month, over these families in equal parts: {', '.join(per_month)}\n")
    _services(given.seed, max(1, given.count // 4))


def _alarm(name: str, make: Callable[[Random], Curve], rule: Rule, seed: int, number: int) -> float | None:
    return first_alarm(make(Random(f"{seed}/{name}/{number}")), rule)


def _services(seed: int, count: int) -> None:
    print("| service of five days | ours, same hour | ours, for jobs | predict_linear |\n| --- | ---: | ---: | ---: |")
    kinds = {"steady": {}, "load +10 % a day": {"growth": 0.1}, "leak 60 MiB/h": {"leak_rate": 60.0}}
    for name, options in kinds.items():
        cells = []
        for rule in (ours_for_services, ours, predict_linear):
            found = [
                first_alarm(service(Random(f"{seed}/{name}/{n}"), **options), rule, tick=HOUR) for n in range(count)
            ]
            times = [at for at in found if at is not None]
            cells.append(f"{len(times) / count:.0%}" + (f", {_hours(times)}" if times else ""))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _hours(times: list[float]) -> str:
    return f"median {median(times) / HOUR:.1f} h" if times else "-"


if __name__ == "__main__":
    main()
