"""The topology search by example: read it as the description of what it does.

Most clusters here are drawn as `{"block/rack": {"node": room}}`, the room being how many pods fit on the node.
"""

from __future__ import annotations

import numpy as np
import pytest

from windlass.model.workload import TopologyRequest
from windlass.placement.topology import (
    DomainTree,
    MatrixCapacity,
    TopologyFailure,
    TopologyPlan,
    TopologyPodSetRequest,
    plan_topology,
)

LEVELS = ("block", "rack", "host")
Cluster = dict[str, dict[str, int]]


def place(cluster: Cluster, *asks: TopologyPodSetRequest, leader_takes: int = 1) -> dict[str, dict[str, int]] | str:
    """Node → pods by pod set, or the message of the failure. A pod takes one place; one named leader may take more."""
    names = [node for nodes in cluster.values() for node in nodes]
    paths = [(*rack.split("/"), node) for rack, nodes in cluster.items() for node in nodes]
    free = np.array([[room] for nodes in cluster.values() for room in nodes.values()])
    takes = np.array([[leader_takes if ask.name == "leader" else 1] for ask in asks])
    answer = plan_topology(DomainTree.build(LEVELS, paths), asks, MatrixCapacity(["pods"], free, takes), "dc")
    if isinstance(answer, TopologyFailure):
        return answer.message
    return {placement.name: placement.by_node(names) for placement in answer.placements}


def pods(count: int, mode: str, level: str = "", **slices: object) -> TopologyPodSetRequest:
    return TopologyPodSetRequest("main", count, TopologyRequest(mode, level, **slices))  # type: ignore[arg-type]


# ---- required ---------------------------------------------------------------------------------------------------


def test_the_smallest_domain_that_suffices_is_taken_so_that_larger_ones_stay_whole() -> None:
    cluster = {"A/1": {"a": 4, "b": 4}, "A/2": {"c": 3, "d": 2}, "A/3": {"e": 2, "f": 2}}
    assert place(cluster, pods(5, "required", "rack")) == {"main": {"c": 3, "d": 2}}


def test_inside_the_domain_as_few_nodes_as_can_be_are_used() -> None:
    cluster = {"A/1": {"a": 1, "b": 4, "c": 2, "d": 4}}
    assert place(cluster, pods(8, "required", "rack")) == {"main": {"b": 4, "d": 4}}


def test_the_last_node_is_the_smallest_that_takes_the_rest() -> None:
    cluster = {"A/1": {"a": 1, "b": 4, "c": 2, "d": 4}}
    assert place(cluster, pods(5, "required", "rack")) == {"main": {"b": 4, "a": 1}}


def test_racks_are_saved_before_nodes() -> None:
    """Two racks with two nodes each rather than three racks with one each."""
    cluster = {"A/1": {"a": 2, "b": 2}, "A/2": {"c": 2, "d": 2}, "A/3": {"e": 3}, "A/4": {"f": 3}}
    assert place(cluster, pods(8, "required", "block")) == {"main": {"a": 2, "b": 2, "c": 2, "d": 2}}


def test_what_no_domain_holds_is_refused_with_what_the_best_one_would_hold() -> None:
    cluster = {"A/1": {"a": 2, "b": 1}, "A/2": {"c": 2}}
    message = 'topology "dc" allows to fit only 3 out of 4 pod(s)'
    assert place(cluster, pods(4, "required", "rack")) == message


def test_the_message_counts_the_nodes_that_take_nothing_at_all() -> None:
    cluster = {"A/1": {"a": 0, "b": 1}, "A/2": {"c": 0}}
    assert place(cluster, pods(2, "required", "host")) == (
        'topology "dc" allows to fit only 1 out of 2 pod(s). Total nodes: 3; excluded: resource "pods": 2'
    )


def test_a_failure_says_which_level_binds() -> None:
    tree = DomainTree.build(("host",), [("a",), ("b",)])
    room = MatrixCapacity(["gpu"], np.array([[1], [1]]), np.array([[2]]))
    assert plan_topology(tree, [pods(3, "required", "host")], room, "dc") == TopologyFailure(
        pod_set="main",
        message=('topology "dc" doesn\'t allow to fit any of 3 pod(s). Total nodes: 2; excluded: resource "gpu": 2'),
        level="host",
        fits=0,
        needed=3,
        unit="pod",
    )


