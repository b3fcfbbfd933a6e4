"""Scenarios made in code: workloads on a small cluster, played to their end, and the messages of their holds."""

from __future__ import annotations

import re
from typing import Any

from windlass.model.times import parse_timestamp
from windlass.simulate.clock import VIRTUAL_EPOCH
from windlass.simulate.scenario import Event, Outcome, play
from windlass.simulate.scenario.load import read_scenario

PLANNED = re.compile(r"planned to start at (\S+Z)")


def scenario(
    timeline: list[dict[str, Any]],
    *,
    nodes: int = 1,
    queues: list[dict[str, Any]] | None = None,
    gpus: int = 8,
    **more: Any,
) -> Outcome:
    """The outcome of the scenario; by default there is one queue with quota for all GPUs."""
    tree = {
        "apiVersion": "windlass.dev/v1",
        "kind": "Scenario",
        "title": "made in a test",
        "story": "made in a test",
        "rule": "Time",
        "fleet": [{"name": "n", "count": nodes, "gpus": f"{gpus}xH100"}],
        "queues": [{"name": "team", "quota": {"gpu": nodes * gpus}}] if queues is None else queues,
        "timeline": timeline,
        **more,
    }
    return play(read_scenario(tree, "test"))


def job(name: str, gpus: int, limit: int | None, **more: Any) -> dict[str, Any]:
    """A job that runs to its limit unless a duration is given; forever without either."""
    work: dict[str, Any] = {"job": name, "queue": "team", "gpus": gpus, **more}
    if limit is not None:
        work.setdefault("duration", f"{limit}s")
        work["limit"] = f"{limit}s"
    return work


def events(outcome: Outcome, kind: str) -> list[Event]:
    return [event for event in outcome.events if isinstance(event, Event) and event.kind == kind]


def starts(outcome: Outcome) -> dict[str, int]:
    """Workload → when it was first admitted, in seconds of the scenario."""
    found: dict[str, int] = {}
    for event in events(outcome, "admit"):
        found.setdefault(event.subject.partition("/")[2], event.at)
    return found


def plans(outcome: Outcome) -> dict[str, list[tuple[int, int]]]:
    """Workload → (when it was said, the planned start), in order."""
    found: dict[str, list[tuple[int, int]]] = {}
    for event in events(outcome, "hold"):
        said = PLANNED.search(event.text)
        if said:
            start = parse_timestamp(said[1].replace("Z", "+00:00")) - VIRTUAL_EPOCH
            found.setdefault(event.subject.partition("/")[2], []).append((event.at, start))
    return found
