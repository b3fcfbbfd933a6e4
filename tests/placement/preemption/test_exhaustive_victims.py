"""Victims and nodes compared with an exhaustive search over all sets of victims and all placements."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.preemption.preemption_cases import (
    ClusterCase,
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


def check(case: ClusterCase, plan: Plan) -> None:
    """Properties of every plan, whatever it costs."""
    evicted = victims(case, plan)
    assert all(unit.priority < case.priority for unit in evicted)
    for unit in evicted:
        (evict,) = [decision for decision in plan.evicts if decision.workload == f"default/{unit.name}"]
        assert len(evict.pods) == len(unit.nodes), "a gang goes whole"
        assert evict.reason == "Priority"
        assert evict.for_workload == "default/urgent"
        assert all(f"default/{unit.name}" in bind.after for bind in plan.binds if _is_there(bind.node, unit.nodes))
    names = frozenset(unit.name for unit in evicted)
    left = case.free(names)
    for bind in plan.binds:
        left[int(bind.node.removeprefix("n"))] -= case.waiting[0]
    assert min(left) >= 0, "a GPU is given twice"
    for unit in evicted:
        assert not fits(case.free(names - {unit.name}), case.waiting), f"{unit.name} needn't have gone"


def _is_there(node: str, nodes: tuple[int, ...]) -> bool:
    return int(node.removeprefix("n")) in nodes


@given(CHANCE)
def test_one_pod_evicts_the_cheapest_set_there_is(rng: Random) -> None:
    case = draw(rng)
    best, plan = cheapest(case), plan_of(case)
    assert (best is not None) == bool(plan.binds)
    assert cost_of(victims(case, plan)) == cost_of(best or [])
    check(case, plan)


@given(CHANCE)
def test_a_gang_preempts_exactly_where_some_set_of_victims_makes_room(rng: Random) -> None:
    case = draw(rng, most_waiting=3)
    best, plan = cheapest(case), plan_of(case)
    assert len(plan.binds) == (len(case.waiting) if best is not None else 0)
    assert bool(victims(case, plan)) == bool(best)
    check(case, plan)


@given(CHANCE)
def test_no_budget_is_broken_and_what_they_allow_is_found(rng: Random) -> None:
    case = with_budgets(draw(rng, most_waiting=2), rng)
    best, plan = cheapest(case), plan_of(case)
    assert case.permits(victims(case, plan))
    if len(case.waiting) == 1:
        assert (best is not None) == bool(plan.binds)
        assert cost_of(victims(case, plan)) == cost_of(best or [])


@given(CHANCE)
def test_where_budgets_yield_they_do_so_last(rng: Random) -> None:
    case = with_budgets(draw(rng), rng)
    plan = plan_of(case, Settings(budgets_yield_to=("priority",)))
    free = case._replace(budgets=())
    best = cheapest(case) if cheapest(case) is not None else cheapest(free)
    assert cost_of(victims(case, plan)) == cost_of(best or [])


def test_a_gangs_victims_cost_no_more_than_a_twentieth_above_the_cheapest() -> None:
    ratios = []
    for seed in range(200):
        case = draw(Random(seed), most_waiting=3)
        best = cheapest(case)
        if best:
            spent = sum(unit.cost[0] for unit in victims(case, plan_of(case)))
            ratios.append(spent / sum(unit.cost[0] for unit in best))
    assert len(ratios) > 30
    assert sum(ratios) / len(ratios) <= 1.05


@pytest.mark.parametrize("seed", range(20))
def test_nobody_goes_for_a_class_that_never_preempts(seed: int) -> None:
    case = draw(Random(seed))._replace(policy="Never")
    assert plan_of(case).evicts == ()
