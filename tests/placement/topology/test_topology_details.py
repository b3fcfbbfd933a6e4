"""What a topology plan says beside its nodes: levels, domains, failures; and parts of the tree."""

from __future__ import annotations

import numpy as np
import pytest
from tests.placement.topology.test_default_topology import drawn, rack_node, to

from reference.park import gpu_node, node, pod
from windlass.cluster.node_columns import NodeColumns
from windlass.model.meta import LabelSelector
from windlass.model.names.kubernetes import HOSTNAME_LABEL, ZONE_LABEL
from windlass.model.names.windlass import RACK_LABEL
from windlass.model.workload import TopologyRequest
from windlass.placement.topology import (
    DomainTree,
    MatrixCapacity,
    PodSetPlacement,
    TopologyFailure,
    TopologyPlan,
    TopologyPodSetRequest,
    plan_replacement,
    plan_topology,
)
from windlass.placement.topology.affinity_request import request_from_affinity, selects_pod
from windlass.placement.topology.default_topology import DefaultTopology
from windlass.placement.topology.resolved_request import ImpossibleRequest, resolve_request

LEVELS = ("block", "rack", "host")
PATHS = [("A", "1", "a"), ("A", "1", "b"), ("A", "2", "c"), ("B", "1", "d"), ("B", "1", "e"), ("B", "3", "f")]
TREE = DomainTree.build(LEVELS, PATHS)


def room(*free: int, takes: tuple[int, ...] = (1,)) -> MatrixCapacity:
    return MatrixCapacity(["pods"], np.array([[pods] for pods in free]), np.array([[amount] for amount in takes]))


def ask(count: int, mode: str, level: str = "", name: str = "main", **more: object) -> TopologyPodSetRequest:
    return TopologyPodSetRequest(name, count, TopologyRequest(mode, level, **more))  # type: ignore[arg-type]


def plan(free: MatrixCapacity, *asks: TopologyPodSetRequest) -> tuple[PodSetPlacement, ...]:
    found = plan_topology(TREE, asks, free, "dc")
    assert isinstance(found, TopologyPlan), found
    return found.placements


def failure(free: MatrixCapacity, *asks: TopologyPodSetRequest) -> TopologyFailure:
    found = plan_topology(TREE, asks, free, "dc")
    assert isinstance(found, TopologyFailure)
    return found


# The tree


def test_domains_know_their_parents_and_children_on_three_levels() -> None:
    shuffled = DomainTree.build(LEVELS, [PATHS[number] for number in (5, 2, 0, 4, 3, 1)])
    assert shuffled.rows.tolist() == [2, 5, 1, 4, 3, 0]
    for tree in (TREE, shuffled):
        assert [layer.parent.tolist() for layer in tree.layers] == [[0, 0], [0, 0, 1, 1], [0, 0, 1, 2, 2, 3]]
        assert [layer.first_child.tolist() for layer in tree.layers] == [[0, 2, 4], [0, 2, 3, 5, 6], []]
        assert tree.total == 6
        assert not tree.has_node_layer


def test_a_tree_of_some_nodes_has_only_their_domains() -> None:
    some = TREE.restricted_to(np.array([False, True, True, False, False, True]))
    assert some.rows.tolist() == [1, 2, 5]
    assert [layer.size for layer in some.layers] == [2, 3, 3]
    assert (some.total, some.levels) == (6, LEVELS)
    assert TREE.restricted_to(np.zeros(6, dtype=np.bool_)).rows.tolist() == []


def test_domains_of_a_level_as_masks() -> None:
    tree = DomainTree.build(("block", "rack"), [("B", "1"), ("A", "1"), ("A", "2"), (None, "1"), ("A", "1")])
    assert [mask.tolist() for mask in tree.domains("block", 5)] == [
        [False, True, True, False, True],
        [True, False, False, False, False],
    ]
    assert [np.flatnonzero(mask).tolist() for mask in tree.domains("rack", 5)] == [[1, 4], [2], [0]]
    assert [np.flatnonzero(mask).tolist() for mask in tree.domains("zone", 5)] == [[0, 1, 2, 4]]
    assert [len(mask) for mask in tree.domains("block", 9)] == [9, 9]
    assert tree.domains("block", 5)[0] is tree.domains("block", 5)[0]
    assert not tree.domains("block", 5)[0].flags.writeable
    assert DomainTree.build(("block",), [(None,)]).domains("block", 1) == ()


