"""Units over domains: compared with loops that do one domain after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.placement.topology.distribution import (
    NO_DOMAIN,
    DomainPool,
    FillOrder,
    best_fit_domain,
    distribute_units,
)

LARGEST, SMALLEST, BEST = FillOrder.LARGEST_FIRST, FillOrder.SMALLEST_FIRST, FillOrder.BEST_SCORE


@dataclass
class Child:
    units: int
    pods: int = 0
    with_leader: int = 0
    takes_leader: bool = False
    score: int = 0


def ranked(children: list[Child], order: FillOrder) -> list[int]:
    def rank(number: int) -> tuple[int, ...]:
        child = children[number]
        if order is BEST:
            return (-child.score, number)
        return (child.units if order is SMALLEST else -child.units, child.pods, -child.score, number)

    return sorted(range(len(children)), key=rank)


def slow_fill(children: list[Child], need: int, order: FillOrder, closed: int = NO_DOMAIN) -> list[int]:
    taken = [0] * len(children)
    queue = ranked(children, order)
    offer = [0 if number == closed else child.units for number, child in enumerate(children)]
    for place, number in enumerate(queue):
        if need <= 0:
            break
        if offer[number] >= need and order is LARGEST:
            rest = [other for other in queue[place:] if offer[other] >= need]
            number = min(rest, key=lambda other: (offer[other], queue.index(other)))
        taken[number] = min(offer[number], need)
        need -= taken[number]
    return taken


def slow_leader(children: list[Child], need: int, order: FillOrder) -> int:
    able = [number for number in ranked(children, order) if children[number].takes_leader]
    if order is LARGEST:
        single = [number for number in able if children[number].with_leader >= need]
        if single:
            return min(single, key=lambda number: children[number].with_leader)
        return min(able, key=lambda number: others_needed(children, number, need))
    total = sum(child.units for child in children)
    return next(number for number in able if total - children[number].units + children[number].with_leader >= need)


def others_needed(children: list[Child], leader: int, need: int) -> int:
    left, count = need - children[leader].with_leader, 0
    for number in ranked(children, LARGEST):
        if left <= 0:
            return count
        if number != leader:
            left, count = left - children[number].units, count + 1
    return count if left <= 0 else 10**9


def pool_of(parents: list[list[Child]], with_leader: bool, scored: bool = True) -> DomainPool:
    every = [child for children in parents for child in children]
    return DomainPool(
        np.array([number for number, children in enumerate(parents) for _ in children], dtype=np.int64),
        np.array([child.units for child in every], dtype=np.int64),
        np.array([child.pods for child in every], dtype=np.int64),
        np.array([child.with_leader for child in every], dtype=np.int64),
        np.array([child.takes_leader for child in every]) if with_leader else None,
        np.array([child.score for child in every], dtype=np.int64) if scored else None,
    )


@st.composite
def children(draw: st.DrawFn) -> list[Child]:
    found = []
    for _ in range(draw(st.integers(1, 6))):
        units = draw(st.integers(0, 8))
        cost = draw(st.integers(0, 3))
        found.append(
            Child(units, draw(st.integers(0, 2)), max(0, units - cost), draw(st.booleans()), draw(st.integers(0, 2)))
        )
    return found


@given(st.lists(children(), min_size=1, max_size=3), st.sampled_from(FillOrder), st.booleans(), st.data())
def test_it_fills_as_the_loop_does(
    parents: list[list[Child]], order: FillOrder, scored: bool, data: st.DataObject
) -> None:
    needs = [data.draw(st.integers(0, sum(child.units for child in own))) for own in parents]
    taken, leader = distribute_units(pool_of(parents, False, scored), np.array(needs), NO_DOMAIN, order)
    if not scored:
        parents = [[Child(child.units, child.pods) for child in own] for own in parents]
    filled = [slow_fill(own, need, order) for own, need in zip(parents, needs, strict=True)]
    assert taken.tolist() == [units for own in filled for units in own]
    assert leader == NO_DOMAIN


@given(st.lists(children(), min_size=1, max_size=3), st.sampled_from(FillOrder), st.data())
def test_the_leader_goes_where_the_loop_puts_it(
    parents: list[list[Child]], order: FillOrder, data: st.DataObject
) -> None:
    able = [number for number, own in enumerate(parents) if any(child.takes_leader for child in own)]
    if not able:
        return
    at = data.draw(st.sampled_from(able))
    needs = []
    for number, own in enumerate(parents):
        most = sum(child.units for child in own)
        if number == at:
            most -= min(child.units - child.with_leader for child in own if child.takes_leader)
        needs.append(data.draw(st.integers(0, most)))
    taken, leader = distribute_units(pool_of(parents, True), np.array(needs), at, order)
    expected: list[int] = []
    for number, (own, need) in enumerate(zip(parents, needs, strict=True)):
        if number != at:
            expected += slow_fill(own, need, order)
            continue
        chosen = slow_leader(own, need, order)
        assert leader == len(expected) + chosen
        beside = min(own[chosen].with_leader, need)
        filled = slow_fill(own, need - beside, order, closed=chosen)
        filled[chosen] = beside
        expected += filled
    assert taken.tolist() == expected


def test_a_leader_that_costs_nothing_does_not_hide_that_another_domain_is_needed() -> None:
    """On the small domain the leader is free, but no fewer domains are used; the first of equals is taken."""
    domains = [Child(6, with_leader=4, takes_leader=True), Child(6), Child(1, with_leader=1, takes_leader=True)]
    taken, leader = distribute_units(pool_of([domains], True), np.array([5]), 0, LARGEST)
    assert (taken.tolist(), leader) == ([4, 0, 1], 0)


def test_the_smallest_domain_with_enough_beside_the_leader_is_taken() -> None:
    domains = [Child(9, with_leader=7, takes_leader=True), Child(8, with_leader=5, takes_leader=True), Child(7)]
    taken, leader = distribute_units(pool_of([domains], True), np.array([4]), 0, LARGEST)
    assert (taken.tolist(), leader) == ([0, 4, 0], 1)


def test_an_empty_pool_gets_nothing() -> None:
    taken, leader = distribute_units(pool_of([], False), np.array([], dtype=np.int64), NO_DOMAIN, LARGEST)
    assert (taken.tolist(), leader) == ([], NO_DOMAIN)


@pytest.mark.parametrize(
    ("enough", "units", "pods", "score", "best"),
    [
        ([True, True, True], [3, 2, 2], [0, 1, 1], None, 1),
        ([True, True, True], [3, 2, 2], [0, 1, 0], None, 2),
        ([True, True, True], [3, 2, 2], [0, 1, 1], [9, 0, 1], 2),
        ([True, True, True], [2, 2, 2], [1, 0, 1], [9, 0, 1], 1),
        ([True, False, False], [3, 2, 2], [0, 1, 1], None, 0),
        ([False, False, False], [3, 2, 2], [0, 1, 1], None, NO_DOMAIN),
    ],
)
def test_the_best_fit_is_the_smallest_that_suffices(
    enough: list[bool], units: list[int], pods: list[int], score: list[int] | None, best: int
) -> None:
    scores = None if score is None else np.array(score)
    assert best_fit_domain(np.array(enough), np.array(units), np.array(pods), scores) == best
