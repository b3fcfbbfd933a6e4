"""Victims are chosen by place: an owner within its nominal quota gets the nodes that it needs, and the cheap ones.

Borrowers of one GPU each, spread over nodes at random; the owner asks for whole nodes. On paper quota is enough in any
order of eviction, but only borrowers of the same nodes make a place.
"""

from __future__ import annotations

from random import Random

import pytest
from tests.peers.test_own_cases import ANY_LOWER, by_dump, gang, node, pod, queues

from windlass.model.unstructured import Unstructured

GPUS = 4


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


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("nodes", [2, 4, 40])
def test_one_pod_of_a_whole_node(seed: int, nodes: int) -> None:
    objects, lost = borrowed_nodes(Random(seed), nodes)
    plan = by_dump([*objects, pod("own", GPUS, queue="owner")])
    assert [bind.pod for bind in plan.binds] == ["team/own"]
    victims = {evict.workload for evict in plan.evicts}
    [cleared] = {victim.removeprefix("team/").rpartition("-")[0] for victim in victims}
    assert len(victims) == GPUS
    assert lost[cleared] <= 1.05 * min(lost.values())


@pytest.mark.parametrize("seed", range(12))
def test_a_gang_of_whole_nodes(seed: int) -> None:
    objects, lost = borrowed_nodes(Random(seed), 6)
    plan = by_dump([*objects, *gang("own", 3, GPUS, queue="owner")])
    assert len(plan.binds) == 3
    cleared = {evict.workload.removeprefix("team/").rpartition("-")[0] for evict in plan.evicts}
    assert len(cleared) == 3
    assert len(plan.evicts) == 3 * GPUS
    cheapest = sum(sorted(lost.values())[:3])
    assert sum(lost[name] for name in cleared) <= 1.25 * cheapest


def test_never_below_the_lenders_nominal_quota() -> None:
    objects, _ = borrowed_nodes(Random(1), 4)
    plan = by_dump([*objects, *gang("own", 3, GPUS, queue="owner")])
    assert plan.evicts == ()
    assert [hold.workload for hold in plan.holds] == ["team/own"]
