"""Defragmentation by example: which pods move, which never do, and in which order."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from defrag_clusters import NOW, moves_of, plan_for, running, waiting

from reference.park import GPU, gpu_node, pod
from windlass.cluster.shape import make_shape
from windlass.defrag.baseline import DefragBaseline
from windlass.engine import EngineConfig
from windlass.model.configuration import Settings
from windlass.model.disruption import BudgetMeta, BudgetSpec, BudgetStatus, PodDisruptionBudget
from windlass.model.errors import InputError
from windlass.model.meta import LabelSelector
from windlass.model.pod import Affinity, PodAffinity, PodAffinityTerm
from windlass.model.queue import QueueSystem, ResourceFlavor, Topology
from windlass.model.times import format_timestamp
from windlass.model.workload import Admission, PodSet, PodSetAssignment, TopologyRequest, Workload
from windlass.placement.defrag.movable import MoveCosts, find_movable_pods, is_movable
from windlass.placement.defrag.move_sequence import MoveSequencer
from windlass.placement.defrag.types import LOSS_WEIGHT, PodToPlace, Relocation
from windlass.placement.defrag.weight_bound import lower_bound
from windlass.queueing.config import QueueConfig

SAFE, KEEP = "cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt"


def seven_seven_eight():
    """22 GPUs free as 7 + 7 + 8."""
    nodes = [gpu_node(f"n{i}", 8) for i in range(3)]
    return [*nodes, running("a", 1, on="n0", age=100), running("b", 1, on="n1", age=50)]


def test_one_move_makes_room_for_two_whole_nodes():
    plan = plan_for([*seven_seven_eight(), *waiting(8, 2)])
    assert moves_of(plan) == [("b", "n1", "n0")]
    assert plan.lost_milli_seconds == 50_000
    (start,) = plan.starts
    assert (start.workload, start.pods, start.gpu_milli, start.is_proven) == ("default/w", 2, 16000, True)


def test_the_first_that_wait_are_served_in_order():
    objects = [*seven_seven_eight(), *waiting(8, 2, "young"), *waiting(8, 3, "huge")]
    plan = plan_for(objects, workload="")
    assert [start.workload for start in plan.starts] == ["default/young"]
    assert [wait.workload for wait in plan.waits] == ["default/huge"]
    assert "no moves can make room" in plan.waits[0].message


def test_what_starts_anyway_keeps_its_place():
    """The small one starts now, on a node that then can't be the target of a move."""
    nodes = [gpu_node("n0", 2), gpu_node("n1", 2)]
    runs = [running("a", 1, on="n0"), running("b", 1, on="n1")]
    small = pod("small", 1, created=format_timestamp(NOW - 9999))
    assert not plan_for([*nodes, *runs, small, *waiting(2)]).moves
    assert plan_for([*nodes, *runs, *waiting(2)]).moves


@pytest.mark.parametrize(
    ("kind", "notes", "expected"),
    [
        ("ReplicaSet", {}, True),
        ("ReplicaSet", {SAFE: "true"}, True),
        ("", {}, False),
        ("DaemonSet", {}, False),
        ("Node", {}, False),
        ("Job", {SAFE: "false"}, False),
        ("Job", {KEEP: "true"}, False),
    ],
)
def test_who_may_be_moved(kind, notes, expected):
    made = running("a", 1, on="n0", kind=kind, notes=notes)
    assert is_movable(made) == expected
    other = running("b", 1, on="n1", kind="")
    objects = [gpu_node("n0", 2), gpu_node("n1", 2), made, other, *waiting(2)]
    assert bool(plan_for(objects).moves) == expected


def test_a_pod_on_its_way_out_is_left_alone():
    leaving = running("a", 1, on="n0")
    meta = msgspec.structs.replace(leaving.metadata, deletion_timestamp=format_timestamp(NOW))
    assert not is_movable(msgspec.structs.replace(leaving, metadata=meta))


def budget(name, allowed, **labels):
    return PodDisruptionBudget(
        metadata=BudgetMeta(name=name, namespace="default"),
        spec=BudgetSpec(min_available=1, selector=LabelSelector(match_labels=labels)),
        status=BudgetStatus(disruptions_allowed=allowed),
    )


@pytest.mark.parametrize(
    ("budgets", "moves"),
    [
        ([], 2),
        ([budget("one", 2, app="x")], 2),
        ([budget("one", 1, app="x")], 0),
        ([budget("one", 0, app="x")], 0),
        ([budget("other", 0, app="y")], 2),
        ([budget("one", 2, app="x"), budget("two", 2, app="x")], 0),
    ],
    ids=["none", "enough", "one too few", "nobody", "not covered", "covered twice"],
)
def test_budgets_are_honoured(budgets, moves):
    runs = [running(f"p{i}", 1, on="n0", labels={"app": "x"}) for i in range(2)]
    objects = [gpu_node("n0", 4), gpu_node("n1", 2), *runs, *budgets, *waiting(4)]
    for is_exact in (False, True):
        assert len(plan_for(objects, is_exact=is_exact).moves) == moves


