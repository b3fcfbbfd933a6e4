"""Victims are chosen by place: an owner within its nominal quota gets the nodes that it needs, and the cheap ones.

Borrowers of one GPU each, spread over nodes at random; the owner asks for whole nodes. On paper quota is enough in any
order of eviction, but only borrowers of the same nodes make a place.
"""

from __future__ import annotations

from random import Random

import pytest
from tests.model.kueue_samples import decoded
from tests.peers.test_own_cases import ANY_LOWER, NOW, gang, node, pod, queues

from windlass.model.configuration import Settings
from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured
from windlass.planner import plan_objects

GPUS = 4
by_either_rule = pytest.mark.parametrize("fair", [False, True], ids=["classical", "fair sharing"])


def decided(objects: list[Unstructured], fair: bool) -> Plan:
    plan, _ = plan_objects(decoded(*objects), Settings(fair_sharing=fair), NOW)
    return plan


def borrowed_nodes(random: Random, nodes: int) -> tuple[list[Unstructured], dict[str, int]]:
    """Nodes full of borrowers, and how many GPU-seconds are lost where a node is cleared."""
    ages = {f"n{number:02}": [random.randint(1, 40) * 60 for _ in range(GPUS)] for number in range(nodes)}
    borrowers = [
        pod(f"{name}-{number}", 1, on=name, queue="guest", age=age)
        for name, ages_here in ages.items()
        for number, age in enumerate(ages_here)
    ]
    random.shuffle(borrowers)
    quota = queues("guest", "owner", gpus=nodes * GPUS // 2, cohort="c", preemption=ANY_LOWER)
    return [*(node(name, GPUS) for name in ages), *quota, *borrowers], {
        name: sum(ages_here) for name, ages_here in ages.items()
    }


@by_either_rule
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("nodes", [2, 4, 40])
def test_one_pod_of_a_whole_node(seed: int, nodes: int, fair: bool) -> None:
    objects, lost = borrowed_nodes(Random(seed), nodes)
    plan = decided([*objects, pod("own", GPUS, queue="owner")], fair)
    assert [bind.pod for bind in plan.binds] == ["team/own"]
    victims = {evict.workload for evict in plan.evicts}
    [cleared] = {victim.removeprefix("team/").rpartition("-")[0] for victim in victims}
    assert len(victims) == GPUS
    assert lost[cleared] == min(lost.values())


@by_either_rule
@pytest.mark.parametrize("seed", range(8))
def test_a_gang_of_whole_nodes(seed: int, fair: bool) -> None:
    objects, lost = borrowed_nodes(Random(seed), 6)
    plan = decided([*objects, *gang("own", 3, GPUS, queue="owner")], fair)
    assert len(plan.binds) == 3
    cleared = {evict.workload.removeprefix("team/").rpartition("-")[0] for evict in plan.evicts}
    assert len(cleared) == 3
    assert len(plan.evicts) == 3 * GPUS
    assert sum(lost[name] for name in cleared) == sum(sorted(lost.values())[:3])


@by_either_rule
def test_never_below_the_lenders_nominal_quota(fair: bool) -> None:
    objects, _ = borrowed_nodes(Random(1), 4)
    plan = decided([*objects, *gang("own", 3, GPUS, queue="owner")], fair)
    assert plan.evicts == ()
    assert [hold.workload for hold in plan.holds] == ["team/own"]
