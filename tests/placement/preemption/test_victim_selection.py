"""`select_victims`: the cheapest units of a node that free enough, and none that isn't needed."""

from __future__ import annotations

from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.placement.preemption.victim_selection import MAX_EXHAUSTIVE_UNITS, eviction_cost, select_victims
from windlass.placement.preemption.victim_units import VictimUnit


def unit(number: int, priority: int, lost: int, pods: int = 1, *, leaving: bool = False) -> VictimUnit:
    names = tuple(f"d/{number}-{at}" for at in range(pods))
    return VictimUnit(number, f"d/{number}", (number,), names, priority, (lost, 0), 0, str(number), leaving)


def drawn(rng: Random, count: int) -> tuple[list[VictimUnit], np.ndarray, np.ndarray]:
    units = [unit(at, rng.choice([0, 5]), rng.randint(0, 9), leaving=rng.random() < 0.1) for at in range(count)]
    freed = np.array([[rng.randint(0, 4), rng.randint(0, 4)] for _ in units], dtype=np.int64).reshape(-1, 2)
    return units, freed, np.array([rng.randint(0, 8), rng.randint(0, 8)], dtype=np.int64)


@given(st.randoms(use_true_random=False))
def test_it_is_the_cheapest_of_all_sets(rng: Random) -> None:
    units, freed, lacking = drawn(rng, rng.randint(1, 7))
    sets = [positions for n in range(len(units) + 1) for positions in combinations(range(len(units)), n)]
    enough = [positions for positions in sets if np.all(freed[list(positions)].sum(axis=0) >= lacking)]
    found = select_victims(units, freed, lacking)
    if not enough:
        assert found is None
        return
    assert found is not None
    assert tuple(found) in enough
    assert eviction_cost([units[position] for position in found]) == min(
        eviction_cost([units[position] for position in positions]) for positions in enough
    )


@given(st.randoms(use_true_random=False))
def test_of_many_units_nobody_goes_who_isnt_needed(rng: Random) -> None:
    units, freed, lacking = drawn(rng, MAX_EXHAUSTIVE_UNITS + rng.randint(1, 8))
    found = select_victims(units, freed, lacking)
    if found is None:
        assert np.any(freed.sum(axis=0) < lacking)
        return
    assert np.all(freed[found].sum(axis=0) >= lacking)
    for position in found[:-1]:
        assert np.any(freed[[other for other in found if other != position]].sum(axis=0) < lacking)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (unit(0, 0, 900), unit(1, 1, 1)),  # a lower priority goes before a higher one, whatever it loses
        (unit(0, 0, 1), unit(1, 0, 2)),  # then what loses less
        (unit(0, 0, 2, pods=1), unit(1, 0, 2, pods=2)),  # then what is fewer pods
        (unit(0, 5, 9, leaving=True), unit(1, 0, 0)),  # and what goes anyway before everybody
    ],
)
def test_who_goes_of_two_that_free_the_same(first: VictimUnit, second: VictimUnit) -> None:
    freed = np.array([[4], [4]], dtype=np.int64)
    assert select_victims([first, second], freed, np.array([4])) == [0]
    assert select_victims([second, first], freed, np.array([4])) == [1]