def test_less_lost_work_goes_before_fewer_pods():
    nodes = [gpu_node("n0", 4), gpu_node("n1", 4), gpu_node("n2", 4)]
    old = running("old", 1, on="n0", age=5000)
    young = [running(f"y{i}", 1, on="n1", age=100) for i in range(2)]
    rest = running("rest", 2, on="n2", kind="")
    plan = plan_for([*nodes, old, *young, rest, *waiting(4)])
    assert {name for name, _, _ in moves_of(plan)} == {"y0", "y1"}
    # A checkpoint a moment ago makes the old one cheaper than both.
    meta = msgspec.structs.replace(
        old.metadata, annotations={"windlass.dev/last-checkpoint": format_timestamp(NOW - 10)}
    )
    saved = msgspec.structs.replace(old, metadata=meta)
    plan = plan_for([*nodes, saved, *young, rest, *waiting(4)])
    assert moves_of(plan) == [("old", "n0", "n1")]
    assert plan.lost_milli_seconds == 10_000


def test_a_restart_has_its_price_and_youth_its_protection():
    objects = [*seven_seven_eight(), *waiting(8, 2)]
    assert plan_for(objects, settings=Settings(restart_seconds=30)).lost_milli_seconds == 80_000
    assert moves_of(plan_for(objects, settings=Settings(min_run_seconds=60))) == [("a", "n0", "n1")]
    assert not plan_for(objects, settings=Settings(min_run_seconds=600)).moves


def test_a_moved_pod_may_push_another_on():
    """The only node that `a` may go to is full, and has somebody who can go elsewhere."""
    nodes = [gpu_node("n0", 4), gpu_node("n1", 2, labels={"pool": "x"}), gpu_node("n2", 2)]
    pinned = running("a", 2, on="n0", node_selector={})
    pinned = msgspec.structs.replace(pinned, spec=msgspec.structs.replace(pinned.spec, node_selector={"pool": "x"}))
    labelled = msgspec.structs.replace(
        nodes[0], metadata=msgspec.structs.replace(nodes[0].metadata, labels={**nodes[0].labels, "pool": "x"})
    )
    objects = [labelled, nodes[1], nodes[2], pinned, running("b", 1, on="n1"), *waiting(4)]
    assert moves_of(plan_for(objects)) == [("b", "n1", "n2"), ("a", "n0", "n1")]


def test_shares_are_gathered_on_one_device_of_the_node():
    halves = [
        running(f"h{i}", share="0.5", on="n0", age=10 + i, notes={"windlass.dev/devices": str(i)}) for i in range(2)
    ]
    plan = plan_for([gpu_node("n0", 2), *halves, *waiting(1)])
    assert moves_of(plan) == [("h0", "n0", "n0")]
    assert [grant.index for grant in plan.moves[0].devices] == [1]


def test_rules_between_pods_hold_for_moved_pods():
    apart = Affinity(
        pod_anti_affinity=PodAffinity(
            required_during_scheduling_ignored_during_execution=(
                PodAffinityTerm(
                    topology_key="kubernetes.io/hostname",
                    label_selector=LabelSelector(match_labels={"app": "x"}),
                ),
            )
        )
    )
    runs = [running(f"p{i}", 1, on=f"n{i}", labels={"app": "x"}, affinity=apart) for i in range(2)]
    nodes = [gpu_node("n0", 2), gpu_node("n1", 2)]
    assert not plan_for([*nodes, *runs, *waiting(2)]).moves
    assert len(plan_for([*nodes, *runs, gpu_node("n2", 1), *waiting(2)]).moves) == 1


def test_no_more_moves_than_allowed():
    runs = [running(f"p{i}", 1, on="n0") for i in range(3)]
    objects = [gpu_node("n0", 4), gpu_node("n1", 3), *runs, *waiting(4)]
    assert len(plan_for(objects, max_moves=3).moves) == 3
    assert not plan_for(objects, max_moves=2).moves