def test_only_nodes_with_pods_are_in_an_assignment() -> None:
    assert TREE.assignment(np.array([1, 5]), np.array([2, 7])) == [(("A", "1", "b"), 2), (("B", "3", "f"), 7)]


def test_capacity_belongs_to_the_caller() -> None:
    free, cap = np.array([[4]]), np.array([3])
    capacity = MatrixCapacity(["pods"], free, np.array([[1]]), [cap])
    capacity.reserve(0, np.array([0]), np.array([2]))
    assert (free.tolist(), cap.tolist()) == ([[4]], [3])
    assert capacity.pods_per_node(0).tolist() == [1]
    assert MatrixCapacity(["pods"], free, np.array([[0]])).pods_per_node(0).tolist() == [(1 << 31) - 1]


def test_a_node_with_just_enough_is_not_excluded() -> None:
    capacity = MatrixCapacity(["pods", "gpu"], np.array([[2, 9], [1, 0]]), np.array([[2, 0]]))
    assert capacity.excluded_nodes(0) == {'resource "pods"': 1}
    assert MatrixCapacity(["pods"], np.array([[2]]), np.array([[2]])).excluded_nodes(0) == {}


# Plans


def test_a_placement_names_the_level_and_counts_its_domains() -> None:
    (found,) = plan(room(2, 2, 1, 2, 1, 1), ask(4, "required", "rack"))
    assert (found.level, found.domains, found.rows.tolist(), found.pods.tolist()) == ("rack", 1, [0, 1], [2, 2])
    (found,) = plan(room(2, 2, 1, 1, 1, 1), ask(5, "preferred", "rack"))
    assert (found.level, found.domains) == ("block", 1)
    (found,) = plan(room(2, 2, 1, 1, 1, 1), ask(6, "preferred", "host"))
    assert (found.level, found.domains) == ("block", 2)
    (found,) = plan(room(2, 2, 1, 1, 1, 1), ask(3, "unconstrained"))
    assert (found.level, found.domains) == ("host", 3)


def test_a_leader_is_placed_once_in_its_own_name() -> None:
    leader = ask(1, "required", "rack", "leader", group="g")
    first, second = plan(room(2, 2, 1, 2, 1, 1, takes=(1, 1)), ask(3, "required", "rack", "workers", group="g"), leader)
    assert (first.name, first.pods.sum(), first.level) == ("workers", 3, "rack")
    assert (second.name, second.pods.tolist(), second.level, second.domains) == ("leader", [1], "rack", 1)


def test_failures_say_how_much_of_what_fits_where() -> None:
    free = (2, 2, 1, 1, 1, 1)
    short = failure(room(*free), ask(6, "required", "rack"))
    assert (short.level, short.fits, short.needed, short.unit) == ("rack", 4, 6, "pod")
    short = failure(room(*free), ask(12, "preferred", "host"))
    assert (short.level, short.fits, short.needed) == ("block", 8, 12)
    short = failure(room(*free), ask(9, "unconstrained"))
    assert (short.level, short.fits, short.needed) == ("host", 8, 9)
    sliced = ask(6, "required", "block", slice_level="host", slice_size=2)
    short = failure(room(*free), sliced)
    assert (short.level, short.fits, short.needed, short.unit) == ("block", 2, 3, "slice")


def test_a_leader_that_fits_nowhere_is_the_failure() -> None:
    workers = ask(3, "required", "rack", "workers", group="g")
    leader = ask(1, "required", "rack", "leader", group="g")
    short = failure(room(*[2] * 6, takes=(1, 3)), workers, leader)
    assert (short.pod_set, short.level, short.fits, short.needed, short.unit) == ("leader", "rack", 0, 1, "pod")


