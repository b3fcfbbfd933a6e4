"""A handful of the worlds of `make victims`, with the goals that hold for all of them."""

from __future__ import annotations

from statistics import mean

import pytest
from tests.victims.__main__ import MOST_IN_THE_MEAN, describe, is_good
from tests.victims.compare import compare

SEEDS = range(1000, 1024)
FOUND_BY_SEARCHING = (57, 1010, 1141, 1197, 7012, 7075, 7137, 7145, 7220, 7244)
"""Each needed a rule of its own: gangs with members above a minimum, budgets, shares, one queued and one unqueued."""


@pytest.mark.parametrize("seed", FOUND_BY_SEARCHING)
def test_worlds_that_were_decided_badly_once(seed: int) -> None:
    one = compare(seed)
    assert is_good(one), describe(one)


def test_victims_lose_hardly_more_than_has_to_be_lost() -> None:
    found = [compare(seed) for seed in SEEDS]
    bad = [describe(one) for one in found if not is_good(one)]
    assert bad == []
    gaps = [one.gap for one in found if one.least]
    assert len(gaps) > len(SEEDS) // 3, "hardly any world needs victims"
    assert mean(gaps) <= MOST_IN_THE_MEAN
