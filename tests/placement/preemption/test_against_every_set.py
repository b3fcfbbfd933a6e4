"""Victims and places compared with a search that tries every set of victims and every placement."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.preemption.parks import (
    Park,
    cheapest,
    cost_of,
    draw,
    fits,
    plan_of,
    victims,
    with_budgets,
)

from windlass.model.configuration import Settings
from windlass.model.plan import Plan

CHANCE = st.randoms(use_true_random=False)


def check(park: Park, plan: Plan) -> None:
    """What holds of every plan, whatever it costs."""
    gone = victims(park, plan)
    assert all(unit.priority < park.priority for unit in gone)
    for unit in gone:
        (evict,) = [one for one in plan.evicts if one.workload == f"default/{unit.name}"]
        assert len(evict.pods) == len(unit.nodes), "a gang goes whole"
        assert evict.reason == "Priority"
        assert evict.for_workload == "default/urgent"
        assert all(
            f"default/{unit.name}" in bind.after for bind in plan.binds if _is_there(bind.node, unit.nodes)
        )
    names = frozenset(unit.name for unit in gone)
    left = park.free(names)
    for bind in plan.binds:
        left[int(bind.node.removeprefix("n"))] -= park.waiting[0]
    assert min(left) >= 0, "a GPU is given twice"
    for unit in gone:
        assert not fits(park.free(names - {unit.name}), park.waiting), f"{unit.name} needn't have gone"


def _is_there(node: str, nodes: tuple[int, ...]) -> bool:
    return int(node.removeprefix("n")) in nodes


@given(CHANCE)
def test_one_pod_evicts_the_cheapest_set_there_is(rng: Random) -> None:
    park = draw(rng)
    best, plan = cheapest(park), plan_of(park)
    assert (best is not None) == bool(plan.binds)
    assert cost_of(victims(park, plan)) == cost_of(best or [])
    check(park, plan)


@given(CHANCE)
def test_a_gang_preempts_exactly_where_some_set_of_victims_makes_room(rng: Random) -> None:
    park = draw(rng, most_waiting=3)
    best, plan = cheapest(park), plan_of(park)
    assert len(plan.binds) == (len(park.waiting) if best is not None else 0)
    assert bool(victims(park, plan)) == bool(best)
    check(park, plan)


@given(CHANCE)
def test_no_budget_is_broken_and_what_they_allow_is_found(rng: Random) -> None:
    park = with_budgets(draw(rng, most_waiting=2), rng)
    best, plan = cheapest(park), plan_of(park)
    assert park.permits(victims(park, plan))
    if len(park.waiting) == 1:
        assert (best is not None) == bool(plan.binds)
        assert cost_of(victims(park, plan)) == cost_of(best or [])


@given(CHANCE)
def test_where_budgets_yield_they_do_so_last(rng: Random) -> None:
    park = with_budgets(draw(rng), rng)
    plan = plan_of(park, Settings(budgets_yield_to=("priority",)))
    free = park._replace(budgets=())
    best = cheapest(park) if cheapest(park) is not None else cheapest(free)
    assert cost_of(victims(park, plan)) == cost_of(best or [])


def test_a_gangs_victims_cost_no_more_than_a_twentieth_above_the_cheapest() -> None:
    ratios = []
    for seed in range(200):
        park = draw(Random(seed), most_waiting=3)
        best = cheapest(park)
        if best:
            spent = sum(unit.cost[0] for unit in victims(park, plan_of(park)))
            ratios.append(spent / sum(unit.cost[0] for unit in best))
    assert len(ratios) > 30
    assert sum(ratios) / len(ratios) <= 1.05


@pytest.mark.parametrize("seed", range(20))
def test_nobody_goes_for_a_class_that_never_preempts(seed: int) -> None:
    park = draw(Random(seed))._replace(policy="Never")
    assert plan_of(park).evicts == ()
