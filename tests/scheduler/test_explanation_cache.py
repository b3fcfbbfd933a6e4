"""What those that wait are told: explanations that last as long as what they explain, and give way to news."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.model.decision import Hold
from windlass.model.plan import Plan
from windlass.model.verdict import Verdict
from windlass.scheduler.explanation_cache import ExplanationCache


def explained(hold: Hold) -> Hold:
    """By its own name."""
    return Hold(hold.workload, msgspec.structs.replace(hold.verdict, outlook=f"help for {hold.workload}"))


def plan(codes: Sequence[str]) -> Plan:
    return Plan(holds=tuple(Hold(f"a/{number}", Verdict(code, 3)) for number, code in enumerate(codes)))


def outlooks(told: Plan) -> list[str]:
    return [hold.verdict.outlook for hold in told.holds]


def test_what_was_worked_out_is_told_until_something_else_holds_it() -> None:
    explanations = ExplanationCache(lambda: False)
    assert outlooks(explanations.with_explanations(plan(["GPU_FULL"]))) == [""]
    explanations.compute(plan(["GPU_FULL", "GPU_FULL"]), explained)
    assert outlooks(explanations.with_explanations(plan(["GPU_FULL", "GPU_FULL"]))) == [
        "help for a/0",
        "help for a/1",
    ]
    assert outlooks(explanations.with_explanations(plan(["GPU_FULL", "GANG_INCOMPLETE"]))) == [
        "help for a/0",
        "",
    ]


def test_news_come_before_explanations() -> None:
    explanations = ExplanationCache(lambda: True)
    explanations.compute(plan(["GPU_FULL", "GPU_FULL"]), explained)
    assert outlooks(explanations.with_explanations(plan(["GPU_FULL", "GPU_FULL"]))) == ["help for a/0", ""]
