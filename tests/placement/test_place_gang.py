"""Placing the pod sets of a gang on the overlay: all pods within their topology, or none."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from msgspec.structs import replace
from tests.placement.offices import make_overlay

from reference.builders import HOST, host_port, near, pod_affinity, pod_anti_affinity, selector, with_ports
from reference.park import gpu_node, node, pod
from windlass.cluster.shape import make_shape
from windlass.model.names.windlass import RACK_LABEL
from windlass.model.pod import Pod
from windlass.model.workload import TopologyRequest
from windlass.placement.gang import (
    OverlayCapacity,
    PendingPodSet,
    PlacementFailure,
    PodPlacement,
    levels_to_try,
    place_gang,
)
from windlass.placement.gang_domains import place_in_domains
from windlass.placement.overlay import Overlay
from windlass.placement.topology import DomainTree

BLOCK = "block"
APART = pod_anti_affinity(near(HOST, selector(app="w")))


def tree_of(*racks: str) -> DomainTree:
    """One node for each rack named `<block><number>`."""
    paths = [(rack[0], rack, f"n{number}") for number, rack in enumerate(racks)]
    return DomainTree.build((BLOCK, RACK_LABEL, HOST), paths)


def cluster(*cpus: int) -> Overlay:
    return make_overlay(*(node(f"n{number}", cpu=size) for number, size in enumerate(cpus)))


def pending(
    count: int,
    template: Pod,
    tree: DomainTree | None = None,
    mode: str = "",
    level: str = RACK_LABEL,
    name: str = "main",
    **more: object,
) -> PendingPodSet:
    request = TopologyRequest(mode, level, **more) if mode else None  # type: ignore[arg-type]
    return PendingPodSet(name, count, template, make_shape(template), request, tree, "dc")


def where(found: list[PodPlacement] | PlacementFailure, overlay: Overlay) -> dict[int, dict[str, int]]:
    """Pod set → node → pods."""
    assert isinstance(found, list), found
    placed: dict[int, dict[str, int]] = {}
    for placement in found:
        name = overlay.snapshot.nodes.names[placement.assumed.node]
        by_node = placed.setdefault(placement.pod_set, {})
        by_node[name] = by_node.get(name, 0) + 1
    return placed


def gang(overlay: Overlay, *sets: PendingPodSet) -> dict[int, dict[str, int]]:
    return where(place_gang(overlay, sets), overlay)


def refused(
    overlay: Overlay, *sets: PendingPodSet, existing: list[Mapping[int, int]] | None = None
) -> PlacementFailure:
    before = overlay.state.free.copy()
    found = place_gang(overlay, sets) if existing is None else place_in_domains(overlay, sets, existing)
    assert isinstance(found, PlacementFailure)
    assert (overlay.state.free == before).all(), "the overlay is unchanged"
    assert overlay.assumed_pods() == []
    return found


def cpu(amount: int, **more: object) -> Pod:
    return pod("t", cpu=str(amount), **more)  # type: ignore[arg-type]


# Without a topology


def test_members_are_numbered_and_existing_pods_are_placed_first() -> None:
    overlay = cluster(9)
    first = pod("first", cpu="1")
    found = place_gang(overlay, [replace(pending(2, cpu(1)), existing=(first,))])
    assert isinstance(found, list)
    assert [(entry.pod_set, entry.member, entry.assumed.pod.metadata.name) for entry in found] == [
        (0, 0, "first"),
        (0, 1, "t"),
    ]


@pytest.mark.parametrize("count", [1, 3, 4, 5])
def test_all_pods_are_placed_or_none(count: int) -> None:
    assert gang(cluster(count), pending(count, cpu(1))) == {0: {"n0": count}}
    failure = refused(cluster(count - 1), pending(count, cpu(1)))
    assert failure.pod_set == "main"
    assert failure.no_node is not None
    assert failure.no_node.code == "CPU_MEM_INSUFFICIENT"


def test_the_set_that_finds_no_node_is_named() -> None:
    for count in (1, 4):
        failure = refused(cluster(9), pending(count, cpu(1), name="small"), pending(1, cpu(99), name="large"))
        assert failure.pod_set == "large"


def test_the_largest_pods_go_first() -> None:
    """The small pods would fill the node on which alone the large one fits."""
    sets = [pending(3, cpu(1), name="small"), pending(1, cpu(4), name="large")]
    found = place_gang(cluster(4, 3), sets)
    assert isinstance(found, list)
    assert [entry.pod_set for entry in found] == [1, 0, 0, 0]


def test_gpus_count_before_cpus_in_size() -> None:
    overlay = make_overlay(gpu_node("n0", 2, cpu=64), gpu_node("n1", 2, cpu=64))
    sets = [
        pending(1, pod("t", cpu="30")),
        pending(1, pod("t", share="0.5", cpu="3")),
        pending(1, pod("t", 1, cpu="1")),
        pending(1, pod("t", memory_mib=100, cpu="2")),
    ]
    found = place_gang(overlay, sets)
    assert isinstance(found, list)
    assert [entry.pod_set for entry in found] == [3, 2, 1, 0], "a share by memory counts as a whole GPU"
    by_cpu = place_gang(overlay, [pending(1, cpu(1)), pending(1, cpu(3)), pending(1, cpu(2)), pending(1, cpu(3))])
    assert isinstance(by_cpu, list)
    assert [entry.pod_set for entry in by_cpu] == [1, 3, 2, 0]


def test_other_combinations_are_tried_where_the_greedy_one_fails() -> None:
    """By size, the pod of 3 CPUs goes first, to the node with the disk, on which alone the other one fits."""
    disk = make_overlay(node("n0", cpu=3, labels={"disk": "ssd"}), node("n1", cpu=4, labels={"disk": "none"}))
    sets = [pending(1, cpu(3)), pending(1, cpu(2, node_selector={"disk": "ssd"}))]
    assert gang(disk, *sets) == {0: {"n1": 1}, 1: {"n0": 1}}


def test_combinations_keep_the_required_domain() -> None:
    """Pods of 2 and 1 CPUs that need one rack each."""
    overlay = make_overlay(
        node("n0", cpu=3, labels={"disk": "ssd"}), node("n1", cpu=3), node("n2", cpu=2), node("n3", cpu=2)
    )
    tree = tree_of("A1", "A1", "A2", "A2")
    sets = [
        pending(2, cpu(2), tree, "required"),
        pending(1, cpu(3, node_selector={"disk": "ssd"}), name="ssd"),
    ]
    assert gang(overlay, *sets) == {0: {"n2": 1, "n3": 1}, 1: {"n0": 1}}


def test_slices_and_leaders_are_not_combined() -> None:
    overlay = cluster(3, 3)
    sliced = pending(2, cpu(2), tree_of("A1", "A2"), "unconstrained", "", slice_level=RACK_LABEL, slice_size=2)
    assert refused(overlay, sliced, pending(1, cpu(1))).pod_set == "main"


# With a topology


def test_sets_of_one_tree_are_searched_together_and_keep_their_numbers() -> None:
    tree = tree_of("A1", "A1", "A2")
    sets = [pending(1, cpu(9)), pending(2, cpu(2), tree, "required"), pending(1, cpu(1), tree, "required")]
    assert gang(cluster(2, 3, 9), *sets) == {0: {"n2": 1}, 1: {"n0": 1, "n1": 1}, 2: {"n1": 1}}


def test_sets_of_two_trees_are_each_placed_by_their_own() -> None:
    first, second = tree_of("A1", "A1", "A2"), tree_of("A1", "A2", "A2")
    sets = [pending(2, cpu(2), first, "required"), pending(2, cpu(2), second, "required", name="other")]
    assert gang(cluster(2, 4, 2), *sets) == {0: {"n0": 1, "n1": 1}, 1: {"n1": 1, "n2": 1}}
    failure = refused(cluster(2, 3, 2), *sets)
    assert (failure.pod_set, failure.message) == (
        "other",
        'topology "dc" allows to fit only 1 out of 2 pod(s). Total nodes: 3; excluded: Insufficient cpu: 2',
    )


def test_a_leader_shares_the_domain_of_its_workers() -> None:
    tree = tree_of("A1", "A1", "A2", "A2")
    leader = pending(1, cpu(2), tree, "required", name="leader", group="g")
    workers = pending(2, cpu(3), tree, "required", name="workers", group="g")
    assert gang(cluster(3, 3, 5, 3), leader, workers) == {0: {"n2": 1}, 1: {"n2": 1, "n3": 1}}
    assert refused(cluster(3, 3, 4, 3), leader, workers).message.startswith(
        'topology "dc" allows to fit only 1 out of 2 pod(s)'
    )


def test_the_score_chooses_among_nodes_of_equal_room() -> None:
    """A GPU node is kept free of pods without a GPU."""
    overlay = make_overlay(gpu_node("n0", 8, cpu=4), node("n1", cpu=4))
    found = gang(overlay, pending(1, cpu(2), tree_of("A1", "A1"), "required"))
    assert found == {0: {"n1": 1}}


# Rules between pods


def apart(count: int, *tree_and_mode: object, **more: object) -> PendingPodSet:
    template = pod("t", cpu="1", labels={"app": "w"}, affinity=APART)
    return pending(count, template, *tree_and_mode, **more)  # type: ignore[arg-type]


def test_pods_that_repel_one_another_share_a_rack_on_different_nodes() -> None:
    """The tightest rack has room for two pods, but only on one node."""
    tree = tree_of("A1", "A2", "A2", "A2")
    assert gang(cluster(2, 2, 2, 2), apart(2, tree, "required")) == {0: {"n1": 1, "n2": 1}}
    failure = refused(cluster(9, 2, 2), apart(3, tree_of("A1", "A2", "A2"), "required"))
    assert failure.message == ('topology "dc" allows to fit only 2 out of 3 pod(s) under the rules between pods')


def test_without_room_even_without_the_rules_the_topology_is_the_reason() -> None:
    failure = refused(cluster(1, 1, 1), apart(3, tree_of("A1", "A2", "A2"), "required"))
    assert failure.message.startswith('topology "dc" allows to fit only 2 out of 3 pod(s)')
    assert "under the rules" not in failure.message


def test_where_rules_leave_no_place_at_all_they_are_the_reason() -> None:
    there = pod("there", cpu="1", labels={"app": "w"}, on="n0")
    overlay = make_overlay(node("n0", cpu=9), there)
    found = place_gang(overlay, [apart(1, tree_of("A1"), "required")])
    assert isinstance(found, PlacementFailure)
    assert found.message == 'topology "dc" allows to fit only 0 out of 1 pod(s) under the rules between pods'


def test_the_domain_with_the_least_room_is_tried_first() -> None:
    tree = tree_of("A1", "A1", "A2", "A2", "A3", "A3")
    assert gang(cluster(5, 5, 2, 2, 1, 1), apart(2, tree, "required")) == {0: {"n4": 1, "n5": 1}}
    assert gang(cluster(2, 2, 2, 2, 2, 2), apart(2, tree, "required")) == {0: {"n0": 1, "n1": 1}}


def test_where_the_rack_is_only_preferred_wider_domains_are_tried() -> None:
    tree = tree_of("A1", "A1", "A2", "B1")
    assert gang(cluster(2, 2, 2, 2), apart(3, tree, "preferred")) == {0: {"n0": 1, "n1": 1, "n2": 1}}
    assert gang(cluster(2, 2, 2, 2), apart(4, tree, "preferred")) == {0: dict.fromkeys(("n0", "n1", "n2", "n3"), 1)}
    assert refused(cluster(2, 2, 2, 2), apart(5, tree, "preferred")).message.startswith(
        'topology "dc" allows to fit only 4 out of 5 pod(s) under'
    )


@pytest.mark.parametrize(("key", "expected"), [(HOST, {"n1": 3}), (BLOCK, {"n2": 1, "n3": 2})])
def test_pods_that_have_to_be_near_one_another_share_a_part_of_their_domain(key: str, expected: dict[str, int]) -> None:
    """The first of them, by itself, would go to the node with the least room, and no other part is allowed then."""
    labels = [{BLOCK: block} for block in ("A", "A", "B", "B")]
    overlay = make_overlay(*(node(f"n{at}", cpu=size, labels=labels[at]) for at, size in enumerate((1, 3, 1, 2))))
    template = pod("t", cpu="1", labels={"app": "w"}, affinity=pod_affinity(near(key, selector(app="w"))))
    assert gang(overlay, pending(3, template, tree_of("A1", "A1", "A1", "A1"), "required")) == {0: expected}


def test_the_larger_set_is_placed_first_under_rules() -> None:
    tree = tree_of("A1", "A1")
    small, large = apart(1, tree, "required"), pending(1, cpu(4), tree, "required", name="large")
    found = place_gang(cluster(5, 1), [small, large])
    assert isinstance(found, list)
    assert [entry.pod_set for entry in found] == [1, 0]


def test_host_ports_are_rules_too() -> None:
    template = replace(pod("t"), spec=replace(pod("t").spec, containers=with_ports(host_port(80))))
    tree = tree_of("A1", "A2", "A2")
    assert gang(cluster(9, 9, 9), pending(2, template, tree, "required")) == {0: {"n1": 1, "n2": 1}}


def test_slices_take_one_pod_a_node_where_pods_repel_one_another() -> None:
    tree = tree_of("A1", "A2", "A2")
    sliced = apart(2, tree, "unconstrained", "", slice_level=RACK_LABEL, slice_size=2)
    assert gang(cluster(9, 2, 2), sliced) == {0: {"n1": 1, "n2": 1}}


def test_a_rule_that_a_slice_breaks_is_said() -> None:
    """Two sets of slices that repel one another: each is counted alone."""
    tree = tree_of("A1", "A1")
    first = apart(2, tree, "unconstrained", "", slice_level=RACK_LABEL, slice_size=2)
    second = apart(2, tree, "unconstrained", "", slice_level=RACK_LABEL, slice_size=2, name="second")
    failure = refused(cluster(9, 9), first, second)
    assert failure.pod_set == "second"


# Levels


@pytest.mark.parametrize(
    ("mode", "level", "levels"),
    [
        ("required", RACK_LABEL, [RACK_LABEL]),
        ("preferred", RACK_LABEL, [RACK_LABEL, BLOCK, ""]),
        ("preferred", BLOCK, [BLOCK, ""]),
        ("preferred", HOST, [HOST, RACK_LABEL, BLOCK, ""]),
        ("preferred", "unknown", ["unknown"]),
    ],
)
def test_levels_to_try(mode: str, level: str, levels: list[str]) -> None:
    assert levels_to_try(pending(1, cpu(1), tree_of("A1"), mode, level)) == levels


# Capacity as the topology search sees it


def test_capacity_is_counted_and_reserved_on_the_overlay() -> None:
    overlay = cluster(4, 2)
    worker, leader = pending(3, cpu(1)), pending(1, cpu(3))
    rows = [overlay.table.row(one.shape, overlay.snapshot, one.pod) for one in (worker, leader)]
    for row in rows:
        overlay.refresh(row)
    capacity = OverlayCapacity(overlay, [worker, leader], rows)
    assert capacity.pods_per_node(0).tolist() == [4, 2]
    takes_leader, beside = capacity.pods_beside_leader(0, 1)
    assert (takes_leader.tolist(), beside.tolist()) == ([True, False], [1, 2])
    capacity.reserve(0, np.array([0, 1]), np.array([2, 1]))
    assert [(entry.pod_set, entry.member, entry.assumed.node) for entry in capacity.placements] == [
        (0, 0, 0),
        (0, 1, 0),
        (0, 2, 1),
    ]
    overlay.refresh(rows[0])
    assert capacity.pods_per_node(0).tolist() == [2, 1]
    assert capacity.rule_violation is None
    capacity.reserve(0, np.array([1]), np.array([1]))
    assert capacity.excluded_nodes(0) == {"Insufficient cpu": 1}


def test_where_pods_repel_one_another_a_node_takes_one() -> None:
    overlay = cluster(4, 4)
    one = apart(3)
    row = overlay.table.row(one.shape, overlay.snapshot, one.pod)
    overlay.refresh(row)
    capacity = OverlayCapacity(overlay, [one], [row])
    assert capacity.pods_per_node(0).tolist() == [1, 1]
    capacity.reserve(0, np.array([0]), np.array([1]))
    assert capacity.rule_violation is None
    overlay.refresh(row)
    assert capacity.pods_per_node(0).tolist() == [0, 1]
    capacity.reserve(0, np.array([0]), np.array([1]))
    assert capacity.rule_violation == PlacementFailure(
        "main", "rules between its pods forbid the topology that it requests"
    )
    takes, _ = capacity.pods_beside_leader(0, 0)
    assert takes.tolist() == [False, True]


# Domains that the sets of a gang share or have to stay in


def in_domains(
    overlay: Overlay, sets: list[PendingPodSet], existing: list[Mapping[int, int]] | None = None
) -> dict[int, dict[str, int]]:
    return where(place_in_domains(overlay, sets, existing or [{} for _ in sets]), overlay)


def test_sets_with_one_request_share_the_domain_with_the_least_room_for_all() -> None:
    tree = tree_of("A1", "A1", "A2", "A2", "A3")
    both = {"spans_pod_sets": True}
    sets = [pending(2, cpu(2), tree, "required", **both), pending(1, cpu(3), tree, "required", name="b", **both)]
    found = in_domains(cluster(9, 9, 5, 4, 6), sets)
    assert {name[1] for by_node in found.values() for name in by_node} <= {"2", "3"}
    apart_sets = [replace(one, topology=TopologyRequest("required", RACK_LABEL)) for one in sets]
    alone = in_domains(cluster(9, 9, 4, 0, 3), apart_sets)
    assert alone == {0: {"n2": 2}, 1: {"n4": 1}}


def test_each_set_has_to_fit_into_the_shared_domain() -> None:
    tree = tree_of("A1", "A1", "A2", "A2")
    both = {"spans_pod_sets": True}
    sets = [pending(1, cpu(4), tree, "required", **both), pending(1, cpu(3), tree, "required", name="b", **both)]
    assert in_domains(cluster(4, 2, 4, 9), sets)[0].keys() <= {"n2", "n3"}
    failure = refused(cluster(4, 2, 3, 3), *sets, existing=[{}, {}])
    assert failure == PlacementFailure(
        "main", f'topology "dc" has no domain of {RACK_LABEL} with room for all 2 pods of the gang (in 2 pod sets)'
    )


def test_a_shared_preference_widens_and_may_be_anywhere_at_last() -> None:
    tree = tree_of("A1", "A2", "B1", "B2")
    both = {"spans_pod_sets": True}
    sets = [pending(1, cpu(4), tree, "preferred", **both), pending(1, cpu(3), tree, "preferred", name="b", **both)]
    assert in_domains(cluster(4, 2, 4, 3), sets) == {0: {"n2": 1}, 1: {"n3": 1}}, "one block"
    assert in_domains(cluster(4, 2, 3, 2), sets) == {0: {"n0": 1}, 1: {"n2": 1}}, "anywhere"
    failure = refused(cluster(4, 2, 2, 2), *sets, existing=[{}, {}])
    assert failure.message == 'topology "dc" has no room for all 2 pods of the gang (in 2 pod sets)'


def test_pods_that_join_others_stay_in_their_rack() -> None:
    tree = tree_of("A1", "A1", "A2", "B1")
    more = pending(1, cpu(2), tree, "required")
    assert in_domains(cluster(9, 9, 2, 9), [more], [{0: 1}])[0].keys() <= {"n0", "n1"}
    assert in_domains(cluster(1, 1, 2, 9), [more], [{3: 1}]) == {0: {"n3": 1}}
    assert refused(cluster(1, 1, 2, 9), more, existing=[{1: 2}]).pod_set == "main"
    preferred = pending(1, cpu(2), tree, "preferred")
    assert in_domains(cluster(1, 1, 2, 9), [preferred], [{1: 2}]) == {0: {"n2": 1}}, "in the same block"
    assert in_domains(cluster(1, 1, 1, 9), [preferred], [{1: 2}]) == {0: {"n3": 1}}, "at last anywhere"


def test_pods_whose_node_has_lost_its_label_block_nobody() -> None:
    tree = DomainTree.build((RACK_LABEL,), [("r",), (None,)])
    assert in_domains(cluster(9, 9), [pending(1, cpu(2), tree, "required")], [{1: 1}]) == {0: {"n0": 1}}


def test_the_others_of_the_gang_are_placed_with_those_that_join() -> None:
    tree = tree_of("A1", "A2")
    sets = [pending(1, cpu(2), tree, "required"), pending(1, cpu(5), name="free")]
    assert in_domains(cluster(2, 5), sets, [{0: 1}, {}]) == {0: {"n0": 1}, 1: {"n1": 1}}


def test_lost_members_complete_their_slice() -> None:
    tree = tree_of("A1", "A1", "A2", "A2")
    sliced = pending(1, cpu(1), tree, "unconstrained", "", slice_level=RACK_LABEL, slice_size=2)
    free = pending(1, cpu(3), name="free")
    assert in_domains(cluster(2, 2, 2, 3), [sliced, free], [{2: 1}, {}]) == {0: {"n2": 1}, 1: {"n3": 1}}
    failure = refused(cluster(9, 9, 0, 0), sliced, existing=[{2: 1}])
    assert failure.message.startswith('topology "dc" doesn\'t allow to fit any of 1 pod(s)')
    late = refused(cluster(2, 2, 2, 2), sliced, free, existing=[{2: 1}, {}])
    assert late.pod_set == "free"
    twice = [sliced, replace(sliced, name="b")]
    assert refused(cluster(1, 0, 1, 0), *twice, existing=[{0: 1}, {0: 1}]).pod_set == "b"


def test_a_completed_slice_keeps_the_rules_between_pods() -> None:
    """Node `n0` alone has room, but a pod of another gang is there that repels this one."""
    guard = pod("guard", labels={"app": "x"}, affinity=pod_anti_affinity(near(HOST, selector(app="w"))), on="n0")
    overlay = make_overlay(node("n0", cpu=9), node("n1", cpu=9), guard)
    tree = tree_of("A1", "A1")
    template = pod("t", cpu="1", labels={"app": "w"})
    sliced = pending(1, template, tree, "unconstrained", "", slice_level=RACK_LABEL, slice_size=2)
    assert in_domains(overlay, [sliced], [{0: 1}]) == {0: {"n1": 1}}
