"""Which planned starts were kept, as the metric counts them."""

from __future__ import annotations

from tests.apply.scene import metric

from windlass.model.decision import Admit, Bind, Hold, Reserve
from windlass.model.plan import Plan
from windlass.model.verdict import Verdict
from windlass.scheduler.metrics import Metrics
from windlass.scheduler.planned_start_record import TOLERANCE_SECONDS, PlannedStartRecord

NOW = 1_000_000
HOLD = Hold("team/w", Verdict("GPU_FULL", 3))
STARTS = Plan(admits=(Admit("team/w", "Job", "q", ()),))


def planned(start: int) -> Plan:
    return Plan(holds=(HOLD,), reserves=(Reserve("team/w", "n1", NOW + start, None, {"n1": 1}),))


def counts(*seen: tuple[int, Plan]) -> dict[str, float]:
    """What is counted after these plans, each with its time from now."""
    metrics = Metrics()
    record = PlannedStartRecord(metrics.planned_starts)
    for at, plan in seen:
        record.observe(plan, NOW + at)
    pairs = [("kept", ""), ("late", "moved"), ("late", "unknown"), ("late", "overdue")]
    found = {
        f"{result} {reason}".strip(): metric(metrics, "windlass_planned_starts_total", result=result, reason=reason)
        for result, reason in pairs
    }
    return {name: count for name, count in found.items() if count}


def test_a_start_by_the_first_moment_that_was_told_is_kept() -> None:
    assert counts((0, planned(100)), (100, STARTS)) == {"kept": 1}
    assert counts((0, planned(100)), (10, STARTS)) == {"kept": 1}
    assert counts((0, planned(100)), (100 + TOLERANCE_SECONDS, STARTS)) == {"kept": 1}
    assert counts((0, planned(100)), (10, planned(500)), (100, STARTS)) == {"kept": 1}, "in the end it was"


def test_a_late_start_says_why() -> None:
    late = (101 + TOLERANCE_SECONDS, STARTS)
    assert counts((0, planned(100)), late) == {"late overdue": 1}
    assert counts((0, planned(100)), (5, planned(100 + TOLERANCE_SECONDS)), late) == {"late overdue": 1}
    assert counts((0, planned(100)), (5, planned(200)), late) == {"late moved": 1}
    assert counts((0, planned(100)), (5, Plan(holds=(HOLD,))), (6, planned(200)), late) == {"late unknown": 1}


def test_each_start_counts_once_and_only_what_was_planned() -> None:
    assert counts((0, STARTS)) == {}
    assert counts((0, planned(100)), (100, STARTS), (101, STARTS)) == {"kept": 1}
    assert counts((0, planned(100)), (50, Plan()), (60, STARTS)) == {}, "deleted, and another one of the name"
    assert counts((0, planned(100)), (50, Plan(binds=(Bind("team/w", "n1"),)))) == {"kept": 1}, "a pod of its own"
    waits = Plan(admits=(Admit("team/w", "Job", "q", (), after=("team/v",)),))
    assert counts((0, planned(100)), (50, waits)) == {}, "it does not start yet"
    assert counts((0, planned(100)), (50, waits), (60, STARTS)) == {"kept": 1}
