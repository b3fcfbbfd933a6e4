"""`find_movable_pods`: who may move, what that loses, where to; and the order of moves on an overlay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from defrag_clusters import NOW, running
from tests.placement.staged_overlay import overlay_on, shape_and_row

from reference.park import GPU, gpu_node, mig_node, node, pod
from windlass.cluster.shape import make_shape
from windlass.model.decision import DeviceGrant
from windlass.model.disruption import BudgetMeta, BudgetSpec, BudgetStatus, PodDisruptionBudget
from windlass.model.meta import LabelSelector
from windlass.model.node import NodeCondition
from windlass.model.pod import Pod
from windlass.model.queue import QueueSystem, ResourceFlavor
from windlass.model.workload import Admission, PodSet, PodSetAssignment, TopologyRequest, Workload
from windlass.placement.defrag.device_choice import is_gpu_share, other_devices, usable_devices
from windlass.placement.defrag.movable import MoveCosts, find_movable_pods, held_gpu_milli
from windlass.placement.defrag.move_sequence import MoveSequencer, steps_weight
from windlass.placement.defrag.types import GangLoss, MovablePods, Relocation
from windlass.queueing.config import QueueConfig


@pytest.fixture(autouse=True)
def _overflow() -> Iterator[None]:
    with np.errstate(over="ignore"):  # the hash function of the kernels overflows on purpose
        yield


def budget(name: str, allowed: int, app: str) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=BudgetMeta(name=name, namespace="default"),
        spec=BudgetSpec(min_available=1, selector=LabelSelector(match_labels={"app": app})),
        status=BudgetStatus(disruptions_allowed=allowed),
    )


def workload(members: Sequence[Pod], *, name: str = "g", **fields: Any) -> Workload:
    keys = tuple(member.key for member in members)
    pod_set = PodSet("main", len(members), members[0], pod_keys=keys, topology=fields.pop("topology", None))
    return Workload(f"default/{name}", "Job", (pod_set,), **{"admission": Admission("cq"), **fields})


def found(
    *objects: Any,
    workloads: Sequence[Workload] = (),
    budgets: Sequence[PodDisruptionBudget] = (),
    config: QueueConfig | None = None,
    excluded: Sequence[str] = (),
    **changes: Any,
) -> MovablePods:
    snapshot = overlay_on(*objects, now=NOW, **changes).snapshot
    costs = MoveCosts(NOW, config or QueueConfig())
    return find_movable_pods(snapshot, workloads, budgets, costs, frozenset(f"default/{key}" for key in excluded))


def names(movable: MovablePods) -> list[str]:
    return [one.pod.metadata.name for one in movable.pods]


NODES = [gpu_node("n0", 8), gpu_node("n1", 8)]


def test_a_movable_pod_with_all_that_is_known_of_it() -> None:
    waits = pod("w", 1)
    movable = found(*NODES, running("bare", 1, on="n0", kind=""), running("a", 2, on="n1", age=50), waits)
    (one,) = movable.pods
    assert (one.number, one.pod.key, one.pod_row, one.node) == (0, "default/a", 1, 1)
    assert (one.loss, one.restart_loss, one.gang_loss, one.budgets) == (100_000, 0, -1, ())
    assert (one.allowed, one.may_change_device) == (None, False)
    assert one.grants == (DeviceGrant(0, 1000), DeviceGrant(1, 1000))
    assert one.weight == 100_000 * (1 << 20) + 1
    assert (movable.on_node, movable.gang_losses, movable.budgets) == ({1: (0,)}, (), ())


def test_pods_are_numbered_and_listed_by_node() -> None:
    movable = found(
        *NODES, *(running(name, 1, on=on) for name, on in zip("abcd", ["n0", "n1", "n0", "n1"], strict=True))
    )
    assert [one.number for one in movable.pods] == [0, 1, 2, 3]
    assert movable.on_node == {0: (0, 2), 1: (1, 3)}


def test_losses_with_restarts_checkpoints_and_caps() -> None:
    one = running("a", 2, on="n0", age=100)
    plain = found(*NODES, one, config=QueueConfig(restart_seconds=7)).pods[0]
    assert (plain.loss, plain.restart_loss) == (2000 * 107, 2000 * 7)
    saved = workload([one], all_or_nothing=False, checkpoint_at=NOW - 30, restart_seconds=5)
    kept = found(*NODES, one, workloads=[saved]).pods[0]
    assert (kept.loss, kept.restart_loss) == (2000 * 35, 2000 * 5)
    before = workload([one], all_or_nothing=False, checkpoint_at=NOW - 900)
    assert found(*NODES, one, workloads=[before]).pods[0].loss == 2000 * 100
    capped = found(*NODES, one, workloads=[before], config=QueueConfig(lost_seconds_caps={"cq": 11}))
    assert capped.pods[0].loss == 2000 * 11


@pytest.mark.parametrize(("minimum", "kept"), [(0, ["a"]), (100, ["a"]), (101, [])])
def test_what_has_just_started_stays(minimum: int, kept: list[str]) -> None:
    movable = found(*NODES, running("a", 1, on="n0", age=100), config=QueueConfig(min_run_seconds=minimum))
    assert names(movable) == kept


def test_a_gang_loses_the_work_of_all_members_once() -> None:
    members = [running("a", 2, on="n0", age=100), running("b", 1, on="n1", age=50)]
    bare = running("c", 1, on="n1", age=10, kind="")
    movable = found(*NODES, *members, bare, workloads=[workload([*members, bare])])
    assert [(one.loss, one.gang_loss) for one in movable.pods] == [(0, 0), (0, 0)]
    total = 200_000 + 50_000 + 10_000
    assert movable.gang_losses == (GangLoss("default/g", total, total // 2),), "shared by those that may move"


def test_what_goes_on_without_a_member_loses_only_that_member() -> None:
    members = [running(name, 1, on="n0", age=100) for name in "abc"]

    def losses(**fields: Any) -> list[int]:
        return [one.gang_loss for one in found(*NODES, *members, workloads=[workload(members, **fields)]).pods]

    assert losses() == [0, 0, 0]
    assert losses(min_pods=3) == [0, 0, 0]
    assert losses(min_pods=4) == [0, 0, 0]
    assert losses(min_pods=2) == [-1, -1, -1], "three run, two are enough"
    assert losses(all_or_nothing=False) == [-1, -1, -1]
    single = found(*NODES, members[0], workloads=[workload(members[:1])])
    assert single.pods[0].gang_loss == -1
    two = found(*NODES, *members[:2], pod("c", 1), workloads=[workload([*members[:2], pod("c", 1)])])
    assert [one.gang_loss for one in two.pods] == [0, 0]


def test_two_gangs_have_losses_of_their_own() -> None:
    first = [running(name, 1, on="n0", age=100) for name in "ab"]
    second = [running(name, 1, on="n1", age=10) for name in "cd"]
    gangs = [workload(first, name="first"), workload(second, name="second")]
    movable = found(*NODES, *first, *second, workloads=gangs)
    assert [one.gang_loss for one in movable.pods] == [0, 0, 1, 1]
    assert [(one.workload, one.loss, one.share) for one in movable.gang_losses] == [
        ("default/first", 200_000, 100_000),
        ("default/second", 20_000, 10_000),
    ]


def test_budgets_allow_what_is_left_after_those_that_moved() -> None:
    pods = [running(name, 1, on="n0", labels={"app": "x"}) for name in "abc"]
    limits = [budget("b", 2, "x"), budget("other", 1, "y")]
    movable = found(*NODES, *pods, budgets=limits)
    assert (movable.budgets, [one.budgets for one in movable.pods]) == ((2, 1), [(0,)] * 3)
    after = found(*NODES, *pods, budgets=limits, excluded=["a"])
    assert (names(after), after.budgets) == (["b", "c"], (1, 1))
    assert names(found(*NODES, *pods, budgets=limits, excluded=["a", "b"])) == []
    assert found(*NODES, *pods, budgets=limits, excluded=["a", "b", "c"]).budgets == (0, 1)
    assert names(found(*NODES, *pods, budgets=[budget("b", 2, "x"), budget("c", 2, "x")])) == []


def test_shares_and_instances_may_move_on_their_own_node() -> None:
    pods = [
        running("share", share="0.5", on="n0"),
        running("whole", 1, on="n0"),
        running("cpu", on="n0"),
        running("mig", mig=("3g.40gb", 1), on="m"),
    ]
    movable = found(NODES[0], mig_node("m", 1), *pods)
    assert {one.pod.metadata.name: one.may_change_device for one in movable.pods} == {
        "share": True,
        "whole": False,
        "cpu": False,
        "mig": True,
    }


@pytest.mark.parametrize(
    ("asks", "grants", "milli"),
    [
        (pod("p", 2), (), 2000),
        (pod("p", 2), (DeviceGrant(0, 500), DeviceGrant(1, 250)), 750),
        (pod("p", share="0.3"), (), 300),
        (pod("p"), (), 0),
        (pod("p", mig=("3g.40gb", 1)), (), 428),
        (pod("p", mig=("1g.10gb", 2)), (), 285),
        (pod("p", mig=("7g.80gb", 1)), (), 1000),
    ],
)
def test_what_a_pod_holds_of_gpus(asks: Pod, grants: tuple[DeviceGrant, ...], milli: int) -> None:
    assert held_gpu_milli(make_shape(asks), grants) == milli


# Allowed nodes


def test_nodes_that_are_not_ready_take_nobody() -> None:
    ill = gpu_node("n2", 8)
    condition = NodeCondition(type="Ready", status="False")
    ill = msgspec.structs.replace(ill, status=msgspec.structs.replace(ill.status, conditions=(condition,)))
    (one,) = found(*NODES, ill, running("a", 1, on="n0")).pods
    assert one.allowed is not None
    assert one.allowed.tolist() == [True, True, False]


def test_a_pod_stays_in_its_flavor_and_its_domain_and_slice() -> None:
    nodes = [
        gpu_node(f"n{at}", 8, labels={"pool": pool, "rack": rack, "host": host})
        for at, (pool, rack, host) in enumerate(["xru", "xru", "xrv", "xsu", "yru"])
    ]
    one = running("a", 1, on="n0")
    flavors = {"x": ResourceFlavor("x", {"pool": "x"}), "any": ResourceFlavor("any", {})}
    system = QueueSystem(flavors=flavors)

    def allowed(topology: TopologyRequest | None, *assignments: PodSetAssignment) -> list[int] | None:
        admitted = workload([one], topology=topology, admission=Admission("cq", assignments))
        (movable,) = found(*nodes, one, workloads=[admitted], queue_system=system).pods
        return None if movable.allowed is None else np.flatnonzero(movable.allowed).tolist()

    here = PodSetAssignment("main", 1, {GPU: "x"}, {}, {"n0": 1})
    elsewhere = PodSetAssignment("main", 1, {GPU: "any"}, {}, {"n3": 1})
    other_set = PodSetAssignment("other", 1, {GPU: "x"}, {}, {"n0": 1})
    assert allowed(None) is None
    assert allowed(None, here) == [0, 1, 2, 3]
    assert allowed(None, elsewhere) is None
    assert allowed(None, elsewhere, here) == [0, 1, 2, 3], "the assignment that has its node"
    assert allowed(None, here, elsewhere) == [0, 1, 2, 3]
    assert allowed(None, other_set) is None
    assert allowed(TopologyRequest("required", "rack")) == [0, 1, 2, 4]
    assert allowed(TopologyRequest("required", "rack"), here) == [0, 1, 2]
    assert allowed(TopologyRequest("preferred", "rack"), here) == [0, 1, 2, 3]
    assert allowed(TopologyRequest("preferred", "rack", slice_level="host"), here) == [0, 1, 3]
    assert allowed(TopologyRequest("required", "rack", slice_level="host"), here) == [0, 1]


# Devices of a share


def test_other_devices_are_one_of_each_kind_with_room() -> None:
    shares = [("a", "0.5", 0), ("b", "0.5", 1), ("c", "0.2", 2), ("d", "0.9", 3)]
    pods = [running(name, share=part, on="n", notes={"windlass.dev/devices": str(at)}) for name, part, at in shares]
    overlay = overlay_on(gpu_node("n", 5), *pods, now=NOW)
    waits = pod("w", share="0.4")
    shape, row = shape_and_row(overlay, waits)
    overlay.refresh(row)
    assert usable_devices(overlay, shape, row, 0) == [
        (0, 400, 500),
        (1, 400, 500),
        (2, 400, 800),
        (3, 400, 100),
        (4, 400, 1000),
    ]
    picked = int(overlay.table.cells.device[row, 0])
    kinds = {0: 500, 1: 500, 2: 800, 4: 1000}
    others = list(other_devices(overlay, shape, row, 0))
    assert sorted({kinds[picked], *(kinds[device] for device in others)}) == [500, 800, 1000]
    assert len(others) == 2
    assert is_gpu_share(shape)
    assert not any(is_gpu_share(make_shape(one)) for one in (pod("p", 1), pod("p"), pod("p", mig=("3g.40gb", 1))))
    cpu = shape_and_row(overlay, pod("p"))
    assert usable_devices(overlay, cpu[0], cpu[1], 0) == []


# The order of moves


def executed(*objects: Any, moves: Sequence[Relocation], restart: int = 0) -> list[tuple[int, int, int, int]] | None:
    overlay = overlay_on(*objects, now=NOW)
    movable = find_movable_pods(overlay.snapshot, (), [], MoveCosts(NOW, QueueConfig(restart_seconds=restart)))
    steps = MoveSequencer(overlay, movable).execute(moves)
    if steps is None:
        assert overlay.checkpoint() == 0
        return None
    assert steps_weight(steps) == sum(step.loss for step in steps) * (1 << 20) + len(steps)
    return [(step.pod_number, step.from_node, step.assumed.node, step.loss) for step in steps]


def test_a_pod_moves_once_its_node_has_room() -> None:
    nodes = [gpu_node(f"n{at}", 1) for at in range(3)]
    pods = [running("a", 1, on="n0", age=10), running("b", 1, on="n1", age=20)]
    assert executed(*nodes, *pods, moves=[Relocation(0, 1), Relocation(1, 2)]) == [
        (1, 1, 2, 20_000),
        (0, 0, 1, 10_000),
    ]


def test_of_pods_that_block_each_other_the_cheapest_to_restart_steps_aside() -> None:
    nodes = [gpu_node("n0", 2), gpu_node("n1", 2), gpu_node("n2", 2)]
    pods = [running("a", 2, on="n0", age=10), running("b", 1, on="n1", age=20), running("c", 1, on="n1", age=30)]
    moves = [Relocation(0, 1), Relocation(1, 0), Relocation(2, 0)]
    steps = executed(*nodes, *pods, moves=moves, restart=1)
    assert steps is not None
    assert steps[0] == (1, 1, 2, 21_000), "one GPU restarts for less than two"
    assert {(number, to) for number, _, to, _ in steps[-3:]} == {(0, 1), (1, 0), (2, 0)}
    again = [loss for number, _, _, loss in steps if number == 1][1:]
    assert again == [1000] * len(again), "the second move loses the restart only"


def test_nothing_moves_where_there_is_no_order() -> None:
    nodes = [gpu_node("n0", 1), gpu_node("n1", 1), node("n2")]
    pods = [running("a", 1, on="n0"), running("b", 1, on="n1")]
    assert executed(*nodes, *pods, moves=[Relocation(0, 1), Relocation(1, 0)]) is None
    assert executed(*nodes, *pods, moves=[Relocation(0, 2)]) is None
    assert executed(*nodes, *pods, moves=[]) == []


def test_a_device_that_is_named_has_to_have_room() -> None:
    shares = [("a", "0.5", 0), ("b", "0.6", 1)]
    pods = [running(name, share=part, on="n0", notes={"windlass.dev/devices": str(at)}) for name, part, at in shares]
    nodes = [gpu_node("n0", 3)]
    assert executed(*nodes, *pods, moves=[Relocation(0, 0, 1)]) is None
    assert executed(*nodes, *pods, moves=[Relocation(0, 0, 2)]) == [(0, 0, 0, 300_000)]
    assert executed(*nodes, *pods, moves=[Relocation(0, 0, 9)]) is None
