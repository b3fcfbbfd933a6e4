"""`solve_exactly` against every set of moves, every placement and every order, in tiny clusters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from defrag_clusters import moves_of, plan_for, running, waiting
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_scenes import Scene, Size, arrangement, drawn, staged

from reference.park import gpu_node
from windlass.model.errors import InputError
from windlass.placement.defrag import exact_solver
from windlass.placement.defrag.exact_solver import solve_exactly
from windlass.placement.defrag.move_sequence import MoveSequencer
from windlass.placement.defrag.types import GangLoss, MoveSearchResult, Relocation, SearchLimits

CHANCE = st.randoms(use_true_random=False)
SOME = settings(max_examples=25)


@pytest.fixture(autouse=True)
def _overflow() -> Iterator[None]:
    with np.errstate(over="ignore"):  # the hash function of the kernels overflows on purpose
        yield


def weigh(scene: Scene, relocations: tuple[Relocation, ...]) -> int:
    return scene.movable.total_weight({one.pod_number for one in relocations})


def solved(scene: Scene, size: Size, count: int = 1, most: int = 16, **fields: Any) -> MoveSearchResult | None:
    return solve_exactly(
        scene.overlay,
        scene.movable,
        scene.items(size, count, **fields),
        SearchLimits(max_moves=most),
        lambda relocations: weigh(scene, relocations),
    )


@SOME
@given(CHANCE)
def test_the_solver_finds_the_lightest_moves(rng: Random) -> None:
    scene = drawn(rng)
    size, count, most = Size(rng.randint(1, 5), rng.randint(1, 4)), rng.choice([1, 1, 2]), rng.choice([1, 2, 9])
    numbers = range(len(scene.movable.pods))
    weights = [
        scene.movable.total_weight(set(chosen))
        for n in range(min(most, len(numbers)) + 1)
        for chosen in combinations(numbers, n)
        if arrangement(scene, chosen, [size] * count)
    ]
    result = solved(scene, size, count, most)
    assert (None if result is None else result.weight) == min(weights, default=None)
    if result is not None:
        assert result.bound == result.weight
        assert arrangement(scene, tuple(one.pod_number for one in result.relocations), [size] * count)


def in_order(scene: Scene, moves: list[tuple[int, int]], wanted: Size) -> bool:
    """Whether the pods can go to these nodes one after another, and the one that waits fits afterwards."""

    def go(left: list[tuple[int, int]], free: list[Size]) -> bool:
        if not left:
            return any(one.holds(wanted) for one in free)
        for at, (number, node) in enumerate(left):
            size = scene.sizes[number]
            if free[node].holds(size):
                own = scene.movable.pods[number].node
                after = [
                    Size(
                        one.cpu + size.cpu * (index == own) - size.cpu * (index == node),
                        one.gpus + size.gpus * (index == own) - size.gpus * (index == node),
                    )
                    for index, one in enumerate(free)
                ]
                if go(left[:at] + left[at + 1 :], after):
                    return True
        return False

    return go(moves, [scene.free(node) for node in range(len(scene.nodes))])


def targets(scene: Scene, chosen: tuple[int, ...]) -> Iterator[list[tuple[int, int]]]:
    if not chosen:
        yield []
        return
    for rest in targets(scene, chosen[1:]):
        for node in range(len(scene.nodes)):
            if node != scene.movable.pods[chosen[0]].node:
                yield [(chosen[0], node), *rest]


@SOME
@given(CHANCE)
def test_of_answers_that_have_an_order_it_finds_the_lightest(rng: Random) -> None:
    scene = drawn(rng, most_pods=2)
    size = Size(rng.randint(1, 5), rng.randint(2, 4))
    numbers = range(len(scene.movable.pods))
    weights = [
        scene.movable.total_weight(set(chosen))
        for n in range(len(numbers) + 1)
        for chosen in combinations(numbers, n)
        if any(in_order(scene, moves, size) for moves in targets(scene, chosen))
    ]

    def accept(relocations: tuple[Relocation, ...]) -> int | None:
        steps = MoveSequencer(scene.overlay.fork(), scene.movable).execute(relocations)
        return None if steps is None or len(steps) > len(relocations) else weigh(scene, relocations)

    result = solve_exactly(scene.overlay, scene.movable, scene.items(size, 1), SearchLimits(), accept)
    assert (None if result is None else result.weight) == min(weights, default=None)


def two_on_one() -> Scene:
    objects = [gpu_node("n0", 2), gpu_node("n1", 2), *(running(f"p{at}", 1, on="n0", age=10) for at in range(2))]
    return staged(objects, [Size(16, 2)] * 2, [Size(1, 1)] * 2, [])


@pytest.mark.parametrize(("allowed", "moves"), [(2, 2), (1, None), (0, None)])
def test_budgets_are_constraints(allowed: int, moves: int | None) -> None:
    scene = two_on_one()
    pods = tuple(msgspec.structs.replace(one, budgets=(0,)) for one in scene.movable.pods)
    scene = scene._replace(movable=msgspec.structs.replace(scene.movable, pods=pods, budgets=(allowed,)))
    result = solved(scene, Size(1, 2), allowed=np.array([True, False]))
    assert (None if result is None else len(result.relocations)) == moves


def test_a_gang_stops_once_and_counts_with_any_of_its_members() -> None:
    """Both members of a gang (a loss of five together) or one pod with a loss of six."""
    objects = [gpu_node("n0", 2), gpu_node("n1", 2), gpu_node("n2", 2), running("c", 2, on="n1", age=10)]
    objects += [running(f"g{at}", 1, on="n0", age=10) for at in range(2)]
    scene = staged(objects, [Size(16, 2)] * 3, [Size(1, 2), Size(1, 1), Size(1, 1)], [])
    for gang_loss, expected in ((5, {1, 2}), (7, {0})):
        pods = tuple(
            msgspec.structs.replace(one, loss=6 if one.number == 0 else 0, gang_loss=-1 if one.number == 0 else 0)
            for one in scene.movable.pods
        )
        losses = (GangLoss("g", gang_loss, 0),)
        movable = msgspec.structs.replace(scene.movable, pods=pods, gang_losses=losses)
        other = scene._replace(movable=movable)
        result = solved(other, Size(1, 2), allowed=np.array([True, True, False]))
        assert result is not None
        assert {one.pod_number for one in result.relocations} == expected
        assert result.weight >> 20 == min(gang_loss, 6)


def test_a_pod_frees_only_what_it_holds() -> None:
    """Without the pod that holds cores only, one GPU is still lacking."""
    objects = [gpu_node("n0", 2), gpu_node("n1", 1), running("fixed", 1, on="n0", kind=""), running("cores", on="n0")]
    scene = staged(objects, [Size(16, 2), Size(16, 1)], [Size(1, 0)], [(0, Size(1, 1))])
    assert solved(scene, Size(1, 2)) is None
    assert solved(scene, Size(15, 1), allowed=np.array([True, False])) is not None


def test_a_pod_takes_only_what_it_asks_for() -> None:
    """One that asks for cores only starts on a node without free GPUs."""
    objects = [gpu_node("n0", 2), gpu_node("n1", 2), running("fixed", 2, on="n0", kind=""), running("a", 1, on="n1")]
    scene = staged(objects, [Size(16, 2)] * 2, [Size(1, 1)], [(0, Size(1, 2))])
    result = solved(scene, Size(1, 0), allowed=np.array([True, False]))
    assert result is not None
    assert (result.relocations, result.weight) == ((), 0)


def test_refused_answers_are_excluded_one_by_one_and_then_it_gives_up() -> None:
    scene = two_on_one()
    only = np.array([True, False])
    offered: list[frozenset[Relocation]] = []

    def refuse(relocations: tuple[Relocation, ...]) -> int | None:
        offered.append(frozenset(relocations))
        return None

    assert (
        solve_exactly(scene.overlay, scene.movable, scene.items(Size(1, 2), 1, allowed=only), SearchLimits(), refuse)
        is None
    )
    assert 1 <= len(offered) <= exact_solver.MAX_REJECTED_ANSWERS


def test_shares_go_to_the_device_that_keeps_the_others_whole() -> None:
    shares = [("a", "0.5", 0, 20), ("b", "0.4", 1, 10), ("c", "0.6", 2, 30)]
    pods = [
        running(name, share=part, on="n0", age=age, notes={"windlass.dev/devices": str(at)})
        for name, part, at, age in shares
    ]
    plan = plan_for([gpu_node("n0", 3), *pods, *waiting(1)], is_exact=True)
    assert moves_of(plan) == [("b", "n0", "n0")]
    assert [grant.index for grant in plan.moves[0].devices] in ([0], [2])
    assert plan.lost_milli_seconds == 4000
    search = plan_for([gpu_node("n0", 3), *pods, *waiting(1)])
    assert (moves_of(search), search.lost_milli_seconds) == (moves_of(plan), 4000)


def test_an_instance_that_is_too_large_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = [gpu_node("n0", 2), gpu_node("n1", 2), *(running(f"p{at}", 1, on=f"n{at}") for at in range(2))]
    monkeypatch.setattr(exact_solver, "MAX_CELLS", 6)
    assert plan_for([*objects, *waiting(2)], is_exact=True).moves, "three pods on two nodes"
    monkeypatch.setattr(exact_solver, "MAX_CELLS", 5)
    with pytest.raises(InputError, match="3 pods on 2 nodes are too many"):
        plan_for([*objects, *waiting(2)], is_exact=True)


def deadlocked() -> Scene:
    """The pod that waits starts on `n0` if `p` leaves, for which three of the six small pods of `n1` make room; they
    need the cores of `p`. Or on `n2`, if the dear pod there goes to `n3`."""
    nodes = [Size(4, 3), Size(6, 2), Size(1, 3), Size(1, 3)]
    objects = [gpu_node(f"n{at}", size.gpus, cpu=size.cpu) for at, size in enumerate(nodes)]
    small = [running(f"q{at}", on="n1", age=10) for at in range(6)]
    objects += [running("p", 2, cpu="3", on="n0", age=10), *small, running("dear", 3, on="n2", age=100)]
    scene = staged(objects, nodes, [Size(0, 0)] * 8, [])
    by_name = {"p": Size(3, 2), "dear": Size(1, 3)}
    sizes = [by_name.get(one.pod.metadata.name, Size(1, 0)) for one in scene.movable.pods]
    return scene._replace(sizes=sizes)


def test_after_one_answer_without_an_order_only_answers_with_an_order_come() -> None:
    """There are far more cheap answers without an order than it would try one by one."""
    scene, offered = deadlocked(), []

    def accept(relocations: tuple[Relocation, ...]) -> int | None:
        offered.append({scene.movable.pods[one.pod_number].pod.metadata.name for one in relocations})
        steps = MoveSequencer(scene.overlay.fork(), scene.movable).execute(relocations)
        return None if steps is None or len(steps) > len(relocations) else weigh(scene, relocations)

    only = np.array([True, False, True, False])
    items = scene.items(Size(1, 3), 1, allowed=only)
    result = solve_exactly(scene.overlay, scene.movable, items, SearchLimits(), accept)
    assert result is not None
    assert "p" in offered[0]
    assert offered[1:] == [{"dear"}]
    assert weigh(scene, result.relocations) == result.weight


def test_a_share_gets_its_device_beside_a_pod_without_a_gpu() -> None:
    """The pod that waits asks for all cores of `n0`; the share there goes to the device of `n1` with room."""
    nodes = [gpu_node("n0", 1, cpu=8), gpu_node("n1", 2, cpu=7)]
    pods = [
        running("p", share="0.5", cpu="2", on="n0", notes={"windlass.dev/devices": "0"}),
        running("fixed", share="0.6", on="n1", kind="", notes={"windlass.dev/devices": "0"}),
    ]
    plan = plan_for([*nodes, *pods, *waiting(0, cpu="8")], is_exact=True)
    assert moves_of(plan) == [("p", "n0", "n1")]
    assert [grant.index for grant in plan.moves[0].devices] == [1]
