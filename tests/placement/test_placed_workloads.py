"""Where the pods of workloads are on the overlay, with undo; and what the placer says about a workload."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.placement.offices import choices, gang, make_overlay, make_placer, runs
from tests.queueing.builders import cell, queue, system

from reference.park import gpu_node, node, pod
from windlass.model.configuration import ResourceRules
from windlass.model.names.kubernetes import ZONE_LABEL
from windlass.model.names.windlass import RACK_LABEL
from windlass.model.node import Taint
from windlass.model.pod import Pod
from windlass.model.queue import QueueSystem, ResourceFlavor, Topology
from windlass.model.workload import Admission, PodSet, PodSetAssignment, TopologyRequest, Workload
from windlass.placement.blocked_capacity import BlockedCapacity, PlannedPod
from windlass.placement.overlay import Overlay
from windlass.placement.workload_placer import WorkloadPlacer
from windlass.queueing.placement_interface import PlacementResult, PodSetChoice

PODS = [pod("a0", cpu="2", on="n0", namespace="team"), pod("a1", cpu="3", on="n1", namespace="team")]
OTHER = pod("b0", cpu="1", on="n1", namespace="team")
A, B = runs("a", PODS), runs("b", [OTHER])
NODES = [node("n0", cpu=8, labels={RACK_LABEL: "r0"}), node("n1", cpu=8, labels={RACK_LABEL: "r1"})]


class OpenPlacer(WorkloadPlacer):
    """With its overlay at hand."""

    def __init__(self, overlay: Overlay, workloads: tuple[Workload, ...], system: QueueSystem) -> None:
        super().__init__(overlay, system, workloads, ResourceRules())
        self.overlay = overlay


def office(*workloads: Workload, system: QueueSystem | None = None) -> OpenPlacer:
    return OpenPlacer(make_overlay(*NODES, *PODS, OTHER), workloads, system or QueueSystem())


def free(placer: OpenPlacer) -> list[int]:
    """Free CPUs by node."""
    column = placer.overlay.snapshot.resources.column("cpu")
    return [int(amount) // 1000 for amount in placer.overlay.state.free[:, column]]


def wants(cpus: int, count: int = 1, name: str = "w", **more: object) -> Workload:
    return gang(name, pod("t", cpu=str(cpus)), count, **more)  # type: ignore[arg-type]


# Where pods are


def test_running_workloads_are_known_with_their_pods() -> None:
    placed = office(A, B).placed_workloads
    assert (len(placed), list(placed), "team/a" in placed, "team/x" in placed) == (2, ["team/a", "team/b"], True, False)
    found = placed["team/a"]
    assert [placed.pod_row(own.key) for own in PODS] == found.running_rows
    assert found.pod_set_by_row == dict.fromkeys(found.running_rows, "main")
    assert (len(placed), sorted(placed)) == (2, ["team/a", "team/b"]), "also once it was looked up"
    assert placed.pod_row("team/unknown") is None
    assert placed.get_or_empty("team/x").running_rows == []
    assert placed.get_or_empty("team/a") is found


def test_pods_without_a_node_are_not_running() -> None:
    waiting = pod("late", cpu="1", namespace="team")
    part_runs = replace(
        A, pod_sets=(replace(A.pod_sets[0], pod_keys=(*A.pod_sets[0].pod_keys, "team/late", "team/no")),)
    )
    placer = make_placer(make_overlay(*NODES, *PODS, waiting), [part_runs])
    found = placer.placed_workloads["team/a"]
    assert len(found.running_rows) == 2
    assert len(found.pod_set_by_row) == 3


def test_a_removed_workload_frees_its_nodes_and_comes_back() -> None:
    placer = office(A, B)
    before = free(placer)
    assert before == [6, 4]
    placer.remove(A)
    assert free(placer) == [8, 7]
    assert "team/a" not in placer.placed_workloads
    assert placer.placed_workloads.victims_by_node() == {0: ("team/a",), 1: ("team/a",)}
    placer.remove(B)
    assert placer.placed_workloads.victims_by_node() == {0: ("team/a",), 1: ("team/a", "team/b")}
    assert placer.placed_workloads.removed_from({0}) == ("team/a",)
    assert placer.placed_workloads.removed_from({1}) == ("team/a", "team/b")
    assert placer.placed_workloads.removed_from({7}) == ()
    placer.restore(A)
    assert free(placer) == [6, 5]
    assert "team/a" in placer.placed_workloads
    assert placer.placed_workloads.victims_by_node() == {1: ("team/b",)}


def test_a_placed_workload_is_removed_at_once() -> None:
    placer = office(A, B)
    assert placer.place(wants(2, 2), choices(wants(2, 2))).ok
    assert sum(free(placer)) == 6
    placer.remove(wants(2, 2))
    assert free(placer) == [6, 4]
    assert placer.placed_workloads.victims_by_node() == {}, "nothing has to terminate"
    placer.restore(wants(2, 2))
    assert sum(free(placer)) == 6
    assert len(placer.placed_workloads["team/w"].placed) == 2


def test_a_rollback_undoes_whatever_was_done() -> None:
    placer = office(A, B)
    start = placer.checkpoint()
    placer.rollback(start)
    assert placer.place(wants(1), choices(wants(1))).ok
    middle = placer.checkpoint()
    placer.remove(A)
    placer.restore(A)
    placer.remove(B)
    assert placer.place(wants(4, name="v"), choices(wants(4))).ok
    placer.rollback(middle)
    assert "team/v" not in placer.placed_workloads
    assert sum(free(placer)) == 9
    assert placer.placed_workloads.victims_by_node() == {}
    placer.rollback(start)
    assert free(placer) == [6, 4]
    assert sorted(placer.placed_workloads) == ["team/a", "team/b"]


def test_a_removal_that_is_rolled_back_can_be_made_again() -> None:
    placer = office(A, B)
    start = placer.checkpoint()
    placer.remove(A)
    removed = placer.checkpoint()
    placer.restore(A)
    placer.rollback(removed)
    assert free(placer) == [8, 7]
    assert placer.placed_workloads.removed_from({0}) == ("team/a",)
    placer.restore(A)
    assert free(placer) == [6, 4]
    placer.rollback(start)
    placer.remove(A)
    assert free(placer) == [8, 7]
    assert placer.placed_workloads.victims_by_node() == {0: ("team/a",), 1: ("team/a",)}


def test_workloads_removed_before_this_decision_are_victims() -> None:
    overlay = make_overlay(*NODES)
    placer = WorkloadPlacer(overlay, QueueSystem(), [A], ResourceRules(), {"team/a": {1}})
    assert placer.placed_workloads.victims_by_node() == {1: ("team/a",)}
    assert "team/a" not in placer.placed_workloads
    found = placer.place(wants(5, 2), choices(wants(5, 2)))
    assert found.after == ("team/a",)


def test_running_workloads_are_tracked_once() -> None:
    placer = office(A)
    placer.remove(A)
    placer.placed_workloads.track_running([A, B])
    assert sorted(placer.placed_workloads) == ["team/b"], "a removed one stays removed"
    loaded = placer.placed_workloads["team/b"]
    placer.placed_workloads.track_running([B])
    assert sorted(placer.placed_workloads) == ["team/b"]
    assert placer.placed_workloads["team/b"] is loaded
    waiting = pod("alone", cpu="1", namespace="team")
    single = replace(gang("alone", waiting), kind="Pod", admission=Admission(""))
    placer.placed_workloads.track_running([single])
    assert placer.placed_workloads["team/alone"].running_rows == []


# Admitted workloads whose pods don't exist yet


def admitted(*parts: PodSetAssignment, sets: tuple[PodSet, ...] | None = None, **more: object) -> Workload:
    own = sets or (PodSet("main", 2, pod("t", cpu="2")),)
    return Workload("team/w", "Job", own, admission=Admission("q", parts), **more)  # type: ignore[arg-type]


def assumed(placer: WorkloadPlacer) -> list[tuple[int, int, int]]:
    return [(one.pod_set, one.member, one.assumed.node) for one in placer.placed_workloads["team/w"].placed]


def test_an_assignment_by_node_takes_its_place_at_once() -> None:
    parts = (
        PodSetAssignment("gone", 1, {}, {}, {"n0": 1}),
        PodSetAssignment("main", 3, {}, {}, {"n1": 2, "unknown": 5, "n0": 1}),
    )
    placer = office(admitted(*parts))
    assert free(placer) == [4, 0]
    assert sorted(assumed(placer)) == [(1, 0, 1), (1, 1, 1), (1, 2, 0)]
    assert placer.placed_workloads["team/w"].pod_set_names == ("gone", "main")


def test_an_assignment_by_domain_takes_its_place_inside_it() -> None:
    part = PodSetAssignment("main", 3, {}, {}, {}, ((("r1",), 2), (("r0",), 1), (("no",), 1)), (RACK_LABEL,))
    placer = office(admitted(part))
    assert assumed(placer) == [(0, 0, 1), (0, 1, 1), (0, 2, 0)]
    assert free(placer) == [4, 0]
    both = replace(part, nodes={"n0": 1})
    assert assumed(office(admitted(both))) == [(0, 0, 0)], "nodes say more than domains"


def test_inside_a_domain_the_best_node_that_fits_is_taken_and_else_the_first() -> None:
    nodes = [
        node("n0", cpu=1, labels={RACK_LABEL: "r"}),
        node("n1", cpu=8, labels={RACK_LABEL: "r"}),
        gpu_node("n2", 8, cpu=8, labels={RACK_LABEL: "r"}),
    ]
    part = PodSetAssignment("main", 1, {}, {}, {}, ((("r",), 1),), (RACK_LABEL,))
    assert assumed(make_placer(make_overlay(*nodes), [admitted(part)])) == [(0, 0, 1)]
    large = (PodSet("main", 1, pod("t", cpu="9")),)
    assert assumed(make_placer(make_overlay(*nodes), [admitted(part, sets=large)])) == [(0, 0, 0)]


def test_a_workload_that_cannot_be_read_takes_no_place() -> None:
    part = PodSetAssignment("main", 1, {}, {}, {"n0": 1})
    placer = office(admitted(part, unreadable="why"))
    assert assumed(placer) == []
    assert free(placer) == [6, 4]


# The placer


def test_a_placement_says_nodes_and_what_has_to_end_first() -> None:
    placer = office(A, B)
    placer.remove(B)
    pair = Workload("team/w", "Job", (PodSet("x", 2, pod("t", cpu="5")), PodSet("y", 1, pod("t", cpu="1"))))
    found = placer.place(pair, choices(pair))
    assert found.ok
    assert found.nodes[0] == {"n0": 1, "n1": 1}
    assert sum(found.nodes[1].values()) == 1
    assert found.after == ("team/b",)
    elsewhere = office(A, B)
    elsewhere.remove(B)
    assert elsewhere.place(wants(6), choices(wants(6))).after == ()


def test_a_failed_placement_leaves_nothing_and_is_remembered_while_nothing_changes() -> None:
    placer = office(A, B)
    before = placer.checkpoint()
    failed = placer.place(wants(7), choices(wants(7)))
    assert (failed.ok, failed.code, failed.feasible) == (False, "CPU_MEM_INSUFFICIENT", True)
    assert placer.checkpoint() == before
    workload = wants(7)
    first = placer.place(workload, choices(workload))
    assert placer.place(workload, choices(workload)) is first
    assert placer.place(wants(7, name="v"), choices(wants(7))) is not first
    placer.remove(A)
    assert placer.place(workload, choices(workload)).ok


def test_what_can_never_fit_is_not_feasible() -> None:
    never = office(A, B).place(wants(9), choices(wants(9)))
    assert (never.ok, never.code, never.feasible) == (False, "REQUEST_EXCEEDS_CLUSTER", False)
    request = TopologyRequest("required", RACK_LABEL)
    many = office(A, B).place(wants(4, 3, topology=request), choices(wants(4, 3)))
    assert (many.ok, many.code, many.feasible) == (False, "REQUEST_EXCEEDS_CLUSTER", False)
    assert str(many.message).endswith("; the largest rack has room for 2 of 3 pods when it is empty")
    busy = office(A, B).place(wants(4, 2, topology=request), choices(wants(4, 2)))
    assert (busy.ok, busy.code, busy.feasible) == (False, "KUEUE_TOPOLOGY_NOFIT", True)


def test_blocked_capacity_is_placed_around_and_given_back() -> None:
    placer = office(A, B)
    template = pod("t", cpu="6")
    (pending,), _, _ = placer.pending_pod_sets(gang("x", template), choices(gang("x", template)))
    row = placer.overlay.table.row(pending.shape, placer.overlay.snapshot)
    blocked = BlockedCapacity([PlannedPod(template, row, 0)])
    assert not placer.place_around_blocked(wants(5), choices(wants(5)), blocked).ok
    assert free(placer) == [6, 4]
    found = placer.place_around_blocked(wants(4), choices(wants(4)), BlockedCapacity([PlannedPod(template, row, 0)]))
    assert found.nodes == ({"n1": 1},)
    assert free(placer) == [6, 0]


def piece(suffix: str, cpus: int = 1, **more: object) -> Workload:
    return replace(wants(cpus, **more), key=f"team/g{suffix}")  # type: ignore[arg-type]


def test_a_member_above_the_minimum_needs_the_minimum() -> None:
    minimum, extra = piece(""), piece("#1")
    placer = office(minimum, extra)
    failed = placer.place(extra, choices(extra))
    assert (failed.ok, failed.code, failed.feasible) == (False, "GANG_INCOMPLETE", False)
    assert failed.message == "gang team/g has not started its minimum, so pods above it wait"
    assert placer.place(minimum, choices(minimum)).ok
    assert placer.place(extra, choices(extra)).ok
    assert office(extra).place(extra, choices(extra)).ok, "where the minimum is not decided on here"


@pytest.mark.parametrize(("cpus", "rack"), [(12, "n0"), (5, "n1")])
def test_a_member_joins_the_rack_of_its_gang(cpus: int, rack: str) -> None:
    nodes = [node("n0", cpu=16, labels={RACK_LABEL: "r0"}), node("n1", cpu=8, labels={RACK_LABEL: "r1"})]
    request = TopologyRequest("required", RACK_LABEL)
    minimum, extra = piece("", cpus, topology=request), piece("#1", 2, topology=request)
    placer = make_placer(make_overlay(*nodes), [minimum, extra])
    assert placer.place(minimum, choices(minimum)).nodes == ({rack: 1},)
    assert placer.place(extra, choices(extra)).nodes == ({rack: 1},)


def test_a_lost_member_joins_those_that_run() -> None:
    request = TopologyRequest("required", RACK_LABEL)
    minimum = runs("g", [PODS[1]])
    minimum = replace(minimum, pod_sets=(replace(minimum.pod_sets[0], topology=request),))
    missing = piece("#missing", 1, topology=request)
    placer = make_placer(make_overlay(*NODES, PODS[1]), [minimum, missing])
    assert placer.place(missing, choices(missing)).nodes == ({"n1": 1},)


def test_a_request_over_all_sets_counts_pods_of_all_of_them() -> None:
    """The set `y` joins `x`, which runs on n1, only where the request spans the sets."""
    for spans, node_name in [(True, "n1"), (False, "n0")]:
        request = TopologyRequest("required", RACK_LABEL, spans_pod_sets=spans)
        minimum = Workload(
            "team/g",
            "Job",
            (PodSet("x", 1, PODS[1], pod_keys=(PODS[1].key,), topology=request),),
            admission=Admission(""),
        )
        extra = Workload("team/g#1", "Job", (PodSet("y", 1, pod("t", cpu="1"), topology=request),))
        placer = make_placer(
            make_overlay(node("n0", cpu=4, labels={RACK_LABEL: "r0"}), NODES[1], PODS[1]), [minimum, extra]
        )
        assert placer.place(extra, choices(extra)).nodes == ({node_name: 1},)


def test_guards_are_asked_and_told() -> None:
    class Guard:
        def __init__(self) -> None:
            self.removed = 0

        def place(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlacementResult:
            return PlacementResult(ok=False, code=workload.key)

        def on_workload_removed(self) -> None:
            self.removed += 1

    placer, guard = office(A), Guard()
    placer.guard = guard
    assert placer.place(wants(1), choices(wants(1))).code == "team/w"
    assert placer.place_ignoring_plans(wants(1), choices(wants(1))).ok
    placer.remove(A)
    assert guard.removed == 1


def test_could_place_is_false_only_where_removals_do_not_help() -> None:
    placer = office(A, B)
    assert placer.could_place(wants(6), choices(wants(6)), ())
    assert not placer.could_place(wants(7), choices(wants(7)), [B])
    assert placer.could_place(wants(7), choices(wants(7)), [A])


def test_a_copy_knows_no_running_workloads_and_truncates_caches() -> None:
    placer = office(A, B)
    copy = placer.copy_onto(placer.overlay.fork())
    assert len(copy.placed_workloads) == 0
    before = placer.cache_sizes()
    for number in range(3):
        workload = wants(1, name=f"x{number}")
        placer.pending_pod_sets(workload, choices(workload))
        placer.requests(workload, workload.pod_sets[0])
    assert placer.cache_sizes() == (before[0] + 3, before[1] + 3)
    placer.truncate_caches(before)
    assert placer.cache_sizes() == before


def test_shares_by_memory_are_counted_against_the_largest_device() -> None:
    labels = {"nvidia.com/gpu.memory": "1000"}
    placer = make_placer(
        make_overlay(gpu_node("a", 1, labels={"nvidia.com/gpu.memory": "500"}), gpu_node("b", 1, labels=labels))
    )
    workload = gang("w", pod("t", memory_mib=250))
    assert placer.requests(workload, workload.pod_sets[0])["nvidia.com/gpu"] == 250
    found = placer.requests(workload, workload.pod_sets[0])
    found.clear()
    assert placer.requests(workload, workload.pod_sets[0]), "a copy"


# Flavors


FLAVORS = {
    "plain": ResourceFlavor("plain"),
    "racks": ResourceFlavor("racks", topology="dc"),
    "lost": ResourceFlavor("lost", topology="unknown"),
    "tainted": ResourceFlavor("tainted", node_taints=(Taint("team", "NoSchedule", "x"),)),
}
FLAVORED = replace(
    system([queue("q", dict.fromkeys(("plain", "racks", "lost"), cell(9)))]),
    flavors=FLAVORS,
    topologies={"dc": Topology("dc", (ZONE_LABEL, RACK_LABEL))},
)
RACK_REQUEST = TopologyRequest("required", RACK_LABEL)


@pytest.mark.parametrize(
    ("flavor", "request_", "reason"),
    [
        ("plain", None, ""),
        ("plain", RACK_REQUEST, "Flavor 'plain' does not support TopologyAwareScheduling"),
        ("racks", None, "Flavor 'racks' supports only TopologyAwareScheduling"),
        ("racks", RACK_REQUEST, ""),
        ("racks", TopologyRequest("unconstrained"), ""),
        ("racks", TopologyRequest("required", "other"), "Flavor 'racks' does not contain the requested level"),
        ("lost", RACK_REQUEST, "Flavor 'lost' does not contain the requested level"),
    ],
)
def test_why_a_flavor_cannot_be_used(flavor: str, request_: TopologyRequest | None, reason: str) -> None:
    placer = office(system=FLAVORED)
    assert placer.ineligible_reason(PodSet("main", 1, pod("t"), topology=request_), FLAVORS[flavor]) == reason


def test_a_flavor_of_none_of_its_resources_says_nothing() -> None:
    placer = office(system=FLAVORED)
    assert placer.ineligible_reason(PodSet("main", 1, Pod(), topology=RACK_REQUEST), FLAVORS["plain"]) == ""
    assert placer.ineligible_reason(PodSet("main", 1, pod("t")), FLAVORS["tainted"]) != ""
    assert placer.ineligible_reason(PodSet("main", 1, pod("t"), topology=RACK_REQUEST), ResourceFlavor("other")) == ""