# ---- preferred --------------------------------------------------------------------------------------------------


def test_a_preference_that_no_rack_meets_is_met_by_one_block() -> None:
    cluster = {"A/1": {"a": 2}, "A/2": {"b": 2}, "B/1": {"c": 2}, "B/2": {"d": 3}}
    assert place(cluster, pods(4, "preferred", "rack")) == {"main": {"a": 2, "b": 2}}


def test_the_search_widens_one_level_at_a_time() -> None:
    """No node holds four pods; the smallest rack that does is in the larger block."""
    cluster = {"A/1": {"a": 2, "b": 2}, "A/2": {"c": 3, "d": 3}, "B/1": {"e": 2, "f": 3}}
    assert place(cluster, pods(4, "preferred", "host")) == {"main": {"a": 2, "b": 2}}


def test_where_one_block_is_not_enough_either_the_fewest_blocks_are_taken() -> None:
    cluster = {"A/1": {"a": 2}, "B/1": {"b": 5}, "C/1": {"c": 4}, "D/1": {"d": 1}}
    assert place(cluster, pods(7, "preferred", "rack")) == {"main": {"b": 5, "a": 2}}


def test_a_preference_is_no_excuse_for_half_a_job() -> None:
    message = place({"A/1": {"a": 2}, "B/1": {"b": 5}}, pods(8, "preferred", "rack"))
    assert message == 'topology "dc" allows to fit only 7 out of 8 pod(s)'


# ---- anywhere ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [pods(3, "unconstrained"), TopologyPodSetRequest("main", 3)])
def test_pods_that_may_go_anywhere_take_one_node_where_one_suffices(ask: TopologyPodSetRequest) -> None:
    assert place({"A/1": {"a": 1, "b": 9}, "A/2": {"c": 4, "d": 2}}, ask) == {"main": {"c": 3}}


def test_otherwise_they_fill_the_smallest_holes() -> None:
    cluster = {"A/1": {"a": 1, "b": 5}, "A/2": {"c": 4, "d": 2}}
    assert place(cluster, pods(6, "unconstrained")) == {"main": {"a": 1, "d": 2, "c": 3}}


# ---- slices -----------------------------------------------------------------------------------------------------


def test_a_slice_stays_in_one_rack() -> None:
    """Racks 1 and 2 have room for three pods each, but only for one slice of two."""
    cluster = {"A/1": {"a": 3}, "A/2": {"b": 3}, "A/3": {"c": 2}}
    sliced = pods(6, "required", "block", slice_level="rack", slice_size=2)
    assert place(cluster, sliced) == {"main": {"a": 2, "b": 2, "c": 2}}


def test_room_that_holds_no_whole_slice_does_not_count() -> None:
    cluster = {"A/1": {"a": 3}, "A/2": {"b": 3}}
    sliced = pods(6, "required", "block", slice_level="rack", slice_size=2)
    assert place(cluster, sliced) == 'topology "dc" allows to fit only 2 out of 3 slice(s)'


def test_below_the_slice_level_a_slice_takes_the_fewest_nodes() -> None:
    sliced = pods(4, "required", "block", slice_level="rack", slice_size=4)
    assert place({"A/1": {"a": 1, "b": 1, "c": 2, "d": 4}}, sliced) == {"main": {"d": 4}}


def test_slices_alone_may_be_anywhere() -> None:
    cluster = {"A/1": {"a": 2}, "B/1": {"b": 2}, "C/1": {"c": 3}}
    sliced = pods(4, "unconstrained", slice_level="rack", slice_size=2)
    assert place(cluster, sliced) == {"main": {"a": 2, "b": 2}}


def test_slices_within_slices() -> None:
    """Four pods a rack, of which two and two share a node: node `c`, with one place, is of no use."""
    layers = pods(4, "required", "block", slice_level="rack", slice_size=4, inner_slices=(("host", 2),))
    assert place({"A/1": {"a": 3, "b": 3, "c": 1}}, layers) == {"main": {"a": 2, "b": 2}}


