"""`lower_bound`, `NodeClearing` and `MoveSearch` against all sets of moves, in tiny clusters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import combinations, product
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from defrag_clusters import running
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.placement.staged_overlay import overlay_on, shape_and_row
from tiny_scenes import Scene, Size, arrangement, drawn, staged

from reference.park import gpu_node, mig_node, pod
from windlass.placement.defrag.move_search import MoveSearch
from windlass.placement.defrag.node_clearing import NodeClearing
from windlass.placement.defrag.types import (
    GangLoss,
    MovablePods,
    PodToPlace,
    Relocation,
    SearchLimits,
)
from windlass.placement.defrag.weight_bound import UNPLACEABLE, lower_bound

CHANCE = st.randoms(use_true_random=False)


@pytest.fixture(autouse=True)
def _overflow() -> Iterator[None]:
    with np.errstate(over="ignore"):  # the hash function of the kernels overflows on purpose
        yield


# The bound


def curve(scene: Scene, node: int, size: Size, count: int) -> list[int]:
    """The lightest way to make room for 0, 1, 2, … pods on the node, by trying every set."""
    found = []
    for pods in range(count + 1):
        wanted = Size(size.cpu * pods, size.gpus * pods)
        weights = [
            sum(scene.movable.pods[number].weight for number in chosen)
            for chosen in scene.subsets(node)
            if scene.free(node, chosen).holds(wanted)
        ]
        if not weights:
            break
        found.append(min(weights))
    return found


def lightest(scene: Scene, size: Size, count: int) -> int:
    curves = [curve(scene, node, size, count) for node in range(len(scene.nodes))]
    deals = (deal for deal in product(*(range(len(one)) for one in curves)) if sum(deal) == count)
    total = Size(
        sum(max(0, scene.free(node).cpu) for node in range(len(scene.nodes))),
        sum(max(0, scene.free(node).gpus) for node in range(len(scene.nodes))),
    )
    if not total.holds(Size(size.cpu * count, size.gpus * count)):
        return UNPLACEABLE
    return min((sum(one[n] for one, n in zip(curves, deal, strict=True)) for deal in deals), default=UNPLACEABLE)


@given(CHANCE)
def test_the_bound_is_the_lightest_distribution_of_equal_pods(rng: Random) -> None:
    scene = drawn(rng)
    size, count = Size(rng.randint(1, 6), rng.randint(1, 4)), rng.choice([1, 1, 2, 3])
    assert lower_bound(scene.overlay, scene.movable, scene.items(size, count)) == lightest(scene, size, count)


@given(CHANCE)
def test_of_several_pod_sets_the_heaviest_bound_counts(rng: Random) -> None:
    scene = drawn(rng)
    first, second = Size(rng.randint(1, 4), 1), Size(1, rng.randint(1, 3))
    pods = [*scene.items(first, 1, pod_set=0), *scene.items(second, 1, pod_set=1)]
    total = [scene.free(node) for node in range(len(scene.nodes))]
    enough = sum(max(0, one.gpus) for one in total) >= first.gpus + second.gpus
    enough &= sum(max(0, one.cpu) for one in total) >= first.cpu + second.cpu
    expected = max(lightest(scene, first, 1), lightest(scene, second, 1)) if enough else UNPLACEABLE
    assert lower_bound(scene.overlay, scene.movable, pods) == expected


def test_allowed_nodes_limit_the_bound() -> None:
    objects = [gpu_node("n0", 2), gpu_node("n1", 2), gpu_node("n2", 2)]
    objects += [running("a", 1, on="n0", age=10), running("b", 1, on="n1", age=90)]
    scene = staged(objects, [Size(16, 2)] * 3, [Size(1, 1)] * 2, [])
    bounds = [
        lower_bound(scene.overlay, scene.movable, scene.items(Size(1, 2), 1, allowed=np.array(mask)))
        for mask in ([True, True, True], [True, True, False], [False, True, False], [False, False, False])
    ]
    weights = [one.weight for one in scene.movable.pods]
    assert bounds == [0, weights[0], weights[1], UNPLACEABLE]


def fractional(scene: Scene, lacking: int) -> int:
    """GPUs of the cheapest pods per GPU, the last of them in part."""
    total = Fraction(0)
    for one in sorted(scene.movable.pods, key=lambda one: Fraction(one.weight, scene.sizes[one.number].gpus)):
        gpus = scene.sizes[one.number].gpus
        total += Fraction(one.weight * min(gpus, lacking), gpus)
        lacking -= min(gpus, lacking)
    return total.__floor__()


@given(CHANCE)
def test_of_many_pods_parts_may_leave_in_the_bound(rng: Random) -> None:
    sizes = [Size(1, rng.randint(1, 2)) for _ in range(11)]
    objects: list[Any] = [gpu_node("n0", 24, cpu=64), gpu_node("n1", 8, cpu=64)]
    objects += [running(f"p{at:02}", size.gpus, on="n0", age=rng.randint(1, 99)) for at, size in enumerate(sizes)]
    scene = staged(objects, [Size(64, 24), Size(64, 8)], sizes, [])
    free = scene.free(0).gpus
    wanted = max(free, 8) + rng.randint(1, 5)
    bound = lower_bound(scene.overlay, scene.movable, scene.items(Size(1, wanted), 1))
    assert bound == (fractional(scene, wanted - free) if wanted <= free + 8 else UNPLACEABLE)


def test_shares_and_instances_count_as_they_are_made() -> None:
    half = running("h", share="0.5", on="n0", age=10)
    scene = staged([gpu_node("n0", 1), gpu_node("n1", 1), half], [], [Size(1, 0)], [])
    waits = pod("w", share="0.6")
    shape, row = shape_and_row(scene.overlay, waits)
    only = np.array([True, False])
    item = PodToPlace(waits, shape, row, allowed=only)
    assert lower_bound(scene.overlay, scene.movable, [item]) == scene.movable.pods[0].weight
    small = pod("v", share="0.5")
    shape, row = shape_and_row(scene.overlay, small)
    assert lower_bound(scene.overlay, scene.movable, [PodToPlace(small, shape, row, allowed=only)]) == 0
    mig = overlay_on(mig_node("m", 1))
    asks = pod("w", mig=("3g.40gb", 1))
    shape, row = shape_and_row(mig, asks)
    assert lower_bound(mig, MovablePods(()), [PodToPlace(asks, shape, row)]) == 0


# Clearing one node


@given(CHANCE)
def test_the_sets_that_clear_a_node_are_all_minimal_ones_the_lightest_first(rng: Random) -> None:
    scene = drawn(rng, most_nodes=1, most_pods=5)
    size = Size(rng.randint(1, 8), rng.randint(1, 4))
    (item,) = scene.items(size, 1)
    clearing = NodeClearing(scene.overlay, scene.movable, 64, lambda: None)
    reasons = int(clearing.reasons(item)[0])
    movable = scene.movable.on_node.get(0, ())
    sets, complete = clearing.smallest_sets_to_move(item, 0, movable, reasons)
    enough = [set(chosen) for chosen in scene.subsets(0) if scene.free(0, chosen).holds(size)]
    minimal = [chosen for chosen in enough if chosen and not any(other < chosen for other in enough)]
    if not reasons:
        return  # it fits already
    assert complete
    found = [set(chosen) for chosen in sets]
    assert all(chosen in minimal for chosen in found)
    kinds = {shape_of(scene, chosen) for chosen in minimal}
    assert {shape_of(scene, chosen) for chosen in found} == kinds, "pods that are alike are interchangeable"
    weights = [scene.movable.total_weight(chosen) for chosen in found]
    assert weights == sorted(weights)
    if minimal:
        assert weights[0] == min(scene.movable.total_weight(chosen) for chosen in minimal)
    assert clearing.smallest_sets_to_move(item, 0, movable, reasons) == (sets, complete)


def shape_of(scene: Scene, chosen: Iterable[int]) -> tuple[tuple[Size, int], ...]:
    return tuple(sorted((scene.sizes[number], scene.movable.pods[number].loss) for number in chosen))


def test_no_more_sets_than_asked_for_and_then_it_is_not_complete() -> None:
    objects = [gpu_node("n0", 4), *(running(f"p{at}", 1, on="n0", age=10 + at) for at in range(4))]
    scene = staged(objects, [Size(16, 4)], [Size(1, 1)] * 4, [])
    (item,) = scene.items(Size(1, 1), 1)
    for most, expected in ((2, 2), (4, 4), (9, 4)):
        clearing = NodeClearing(scene.overlay, scene.movable, most, lambda: None)
        reasons = int(clearing.reasons(item)[0])
        sets, complete = clearing.smallest_sets_to_move(item, 0, (0, 1, 2, 3), reasons)
        assert (len(sets), complete) == (expected, most >= 4)
        assert (0,) in sets or most < 4


# The whole search


@settings(max_examples=100)
@given(CHANCE)
def test_the_search_finds_the_lightest_moves(rng: Random) -> None:
    scene = drawn(rng)
    size, count, most = Size(rng.randint(1, 5), rng.randint(1, 4)), rng.choice([1, 1, 2, 3]), rng.choice([1, 2, 3, 4])
    numbers = range(len(scene.movable.pods))
    sets = [chosen for n in range(len(numbers) + 1) for chosen in combinations(numbers, n)]
    weights = [
        scene.movable.total_weight(set(chosen))
        for chosen in sets
        if len(chosen) <= most and arrangement(scene, chosen, [size] * count)
    ]

    def accept(relocations: tuple[Relocation, ...]) -> int | None:
        return scene.movable.total_weight({one.pod_number for one in relocations})

    search = MoveSearch(scene.overlay, scene.movable, SearchLimits(max_moves=most, subsets=64), accept)
    search.run(scene.items(size, count))
    assert scene.overlay.checkpoint() == 0, "the overlay is as it was"
    result = search.found(0)
    assert search.is_complete
    if not weights:
        assert result is None
        return
    assert result is not None
    assert result.weight == result.bound == min(weights)
    assert arrangement(scene, tuple(one.pod_number for one in result.relocations), [size] * count)
    assert len({one.pod_number for one in result.relocations}) == len(result.relocations) <= most
    assert result.steps == search.steps > 0


def test_a_chain_of_moves_is_found_after_a_lighter_one_that_leads_nowhere() -> None:
    """The light pod has no other node; `a` has to push `b` on, with no more than two moves."""
    objects = [
        gpu_node("n0", 4, cpu=60),
        gpu_node("n1", 4, cpu=20),
        gpu_node("n2", 2, cpu=20),
        gpu_node("n3", 1, cpu=5),
        running("light", 1, on="n0", cpu="60", age=1),
        running("a", 2, on="n1", cpu="10", age=100),
        running("b", 1, on="n2", cpu="1", age=100),
    ]
    nodes = [Size(60, 4), Size(20, 4), Size(20, 2), Size(5, 1)]
    scene = staged(objects, nodes, [Size(60, 1), Size(10, 2), Size(1, 1)], [])
    for most, expected in ((1, None), (2, {(1, 2), (2, 3)})):
        search = MoveSearch(scene.overlay, scene.movable, SearchLimits(max_moves=most), lambda moves: len(moves))
        search.run(scene.items(Size(1, 4), 1))
        result = search.found(0)
        assert (None if result is None else {(one.pod_number, one.node) for one in result.relocations}) == expected


def corridor(count: int) -> Scene:
    """Nodes of two GPUs with one in use on each, the oldest pod on the first."""
    objects: list[Any] = [gpu_node(f"n{at}", 2) for at in range(count)]
    objects += [running(f"p{at}", 1, on=f"n{at}", age=100 - at) for at in range(count)]
    return staged(objects, [Size(16, 2)] * count, [Size(1, 1)] * count, [])


def found(scene: Scene, *, ceiling: int | None = None, stop: int = 0, refused: int = 0, **limits: int) -> Any:
    """The search for a pod of two GPUs; the first `refused` answers are refused."""
    offered: list[tuple[Relocation, ...]] = []

    def accept(relocations: tuple[Relocation, ...]) -> int | None:
        offered.append(relocations)
        return None if len(offered) <= refused else scene.movable.total_weight({r.pod_number for r in relocations})

    arguments = () if ceiling is None else (ceiling,)
    search = MoveSearch(scene.overlay, scene.movable, SearchLimits(**limits), accept, *arguments)
    search.run(scene.items(Size(1, 2), 1), stop)
    return search, offered


def test_the_lightest_pod_moves_and_the_search_proves_it() -> None:
    scene = corridor(3)
    search, _ = found(scene)
    result = search.found(0)
    assert [one.pod_number for one in result.relocations] == [2]
    assert (result.weight, result.bound) == (scene.movable.pods[2].weight,) * 2


def test_only_answers_below_the_ceiling_count() -> None:
    scene = corridor(3)
    weight = scene.movable.pods[2].weight
    assert found(scene, ceiling=weight)[0].found(0) is None
    assert found(scene, ceiling=weight + 1)[0].found(0).weight == weight


def test_a_refused_answer_is_not_offered_again_and_another_is_found() -> None:
    scene = corridor(3)
    search, offered = found(scene, refused=1)
    assert len(set(map(frozenset, offered))) == len(offered)
    assert search.found(0).weight == scene.movable.pods[2].weight, "to the other node"
    assert found(scene, refused=99)[0].found(0) is None


def test_it_stops_at_the_bound_that_it_is_given() -> None:
    scene = corridor(4)
    weight = scene.movable.pods[3].weight
    few, _ = found(scene, stop=weight)
    many, _ = found(scene)
    assert few.found(weight).weight == many.found(weight).weight == weight
    assert few.steps <= many.steps


@pytest.mark.parametrize("steps", [1, 3, 6])
def test_steps_are_a_limit(steps: int) -> None:
    scene = corridor(4)
    search, _ = found(scene, steps=steps)
    assert search.steps <= steps + 5, "one more in each of five rounds"
    assert not search.is_complete
    result = search.found(7)
    assert result is None or result.bound == min(7, result.weight)


def test_a_limit_on_nodes_leaves_the_search_incomplete_and_takes_the_cheapest() -> None:
    scene = corridor(4)
    search, _ = found(scene, nodes=1)
    assert not search.is_complete
    assert [one.pod_number for one in search.found(0).relocations] == [3]


def test_budgets_limit_the_moves_together() -> None:
    objects = [gpu_node("n0", 2), gpu_node("n1", 2), *(running(f"p{at}", 1, on="n0", age=10) for at in range(2))]
    scene = staged(objects, [Size(16, 2)] * 2, [Size(1, 1)] * 2, [])
    for allowed, moves in ((2, 2), (1, None)):
        pods = tuple(msgspec.structs.replace(one, budgets=(0,)) for one in scene.movable.pods)
        movable = msgspec.structs.replace(scene.movable, pods=pods, budgets=(allowed,))
        other = scene._replace(movable=movable)
        waits = other.items(Size(1, 2), 1, allowed=np.array([True, False]))
        search = MoveSearch(other.overlay, movable, SearchLimits(), lambda relocations: len(relocations))
        search.run(waits)
        result = search.found(0)
        assert (None if result is None else len(result.relocations)) == moves


def test_a_gangs_loss_counts_once_in_weights_and_in_parts_in_bounds() -> None:
    scene = corridor(3)
    pods = tuple(
        msgspec.structs.replace(one, loss=0, gang_loss=0 if one.number < 2 else -1) for one in scene.movable.pods
    )
    movable = msgspec.structs.replace(scene.movable, pods=pods, gang_losses=(GangLoss("g", 7, 3),))
    unit = 1 << 20
    assert [movable.min_weight(number) for number in range(3)] == [3 * unit + 1, 3 * unit + 1, 1]
    assert movable.total_weight({0, 1}) == 7 * unit + 2
    assert movable.total_weight({0, 2}) == 7 * unit + 2
    assert movable.total_weight({2}) == 1
    assert movable.total_weight(set()) == 0
