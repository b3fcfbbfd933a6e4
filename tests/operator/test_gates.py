"""Gates: compared with control nodes at the same time; what has no data or too little never passes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.operator.decide.gates import MAX_AGE_SECONDS, Compared, judge, judge_faults
from windlass.operator.decide.windows import why_closed
from windlass.operator.gate_readings import ask, fill_query, values_by_node
from windlass.operator.kinds.fleet_change import FleetChangeSpec, Freeze, Gate, Window
from windlass.operator.observed import GateReading
from windlass.telemetry.prometheus import PromSample

NOW = 1_800_000_000
COMPARED = Compared(("a", "b"), ("c", "d", "e"), 2.0)
SLO = Gate(name="p99", query="x", max_ratio=1.1)


def reading(*values: float, at: int = NOW) -> GateReading:
    return GateReading(at, {name: value for name, value in zip("abcde", values, strict=False) if math.isfinite(value)})


@pytest.mark.parametrize(
    ("gate", "found", "verdict", "words"),
    [
        (SLO, reading(1, 1, 1, 1, 1), "Pass", "smallest effect that shows: 0.0%"),
        (SLO, reading(1.3, 1.3, 1, 1, 1), "Fail", "the ratio 1.3 is above 1.1"),
        (SLO, reading(1.0, 1.0, 0.5, 1.0, 1.5), "Inconclusive", "and the limit is 10.0%"),
        (SLO, None, "NoData", "has not been answered"),
        (SLO, GateReading(NOW, error="down"), "NoData", "down"),
        (SLO, reading(1, 1, 1, 1, 1, at=NOW - MAX_AGE_SECONDS - 1), "NoData", "older than"),
        (SLO, reading(1, math.nan, 1, 1, 1), "NoData", "no data of 1 of 2 changed nodes: b"),
        (SLO, reading(1, 1), "NoData", "no data of any of 3 control nodes"),
        (SLO, reading(1, 1, 0, 0, 0), "Inconclusive", "no ratio"),
        (Gate(name="t", query="x", max=80.0), reading(81, 81, 90, 90, 90), "Fail", "81 on 2 changed nodes is above 80"),
        (Gate(name="t", query="x", min=10.0), reading(9, 9, 9, 9, 9), "Fail", "is below 10"),
        (Gate(name="t", query="x", max=80.0), reading(70, 70), "Pass", "70 on 2"),
        (Gate(name="t", query="x", max=80.0), reading(76, 82), "Inconclusive", "smallest difference that shows: 7.47"),
        (Gate(name="t", query="x", min_ratio=0.9), reading(8, 8, 10, 10, 10), "Fail", "the ratio 0.8 is below 0.9"),
    ],
)
def test_a_query_is_judged(gate: Gate, found: GateReading | None, verdict: str, words: str) -> None:
    judged = judge(gate, found, COMPARED, NOW)
    assert (judged.verdict, words in judged.message) == (verdict, True), judged


@given(
    st.lists(st.floats(0.1, 10), min_size=1, max_size=6),
    st.lists(st.floats(0.1, 10), min_size=1, max_size=6),
    st.sets(st.integers(0, 5)),
)
def test_no_data_of_a_changed_node_never_passes(changed: list[float], control: list[float], missing: set[int]) -> None:
    ours = tuple(f"a{number}" for number in range(len(changed)))
    others = tuple(f"c{number}" for number in range(len(control)))
    values = {
        name: value for number, (name, value) in enumerate(zip(ours, changed, strict=True)) if number not in missing
    }
    values |= dict(zip(others, control, strict=True))
    judged = judge(SLO, GateReading(NOW, values), Compared(ours, others, 1.0), NOW)
    if len(values) < len(ours) + len(others):
        assert judged.verdict == "NoData"
    elif judged.verdict == "Pass":
        assert sum(changed) / len(changed) <= 1.1 * sum(control) / len(control)
        assert len(ours) + len(others) > 2  # one node against one shows nothing


def test_a_ratio_without_a_node_to_compare_with_never_passes() -> None:
    judged = judge(SLO, reading(1, 1), Compared(("a", "b"), (), 2.0), NOW)
    assert (judged.verdict, "no node is left to compare with" in judged.message) == ("NoData", True)


def test_faults_are_counted_on_both_sides() -> None:
    bad = judge_faults(COMPARED, {"a": ("Xid 119",), "b": ("Xid 119",)}, (), 0)
    assert (bad.verdict, bad.message) == ("Fail", "Xid 119 on 2 of 2 changed, 0 of 3 control nodes")
    everywhere = dict.fromkeys("abcde", ("Xid 74",))
    assert judge_faults(COMPARED, everywhere, (), 0).verdict == "Inconclusive"
    assert judge_faults(COMPARED, {}, ("a",), 0).verdict == "NoData"
    assert judge_faults(COMPARED, {"a": ("Xid 79",)}, (), 1).verdict == "Pass"
    assert judge_faults(COMPARED, {}, (), 0, rate=1.0).verdict == "Pass"
    unsure = judge_faults(COMPARED, {}, (), 0, rate=0.1)
    assert (unsure.verdict, "and faultRate is 0.1" in unsure.message) == ("Inconclusive", True)
    assert "0.75 faults per node and hour would show" in judge_faults(COMPARED, {}, (), 0).message


def spec(**fields: object) -> FleetChangeSpec:
    return FleetChangeSpec(stack="a", **fields)  # type: ignore[arg-type]


def test_windows_over_midnight_and_freezes() -> None:
    # 15 January 2027, 08:00 UTC, is a Friday.
    night = Window(start="22:00", end="04:00", days=("Fri",), utc_offset="+01:00")
    friday = NOW - NOW % 86400
    assert why_closed(spec(windows=(night,)), friday + 8 * 3600) == (
        "OutsideWindow",
        "the next window opens at 2027-01-15T21:00:00Z",
        friday + 21 * 3600,
    )
    assert why_closed(spec(windows=(night,)), friday + 21 * 3600) is None
    assert why_closed(spec(windows=(night,)), friday + 26 * 3600) is None  # Saturday, 03:00 there
    assert why_closed(spec(windows=(night,)), friday + 27 * 3600) is not None
    frozen = Freeze(from_="2027-01-15T00:00:00Z", until="2027-01-16T00:00:00Z", reason="launch")
    closed = why_closed(spec(windows=(night,), freezes=(frozen,)), friday + 21 * 3600)
    assert closed is not None
    assert closed[:2] == ("Frozen", "frozen until 2027-01-16T00:00:00Z: launch")


def test_prometheus_answers_become_one_value_a_node() -> None:
    query = fill_query('rate(x{node=~"$nodes"}[$window])', ["gpu-1.local", "gpu-2"], 30)
    assert query == 'rate(x{node=~"gpu-1\\\\.local|gpu-2"}[30s])'
    samples = [
        PromSample({"Hostname": "a"}, 1, 0.5),
        PromSample({"instance": "b:9400"}, 1, 2),
        PromSample({"node": "c"}, 1, math.nan),
        PromSample({"node": "stranger"}, 1, 1),
    ]
    assert values_by_node(samples, {"a", "b", "c"}, NOW).values == {"a": 0.5, "b": 2.0}
    twice = [*samples, PromSample({"node": "a"}, 1, 1)]
    assert "several values for node a" in values_by_node(twice, {"a"}, NOW).error


@pytest.mark.asyncio
async def test_what_goes_wrong_with_prometheus_is_in_the_reading() -> None:
    assert "no Prometheus is configured" in (await ask("", "x", {"a"}, NOW)).error
    assert "is no address of a Prometheus" in (await ask("prometheus:9090", "x", {"a"}, NOW)).error
    assert "did not answer" in (await ask("http://127.0.0.1:1", "x", {"a"}, NOW)).error
