"""The bill in OpenCost's shape: the numbers of `usage`, windows as OpenCost writes them."""

from __future__ import annotations

import pytest

from windlass.model.errors import InputError
from windlass.telemetry.opencost import MAX_STEPS, allocation_set, parse_step, parse_window, steps
from windlass.telemetry.usage import Usage, UsageKey, usage_rows

NOW = 1_767_225_600
PRICES = {"NVIDIA-H100-80GB-HBM3": 2_500_000}


def usage() -> Usage:
    found = Usage(NOW - 7200, NOW, 7200)
    key = UsageKey("vision", "research", "ada", "Job vision/train", "NVIDIA-H100-80GB-HBM3")
    found.add(key, "computing", 4 * 3_600_000)
    found.add(key, "held_idle", 2 * 3_600_000)
    found.add(UsageKey(model=key.model), "free", 3_600_000)
    return found


def test_an_allocation_has_the_numbers_of_the_bill() -> None:
    (row,) = usage_rows(usage(), "team", PRICES)
    found = allocation_set(usage(), "team", PRICES)["vision"]
    assert (found["gpuHours"], found["gpuCost"], found["gpuCostIdle"]) == (6, row.cost, row.idle_cost) == (6, 15, 5)
    assert (found["gpuRequestAverage"], found["gpuUsageAverage"]) == (3, 2)
    assert found["properties"] == {"namespace": "vision"}
    assert found["window"] == {"start": "2025-12-31T22:00:00Z", "end": "2026-01-01T00:00:00Z"}
    assert found["minutes"] == 120


def test_without_prices_there_are_hours_all_the_same() -> None:
    found = allocation_set(usage(), "job", {})["Job vision/train"]
    assert (found["gpuHours"], found["gpuCost"]) == (6, 0.0)


@pytest.mark.parametrize(
    ("text", "start"),
    [("90m", NOW - 5400), ("24h", NOW - 86_400), ("7d", NOW - 7 * 86_400), ("4w", NOW - 28 * 86_400)],
)
def test_windows_that_end_now(text: str, start: int) -> None:
    assert parse_window(text, NOW) == (start, NOW)


def test_windows_between_two_times() -> None:
    assert parse_window("2025-12-31T00:00:00Z,2026-01-01T00:00:00Z", 0) == (NOW - 86_400, NOW)
    assert parse_window(f"{NOW - 10},{NOW}", 0) == (NOW - 10, NOW)


@pytest.mark.parametrize("text", ["", "x", "7", "-7d", f"{NOW},{NOW}", f"{NOW},", "1" * 30 + "d", "²,³"])
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_window(text, NOW)


def test_steps_cover_the_window_once() -> None:
    assert list(steps(0, 250, 100)) == [(0, 100), (100, 200), (200, 250)]
    assert list(steps(0, 200, 100)) == [(0, 100), (100, 200)]
    many = list(steps(0, 10**6, 60))
    assert (len(many), many[-1][1]) == (MAX_STEPS, 10**6)
    assert parse_step("1d") == 86_400
    for text in ("0d", "day", ""):
        with pytest.raises(InputError):
            parse_step(text)
