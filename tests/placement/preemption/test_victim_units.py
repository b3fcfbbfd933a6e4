"""`find_victim_units`: which units there are, what evicting them loses, and in which order they go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from reference.park import gpu_node, pod
from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.model.meta import OwnerReference
from windlass.model.pod import Pod, PodStatus
from windlass.model.refusal import EVICTION, Refusal, Refusals
from windlass.model.times import format_timestamp
from windlass.model.workload import Admission, PodSet, PodSetAssignment, Workload
from windlass.placement.preemption.victim_units import VictimUnit, find_victim_units
from windlass.queueing.config import QueueConfig

NOW = 1_800_000_000
GONE = format_timestamp(NOW - 5)


def runs(name: str, gpus: int = 1, *, age: int = 100, leaving: bool = False, on: str = "n", **more: Any) -> Pod:
    """A pod that was created ten seconds before it started."""
    made: Pod = pod(name, gpus, on=on, created=format_timestamp(NOW - age - 10), **more)
    metadata = msgspec.structs.replace(made.metadata, deletion_timestamp=GONE if leaving else "")
    status = PodStatus(phase="Running", start_time=format_timestamp(NOW - age))
    return msgspec.structs.replace(made, metadata=metadata, status=status)


def workload(name: str, members: Sequence[Pod], **fields: Any) -> Workload:
    keys = tuple(member.key for member in members)
    pod_set = PodSet("main", len(members), members[0], pod_keys=keys)
    runs_all = Admission("", (PodSetAssignment("main", len(members), {}, {}),))
    return Workload(f"default/{name}", **{"kind": "Job", "pod_sets": (pod_set,), "admission": runs_all, **fields})


def found(
    pods: Sequence[Pod],
    workloads: Sequence[Workload] = (),
    *,
    priority: int = 10,
    config: QueueConfig | None = None,
    refused: Sequence[str] = (),
    gpus: int = 8,
) -> list[VictimUnit]:
    store = Store()
    store.apply([Put(object_) for object_ in (gpu_node("n", gpus, cpu=20, memory="100Gi"), *pods)])
    evictions = {key: Refusal(EVICTION, key, NOW + 60) for key in refused}
    snapshot = msgspec.structs.replace(
        store.snapshot(NOW), workloads=tuple(workloads), refusals=Refusals(evictions=evictions)
    )
    row_of = {one.key: row for row, one in enumerate(snapshot.pods.objects)}
    return find_victim_units(snapshot, row_of, priority, config or QueueConfig(), NOW)


def names(units: Sequence[VictimUnit]) -> list[str]:
    return [unit.key.removeprefix("default/") for unit in units]


def test_without_workloads_every_running_pod_of_lower_priority_is_a_unit() -> None:
    waits = pod("waits", 1)
    pods = [runs("a", priority=9), runs("same", priority=10), runs("above", priority=11), waits]
    (unit,) = found(pods)
    assert (unit.number, unit.key, unit.rows, unit.pods) == (0, "default/a", (0,), ("default/a",))
    assert (unit.priority, unit.loss, unit.started_at, unit.uid) == (9, (100_000, 0), NOW - 100, "a")
    assert (unit.is_terminating, unit.is_queued, unit.dependents, unit.workload) == (False, False, (), None)


def test_the_loss_is_gpus_times_seconds_since_the_start_or_the_checkpoint_plus_the_restart() -> None:
    saved = {"windlass.dev/last-checkpoint": format_timestamp(NOW - 30)}
    before = {"windlass.dev/last-checkpoint": format_timestamp(NOW - 500)}
    declared = {"windlass.dev/restart-cost": "7s"}
    units = found(
        [
            runs("plain", 2),
            runs("saved", 2, annotations=saved),
            runs("before", 1, annotations=before),
            runs("declared", 1, annotations=declared),
            runs("half", 0, share="0.5"),
        ],
        config=QueueConfig(restart_seconds=1),
    )
    assert {name: unit.loss for name, unit in zip(names(units), units, strict=True)} == {
        "plain": (2000 * 101, 0),
        "saved": (2000 * 31, 0),
        "before": (1000 * 101, 0),
        "declared": (1000 * 107, 0),
        "half": (500 * 101, 0),
    }


def test_without_gpus_the_largest_share_of_the_cluster_counts() -> None:
    """The node has 20 cores and 100 GiB: five cores are a quarter, ten GiB a tenth, one pod of 110 a hundredth."""
    half = {"windlass.dev/restart-cost": "0s"}
    cpu = runs("cpu", 0, cpu="5", asks={"memory": "10Gi"}, annotations=half)
    memory = runs("memory", 0, cpu="1", asks={"memory": "50Gi"})
    both = workload("both", [runs("b0", 0, cpu="2"), runs("b1", 1, cpu="2")], min_pods=2)
    mixed = found([cpu, memory])
    assert {unit.key: unit.loss for unit in mixed} == {
        "default/cpu": (0, 250_000 * 100),
        "default/memory": (0, 500_000 * 100),
    }
    (gang,) = found([runs("b0", 0, cpu="2"), runs("b1", 1, cpu="2")], [both])
    assert gang.loss == (100_000, 0), "where it has GPUs, only these count"
    two = workload("two", [runs("c0", 0, cpu="2"), runs("c1", 0, cpu="4")], min_pods=2)
    (gang,) = found([runs("c0", 0, cpu="2"), runs("c1", 0, cpu="4")], [two])
    assert gang.loss == (0, (100_000 + 200_000) * 100)


def test_pods_that_are_leaving_cost_nothing_and_come_first_whatever_their_priority() -> None:
    units = found([runs("low"), runs("going", priority=9, leaving=True)])
    assert names(units) == ["going", "low"]
    assert [(unit.number, unit.is_terminating, unit.loss) for unit in units] == [
        (0, True, (0, 0)),
        (1, False, (100_000, 0)),
    ]


def test_the_order_is_priority_then_loss_then_pods_then_youth_then_uid() -> None:
    pods = [
        runs("high", priority=5, age=1),
        runs("dear", age=300),
        runs("cheap", age=50),
        runs("b", age=100),
        runs("a", age=100),
        runs("young", 2, age=50),
    ]
    assert names(found(pods)) == ["cheap", "young", "a", "b", "dear", "high"]
    gang = [runs("g0", 0, age=100), runs("g1", 1, age=100)]
    pair = workload("g", gang, min_pods=2, started_at=NOW - 100)
    alone = workload("z", [runs("z", 1, age=100)], kind="Pod", started_at=NOW - 300)
    assert names(found([*gang, runs("z", 1, age=100)], [pair, alone])) == ["z", "g"], "fewer pods first"


def test_mirror_pods_and_pods_of_a_daemon_set_are_no_units() -> None:
    mirror = runs("mirror", annotations={"kubernetes.io/config.mirror": "x"})
    owner = OwnerReference("DaemonSet", "d", api_version="apps/v1", controller=True)
    other = OwnerReference("DaemonSet", "d", api_version="apps/v1", controller=False)
    kept = OwnerReference("ReplicaSet", "d", api_version="apps/v1", controller=True)

    def owned(name: str, *owners: OwnerReference) -> Pod:
        made = runs(name)
        metadata = msgspec.structs.replace(made.metadata, owner_references=owners)
        return msgspec.structs.replace(made, metadata=metadata)

    pods = [mirror, owned("daemon", owner), owned("related", other, kept)]
    assert names(found(pods)) == ["related"]


def test_a_gang_goes_whole_and_outranks_by_its_highest_pod() -> None:
    members = [runs("g0", 2, priority=3, age=100), runs("g1", 1, priority=8, age=60)]
    gang = workload("g", members, priority=5, uid="u", queue_name="q")
    (unit,) = found(members, [gang])
    assert (unit.key, unit.rows, unit.pods, unit.priority) == (
        "default/g",
        (0, 1),
        ("default/g0", "default/g1"),
        8,
    )
    assert (unit.loss, unit.started_at, unit.uid) == ((200_000 + 60_000, 0), NOW - 60, "u")
    assert (unit.is_queued, unit.workload) == (True, gang)
    assert found(members, [gang], priority=8) == []
    assert names(found(members, [gang], priority=9)) == ["g"]
    assert names(found(members, [msgspec.structs.replace(gang, priority=8)], priority=9)) == ["g"]
    assert found(members, [msgspec.structs.replace(gang, priority=9)], priority=9) == []


def test_a_workload_that_was_not_admitted_has_nothing_to_give() -> None:
    members = [runs("g0"), runs("g1")]
    assert found(members, [workload("g", members, admission=None)]) == []


def test_members_that_wait_are_no_part_of_the_unit() -> None:
    members = [runs("g0"), pod("g1", 1)]
    (unit,) = found(members, [workload("g", members)])
    assert (unit.rows, unit.pods) == ((0,), ("default/g0",))


def test_a_workload_without_a_minimum_goes_pod_by_pod() -> None:
    members = [runs("g0", 1, age=100), runs("g1", 1, age=60, priority=7)]
    loose = workload("g", members, all_or_nothing=False, min_pods=1, priority=2, queue_name="q", checkpoint_at=NOW - 80)
    units = found(members, [loose], config=QueueConfig(restart_seconds=2))
    assert [(unit.key, unit.rows, unit.pods, unit.priority, unit.loss, unit.is_queued) for unit in units] == [
        ("default/g0", (0,), ("default/g0",), 2, (82_000, 0), True),
        ("default/g1", (1,), ("default/g1",), 7, (62_000, 0), True),
    ]
    assert [unit.uid for unit in units] == ["g0", "g1"]
    assert [unit.started_at for unit in units] == [NOW - 100, NOW - 60]
    assert [unit.workload.kind for unit in units if unit.workload is not None] == ["Pod", "Pod"]
    assert found(members, [msgspec.structs.replace(loose, evictable=False)]) == []
    declared = msgspec.structs.replace(loose, restart_seconds=9, queue_name="", checkpoint_at=0)
    assert [(unit.loss, unit.is_queued) for unit in found(members, [declared])] == [
        ((109_000, 0), False),
        ((69_000, 0), False),
    ]
    two = msgspec.structs.replace(loose, min_pods=2)
    assert names(found(members, [two])) == ["g"], "from a minimum of two it goes whole"


def test_members_above_the_minimum_go_alone_and_with_the_minimum() -> None:
    members = [runs(f"g{at}", 1, age=100) for at in range(3)]
    gang = workload("g", members, min_pods=2)
    units = {unit.key: unit for unit in found(members, [gang])}
    assert units.keys() == {"default/g", "default/g#1"}
    minimum, extra = units["default/g"], units["default/g#1"]
    assert (minimum.rows, minimum.dependents) == ((0, 1), ("default/g#1",))
    assert minimum.pods == ("default/g0", "default/g1", "default/g2")
    assert minimum.loss == (300_000, 0), "the dependents' work is lost too"
    assert (extra.rows, extra.pods, extra.dependents, extra.loss) == ((2,), ("default/g2",), (), (100_000, 0))
    assert extra.workload_key == minimum.workload_key == "default/g"


def test_a_refused_eviction_protects_the_whole_unit() -> None:
    members = [runs(f"g{at}", 1) for at in range(3)]
    gang = workload("g", members, min_pods=2)
    assert names(found(members, [gang], refused=["default/g2"])) == []
    assert names(found(members, [gang], refused=["default/g0"])) == ["g#1"]
    assert names(found([runs("a"), runs("b")], refused=["default/a"])) == ["b"]
    assert names(found([runs("a", leaving=True)], refused=["default/a"])) == ["a"], "it goes already"


def test_pods_that_are_leaving_make_room_though_their_workload_may_not_be_evicted() -> None:
    """A terminating pod of a workload of higher priority, of one that isn't admitted, and one of no workload."""
    above, other, alone = runs("above", leaving=True), runs("other", leaving=True), runs("alone", leaving=True)
    stays = runs("stays")
    workloads = [
        workload("above", [above], priority=99),
        workload("other", [other, stays], admission=None),
    ]
    units = found([above, other, alone, stays], workloads)
    assert sorted(names(units)) == ["above", "alone", "other"]
    assert all(unit.is_terminating and not unit.is_queued and unit.loss == (0, 0) for unit in units)


