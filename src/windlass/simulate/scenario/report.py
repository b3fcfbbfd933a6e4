"""Outcomes of scenarios as people and scripts read them: a trace with its checks, and the `ScenarioReport` document.

`cli.scenario` prints what comes out of here. Fields of the document are only ever added to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from windlass.simulate.scenario.durations import format_duration
from windlass.simulate.scenario.outcome import Check, Event, Outcome


def report_document(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """`kind: ScenarioReport`, one item a scenario."""
    return {
        "apiVersion": "windlass.dev/v1",
        "kind": "ScenarioReport",
        "items": [_item(outcome) for outcome in outcomes],
    }


def _item(outcome: Outcome) -> dict[str, Any]:
    return {
        "name": outcome.name,
        "file": outcome.file,
        "title": outcome.title,
        "passed": outcome.passed,
        "checks": [
            {
                "at": one.at,
                "expected": one.expectation,
                "ok": one.ok,
                **({"seen": one.actual} if one.actual else {}),
            }
            for one in outcome.checks
        ],
        "trace": [
            {"at": one.at, "event": one.kind, "subject": one.subject, "text": one.text}
            for one in outcome.events
            if isinstance(one, Event)
        ],
    }


def trace_lines(outcome: Outcome) -> Iterator[str]:
    """What was decided when and why, with the checks where they were made."""
    yield f"{outcome.name}: {outcome.title}"
    for one in outcome.events:
        at = f"{format_duration(one.at):>7}"
        if isinstance(one, Check):
            mark = "✓" if one.ok else "✗"
            yield f"{at}  {mark} {one.expectation}" + (
                f"\n{'':7}    seen instead: {one.actual}" if not one.ok else ""
            )
        elif one.kind == "say":
            yield f"{at}  # {one.text}"
        else:
            yield f"{at}  {one.kind:<9} {one.subject}" + (f"  {one.text}" if one.text else "")
    held = len(outcome.checks) - len(outcome.failures)
    verdict = "PASS" if outcome.passed else "FAIL"
    yield f"{verdict}  {held} of {len(outcome.checks)} expectations hold"


def summary_line(outcome: Outcome) -> str:
    """One line for a scenario among many."""
    verdict = "PASS" if outcome.passed else "FAIL"
    return f"{verdict}  {outcome.name}: {outcome.title}"
