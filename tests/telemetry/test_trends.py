"""The detectors on made curves: what they find, how soon, and how rarely they are wrong."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.telemetry.curves import DAY, HEALTHY, LEAKS, TOTAL_MIB, Curve, service
from tests.telemetry.trend_rates import first_alarm, ours

from windlass.telemetry.activity import Activity
from windlass.telemetry.trends.error_growth import find_growth, hourly_increments
from windlass.telemetry.trends.heat import HeatSample, daily_resistance, find_heat_drift
from windlass.telemetry.trends.idleness import Moment, find_idleness
from windlass.telemetry.trends.memory_leak import find_leak, find_service_leak
from windlass.telemetry.trends.robust import slope_per_hour, window_minima
from windlass.telemetry.trends.straggler import GpuWindow, find_straggler

HOUR = 3600
LIMIT = 700.0


@given(st.lists(st.integers(-1000, 1000), min_size=3, max_size=20), st.integers(0, 19))
def test_one_wrong_value_does_not_move_a_slope(noise: list[int], place: int) -> None:
    line = [(float(number * HOUR), 10.0 * number) for number in range(20)]
    assert slope_per_hour(line) == pytest.approx(10.0)
    line[place] = (line[place][0], 10_000.0)
    assert slope_per_hour(line) == pytest.approx(10.0, abs=1.0)


def test_a_window_without_values_is_unmeasured() -> None:
    series = [(float(at), 5.0) for at in range(0, 7200, 30) if not 1800 <= at < 3600]
    assert window_minima(series, 1800, 7200.0, 4) is None
    assert window_minima(series, 1800, 7200.0, 2) == [(3600.0, 5.0), (5400.0, 5.0)]


@pytest.mark.parametrize("name", LEAKS)
def test_every_leak_is_found(name: str) -> None:
    for seed in range(8):
        found = first_alarm(LEAKS[name](Random(seed)), ours)
        assert found is not None, seed
        assert found <= 6 * HOUR


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_memory_rarely_alarms(name: str) -> None:
    """`make trends` has the rates; here, more than two of twenty would be a broken rule."""
    wrong = [seed for seed in range(20) if first_alarm(HEALTHY[name](Random(seed)), ours) is not None]
    assert len(wrong) <= 2


def test_a_leak_says_when_the_memory_is_full() -> None:
    curve: Curve = [(float(at), 20_000 + 1_000 * at / HOUR) for at in range(0, 5 * HOUR, 30)]
    leak = find_leak(curve, TOTAL_MIB, 5.0 * HOUR)
    assert leak is not None
    assert leak.rule == "envelope"
    assert leak.mib_per_hour == pytest.approx(1_000, rel=0.02)
    assert leak.full_at == pytest.approx((TOTAL_MIB - 20_000) / 1_000 * HOUR, rel=0.05)


def test_a_fast_leak_is_found_in_minutes() -> None:
    curve: Curve = [(float(at), 50_000 + 40_000 * at / HOUR) for at in range(0, 1500, 30)]
    leak = find_leak(curve, TOTAL_MIB, 1_500.0)
    assert leak is not None
    assert leak.rule == "quick"


def test_a_gap_is_no_growth() -> None:
    curve = [point for point in LEAKS["leak 960 MiB/h"](Random(1)) if not 2 * HOUR <= point[0] < 4 * HOUR]
    assert find_leak(curve, TOTAL_MIB, 5.0 * HOUR) is None


def test_services_are_compared_with_the_same_hour() -> None:
    for seed in range(10):
        assert find_service_leak(service(Random(seed)), TOTAL_MIB, 5.0 * DAY) is None
        leak = find_service_leak(service(Random(seed), leak_rate=60), TOTAL_MIB, 5.0 * DAY)
        assert leak is not None
        assert leak.mib_per_hour == pytest.approx(60, rel=0.2)


def heat(resistance: float, rng: Random, drift: float = 0.0, days: int = 30) -> list[HeatSample]:
    """Half of the day at full load; `drift` in K/W over the whole time. The room swings by a few degrees."""
    found = []
    for minute in range(0, days * 1440, 10):
        room = 30 + 3 * rng.random()
        watts = LIMIT * rng.uniform(0.7, 1.0) if minute % 1440 < 720 else 70.0
        kelvin_per_watt = resistance + drift * minute / (days * 1440)
        found.append(HeatSample(minute * 60.0, room + kelvin_per_watt * watts, watts))
    return found


def test_heat_is_judged_by_resistance_and_never_by_degrees() -> None:
    rng = Random(5)
    healthy = {f"g{number}": daily_resistance(heat(0.05, rng), LIMIT) for number in range(5)}
    hot_but_well = daily_resistance(heat(0.0505, rng), LIMIT)
    assert find_heat_drift(hot_but_well, healthy, LIMIT) is None
    own = find_heat_drift(daily_resistance(heat(0.05, rng, drift=0.02), LIMIT), healthy, LIMIT)
    assert own is not None
    assert own.kind == "own"
    drifting = {name: daily_resistance(heat(0.05, rng, drift=0.02), LIMIT) for name in healthy}
    rack = find_heat_drift(daily_resistance(heat(0.05, rng, drift=0.02), LIMIT), drifting, LIMIT)
    assert rack is not None
    assert rack.kind == "rack"
    worse = find_heat_drift(daily_resistance(heat(0.065, rng), LIMIT), healthy, LIMIT)
    assert worse is not None
    assert worse.kind == "peers"
    assert find_heat_drift(daily_resistance(heat(0.05, rng, drift=0.1, days=10), LIMIT), healthy, LIMIT) is None


def test_only_a_rate_that_has_changed_is_growth() -> None:
    rng = Random(2)
    total, usual = 0.0, []
    for hour in range(24 * 30):
        total += rng.random() < 0.1
        usual.append((hour * HOUR, total))
    assert find_growth(hourly_increments(usual), 0.1) is None
    bursts = [(at, value + max(0, at - 600 * HOUR) / HOUR * 3) for at, value in usual]
    growth = find_growth(hourly_increments(bursts), 0.1)
    assert growth is not None
    assert 598 * HOUR <= growth.since <= 602 * HOUR
    reset = [(at, value if at < 300 * HOUR else value - usual[300][1]) for at, value in usual]
    assert find_growth(hourly_increments(reset), 0.1) is None
    assert find_growth([(0.0, 1.0)], 0.0) is None, "one corrected error says nothing"


def gang(slow: str = "", busy: float = 95.0, clock: float = 1_500.0) -> list[dict[str, GpuWindow]]:
    rng = Random(4)
    return [
        {
            f"g{number}": GpuWindow(
                busy + rng.uniform(-2, 2) + (3 if f"g{number}" == slow else 0),
                (clock if f"g{number}" == slow else 1_950) + rng.uniform(-30, 30),
                (480 if f"g{number}" == slow else 650) + rng.uniform(-20, 20),
            )
            for number in range(8)
        }
        for _ in range(12)
    ]


def test_the_gpu_for_which_all_others_wait() -> None:
    found = find_straggler(gang("g3"))
    assert found is not None
    assert found.gpu == "g3"
    assert found.clock_share == pytest.approx(0.77, abs=0.02)
    assert find_straggler(gang()) is None
    assert find_straggler(gang("g3", busy=5.0)) is None, "an idle gang has no stragglers"
    assert find_straggler(gang("g3")[:4]) is None, "too few windows say nothing"


def moments(spans: list[tuple[int, Activity]], gpus: int = 2) -> list[Moment]:
    """(minutes, what all GPUs do), one after the other, each minute."""
    found: list[Moment] = []
    for minutes, activity in spans:
        found += [(60.0 * (len(found) + at), {f"g{n}": activity for n in range(gpus)}) for at in range(minutes)]
    return found


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(30, "computing"), (20, "held_idle")], None),
        ([(30, "computing"), (40, "held_idle")], ("idle", "warned")),
        ([(30, "computing"), (55, "held_idle")], ("idle", "warned again")),
        ([(30, "computing"), (70, "held_idle")], ("idle", "over")),
        ([(30, "computing"), (70, "spinning")], ("spinning", "over")),
        ([(30, "computing"), (70, "unmeasured")], None),
        ([(30, "computing"), (20, "held_idle"), (50, "unmeasured")], None),
        ([(50, "held_idle")], None),  # it is still loading
        ([(100, "held_idle")], ("idle", "over")),
        ([(30, "computing"), (40, "held_idle"), (1, "computing")], None),
    ],
)
def test_a_gang_is_idle_after_its_grace_and_never_unmeasured(
    spans: list[tuple[int, Activity]], expected: tuple[str, str] | None
) -> None:
    found = find_idleness(moments(spans), 0.0)
    assert (found and (found.kind, found.stage)) == expected


def test_one_gpu_that_works_keeps_the_gang_and_the_others_are_a_finding() -> None:
    both = moments([(90, "computing")])
    half: list[Moment] = [(at, {**found, "g1": "held_idle"}) for at, found in both]
    found = find_idleness(half, 0.0)
    assert found is not None
    assert (found.kind, found.idle_gpus, found.gpus, found.stage) == ("partly idle", 1, 2, "watch")
    assert find_idleness(both, 0.0) is None


def test_services_are_only_reported() -> None:
    found = find_idleness(moments([(30, "computing"), (600, "held_idle")]), 0.0, is_service=True)
    assert found is not None
    assert found.stage == "watch"
