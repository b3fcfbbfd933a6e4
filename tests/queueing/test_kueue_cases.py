"""Kueue's own test tables, as plain objects: at least 95 % of every suite comes out exactly as Kueue decides."""

from __future__ import annotations

import copy
import random
from pathlib import Path

import pytest
from tests.queueing.kueue_cases import (
    differences,
    document,
    read_config,
    read_json,
    read_objects,
    scored_cases,
    scorer,
)

from windlass.model.times import parse_timestamp
from windlass.queueing.admit import admit
from windlass.queueing.placement_interface import UnlimitedPlacement

SUITES = (
    "preemption",
    "preemption-hierarchical",
    "preemption-fair",
    "schedule",
    "schedule-fair",
    "schedule-recompute",
    "schedule-afs",
)
pytestmark = pytest.mark.cases


@pytest.mark.parametrize("suite", SUITES)
def test_suite_comes_out_as_in_kueue(suite: str, cases_dir: Path) -> None:
    score = scorer(cases_dir)
    cases = scored_cases(cases_dir, suite)
    wrong = {path.name: found for path in cases if (found := differences(score, path))}
    assert len(wrong) <= max(1, len(cases) // 20), wrong


@pytest.mark.parametrize("suite", SUITES)
def test_order_of_the_objects_does_not_matter(suite: str, cases_dir: Path) -> None:
    for path in scored_cases(cases_dir, suite):
        items = read_json(path / "objects.json")["items"]
        config = read_config(path / "config.yaml")
        now = parse_timestamp(read_json(path / "expect.json")["now"])
        shuffled = copy.copy(items)
        random.Random(path.name).shuffle(shuffled)
        answers = [
            document(admit(*read_objects(objects), config, now, UnlimitedPlacement())) for objects in (items, shuffled)
        ]
        assert answers[0] == answers[1], path.name