def test_the_bound_holds_where_pods_are_many():
    """More of them than can be looked at set by set, so it counts as if pods could leave in part: half of `double`."""
    dear = [running(f"p{i}", 1, on="n0", age=9000) for i in range(10)]
    double, single = running("double", 2, on="n0", age=50), running("single", 1, on="n0", age=60)
    objects = [gpu_node("n0", 16), gpu_node("n1", 2), *dear, double, single, *waiting(4)]
    snapshot, park, overlay = staged(objects)
    member = next(pod for pod in snapshot.pods.objects if pod.key == "default/w0")
    shape = make_shape(member)
    bound = lower_bound(overlay, park, [PodToPlace(member, shape, overlay.table.row(shape, snapshot))])
    assert bound // LOSS_WEIGHT == 50_000
    plan = plan_for(objects)
    assert moves_of(plan) == [("single", "n0", "n1")]
    assert plan.bound_milli_seconds <= 60_000


def staged(objects, restart_seconds=0):
    scene = DefragBaseline(objects, EngineConfig(), NOW)
    park = find_movable_pods(
        scene.snapshot, scene.workloads, [], MoveCosts(NOW, QueueConfig(restart_seconds=restart_seconds))
    )
    with np.errstate(over="ignore"):
        overlay, _ = scene.overlay()
    return scene.snapshot, park, overlay


def test_who_is_asked_for_has_to_exist_and_to_wait():
    with pytest.raises(InputError, match="there is no workload default/nobody"):
        plan_for(seven_seven_eight(), workload="default/nobody")
    plan = plan_for([*seven_seven_eight(), *waiting(8)])
    assert (plan.moves, plan.notes) == ((), ("default/w starts without any move",))


def labelled(name, gpus, **labels):
    return gpu_node(name, gpus, labels=labels)


@pytest.mark.parametrize(("mode", "free"), [("required", {"n0", "n1"}), ("preferred", {"n0", "n1", "n2", "n3"})])
def test_a_gang_stays_in_its_domain_and_its_flavor(mode, free):
    """Racks of one name in two zones are two racks."""
    nodes = [
        labelled("n0", 2, zone="a", rack="r1", pool="x"),
        labelled("n1", 2, zone="a", rack="r1", pool="x"),
        labelled("n2", 2, zone="a", rack="r2", pool="x"),
        labelled("n3", 2, zone="b", rack="r1", pool="x"),
        labelled("n4", 2, zone="a", rack="r1", pool="y"),
    ]
    member = running("g0", 1, on="n0")
    scene = DefragBaseline([*nodes, member], EngineConfig(), NOW)
    system = QueueSystem(
        flavors={"x": ResourceFlavor("x", {"pool": "x"}, topology="t")},
        topologies={"t": Topology("t", ("zone", "rack"))},
    )
    request = TopologyRequest(mode, "rack")
    pod_set = PodSet("main", 1, member, pod_keys=(member.key,), topology=request)
    held = PodSetAssignment("main", 1, {GPU: "x"}, {GPU: 1000}, {"n0": 1})
    workload = Workload("default/g", "Job", (pod_set,), admission=Admission("q", (held,)))
    snapshot = msgspec.structs.replace(scene.snapshot, queue_system=system)
    (one,) = find_movable_pods(snapshot, [workload], [], MoveCosts(NOW)).pods
    assert {name for name, allowed in zip(snapshot.nodes.names, one.allowed, strict=True) if allowed} == free


def swapped(spare):
    """Two pods that are to change places, and perhaps a node with room to step aside."""
    nodes = [gpu_node("n0", 1), gpu_node("n1", 1), *([gpu_node("n2", 1)] if spare else [])]
    _, park, overlay = staged([*nodes, running("a", 1, on="n0"), running("b", 1, on="n1")], 7)
    with np.errstate(over="ignore"):
        return overlay, MoveSequencer(overlay, park).execute((Relocation(0, 1), Relocation(1, 0)))


def test_pods_in_each_others_way_step_aside():
    _, steps = swapped(spare=True)
    assert steps is not None
    assert [(step.pod_number, step.from_node, step.assumed.node) for step in steps] == [
        (0, 0, 2),
        (1, 1, 0),
        (0, 2, 1),
    ]
    assert steps[-1].loss == 7000, "only the restart is lost again"


def test_where_nobody_can_step_aside_nothing_is_moved():
    overlay, steps = swapped(spare=False)
    assert steps is None
    assert overlay.checkpoint() == 0


@pytest.mark.parametrize("is_exact", [False, True])
def test_a_node_that_lacks_one_unit_is_cleared(is_exact):
    """One card of a kind that nobody knows; the GPUs of the other node are too few for the pod that waits."""
    card = "example.com/card"
    nodes = [gpu_node("n0", 2, **{card: 1}), gpu_node("n1", 1, **{card: 1})]
    objects = [*nodes, running("p", on="n0", asks={card: "1"}), *waiting(2, asks={card: "1"})]
    assert moves_of(plan_for(objects, is_exact=is_exact)) == [("p", "n0", "n1")]
