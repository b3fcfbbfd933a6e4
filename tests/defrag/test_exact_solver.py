"""The search against CP-SAT's optimum on small random clusters, and the solver's own manners."""

from __future__ import annotations

import random
import sys

import pytest
from defrag_clusters import Seeded, dealt, moves_of, plan_for, running, waiting

from reference.park import gpu_node, mig_node, pod
from windlass.model.errors import InputError

INSTANCES = 48


@pytest.mark.parametrize("shares", [False, True])
def test_the_search_finds_what_the_solver_finds(shares):
    """Feasible whenever the optimum is, and within 5 % of its cost on average."""
    chance = Seeded(random.Random(20 + shares))
    gaps = []
    for number in range(INSTANCES):
        objects = dealt(chance, 3 + number % 3, shares=shares)
        found, best = plan_for(objects), plan_for(objects, is_exact=True)
        assert bool(found.starts) == bool(best.starts), number
        if best.starts:
            assert found.bound_milli_seconds <= best.lost_milli_seconds, number
            if found.starts[0].is_proven and best.starts[0].is_proven:
                assert cost(found) == cost(best), number
            gaps.append(found.lost_milli_seconds / max(1, best.lost_milli_seconds) - 1)
    assert len(gaps) >= INSTANCES // 4
    assert sum(gaps) / len(gaps) <= 0.05


def cost(plan):
    return plan.lost_milli_seconds, len(plan.moves)


@pytest.mark.parametrize("is_exact", [False, True])
@pytest.mark.parametrize(("age", "expected"), [(6000, {"g0", "g1"}), (60, {"a", "b"})])
def test_gangs_lose_their_work_once(is_exact, age, expected):
    """Both members of a gang are as dear as one of them: dearer than two young pods, cheaper than two old ones."""
    gang = [running(f"g{i}", 2, on="n0", age=3600, group=("g", 2)) for i in range(2)]
    others = [running("a", 2, on="n1", age=age), running("b", 1, on="n1", age=2 * age)]
    nodes = [gpu_node("n0", 4), gpu_node("n1", 4), gpu_node("n2", 4), gpu_node("n3", 2)]
    objects = [*nodes, *gang, *others, running("stays", 2, on="n2", kind=""), *waiting(4)]
    plan = plan_for(objects, is_exact=is_exact)
    assert {name for name, _, _ in moves_of(plan)} == expected
    assert plan.starts[0].is_proven
    if "g0" in expected:
        assert plan.lost_milli_seconds == 2 * 2000 * 3600


@pytest.mark.parametrize("is_exact", [False, True])
def test_one_member_costs_the_work_of_all(is_exact):
    nodes = [gpu_node(f"n{i}", 2) for i in range(3)]
    gang = [running(f"g{i}", 1, on=f"n{i}", age=3600, group=("g", 2)) for i in range(2)]
    objects = [*nodes, *gang, running("single", 1, on="n2", age=5000), *waiting(2)]
    plan = plan_for(objects, is_exact=is_exact)
    assert {name for name, _, _ in moves_of(plan)} == {"single"}
    assert plan.starts[0].is_proven


def test_without_the_solver_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    objects = [gpu_node("n0", 2), gpu_node("n1", 2), *(running(f"p{i}", 1, on=f"n{i}") for i in range(2))]
    assert plan_for([*objects, *waiting(2)]).moves
    with pytest.raises(InputError, match=r"OR-Tools.*windlass\[exact\]"):
        plan_for([*objects, *waiting(2)], is_exact=True)


def test_what_the_model_lacks_is_refused():
    nodes = [mig_node("n0", 1), mig_node("n1", 1)]
    runs = [running(f"p{i}", mig=("3g.40gb", 1), on=f"n{i}") for i in range(2)]
    objects = [*nodes, *runs, pod("w0", mig=("7g.80gb", 1), group=("w", 1))]
    assert len(plan_for(objects).moves) == 1
    with pytest.raises(InputError, match="MIG instance"):
        plan_for(objects, is_exact=True)