def test_beside_a_leader_the_message_counts_the_domain_that_takes_it() -> None:
    """Rack 1 has most room, but only on `c` is there a place of three for the leader."""
    workers = ask(9, "required", "rack", "workers", group="g")
    leader = ask(1, "required", "rack", "leader", group="g")
    short = failure(room(2, 2, 3, 2, 2, 2, takes=(1, 3)), workers, leader)
    assert (short.pod_set, short.fits) == ("workers", 0)
    short = failure(room(2, 2, 5, 2, 2, 2, takes=(1, 3)), workers, leader)
    assert short.fits == 2
    anywhere = [ask(99, "preferred", "rack", name, group="g") for name in ("workers",)]
    lead = ask(1, "preferred", "rack", "leader", group="g")
    assert failure(room(2, 2, 5, 2, 2, 2, takes=(1, 3)), *anywhere, lead).fits == 12


def test_of_a_pair_the_larger_set_are_the_workers() -> None:
    group = {"group": "g"}
    first, second = plan(
        room(1, 0, 2, 0, 0, 0, takes=(1, 1)),
        ask(1, "required", "rack", "x", **group),
        ask(1, "required", "rack", "y", **group),
    )
    assert [first.by_node("abcdef"), second.by_node("abcdef")] == [{"c": 1}, {"c": 1}]
    three = [ask(count, "required", "rack", name, **group) for name, count in (("x", 2), ("y", 1), ("z", 1))]
    message = "podset group g must have two pod sets: a leader of one pod, and workers"
    impossible = failure(room(*[9] * 6, takes=(1, 1, 1)), *three)
    assert (impossible.pod_set, impossible.message, impossible.level) == ("x", message, "")
    others = [ask(1, "required", "host", "x", group="g"), ask(1, "required", "host", "y", group="h")]
    assert len(plan(room(*[1] * 6, takes=(1, 1)), *others)) == 2


def test_layers_of_slices_are_counted_in_the_best_domain() -> None:
    layers = ask(16, "required", "block", slice_level="rack", slice_size=4, inner_slices=(("host", 2),))
    assert failure(room(3, 3, 5, 2, 1, 2), layers).message == (
        'topology "dc" doesn\'t allow to fit; 2/4 slice(s) fit on level rack; 4/8 slice(s) fit on level host'
    )
    assert failure(room(1, 2, 1, 2, 3, 5), layers).message == (
        'topology "dc" doesn\'t allow to fit; 2/4 slice(s) fit on level rack; 4/8 slice(s) fit on level host'
    )


def test_slices_of_a_wide_level_are_not_split_further_down() -> None:
    """One slice a block; node `d` could take three pods, but the third belongs to the slice of the other block."""
    sliced = ask(4, "unconstrained", slice_level="block", slice_size=2)
    (found,) = plan(room(1, 1, 0, 3, 0, 0), sliced)
    assert found.by_node("abcdef") == {"a": 1, "b": 1, "d": 2}


def test_a_domain_counts_whole_inner_slices_only() -> None:
    """Six places on two nodes are room for four pods in pairs; a third pair needs eight."""
    pairs = ask(6, "required", "rack", slice_level="rack", slice_size=6, inner_slices=(("host", 2),))
    assert failure(room(3, 3, 0, 0, 0, 0), pairs).fits == 0
    (found,) = plan(room(3, 5, 0, 0, 0, 0), pairs)
    assert found.by_node("abcdef") == {"a": 2, "b": 4}
    blocks = ask(6, "required", "block", slice_level="block", slice_size=6, inner_slices=(("rack", 2),))
    assert failure(room(2, 1, 3, 0, 0, 0), blocks).fits == 0
    (found,) = plan(room(2, 1, 4, 0, 0, 0), blocks)
    assert sum(found.pods.tolist()) == 6


# Replacements


def replaced(
    kept: dict[int, int], free: MatrixCapacity, want: TopologyPodSetRequest
) -> PodSetPlacement | TopologyFailure:
    existing = np.array([kept.get(row, 0) for row in range(6)])
    return plan_replacement(TREE, want, 0, existing, free, "dc")


def test_a_replacement_counts_the_domains_of_all_pods() -> None:
    found = replaced({0: 2, 3: 1}, room(0, 1, 0, 0, 1, 0), ask(2, "preferred", "rack"))
    assert isinstance(found, PodSetPlacement)
    assert (found.rows.tolist(), found.pods.tolist(), found.level, found.domains) == ([1, 4], [1, 1], "rack", 2)
    found = replaced({0: 2}, room(0, 0, 1, 0, 0, 9), ask(1, "preferred", "rack"))
    assert isinstance(found, PodSetPlacement)
    assert (found.rows.tolist(), found.domains) == ([2], 2), "in the same block"


