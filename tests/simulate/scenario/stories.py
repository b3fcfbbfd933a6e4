"""Scenarios as text, for tests: a header, and a small cluster that most of them share."""

from __future__ import annotations

import textwrap
from pathlib import Path

from windlass.simulate.scenario import Outcome, Scenario, load_scenarios, play

HEADER = """\
apiVersion: windlass.dev/v1
kind: Scenario
title: a test
rule: Quota
story: for a test
"""
CLUSTER = """\
fleet:
- {name: n, count: 2, gpus: 8xH100}
queues:
- {name: team, quota: {gpu: 16}, preemption: {withinClusterQueue: LowerPriority}}
"""


def written(folder: Path, body: str, header: str = HEADER + CLUSTER) -> Path:
    """The file of a scenario with this body."""
    path = folder / "story.yaml"
    path.write_text(header + textwrap.dedent(body), encoding="utf-8")
    return path


def loaded(folder: Path, body: str, header: str = HEADER + CLUSTER) -> Scenario:
    (scenario,) = load_scenarios(written(folder, body, header))
    return scenario


def played(folder: Path, body: str, header: str = HEADER + CLUSTER) -> Outcome:
    return play(loaded(folder, body, header))


def failures(outcome: Outcome) -> list[tuple[str, str]]:
    """What was expected and what was seen instead."""
    return [(check.expectation, check.actual) for check in outcome.failures]


def events(outcome: Outcome, *kinds: str) -> list[tuple[int, str, str]]:
    """Time, kind and subject of the events of these kinds."""
    checks = outcome.checks
    return [(one.at, one.kind, one.subject) for one in outcome.events if one not in checks and one.kind in kinds]
