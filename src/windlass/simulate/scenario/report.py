"""Formats outcomes of scenarios: a trace with its checks for people, a `ScenarioReport` document for programs.

`cli.scenario` prints them. The document is an interface: fields are added, never changed or removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from windlass.model.names.windlass import WINDLASS_API_VERSION
from windlass.model.times import format_duration
from windlass.simulate.scenario.outcome import Check, Event, Outcome


def report_document(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """`kind: ScenarioReport`, one item a scenario."""
    items = [_item(outcome) for outcome in outcomes]
    return {"apiVersion": WINDLASS_API_VERSION, "kind": "ScenarioReport", "items": items}


def _item(outcome: Outcome) -> dict[str, Any]:
    document = {field: getattr(outcome, field) for field in ("name", "file", "title", "passed")}
    checks = [
        {"at": check.at, "expected": check.expectation, "ok": check.ok}
        | ({"seen": check.actual} if check.actual else {})
        for check in outcome.checks
    ]
    events = [event for event in outcome.events if isinstance(event, Event)]
    trace = [{"at": event.at, "event": event.kind, "subject": event.subject, "text": event.text} for event in events]
    return {**document, "checks": checks, "trace": trace}


def trace_lines(outcome: Outcome) -> Iterator[str]:
    """Decisions and checks in order, then the verdict."""
    yield f"{outcome.name}: {outcome.title}"
    for event in outcome.events:
        at = f"{format_duration(event.at):>7}"
        if isinstance(event, Check):
            actual = f"\n{'':7}    seen instead: {event.actual}" if not event.ok else ""
            yield f"{at}  {'✓' if event.ok else '✗'} {event.expectation}{actual}"
        elif event.kind == "say":
            yield f"{at}  # {event.text}"
        else:
            yield f"{at}  {event.kind:<9} {event.subject}" + (f"  {event.text}" if event.text else "")
    held = len(outcome.checks) - len(outcome.failures)
    yield f"{_verdict(outcome)}  {held} of {len(outcome.checks)} expectations hold"


def summary_line(outcome: Outcome) -> str:
    """One line for a scenario among many."""
    return f"{_verdict(outcome)}  {outcome.name}: {outcome.title}"


def _verdict(outcome: Outcome) -> str:
    return "PASS" if outcome.passed else "FAIL"
