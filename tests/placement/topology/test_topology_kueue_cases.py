"""The search against Kueue's own topology tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.placement.topology.kueue_case import Case, Json, load_scorer, scored_cases

pytestmark = pytest.mark.cases


def test_placements_of_the_pure_search(cases_dir: Path) -> None:
    """`tas-cache`: one workload meets the nodes of one flavor."""
    scorer = load_scorer(cases_dir)
    wrong, places, same = [], 0, 0
    for name, objects, expect in scored_cases(cases_dir, "tas-cache"):
        case = Case(scorer, objects)
        (key,) = case.pending()
        decision = case.admission(key, case.flavor_with_topology(), case.pod_sets(key))
        differences, info = case.judge(expect, [decision])
        wrong += [f"{name}: {difference}" for difference in differences]
        if "placement_identical" in info:
            places += 1
            same += info["placement_identical"]
    assert wrong == []
    # The rest takes fewer nodes than Kueue below a slice level, where Kueue fills the smallest nodes first.
    assert (same, places) == (70, 72)


@pytest.mark.parametrize("suite", ["schedule-tas", "schedule-tas-cohorts"])
def test_places_of_what_kueue_admits(cases_dir: Path, suite: str) -> None:
    """The decision whom to admit is taken from the expectation; where they go must be as good as Kueue's."""
    scorer = load_scorer(cases_dir)
    wrong = []
    for name, objects, expect in scored_cases(cases_dir, suite):
        case = Case(scorer, objects)
        for key, flavor, pod_sets, wanted in _with_topology(case, expect):
            answer = case.place(flavor, pod_sets)
            if not isinstance(answer, dict):
                wrong.append(f"{name}: {key}: {answer.message}")
                continue
            for pod_set in wanted:
                problems = scorer.placement_problems(case.world, key, pod_set, answer[pod_set["name"]])
                wrong += [f"{name}: {key}: {problem}" for problem in problems]
    assert wrong == []


def _with_topology(case: Case, expect: Json) -> Iterator[tuple[str, str, list[Json], list[Json]]]:
    """(workload, flavor, its pod sets, what is expected of them) for each that is placed by topology."""
    for admitted in expect["expect"]["admitted"]:
        by_flavor: dict[str, list[Json]] = {}
        for wanted in admitted["podSets"]:
            if wanted.get("domains"):
                by_flavor.setdefault(case.scorer.levels_of(case.world, wanted)[1], []).append(wanted)
        for flavor, wanted_sets in by_flavor.items():
            counts = {wanted["name"]: wanted["count"] for wanted in wanted_sets}
            pod_sets = [
                {**pod_set, "count": counts[pod_set.get("name", "main")]}
                for pod_set in case.pod_sets(admitted["workload"])
                if pod_set.get("name", "main") in counts
            ]
            yield admitted["workload"], flavor, pod_sets, wanted_sets
