"""The score of `why` on the cases of this folder does not fall: counts, so that no rule is made for a case."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.diagnose_fresh.cases import EIGHTH, NINTH, PRACTICE, SECOND, SIXTH
from tests.diagnose_fresh.score import Result, counts, score, write_cases


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    folders: list[Path] = write_cases(tmp_path_factory.mktemp("fresh"))
    return list(score(folders))


def test_the_score_does_not_fall(results: list[Result]) -> None:
    found = counts(results)
    assert found["cases"]["right"] >= 33, found["cases"]
    assert found["controls"]["right"] == 6, found["controls"]
    assert found["a"]["right"] >= 9, found["a"]
    assert found["b"]["right"] >= 9, found["b"]
    assert found["d"]["clear"] == 10, found["d"]


SETS = {"second": (SECOND, (19, 2)), "sixth": (SIXTH, (38, 5)), "eighth": (EIGHTH, (20, 3)), "ninth": (NINTH, (23, 4))}


def test_the_score_of_the_practitioners_list_does_not_fall(tmp_path: Path) -> None:
    results = list(score(write_cases(tmp_path, PRACTICE)))
    found = counts(results)
    assert found["cases"]["right"] >= 0.96 * sum(found["cases"].values()), found
    assert found["controls"]["right"] == sum(found["controls"].values()), found
    assert not [result.want["id"] for result in results if result.is_confidently_wrong]


@pytest.mark.parametrize(("scenes", "floor"), SETS.values(), ids=SETS)
def test_the_score_of_a_later_set_does_not_fall(tmp_path: Path, scenes: Path, floor: tuple[int, int]) -> None:
    results = list(score(write_cases(tmp_path, scenes)))
    found = counts(results)
    assert (found["cases"]["right"], found["controls"]["right"]) >= floor, found
    assert not [result.want["id"] for result in results if result.is_confidently_wrong]


def test_nothing_wrong_is_said_with_high_confidence(results: list[Result]) -> None:
    wrong = [(result.want["id"], result.found.code, result.found.headline) for result in results]
    assert not [entry for entry, result in zip(wrong, results, strict=True) if result.is_confidently_wrong]


def test_low_confidence_says_what_to_run_next(results: list[Result]) -> None:
    for result in results:
        assert (result.found.confidence == "low") == bool(result.found.next_commands), result.want["id"]


def test_most_right_answers_are_said_with_confidence(results: list[Result]) -> None:
    """Low confidence everywhere would never be wrong, and would help nobody."""
    right = [result for result in results if result.verdict == "right"]
    assert sum(result.found.confidence == "high" for result in right) >= 0.8 * len(right)
