"""What holds of every topology plan, on random clusters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.placement.topology.reference_search import PodSetSpec, reference_plan
from tests.placement.topology.topology_cases import (
    MANY,
    Nodes,
    TopologyCase,
    cases,
    flat_cases,
    keeps,
    per_domain,
)

from windlass.placement.topology import TopologyFailure


@settings(max_examples=MANY)
@given(cases() | flat_cases())
def test_it_answers_as_the_slow_search_does(case: TopologyCase) -> None:
    slow = reference_plan(case.levels, case.paths, case.names, case.free, case.pod_sets)
    fast = case.plan()
    if slow is None:
        assert isinstance(fast, TopologyFailure)
    else:
        by_name = {name: {case.names[row]: pods for row, pods in rows.items()} for name, rows in slow.items()}
        assert fast == by_name


@given(cases(), st.data())
def test_the_order_of_the_nodes_does_not_matter(case: TopologyCase, data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(range(len(case.names))))
    assert case.plan(shuffled) == case.plan()


@given(cases())
def test_every_pod_has_a_place_and_no_node_is_overfilled(case: TopologyCase) -> None:
    placed = case.plan()
    if isinstance(placed, TopologyFailure):
        return
    left = {name: list(free) for name, free in zip(case.names, case.free, strict=True)}
    for pod_set in case.pod_sets:
        assert sum(placed[pod_set.name].values()) == pod_set.count
        assert all(pods > 0 for pods in placed[pod_set.name].values())
        for node, pods in placed[pod_set.name].items():
            left[node] = [have - pods * amount for have, amount in zip(left[node], pod_set.takes, strict=True)]
            used = [have for have, amount in zip(left[node], pod_set.takes, strict=True) if amount]
            assert all(have >= 0 for have in used)


@given(cases())
def test_the_required_level_and_the_slices_are_kept(case: TopologyCase) -> None:
    placed = case.plan()
    if isinstance(placed, TopologyFailure):
        return
    for pod_set in case.pod_sets:
        if pod_set.name.startswith("set"):
            leader = placed.get(pod_set.name.replace("set", "leader"), {})
            assert keeps(case, pod_set.request, placed[pod_set.name], leader)


# ---- against everything that is possible ----------------------------------------------------------------------------

SMALL = cases(most_nodes=5, most_pods=4, most_sets=1)


def every_way(case: TopologyCase) -> Iterator[tuple[Nodes, Nodes]]:
    """All placements of the workers and the leader that keep the rules."""
    workers = next(pod_set for pod_set in case.pod_sets if pod_set.name.startswith("set"))
    leader = next((pod_set for pod_set in case.pod_sets if pod_set is not workers), None)
    for leader_node in case.names if leader else [""]:
        free = dict(zip(case.names, case.free, strict=True))
        if leader is not None:
            if not fits(free[leader_node], leader, 1):
                continue
            free[leader_node] = (
                free[leader_node][0] - leader.takes[0],
                free[leader_node][1] - leader.takes[1],
            )
        for nodes in spreads(case, workers, free, workers.count, 0):
            leader_placement = {leader_node: 1} if leader else {}
            if keeps(case, workers.request, nodes, leader_placement):
                yield nodes, leader_placement


def spreads(
    case: TopologyCase, pod_set: PodSetSpec, free: dict[str, tuple[int, ...]], count: int, position: int
) -> Iterator[Nodes]:
    if position == len(case.names):
        if count == 0:
            yield {}
        return
    node = case.names[position]
    for pods in range(count + 1):
        if pods and not fits(free[node], pod_set, pods):
            break
        for rest in spreads(case, pod_set, free, count - pods, position + 1):
            yield {node: pods, **rest} if pods else rest


def fits(free: tuple[int, ...], pod_set: PodSetSpec, pods: int) -> bool:
    return all(have >= amount * pods for have, amount in zip(free, pod_set.takes, strict=True) if amount)


@settings(max_examples=MANY)
@given(SMALL)
def test_there_is_a_plan_whenever_there_is_a_way(case: TopologyCase) -> None:
    assert isinstance(case.plan(), TopologyFailure) == (next(every_way(case), None) is None)


@settings(max_examples=MANY)
@given(SMALL)
def test_no_other_way_takes_fewer_domains(case: TopologyCase) -> None:
    """At the level where the pods were found to fit, and from there down in the domains above it: below a slice
    level, for as many pods in each domain above."""
    placed = case.plan()
    workers = next(pod_set for pod_set in case.pod_sets if pod_set.name.startswith("set"))
    request = workers.request
    if isinstance(placed, TopologyFailure) or request is None or request.mode == "unconstrained":
        return
    leader = placed.get(workers.name.replace("set", "leader"), {})
    ours = (placed[workers.name], leader)
    ways = list(every_way(case))
    level = case.levels.index(request.level)
    while level and all(len(used(case, way, level)) > 1 for way in ways):
        level -= 1
    assert len(used(case, ours, level)) == min(len(used(case, way, level)) for way in ways)
    slice_level = case.levels.index(request.slice_level) if request.slice_level else len(case.levels) - 1
    for above, below in pairwise(range(level, case.depths)):
        rivals = [way for way in ways if alike(case, way, ours, above, exact=above >= slice_level)]
        assert len(used(case, ours, below)) == min(len(used(case, way, below)) for way in rivals)


def used(case: TopologyCase, way: tuple[Nodes, Nodes], depth: int) -> set[tuple[str, ...]]:
    return {case.domain(node, depth) for nodes in way for node in nodes}


def alike(case: TopologyCase, way: tuple[Nodes, Nodes], ours: tuple[Nodes, Nodes], depth: int, exact: bool) -> bool:
    """Ways that take the same domains; exact: also the same number of pods in each, and the same leader's."""
    if not exact:
        return used(case, way, depth) == used(case, ours, depth)
    return all(per_domain(case, a, depth) == per_domain(case, b, depth) for a, b in zip(way, ours, strict=True))