def test_a_replacement_that_fails_says_how_much_fits() -> None:
    found = replaced({0: 4}, room(1, 1, 9, 0, 0, 0), ask(3, "required", "rack"))
    assert isinstance(found, TopologyFailure)
    assert (found.pod_set, found.level, found.fits, found.needed, found.unit) == ("main", "rack", 2, 3, "pod")
    assert found.message.endswith("Total nodes: 6; excluded: topologyDomain: 4")
    sliced = ask(4, "required", "block", slice_level="rack", slice_size=2)
    found = replaced({0: 2}, room(1, 1, 1, 9, 9, 9), sliced)
    assert isinstance(found, TopologyFailure)
    assert (found.level, found.fits, found.needed, found.unit) == ("block", 1, 2, "slice")


def test_what_is_placed_anew_is_reserved() -> None:
    free = room(0, 2, 0, 0, 0, 0)
    assert isinstance(replaced({0: 1}, free, ask(1, "required", "rack")), PodSetPlacement)
    assert free.pods_per_node(0).tolist() == [0, 1, 0, 0, 0, 0]


def test_a_set_of_which_nothing_stays_is_placed_as_a_new_one() -> None:
    found = replaced({}, room(1, 2, 0, 0, 0, 2), ask(2, "required", "rack"))
    assert isinstance(found, PodSetPlacement)
    assert found.rows.tolist() == [5]


def test_two_broken_slices_are_each_completed_where_they_are() -> None:
    sliced = ask(3, "unconstrained", slice_level="rack", slice_size=2)
    found = replaced(
        {0: 1, 3: 1, 2: 2}, room(1, 1, 9, 1, 1, 1), ask(2, "unconstrained", slice_level="rack", slice_size=2)
    )
    assert isinstance(found, PodSetPlacement)
    assert found.by_node("abcdef") in ({"a": 1, "d": 1}, {"b": 1, "d": 1}, {"a": 1, "e": 1}, {"b": 1, "e": 1})
    failed = replaced({0: 1, 3: 1}, room(*[9] * 6), sliced)
    assert isinstance(failed, TopologyFailure)
    assert failed.message == "1 pod(s) can't be divided into slices of 2"


# Requests


def test_levels_and_multiples_of_a_request() -> None:
    plain = resolve_request(TopologyRequest("preferred", "rack"), LEVELS, 3)
    assert (plain.level, plain.slice_level, plain.slice_size, plain.pods_multiple, plain.slice_layers) == (
        1,
        2,
        1,
        (1, 1, 1),
        (),
    )
    assert (plain.required, plain.unconstrained, plain.unit) == (False, False, "pod")
    none = resolve_request(None, LEVELS, 4)
    assert (none.level, none.unconstrained, none.pods_multiple) == (2, True, (1, 1, 1, 1))
    layers = TopologyRequest("required", "block", "block", 12, (("rack", 4), ("host", 2)))
    deep = resolve_request(layers, LEVELS, 4)
    assert (deep.pods_multiple, deep.slice_layers, deep.unit) == ((1, 4, 2, 1), ((0, 12), (1, 4), (2, 2)), "slice")
    assert deep.required
    skipped = TopologyRequest("required", "block", "block", 12, (("host", 2),))
    assert resolve_request(skipped, LEVELS, 3).pods_multiple == (1, 2, 2)
    alone = TopologyRequest("unconstrained", slice_level="rack", slice_size=2)
    assert resolve_request(alone, LEVELS, 3).level == 0


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        ((("host", 0),), "size 0 must evenly divide"),
        ((("host", -2),), "size -2 must evenly divide"),
        ((("block", 2),), "block must be at a lower level than rack"),
    ],
)
def test_inner_slices_that_cannot_be(inner: tuple[tuple[str, int], ...], message: str) -> None:
    with pytest.raises(ImpossibleRequest, match=message):
        resolve_request(TopologyRequest("required", "rack", "rack", 4, inner), LEVELS, 3)