def test_with_several_layers_the_message_says_how_far_each_gets() -> None:
    layers = pods(8, "required", "block", slice_level="rack", slice_size=4, inner_slices=(("host", 2),))
    assert place({"A/1": {"a": 3, "b": 3, "c": 1}}, layers) == (
        'topology "dc" doesn\'t allow to fit; 1/2 slice(s) fit on level rack; 2/4 slice(s) fit on level host'
    )


# ---- leader and workers -----------------------------------------------------------------------------------------


def group(workers: int, mode: str, level: str = "") -> tuple[TopologyPodSetRequest, TopologyPodSetRequest]:
    request = TopologyRequest(mode, level, group="g")
    return TopologyPodSetRequest("leader", 1, request), TopologyPodSetRequest("workers", workers, request)


def test_the_leader_sits_in_the_domain_of_its_workers() -> None:
    """Rack 1 would do for the workers alone."""
    cluster = {"A/1": {"a": 2, "b": 2}, "A/2": {"c": 3, "d": 2}}
    assert place(cluster, *group(4, "required", "rack")) == {
        "leader": {"c": 1},
        "workers": {"c": 2, "d": 2},
    }


def test_the_leader_does_not_sit_where_it_would_cost_the_workers_their_room() -> None:
    """It needs only CPU: node `a` has just enough of that for its own share of the workers."""
    tree = DomainTree.build(("rack", "host"), [("1", "a"), ("1", "b")])
    cpu_and_gpu = np.array([[4, 4], [9, 2]])
    room = MatrixCapacity(["cpu", "gpu"], cpu_and_gpu, np.array([[3, 0], [1, 1]]))
    plan = plan_topology(tree, group(6, "required", "rack"), room)
    assert isinstance(plan, TopologyPlan)
    assert [placement.by_node("ab") for placement in plan.placements] == [{"b": 1}, {"a": 4, "b": 2}]


def test_what_fits_beside_the_leader_is_what_the_message_counts() -> None:
    assert place({"A/1": {"a": 6, "b": 5}}, *group(8, "required", "rack"), leader_takes=4) == (
        'topology "dc" allows to fit only 7 out of 8 pod(s)'
    )


def test_a_seat_in_the_middle_of_the_row_does_not_end_the_filling() -> None:
    """The leader sits on `b`, between `c` and `a` in order of size; all four places are still taken."""
    tree = DomainTree.build(("rack", "host"), [("1", "a"), ("1", "b"), ("1", "c")])
    room = MatrixCapacity(["cpu", "gpu"], np.array([[1, 1], [2, 1], [2, 2]]), np.array([[1, 0], [1, 1]]))
    plan = plan_topology(tree, group(4, "required", "rack"), room)
    assert isinstance(plan, TopologyPlan)
    assert [placement.by_node("abc") for placement in plan.placements] == [{"b": 1}, {"a": 1, "b": 1, "c": 2}]


def test_a_leader_that_fits_nowhere_is_named() -> None:
    tree = DomainTree.build(("host",), [("a",), ("b",)])
    room = MatrixCapacity(["gpu"], np.array([[4], [4]]), np.array([[8], [1]]))
    failure = plan_topology(tree, group(4, "preferred", "host"), room, "dc")
    assert isinstance(failure, TopologyFailure)
    assert failure.pod_set == "leader"
    assert failure.message.endswith('any of 1 pod(s). Total nodes: 2; excluded: resource "gpu": 2')


def test_a_group_is_one_leader_and_its_workers() -> None:
    request = TopologyRequest("required", "rack", group="g")
    crowd = [TopologyPodSetRequest(name, 2, request) for name in ("one", "two")]
    message = "podset group g must have two pod sets: a leader of one pod, and workers"
    assert place({"A/1": {"a": 9}}, *crowd) == message


# ---- several pod sets -------------------------------------------------------------------------------------------


def test_pod_sets_do_not_take_the_same_place_twice() -> None:
    first, second = (TopologyPodSetRequest(name, 2, TopologyRequest("required", "host")) for name in ("one", "two"))
    assert place({"A/1": {"a": 3, "b": 3}}, first, second) == {"one": {"a": 2}, "two": {"b": 2}}


