"""GPU time over a range of time: it adds up, once, from whatever source it comes."""

from __future__ import annotations

import csv
import io
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.park import A100, H100, gpu_node, pod

from windlass.model.configuration import Settings
from windlass.model.pod import PodStatus
from windlass.model.times import format_timestamp
from windlass.storage.disk import Disk
from windlass.telemetry.activity import GpuSample
from windlass.telemetry.demand import Demand
from windlass.telemetry.focus import COLUMNS, focus_rows
from windlass.telemetry.history.reader import HistoryReader
from windlass.telemetry.holders import Holder
from windlass.telemetry.ledger import ALLOCATED_STATES, STATES, GpuShare, Ledger
from windlass.telemetry.observation import observe_objects
from windlass.telemetry.usage import Usage, UsageKey, total_row, unused_hours, usage_rows
from windlass.telemetry.usage_history import (
    MAX_GAP_SECONDS,
    SLOT_SECONDS,
    LedgerHistory,
    open_ledger_history,
    read_usage,
)
from windlass.telemetry.usage_objects import usage_of_objects

START = 20_000 * 86_400
PRICES = {H100: 4_000_000, A100: 1_500_000}


def ledger(at: int, rng: Random) -> Ledger:
    """Four GPUs in any states."""
    shares = []
    for index in range(4):
        left = 1000
        while left:
            milli = rng.choice((left, min(left, 250)))
            state = rng.choice(STATES)
            name = rng.choice("xy")
            holder = Holder(f"team-{name}", "q", "ada", f"Job t/{name}") if state in ALLOCATED_STATES else None
            shares.append(GpuShare("n", index, rng.choice((H100, A100)), state, milli, holder))
            left -= milli
    return Ledger(at, tuple(shares), Demand())


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False), st.lists(st.integers(-200, 400), min_size=1, max_size=20))
def test_every_observed_second_of_every_gpu_is_in_the_history_once(rng: Random, steps: list[int]) -> None:
    """Also where the process restarts. Where the clock is set back, no slot gets more seconds than it has."""
    with tempfile.TemporaryDirectory() as name:
        folder, at = Path(name), START + 86_400 - 600
        history, expected, last = LedgerHistory(folder), Usage(0, 0), None
        covered: Counter[int] = Counter()
        for step in steps:
            at += step
            now = ledger(at, rng)
            history.observe(now)
            if last is not None and 0 < step <= MAX_GAP_SECONDS:
                for slot, seconds in Counter(at // SLOT_SECONDS for at in range(last.at, at)).items():
                    counted = min(seconds, SLOT_SECONDS - covered[slot])
                    covered[slot] += counted
                    expected.add_ledger(last, counted)
            last = now
            if rng.random() < 0.2:
                history.close()
                history, last = LedgerHistory(folder), None
        history.close()
        usage = read_usage(HistoryReader(Disk(folder), SLOT_SECONDS), START - 86_400, START + 3 * 86_400)
        assert usage.covered_seconds == expected.covered_seconds
        assert {key: {s: v for s, v in states.items() if v} for key, states in usage.sums.items()} == {
            key: {s: v for s, v in states.items() if v} for key, states in expected.sums.items()
        }
        assert sum(usage.by_state.values()) == 4000 * usage.covered_seconds


def test_a_clock_that_is_set_back_counts_no_second_twice(tmp_path: Path) -> None:
    history, rng = LedgerHistory(tmp_path), Random(1)
    for at in (*range(START, START + 901, 60), *range(START + 300, START + 1201, 60)):
        history.observe(ledger(at, rng))
    history.close()
    usage = read_usage(open_ledger_history(tmp_path), START, START + 1200)
    assert usage.covered_seconds == 1200
    assert sum(usage.by_state.values()) == 4000 * 1200


def test_what_was_observed_is_on_the_disk_within_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    history, rng = LedgerHistory(tmp_path), Random(1)
    at = START
    monkeypatch.setattr(Disk, "sync", lambda disk, name: synced.append(at))
    for at in range(START, START + 601, 30):
        history.observe(ledger(at, rng))
    assert max(after - before for before, after in pairwise(synced)) <= 60
    history.close()


def test_no_annotation_breaks_the_bill(tmp_path: Path) -> None:
    """Anybody may write one, with any text."""
    user = "=ada\x1f\nlove" + "x" * 1000
    objects = [gpu_node("n", 1), pod("p", 1, on="n", annotations={"windlass.dev/user": user})]
    history = LedgerHistory(tmp_path)
    for at in (START, START + 60):
        history.observe(observe_objects(objects, Settings(), at).ledger)
    history.writer.append(START + 300, {"use\x1fof\x1fanother version": 1})
    history.close()
    usage = read_usage(open_ledger_history(tmp_path), START, START + 600)
    (row,) = usage_rows(usage, "user", {})
    assert row.name.startswith("adalovex")
    assert len(row.name) < 130
    assert sum(usage.by_state.values()) == 60_000


@given(st.randoms(use_true_random=False))
def test_rows_add_up_whatever_they_are_by(rng: Random) -> None:
    usage = Usage(START, START + 7200)
    usage.add_ledger(ledger(START, rng), 3600)
    usage.add_ledger(ledger(START, rng), 3600)
    usage.add_lost(UsageKey("team-x", "q", "ada", "Job t/x"), 90)
    total = total_row(usage, PRICES)
    assert total.allocated_hours + sum(unused_hours(usage).values()) == pytest.approx(8)
    assert total.allocated_hours == pytest.approx(total.busy_hours + total.idle_hours + total.unmeasured_hours)
    for by in ("team", "queue", "user", "job", "model"):
        rows = usage_rows(usage, by, PRICES)  # type: ignore[arg-type]
        assert sum(row.allocated_hours for row in rows) == pytest.approx(total.allocated_hours)
        assert sum(row.cost or 0 for row in rows) == pytest.approx(total.cost)
        assert sum(row.lost_hours for row in rows) == pytest.approx(0 if by == "model" else 0.025)


def test_prices_by_model_and_none_where_one_is_missing() -> None:
    usage = Usage(START, START + 3600)
    usage.add(UsageKey("a", model=H100), "computing", 3_600_000)
    usage.add(UsageKey("a", model=A100), "held_idle", 7_200_000)
    (row,) = usage_rows(usage, "team", PRICES)
    assert (row.cost, row.idle_cost, row.busy_share) == (7.0, 3.0, pytest.approx(1 / 3))
    assert usage_rows(usage, "team", {H100: 1})[0].cost is None
    assert usage_rows(usage, "team", {})[0].cost is None


def test_a_gap_is_nobodys_idle_time(tmp_path: Path) -> None:
    history = LedgerHistory(tmp_path)
    held = Ledger(START, (GpuShare("n", 0, H100, "held_idle", 1000, Holder("t", "q", "u", "j")),))
    for at in (0, 60, 60 + 3600, 120 + 3600):
        history.observe(msgspec.structs.replace(held, at=START + at))
    history.close()
    usage = read_usage(open_ledger_history(tmp_path), START, START + 7200)
    assert usage.covered_seconds == 120
    assert usage.by_state["held_idle"] == 120_000
    assert usage.notes == ["2.0 of 2.0 hours are not in the history"]


def test_what_evictions_lost_is_a_line_of_its_own(tmp_path: Path) -> None:
    history = LedgerHistory(tmp_path)
    history.evicted(START + 5, UsageKey("blue", "q", "ada", "Job t/x"), 7200, "Priority", "t/y")
    history.close()
    usage = read_usage(open_ledger_history(tmp_path), START, START + SLOT_SECONDS)
    assert [(row.name, row.allocated_hours, row.lost_hours) for row in usage_rows(usage, "team", {})] == [
        ("blue", 0.0, 2.0)
    ]


def test_pods_that_exist_say_since_when_they_hold_gpus() -> None:
    status = PodStatus(phase="Running", start_time=format_timestamp(START - 7200))
    held = msgspec.structs.replace(pod("a", 2, on="n"), status=status)
    observation = observe_objects([gpu_node("n", 4), held], Settings(), START, {("n", 0): GpuSample(START, 50.0)})
    (row,) = usage_rows(usage_of_objects(observation, START - 3600, START), "team", {})
    assert (row.allocated_hours, row.unmeasured_hours) == (2.0, 2.0)


def test_focus_rows_have_every_column_and_add_up() -> None:
    usage = Usage(START, START + 3600)
    usage.add(UsageKey("a", "q", "u", "Job a/b", H100), "computing", 3_600_000)
    usage.add(UsageKey(model=H100), "free", 1_800_000)
    rows = list(focus_rows([usage], "EUR", PRICES))
    text = io.StringIO()
    csv.DictWriter(text, COLUMNS).writerows(rows)  # raises for a column that is not one of FOCUS
    assert [(row["SubAccountId"], row["PricingQuantity"], row["BilledCost"]) for row in rows] == [
        ("", "0.500000", "2.000000"),
        ("a", "1.000000", "4.000000"),
    ]
    assert rows[0]["BillingPeriodStart"] <= rows[0]["ChargePeriodStart"] < rows[0]["BillingPeriodEnd"]
