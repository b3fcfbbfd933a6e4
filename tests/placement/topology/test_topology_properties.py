"""What holds of every topology plan, on random clusters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.placement.topology.slow import Wish, slow_plan
from tests.placement.topology.worlds import MANY, Nodes, World, flat_worlds, keeps, per_domain, worlds

from windlass.placement.topology import TopologyFailure


@settings(max_examples=MANY)
@given(worlds() | flat_worlds())
def test_it_answers_as_the_slow_search_does(world: World) -> None:
    slow = slow_plan(world.levels, world.paths, world.names, world.free, world.wishes)
    fast = world.plan()
    if slow is None:
        assert isinstance(fast, TopologyFailure)
    else:
        by_name = {
            name: {world.names[row]: pods for row, pods in rows.items()} for name, rows in slow.items()
        }
        assert fast == by_name


@given(worlds(), st.data())
def test_the_order_of_the_nodes_does_not_matter(world: World, data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(range(len(world.names))))
    assert world.plan(shuffled) == world.plan()


@given(worlds())
def test_every_pod_has_a_place_and_no_node_is_overfilled(world: World) -> None:
    placed = world.plan()
    if isinstance(placed, TopologyFailure):
        return
    left = {name: list(free) for name, free in zip(world.names, world.free, strict=True)}
    for wish in world.wishes:
        assert sum(placed[wish.name].values()) == wish.count
        assert all(pods > 0 for pods in placed[wish.name].values())
        for node, pods in placed[wish.name].items():
            left[node] = [have - pods * one for have, one in zip(left[node], wish.takes, strict=True)]
            used = [have for have, one in zip(left[node], wish.takes, strict=True) if one]
            assert all(have >= 0 for have in used)


@given(worlds())
def test_the_required_level_and_the_slices_are_kept(world: World) -> None:
    placed = world.plan()
    if isinstance(placed, TopologyFailure):
        return
    for wish in world.wishes:
        if wish.name.startswith("set"):
            leader = placed.get(wish.name.replace("set", "leader"), {})
            assert keeps(world, wish.request, placed[wish.name], leader)


# ---- against everything that is possible ----------------------------------------------------------------------------

SMALL = worlds(most_nodes=5, most_pods=4, most_sets=1)


def every_way(world: World) -> Iterator[tuple[Nodes, Nodes]]:
    """All placements of the workers and the leader that keep the rules."""
    workers = next(wish for wish in world.wishes if wish.name.startswith("set"))
    leader = next((wish for wish in world.wishes if wish is not workers), None)
    for seat in world.names if leader else [""]:
        free = dict(zip(world.names, world.free, strict=True))
        if leader is not None:
            if not fits(free[seat], leader, 1):
                continue
            free[seat] = (free[seat][0] - leader.takes[0], free[seat][1] - leader.takes[1])
        for nodes in spreads(world, workers, free, workers.count, 0):
            seated = {seat: 1} if leader else {}
            if keeps(world, workers.request, nodes, seated):
                yield nodes, seated


def spreads(
    world: World, wish: Wish, free: dict[str, tuple[int, ...]], count: int, at: int
) -> Iterator[Nodes]:
    if at == len(world.names):
        if count == 0:
            yield {}
        return
    node = world.names[at]
    for pods in range(count + 1):
        if pods and not fits(free[node], wish, pods):
            break
        for rest in spreads(world, wish, free, count - pods, at + 1):
            yield {node: pods, **rest} if pods else rest


def fits(free: tuple[int, ...], wish: Wish, pods: int) -> bool:
    return all(have >= one * pods for have, one in zip(free, wish.takes, strict=True) if one)


@settings(max_examples=MANY)
@given(SMALL)
def test_there_is_a_plan_whenever_there_is_a_way(world: World) -> None:
    assert isinstance(world.plan(), TopologyFailure) == (next(every_way(world), None) is None)


@settings(max_examples=MANY)
@given(SMALL)
def test_no_other_way_takes_fewer_domains(world: World) -> None:
    """At the level where the pods were found to fit, and from there down in the domains above it: below a slice
    level, for as many pods in each domain above."""
    placed = world.plan()
    workers = next(wish for wish in world.wishes if wish.name.startswith("set"))
    request = workers.request
    if isinstance(placed, TopologyFailure) or request is None or request.mode == "unconstrained":
        return
    leader = placed.get(workers.name.replace("set", "leader"), {})
    ours = (placed[workers.name], leader)
    ways = list(every_way(world))
    level = world.levels.index(request.level)
    while level and all(len(used(world, way, level)) > 1 for way in ways):
        level -= 1
    assert len(used(world, ours, level)) == min(len(used(world, way, level)) for way in ways)
    slice_level = world.levels.index(request.slice_level) if request.slice_level else len(world.levels) - 1
    for above, below in pairwise(range(level, world.depths)):
        rivals = [way for way in ways if alike(world, way, ours, above, exact=above >= slice_level)]
        assert len(used(world, ours, below)) == min(len(used(world, way, below)) for way in rivals)


def used(world: World, way: tuple[Nodes, Nodes], depth: int) -> set[tuple[str, ...]]:
    return {world.domain(node, depth) for nodes in way for node in nodes}


def alike(world: World, way: tuple[Nodes, Nodes], ours: tuple[Nodes, Nodes], depth: int, exact: bool) -> bool:
    """Ways that take the same domains; exact: also the same number of pods in each, and the same leader's."""
    if not exact:
        return used(world, way, depth) == used(world, ours, depth)
    return all(
        per_domain(world, a, depth) == per_domain(world, b, depth) for a, b in zip(way, ours, strict=True)
    )
