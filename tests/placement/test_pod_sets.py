"""Pod sets to place: flavors, topology requests, blocked capacity, and whether they could fit at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from reference.builders import near, pod_affinity, selector
from reference.overlays import overlay_on, pod_of, pod_row, snapshot_of, table_row
from reference.park import gpu_node, mig_node, node, pod
from windlass.cluster.shape import make_shape
from windlass.model.configuration import WorkloadClass
from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.model.node import Node, NodeCondition
from windlass.model.pod import Pod, SchedulingGate, Toleration
from windlass.model.queue import QueueSystem, ResourceFlavor, Topology
from windlass.model.workload import PodSet, TopologyRequest, Workload
from windlass.placement.blocked_capacity import BlockedCapacity, PlannedPod, try_assume
from windlass.placement.fit_estimate import could_fit_without
from windlass.placement.gang import PendingPodSet, PodPlacement
from windlass.placement.implied_topology import ImpliedTopology, is_node_ready
from windlass.placement.overlay import Overlay
from windlass.placement.placed_workloads import WorkloadPods
from windlass.placement.pod_set_builder import PodSetBuilder
from windlass.placement.topology import DomainTree
from windlass.queueing.placement_interface import PodSetChoice

RACK = "topology.kubernetes.io/rack"
GATE = SchedulingGate(name="kueue.x-k8s.io/admission")


@pytest.fixture(autouse=True)
def _hashes_wrap_around() -> Iterator[None]:
    with np.errstate(over="ignore"):
        yield


def racked(name: str, rack: str, gpus: int = 2, ready: str = "", **labels: str) -> Node:
    made = gpu_node(name, gpus, labels={RACK: rack, **labels})
    if not ready:
        return made
    found = (("DiskPressure", "False"), ("Ready", ready), ("Xid", "False"))
    conditions = tuple(NodeCondition(type=name, status=status) for name, status in found)
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, conditions=conditions))


def workload(*sets: PodSet, queue: str = "") -> Workload:
    return Workload("default/w", "Job", sets, queue_name=queue)


# Flavors

FAST = ResourceFlavor(
    "fast", {"pool": "fast"}, tolerations=(Toleration(key="fast", operator="Exists"),), topology="racks"
)
CHEAP = ResourceFlavor("cheap", {"tier": "cheap"})
LOST = ResourceFlavor("lost", topology="unknown")
SYSTEM = QueueSystem(
    flavors={flavor.name: flavor for flavor in (FAST, CHEAP, LOST)}, topologies={"racks": Topology("racks", (RACK,))}
)


def builder(overlay: Overlay) -> PodSetBuilder:
    return PodSetBuilder(overlay, SYSTEM)


def park(*pods: Pod) -> Overlay:
    nodes = [
        racked("a", "r1", pool="fast"),
        racked("b", "r1", pool="fast"),
        racked("c", "r2", pool="fast", ready="False"),
        racked("d", "r3", pool="slow"),
        racked("e", "r2", pool="fast", ready="True"),
    ]
    return overlay_on(snapshot_of(*nodes, *pods))


def test_a_pod_gets_the_labels_and_tolerations_of_its_flavors() -> None:
    template = pod("t", 1, node_selector={"own": "x"}, tolerations=(Toleration(key="own"),))
    choice = PodSetChoice("main", 2, {"cpu": "cheap", "nvidia.com/gpu": "fast", "memory": "cheap", "x": "gone"})
    (pending,), _, _ = builder(park()).pending_pod_sets(workload(PodSet("main", 2, template)), [choice])
    assert pending.pod.spec.node_selector == {"own": "x", "tier": "cheap", "pool": "fast"}
    assert [toleration.key for toleration in pending.pod.spec.tolerations] == ["own", "fast"]
    assert pending.shape.key == make_shape(pending.pod).key
    assert (pending.name, pending.count, pending.existing) == ("main", 2, ())
    assert template.spec.node_selector == {"own": "x"}
    (plain,), tree, name = builder(park()).pending_pod_sets(
        workload(PodSet("main", 1, template)), [PodSetChoice("main", 1, {})]
    )
    assert (plain.pod, plain.topology, tree, name) == (template, None, None, "")


def test_admission_adds_no_tolerations_to_pods_that_exist_without_a_gate() -> None:
    """The API server refuses that, so a node whose taint only the flavor tolerates is none for them."""
    own = (Toleration(key="own"),)
    free = pod("free", 1, tolerations=own)
    gated = msgspec.structs.replace(free, spec=msgspec.structs.replace(free.spec, scheduling_gates=(GATE,)))
    choice = PodSetChoice("main", 1, {"nvidia.com/gpu": "fast"})
    for existing, expected in ((free, ["own"]), (gated, ["own", "fast"])):
        made = builder(park(existing))
        pod_set = PodSet("main", 1, existing, pod_keys=(existing.key,))
        (pending,), _, _ = made.pending_pod_sets(workload(pod_set, queue="q"), [choice])
        assert [toleration.key for toleration in pending.pod.spec.tolerations] == expected
        assert pending.pod.spec.node_selector == {"pool": "fast"}, (
            "its quota is that of the flavor's nodes all the same"
        )


def test_domains_are_those_of_the_ready_nodes_of_the_flavor() -> None:
    made = builder(park())
    request = TopologyRequest("required", RACK)
    sets = (PodSet("main", 2, pod("t", 1), topology=request), PodSet("other", 1, pod("u", 1)))
    choices = [PodSetChoice("main", 2, {"gpu": "fast"}), PodSetChoice("other", 1, {"gpu": "cheap"})]
    pending, tree, name = made.pending_pod_sets(workload(*sets), choices)
    assert (pending[0].topology, pending[0].tree, pending[0].topology_name) == (request, tree, "racks")
    assert tree is not None
    assert [np.flatnonzero(mask).tolist() for mask in tree.domains(RACK, 5)] == [[0, 1], [4]]
    assert name == "racks"
    assert (pending[1].topology, pending[1].tree) == (None, None)
    again, same, _ = made.pending_pod_sets(workload(*sets), choices[:1])
    assert same is tree
    assert again[0].pod is pending[0].pod, "kept by the cache"


def test_a_topology_that_does_not_exist_has_no_domains() -> None:
    sets = PodSet("main", 1, pod("t", 1), topology=TopologyRequest("required", RACK))
    pending, tree, name = builder(park()).pending_pod_sets(workload(sets), [PodSetChoice("main", 1, {"g": "lost"})])
    assert (pending[0].tree, tree, name) == (None, None, "")
    assert pending[0].topology is sets.topology


def test_only_pods_without_a_node_are_placed() -> None:
    overlay = park(pod("p0", 1, on="a"), pod("p1", 1), pod("p2", 1, on="gone"), pod("p3", 1))
    keys = tuple(f"default/p{i}" for i in (0, 1, 2, 3, 9))
    sets = PodSet("main", 5, pod("t", 1), pod_keys=keys)
    (pending,), _, _ = builder(overlay).pending_pod_sets(workload(sets), [PodSetChoice("main", 4, {})])
    assert pending.count == 3
    assert [found.metadata.name for found in pending.existing] == ["p1", "p3"]
    assert pending.pod_at(1).metadata.name == "p3"
    assert pending.pod_at(2).metadata.name == "t"
    (none,), _, _ = builder(overlay).pending_pod_sets(workload(sets), [PodSetChoice("main", 0, {})])
    assert none.count == 0


@pytest.mark.parametrize("classes", [False, True])
def test_pods_have_the_label_of_their_queue_where_classes_select_by_it(classes: bool) -> None:
    found = [WorkloadClass("c")] if classes else []
    made = builder(overlay_on(snapshot_of(gpu_node("a", 1)), classes=found))
    template = pod("t", 1)
    labelled, shape = made.with_flavors(template, [CHEAP], "team")
    assert labelled.metadata.labels == ({QUEUE_NAME_LABEL: "team"} if classes else {})
    assert shape.key == make_shape(labelled).key
    other, _ = made.with_flavors(template, [CHEAP], "others")
    assert (other is labelled) == (not classes)
    own = pod("o", 1, labels={QUEUE_NAME_LABEL: "mine"})
    assert made.with_flavors(own, [], "team")[0].metadata.labels[QUEUE_NAME_LABEL] == "mine"
    assert made.with_flavors(template, [], "")[0].metadata.labels == {}


# Implied topology


def implied(overlay: Overlay, sets: tuple[PodSet, ...], levels: tuple[str, ...] = (RACK,)) -> tuple[Any, Any]:
    template = sets[0].template
    return ImpliedTopology(overlay, levels).request_for(workload(*sets), sets[0], template, make_shape(template))


def close(name: str = "t", **options: Any) -> Pod:
    rule = pod_affinity(near(RACK, selector(job="w")))
    return pod(name, 1, labels={"job": "w"}, affinity=rule, **options)


def test_affinity_of_a_gang_to_itself_means_one_domain() -> None:
    request, tree = implied(park(), (PodSet("main", 2, close()),))
    assert (request.mode, request.level) == ("required", RACK)
    assert [np.flatnonzero(mask).tolist() for mask in tree.domains(RACK, 5)] == [[0, 1], [4], [3]], (
        "those that are ready"
    )
    assert implied(park(), (PodSet("main", 1, close()),)) == (None, None), "one pod is no gang"
    two_sets = (PodSet("main", 1, close()), PodSet("other", 1, close()))
    assert implied(park(), two_sets)[0].mode == "required"
    assert implied(park(), (PodSet("main", 2, pod("t", 1)),)) == (None, None)


def test_a_gang_whose_others_run_already_follows_them() -> None:
    assert implied(park(close("other", on="a")), (PodSet("main", 2, close()),)) == (None, None)
    stranger = pod("other", 1, labels={"job": "another"}, on="a")
    assert implied(park(stranger), (PodSet("main", 2, close()),))[0] is not None


def test_a_request_of_its_own_comes_first() -> None:
    own = TopologyRequest("preferred", RACK)
    request, tree = implied(park(), (PodSet("main", 1, close(), topology=own),))
    assert request is own
    assert tree is not None
    free = TopologyRequest("unconstrained")
    assert implied(park(), (PodSet("main", 2, close(), topology=free),)) == (None, None), "it names no level"


def test_implied_domains_name_the_default_topology() -> None:
    sets = PodSet("main", 2, close())
    pending, tree, name = builder(park()).pending_pod_sets(workload(sets), [PodSetChoice("main", 2, {})])
    assert tree is not None
    assert pending[0].tree is tree
    assert pending[0].topology_name == name != ""


@pytest.mark.parametrize(("status", "ready"), [("", True), ("True", True), ("False", False), ("Unknown", False)])
def test_a_node_is_ready_by_its_condition(status: str, ready: bool) -> None:
    assert is_node_ready(racked("n", "r", ready=status)) == ready


# Blocked capacity


def planned(overlay: Overlay, name: str, at: int) -> PlannedPod:
    return PlannedPod(pod_of(overlay, name), table_row(overlay, name), at)


def free_gpus(overlay: Overlay) -> list[int]:
    state = overlay.state
    return [int(state.device_occupancy[list(state.devices(n)), 0].sum()) // 1000 for n in range(len(state.free))]


def test_planned_pods_and_blocked_nodes_are_kept_free_and_given_back() -> None:
    nodes = [gpu_node(f"n{i}", 2) for i in range(3)]
    overlay = overlay_on(snapshot_of(*nodes, pod("p", 2), pod("q", 1)))
    blocked = BlockedCapacity([planned(overlay, "p", 0), planned(overlay, "q", 0), planned(overlay, "q", 1)], [2])
    assert not blocked.is_empty
    blocked.apply(overlay)
    assert free_gpus(overlay) == [0, 1, 2], "what no longer fits is left out"
    q, row = pod_of(overlay, "q"), table_row(overlay, "q")
    assert np.flatnonzero(overlay.reasons(q, row) == 0).tolist() == [1]
    placed = overlay.assume(q, row, 1)
    blocked.revert(overlay)
    assert free_gpus(overlay) == [2, 1, 2]
    assert overlay.assumed_pods() == [placed]
    assert np.flatnonzero(overlay.reasons(q, row) == 0).tolist() == [0, 1, 2]
    blocked.revert(overlay)
    assert free_gpus(overlay) == [2, 1, 2], "once"


def test_what_blocks_nothing_is_empty() -> None:
    overlay = overlay_on(snapshot_of(gpu_node("n", 1), pod("p", 1), pod("q", 2)))
    assert BlockedCapacity().is_empty
    assert not BlockedCapacity(blocked_nodes=[0]).is_empty
    assert not BlockedCapacity([planned(overlay, "p", 0)]).is_empty
    assert try_assume(overlay, planned(overlay, "q", 0)) is None
    assert overlay.checkpoint() == 0
    found = try_assume(overlay, planned(overlay, "p", 0))
    assert found is not None
    assert (found.node, overlay.checkpoint()) == (0, 1)


# Whether it could fit


def pending(overlay: Overlay, name: str, count: int, mode: str = "", tree: DomainTree | None = None) -> PendingPodSet:
    found = pod_of(overlay, name)
    request = TopologyRequest(mode, RACK) if mode else None
    return PendingPodSet("main", count, found, make_shape(found), request, tree)


def rows(overlay: Overlay, *names: str) -> WorkloadPods:
    return WorkloadPods([pod_row(overlay.snapshot, name) for name in names], [])


def test_what_is_free_and_what_would_be_removed_is_summed_over_nodes() -> None:
    nodes = [gpu_node(f"n{i}", 4) for i in range(2)]
    running = [pod("x", 2, on="n0"), pod("y", 2, on="n0"), pod("z", 3, on="n1")]
    overlay = overlay_on(snapshot_of(*nodes, *running, pod("two", 2), pod("one", 1)))
    one, two = (lambda count: pending(overlay, "one", count)), (lambda count: pending(overlay, "two", count))
    assert could_fit_without(overlay, [one(1)], [])
    assert not could_fit_without(overlay, [one(2)], [])
    assert not could_fit_without(overlay, [two(1)], [])
    assert could_fit_without(overlay, [two(0)], [])
    assert not could_fit_without(overlay, [one(1), two(1)], []), "each of them has to"
    x, both = rows(overlay, "x"), rows(overlay, "x", "y")
    assert could_fit_without(overlay, [two(1)], [x])
    assert not could_fit_without(overlay, [two(2)], [x])
    assert could_fit_without(overlay, [two(2)], [both])
    assert could_fit_without(overlay, [two(4)], [both, rows(overlay, "z")])
    assert not could_fit_without(overlay, [two(5)], [both, rows(overlay, "z")])


def test_pods_placed_in_this_decision_can_be_removed_too() -> None:
    overlay = overlay_on(snapshot_of(gpu_node("n0", 2), pod("two", 2)))
    row = table_row(overlay, "two")
    overlay.refresh(row)
    assumed = overlay.assume(pod_of(overlay, "two"), row, 0)
    wanted = pending(overlay, "two", 1)
    assert not could_fit_without(overlay, [wanted], [])
    assert could_fit_without(overlay, [wanted], [WorkloadPods([], [PodPlacement(0, 0, assumed)])])


def test_closed_nodes_do_not_count_and_over_committed_ones_take_nothing_from_others() -> None:
    nodes = [gpu_node("n0", 4, cordoned=True), gpu_node("n1", 1), gpu_node("n2", 2)]
    overlay = overlay_on(snapshot_of(*nodes, *[pod(f"x{i}", 1, on="n1") for i in range(3)], pod("one", 1)))
    assert could_fit_without(overlay, [pending(overlay, "one", 2)], [])
    assert not could_fit_without(overlay, [pending(overlay, "one", 3)], [])
    overlay.block_node(2)
    assert not could_fit_without(overlay, [pending(overlay, "one", 1)], [])


@pytest.mark.parametrize(("mode", "fits"), [("required", False), ("preferred", True), ("", True)])
def test_a_required_domain_has_to_hold_all(mode: str, fits: bool) -> None:
    overlay = overlay_on(snapshot_of(racked("a", "r1", 1), racked("b", "r2", 1), racked("c", "r2", 1), pod("one", 1)))
    tree = DomainTree.build((RACK,), [["r1"], ["r2"], ["r2"]], ["a", "b", "c"])
    assert could_fit_without(overlay, [pending(overlay, "one", 3, mode, tree)], []) == fits
    assert could_fit_without(overlay, [pending(overlay, "one", 2, mode, tree)], [])
    assert could_fit_without(overlay, [pending(overlay, "one", 3, mode)], [])


def test_what_is_not_known_may_fit() -> None:
    """Instances are created on demand; what an unreadable pod holds can't be told."""
    overlay = overlay_on(snapshot_of(mig_node("n", 1), pod("i", mig=("1g.10gb", 9))))
    assert could_fit_without(overlay, [pending(overlay, "i", 9)], [])
    broken = pod("x", asks={"memory": "much"}, on="n")
    overlay = overlay_on(snapshot_of(node("n", cpu=1), broken, pod("p", cpu="2")))
    assert not could_fit_without(overlay, [pending(overlay, "p", 1)], [])
    assert could_fit_without(overlay, [pending(overlay, "p", 1)], [rows(overlay, "x")])