def test_pod_sets_share_a_node_where_it_has_room_for_both() -> None:
    first, second = (TopologyPodSetRequest(name, 2, TopologyRequest("required", "host")) for name in ("one", "two"))
    assert place({"A/1": {"a": 4, "b": 6}}, first, second) == {"one": {"a": 2}, "two": {"a": 2}}


def test_a_set_without_pods_needs_no_place() -> None:
    idle = TopologyPodSetRequest("idle", 0, TopologyRequest("required", "rack", group="g"))
    busy = TopologyPodSetRequest("busy", 1, TopologyRequest("required", "rack", group="g"))
    assert place({"A/1": {"a": 1}}, idle, busy) == {"idle": {}, "busy": {"a": 1}}


# ---- the caller's score -----------------------------------------------------------------------------------------


def test_the_score_decides_between_nodes_with_the_same_room() -> None:
    scored = TopologyPodSetRequest("main", 1, TopologyRequest("required", "rack"), score=np.array([0, 7, 9]))
    assert place({"A/1": {"a": 2, "b": 2, "c": 3}}, scored) == {"main": {"b": 1}}
    alone = TopologyPodSetRequest("main", 1, TopologyRequest("required", "host"), score=np.array([0, 7, 9]))
    assert place({"A/1": {"a": 2, "b": 2, "c": 3}}, alone) == {"main": {"b": 1}}


def test_where_racks_are_the_lowest_level_their_nodes_are_the_callers_choice() -> None:
    tree = DomainTree.build(("rack",), [("1",), ("1",), ("1",)], names=("a", "b", "c"))
    room = MatrixCapacity(["pods"], np.array([[1], [4], [2]]), np.array([[1]]))
    ask = TopologyPodSetRequest("main", 4, TopologyRequest("required", "rack"), score=np.array([5, 0, 9]))
    plan = plan_topology(tree, [ask], room)
    assert isinstance(plan, TopologyPlan)
    assert plan.placements[0].by_node(("a", "b", "c")) == {"c": 2, "a": 1, "b": 1}


def test_room_of_a_rack_is_what_its_nodes_hold_each_not_their_sum() -> None:
    """Two nodes with half a pod's worth each don't make a place."""
    tree = DomainTree.build(("rack",), [("1",), ("1",)])
    room = MatrixCapacity(["gpu"], np.array([[4], [4]]), np.array([[8]]))
    assert isinstance(plan_topology(tree, [pods(1, "required", "rack")], room), TopologyFailure)


# ---- requests that can't be ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (pods(1, "required", "zone"), "no requested topology level: zone"),
        (
            pods(2, "required", "rack", slice_level="zone", slice_size=2),
            "no requested topology level for slices: zone",
        ),
        (
            pods(2, "required", "rack", slice_level="host"),
            "slice topology requested, but slice size not provided",
        ),
        (
            pods(2, "required", "host", slice_level="rack", slice_size=2),
            "podset slice topology rack is above the podset topology host",
        ),
        (
            pods(3, "required", "block", slice_level="rack", slice_size=2),
            "3 pod(s) can't be divided into slices of 2",
        ),
        (
            pods(4, "required", "block", slice_level="rack", slice_size=4, inner_slices=(("zone", 2),)),
            "no requested topology level for additional slice layer: zone",
        ),
        (
            pods(4, "required", "block", slice_level="rack", slice_size=4, inner_slices=(("rack", 2),)),
            "additional slice layer topology rack must be at a lower level than rack",
        ),
        (
            pods(4, "required", "block", slice_level="rack", slice_size=4, inner_slices=(("host", 3),)),
            "additional slice layer size 3 must evenly divide parent layer size 4",
        ),
        (pods(1, "nearby", "rack"), "unknown topology mode: nearby"),
    ],
)
def test_a_request_that_no_cluster_meets_says_why(ask: TopologyPodSetRequest, message: str) -> None:
    assert place({"A/1": {"a": 9}}, ask) == message


def test_a_topology_without_nodes_has_no_domains() -> None:
    tree = DomainTree.build(("rack", "host"), [(None, "a"), ("1", None)])
    room = MatrixCapacity(["pods"], np.array([[1], [1]]), np.array([[1]]))
    failure = plan_topology(tree, [pods(1, "required", "rack")], room)
    assert failure == TopologyFailure("main", "no topology domains at level: rack")
