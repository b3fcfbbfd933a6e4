"""Pods that lost their node get a new one while the rest of the set stays."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.topology.topology_cases import TopologyCase, cases, keeps

from windlass.model.workload import TopologyRequest
from windlass.placement.topology import (
    DomainTree,
    MatrixCapacity,
    PodSetPlacement,
    TopologyFailure,
    TopologyPodSetRequest,
    plan_replacement,
)

PATHS = [("1", "a"), ("1", "b"), ("1", "c"), ("2", "d"), ("2", "e"), ("2", "f")]
NAMES = "abcdef"


def replace(kept: dict[str, int], room: dict[str, int], count: int, request: TopologyRequest) -> dict[str, int] | str:
    tree = DomainTree.build(("rack", "host"), PATHS)
    free = MatrixCapacity(["pods"], np.array([[room.get(name, 0)] for name in NAMES]), np.array([[1]]))
    stay = np.array([kept.get(name, 0) for name in NAMES])
    answer = plan_replacement(tree, TopologyPodSetRequest("main", count, request), 0, stay, free, "dc")
    return answer.message if isinstance(answer, TopologyFailure) else answer.by_node(NAMES)


def test_a_required_rack_stays_the_rack() -> None:
    """Node `f` would be a closer fit, but the others are in rack 1."""
    required = TopologyRequest("required", "rack")
    assert replace({"a": 2}, {"b": 3, "f": 1}, 1, required) == {"b": 1}
    assert replace({"a": 2}, {"f": 1}, 1, required) == (
        'topology "dc" doesn\'t allow to fit any of 1 pod(s). Total nodes: 6; excluded: topologyDomain: 3'
    )


def test_a_preference_is_met_as_near_as_there_is_room() -> None:
    preferred = TopologyRequest("preferred", "rack")
    assert replace({"d": 2}, {"b": 1, "f": 3}, 1, preferred) == {"f": 1}
    assert replace({"d": 2}, {"b": 1}, 1, preferred) == {"b": 1}


def test_pods_that_may_be_anywhere_go_where_new_ones_would() -> None:
    assert replace({"d": 2}, {"b": 1, "f": 3}, 1, TopologyRequest("unconstrained")) == {"b": 1}


def test_a_broken_slice_is_completed_where_it_is() -> None:
    sliced = TopologyRequest("unconstrained", slice_level="rack", slice_size=4)
    assert replace({"a": 4, "d": 3}, {"b": 1, "e": 2}, 1, sliced) == {"e": 1}


def test_a_slice_that_was_lost_whole_goes_where_it_fits() -> None:
    sliced = TopologyRequest("unconstrained", slice_level="rack", slice_size=2)
    assert replace({"d": 3}, {"b": 2, "e": 2}, 3, sliced) == {"e": 1, "b": 2}


def test_inner_slices_are_completed_first() -> None:
    """Rack 1 lost a pod of the pair on `a`, and a pair."""
    layers = TopologyRequest("required", "rack", "rack", 4, (("host", 2),))
    assert replace({"a": 1}, {"a": 1, "b": 1, "c": 2}, 3, layers) == {"a": 1, "c": 2}
    assert replace({"a": 1}, {"b": 2, "c": 2}, 3, layers) == (
        'topology "dc" doesn\'t allow to fit any of 1 pod(s). Total nodes: 6; excluded: topologyDomain: 5'
    )


def test_too_few_pods_to_complete_the_slices_is_said() -> None:
    sliced = TopologyRequest("unconstrained", slice_level="rack", slice_size=4)
    message = "1 pod(s) are too few to complete the slices that lost pods"
    assert replace({"a": 2, "d": 3}, {"b": 9, "e": 9}, 1, sliced) == message


def test_a_set_that_already_breaks_its_rule_is_not_mended_piecemeal() -> None:
    message = "the running pods are in 2 domains of rack, and the topology request allows one"
    assert replace({"a": 1, "d": 1}, {"b": 9}, 1, TopologyRequest("required", "rack")) == message


@given(cases(most_sets=1), st.data())
def test_what_stays_and_what_is_new_keep_the_rules_together(case: TopologyCase, data: st.DataObject) -> None:
    placed = case.plan()
    case.pod_sets = [pod_set for pod_set in case.pod_sets if pod_set.name == "set0"]
    if isinstance(placed, TopologyFailure):
        return
    (pod_set,) = case.pod_sets
    lost = data.draw(st.sampled_from(sorted(placed["set0"])))
    kept = {node: pods for node, pods in placed["set0"].items() if node != lost}
    free = {name: list(free) for name, free in zip(case.names, case.free, strict=True)}
    for node, pods in kept.items():
        free[node] = [have - pods * amount for have, amount in zip(free[node], pod_set.takes, strict=True)]
    free[lost] = [0, 0]
    answer = replacement(case, free, kept, placed["set0"][lost])
    if isinstance(answer, PodSetPlacement):
        new = answer.by_node(case.names)
        together = {node: kept.get(node, 0) + new.get(node, 0) for node in {*kept, *new}}
        assert sum(together.values()) == pod_set.count
        assert keeps(case, pod_set.request, together, {})
        assert all(
            have >= pods * amount
            for node, pods in new.items()
            for have, amount in zip(free[node], pod_set.takes, strict=True)
            if amount
        )


def replacement(
    case: TopologyCase, free: dict[str, list[int]], kept: dict[str, int], count: int
) -> PodSetPlacement | TopologyFailure:
    tree = DomainTree.build(case.levels, case.paths, case.names)
    room = MatrixCapacity(["a", "b"], np.array([free[name] for name in case.names]), np.array([case.pod_sets[0].takes]))
    stay = np.array([kept.get(name, 0) for name in case.names])
    return plan_replacement(tree, TopologyPodSetRequest("set0", count, case.pod_sets[0].request), 0, stay, room)