def test_a_pod_that_is_leaving_is_one_unit_also_where_its_workload_is_known() -> None:
    members = [runs("g0", leaving=True), runs("g1", leaving=True)]
    (unit,) = found(members, [workload("g", members)])
    assert (unit.key, unit.is_terminating) == ("default/g", True)
    half = [runs("g0", leaving=True), runs("g1")]
    (unit,) = found(half, [workload("g", half)])
    assert (unit.is_terminating, unit.loss) == (False, (200_000, 0))


@pytest.mark.parametrize(("minimum", "kept"), [(100, ["a"]), (101, []), (0, ["a"])])
def test_what_has_run_for_the_minimum_may_go(minimum: int, kept: list[str]) -> None:
    assert names(found([runs("a", age=100)], config=QueueConfig(min_run_seconds=minimum))) == kept


def test_a_pod_that_forbids_preemption_stays() -> None:
    label = {"volcano.sh/preemptable": "false"}
    assert names(found([runs("a", labels=label), runs("b")])) == ["b"]
    single = workload("a", [runs("a")], kind="Pod", evictable=False)
    assert found([runs("a")], [single]) == []


def test_a_pod_whose_request_cant_be_read_stays() -> None:
    unreadable = runs("a", 0, asks={"nvidia.com/gpu": "0.5"})
    assert names(found([unreadable, runs("b")])) == ["b"]


def test_the_workload_says_when_it_started_and_what_a_queue_caps() -> None:
    single = workload(
        "a",
        [runs("a", age=100)],
        kind="Pod",
        started_at=NOW - 40,
        checkpoint_at=NOW - 20,
        restart_seconds=5,
        admission=Admission("cq"),
    )
    (unit,) = found([runs("a", age=100)], [single])
    assert (unit.started_at, unit.loss, unit.uid) == (NOW - 40, (25_000, 0), "default/a")
    (unit,) = found([runs("a", age=100)], [single], config=QueueConfig(lost_seconds_caps={"cq": 11}))
    assert unit.loss == (11_000, 0)
