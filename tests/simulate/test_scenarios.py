"""The scenarios in docs/scenarios are documentation, and every one of them is a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.simulate.scenario import load_scenarios, play
from windlass.simulate.scenario.index import INDEX, WANTED, index_text
from windlass.simulate.scenario.load import CHAPTERS
from windlass.simulate.scenario.report import trace_lines

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "scenarios"
FILES = sorted(FOLDER.glob("*.yaml"))
WANTED_FILES = sorted((FOLDER / WANTED).glob("*.yaml"))
NOT_YET: set[str] = set()
"""Rules whose only scenarios are wanted ones."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(file: Path) -> None:
    for scenario in load_scenarios(file):
        outcome = play(scenario)
        assert outcome.passed, "\n".join(trace_lines(outcome))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario_tells_a_story_and_expects_something(file: Path) -> None:
    for scenario in load_scenarios(file):
        document = scenario.document
        assert len(document.story.split()) >= 10, "a scenario is documentation"
        assert any(step.expect is not None for step in scenario.steps)
        assert all("#" in source for source in document.source), "sources are project#issue"


def test_there_are_enough_of_them() -> None:
    assert len(FILES) >= 40


def test_every_rule_has_one() -> None:
    rules = {scenario.document.rule for scenario in load_scenarios(FOLDER)}
    assert rules >= set(CHAPTERS) - NOT_YET


def test_index_is_up_to_date() -> None:
    written = (FOLDER / INDEX).read_text(encoding="utf-8")
    assert written == index_text(FOLDER), "run python -m windlass.simulate.scenario.index docs/scenarios"


def test_wanted_scenarios_can_be_played() -> None:
    """What they expect is not there yet; that they are scenarios is. There may be none."""
    for file in WANTED_FILES:
        assert all(play(scenario).checks for scenario in load_scenarios(file)), file
