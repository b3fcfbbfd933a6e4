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


def test_the_first_thirty_two_holds_are_explained() -> None:
    explanations = ExplanationCache(lambda: False)
    many = plan(["GPU_FULL"] * 40)
    explanations.compute(many, explained)
    assert [bool(outlook) for outlook in outlooks(explanations.with_explanations(many))] == [True] * 32 + [False] * 8


def test_explanations_of_earlier_rounds_are_kept_and_newer_ones_win() -> None:
    explanations = ExplanationCache(lambda: False)
    both = plan(["GPU_FULL", "GPU_FULL"])
    explanations.compute(both, explained)
    second = Plan(holds=both.holds[1:])
    explanations.compute(second, lambda hold: Hold(hold.workload, Verdict("GPU_FULL", 3, outlook="newer")))
    assert outlooks(explanations.with_explanations(both)) == ["help for a/0", "newer"]


def test_a_verdict_that_changes_and_comes_back_has_its_explanation() -> None:
    explanations = ExplanationCache(lambda: False)
    explanations.compute(plan(["GPU_FULL"]), explained)
    assert outlooks(explanations.with_explanations(plan(["GANG_INCOMPLETE"]))) == [""]
    assert outlooks(explanations.with_explanations(plan(["GPU_FULL"]))) == ["help for a/0"]


def test_the_oldest_explanations_are_dropped_first() -> None:
    explanations = ExplanationCache(lambda: False)
    rounds = [
        Plan(holds=tuple(Hold(f"a/{batch}-{number}", Verdict("GPU_FULL", 3)) for number in range(32)))
        for batch in range(33)
    ]
    for decided in rounds:
        explanations.compute(decided, explained)
    everything = Plan(holds=tuple(hold for decided in rounds for hold in decided.holds))
    kept = [bool(outlook) for outlook in outlooks(explanations.with_explanations(everything))]
    # A thousand of the earlier ones and the thirty-two of the last round.
    assert sum(kept) == 1_032
    assert kept == [False] * (33 * 32 - 1_032) + [True] * 1_032


def test_a_plan_without_holds_or_without_explanations_is_returned_as_it_is() -> None:
    explanations = ExplanationCache(lambda: False)
    held = plan(["GPU_FULL"])
    assert explanations.with_explanations(held) is held
    explanations.compute(held, explained)
    nothing = Plan()
    assert explanations.with_explanations(nothing) is nothing
    assert explanations.with_explanations(held) is not held