@pytest.mark.parametrize("size", [0, -1])
def test_a_slice_has_a_size(size: int) -> None:
    with pytest.raises(ImpossibleRequest, match="slice size not provided"):
        resolve_request(TopologyRequest("required", "rack", "rack", size), LEVELS, 3)


# Trees without a Topology object


def default(*nodes: object, ready: list[bool] | None = None) -> DefaultTopology:
    return DefaultTopology(NodeColumns(nodes), ready or [True] * len(nodes))  # type: ignore[arg-type]


def test_a_node_that_is_not_ready_is_in_no_domain() -> None:
    nodes = (rack_node("a", "r1"), rack_node("b", "r1"))
    for mode in ("required", "preferred"):
        tree = default(*nodes, ready=[True, False]).tree(TopologyRequest(mode, RACK_LABEL))
        assert tree is not None
        assert tree.rows.tolist() == [0]


def test_trees_are_kept_by_labels_and_mode() -> None:
    topology = default(rack_node("a", "r1"), gpu_node("b", 8))
    required, preferred = (topology.tree(TopologyRequest(mode, RACK_LABEL)) for mode in ("required", "preferred"))
    assert required is not None
    assert preferred is not None
    assert (len(required.rows), len(preferred.rows)) == (1, 2)
    assert topology.tree(TopologyRequest("required", RACK_LABEL)) is required
    assert topology.tree(TopologyRequest("required", ZONE_LABEL)) is not required


def test_levels_of_slices_are_levels_too() -> None:
    nodes = (gpu_node("a", 8, labels={RACK_LABEL: "r", "example.com/rail": "x"}),)
    slices = TopologyRequest("required", RACK_LABEL, "example.com/rail", 4, ((HOSTNAME_LABEL, 2),))
    tree = default(*nodes).tree(slices)
    assert tree is not None
    assert tree.levels == (RACK_LABEL, "example.com/rail", HOSTNAME_LABEL)
    hosts = default(*nodes).tree(TopologyRequest("required", HOSTNAME_LABEL))
    assert hosts is not None
    assert hosts.levels == (RACK_LABEL, HOSTNAME_LABEL)


def test_a_label_that_no_node_has_is_a_level_without_nodes() -> None:
    tree = default(node("a"), node("b")).tree(TopologyRequest("required", RACK_LABEL))
    assert tree is not None
    assert (tree.levels, tree.rows.tolist()) == ((RACK_LABEL, HOSTNAME_LABEL), [])


# Affinity as a request


def test_namespaces_and_selectors_of_a_term() -> None:
    own = drawn("a", labels={"app": "ring"})
    other = pod("b", labels={"app": "ring"}, namespace="other")
    assert selects_pod(to("ring"), own, own)
    assert not selects_pod(to("ring"), own, other)
    assert selects_pod(to("ring", namespaces=("other",)), own, other)
    assert not selects_pod(to("ring", namespaces=("other",)), own, own)
    for unknown in (
        {"namespace_selector": LabelSelector()},
        {"match_label_keys": ("app",)},
        {"mismatch_label_keys": ("x",)},
    ):
        assert not selects_pod(to("ring", **unknown), own, own)
    bare, default_namespace = pod("a", labels={"app": "ring"}, namespace=""), own
    assert selects_pod(to("ring"), bare, default_namespace)
    assert selects_pod(to("ring"), default_namespace, bare)


def test_a_pod_without_affinity_asks_for_nothing() -> None:
    plain = pod("a")
    assert request_from_affinity(plain, [plain]) is None
    other = drawn("a", preferred=((10, to("other")),))
    assert request_from_affinity(other, [other]) is None


def test_a_required_term_comes_before_all_preferences() -> None:
    both = drawn("a", to("ring"), preferred=((99, to("ring", ZONE_LABEL)),))
    assert request_from_affinity(both, [both]) == TopologyRequest("required", RACK_LABEL, spans_pod_sets=True)
    equal = drawn("a", preferred=((50, to("ring", ZONE_LABEL)), (50, to("ring", RACK_LABEL))))
    assert request_from_affinity(equal, [equal]) == TopologyRequest("preferred", ZONE_LABEL, spans_pod_sets=True)
