"""Reasoning, not patterns: renamed, crowded, blinded and repaired, automatically, over all cases."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.diagnose_fresh.score import Result, counts, write_cases
from tests.diagnose_fresh.variants import variants


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    place: Path = tmp_path_factory.mktemp("variants")
    bases = [folder for folder in write_cases(place / "cases") if folder.name[-1].isdigit()]
    return [result for folder in bases for result in variants(folder, place / "variants")]


def test_other_names_formats_and_neighbours_change_nothing(results: list[Result]) -> None:
    found = counts(results)
    assert found["a"]["right"] == found["a"].total(), found["a"]
    assert found["b"]["right"] >= found["b"].total() - 1, found["b"]


def test_once_it_runs_nothing_is_wrong(results: list[Result]) -> None:
    found = counts(results)
    assert found["d"]["clear"] == found["d"].total(), found["d"]


def test_without_what_it_quotes_it_holds_back(results: list[Result]) -> None:
    """One answer can't know better: of a pod that runs and is ready, nothing else is known."""
    wrong = [result for result in results if result.is_confidently_wrong]
    assert len(wrong) <= 1, [(result.want["id"], result.found.code) for result in wrong]
    assert all(result.found.code == "NONE" for result in wrong)
