"""When a running workload has to stop, rule by rule, without a decision around it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reference.overlays import snapshot_of
from reference.park import gpu_node, pod
from windlass.model.meta import OwnerReference
from windlass.model.pod import Pod
from windlass.model.workload import Admission, PodSet, PodSetAssignment, Workload
from windlass.placement.stop_conditions import (
    DURATION_EXCEEDED,
    GANG_BELOW_MINIMUM,
    Readiness,
    StopConditions,
    min_running_pods,
)
from windlass.placement.timeplan.run_limits import PlannedStartSettings

GRACE = 300
CREATED = {1000: "1970-01-01T00:16:40Z", 2000: "1970-01-01T00:33:20Z", 3000: "1970-01-01T00:50:00Z"}


def member(name: str, on: str = "", created: int = 1000, started: int = 0, owner: bool | None = None) -> Pod:
    found = pod(name, 1, on=on, created=CREATED[created])
    if owner is not None:
        reference = OwnerReference(name="o", uid="o", controller=owner)
        found = msgspec.structs.replace(
            found, metadata=msgspec.structs.replace(found.metadata, owner_references=(reference,))
        )
    if started:
        status = msgspec.structs.replace(found.status, start_time=CREATED[started])
        found = msgspec.structs.replace(found, status=status)
    return found


def conditions(*pods: Pod, now: int = 0) -> StopConditions:
    snapshot = snapshot_of(gpu_node("n", 8), *pods)
    rows = {snapshot.pods.keys[row]: row for row in range(len(snapshot.pods.marks))}
    return StopConditions(snapshot, rows, now, GRACE, PlannedStartSettings())


def gang(*names: str, held: int | None = 1, count: int = 2, kind: str = "PodGroup", **fields: Any) -> Workload:
    keys = tuple(f"default/{name}" for name in names)
    admission = None if held is None else Admission("", (PodSetAssignment("main", held, {}, {}),))
    return Workload("default/g", kind, (PodSet("main", count, Pod(), pod_keys=keys),), admission=admission, **fields)


def below(stop: StopConditions, workload: Workload, late: bool = False) -> bool:
    reason = stop.below_minimum_reason(workload, late)
    assert reason in ("", GANG_BELOW_MINIMUM)
    return bool(reason)


@pytest.mark.parametrize(("now", "stopped"), [(2000, False), (2000 + GRACE, False), (2001 + GRACE, True)])
def test_the_grace_begins_with_the_newest_waiting_pod(now: int, stopped: bool) -> None:
    stop = conditions(member("a", "n"), member("b", created=2000), member("c", created=1000), now=now)
    assert below(stop, gang("a", "b", "c", count=3)) == stopped
    assert below(stop, gang("a", "c", count=2)), "the older one has waited for longer"


def test_the_grace_does_not_begin_before_the_start() -> None:
    stop = conditions(member("a", "n"), member("b"), now=3000 + GRACE)
    assert not below(stop, gang("a", "b", started_at=3000))
    assert below(stop, gang("a", "b", started_at=2999))


@pytest.mark.parametrize(
    "fields",
    [
        {"held": None},
        {"evicting": True},
        {"evictable": False},
        {"kind": "Pod"},
        {"all_or_nothing": False},
        {"held": 2},
        {"min_pods": 1},
    ],
)
def test_who_goes_on_without_a_member(fields: dict[str, Any]) -> None:
    stop = conditions(member("a", "n"), member("b"), now=9000)
    assert below(stop, gang("a", "b"))
    assert not below(stop, gang("a", "b", **fields))


@pytest.mark.parametrize(("held", "stopped"), [(1, True), (2, False), (3, False)])
def test_a_gang_that_holds_its_minimum_is_complete_wherever_its_pods_are(held: int, stopped: bool) -> None:
    stop = conditions(member("b"), now=9000)
    assert below(stop, gang("b", held=held, min_pods=2)) == stopped


def test_a_minimum_counts_also_where_losing_one_does_not_stop_the_rest() -> None:
    stop = conditions(member("a", "n"), member("b"), now=9000)
    assert below(stop, gang("a", "b", min_pods=2, all_or_nothing=False))


def test_a_workload_object_is_incomplete_where_pods_are_late() -> None:
    stop = conditions(member("a", "n"), member("b"), now=9000)
    admitted = gang("a", "b", kind="Workload", held=2)
    assert below(stop, admitted, late=True)
    assert not below(stop, admitted, late=False)
    other = gang("a", "b", held=2)
    assert not below(stop, other, late=True), "other kinds hold what runs"


def test_pods_that_run_already_are_enough_and_none_at_all_are_still_to_come() -> None:
    both = conditions(member("a", "n"), member("b", "n"), now=9000)
    assert not below(both, gang("a", "b", held=1))
    assert not below(both, gang("x", "y"))
    assert not below(both, gang(held=0))
    # One that runs for a minimum of one, one that waits.
    assert below(conditions(member("a", "n"), member("b"), member("c"), now=9000), gang("a", "b", "c", count=3))


@pytest.mark.parametrize(("owner", "stopped"), [(None, True), (False, True), (True, False)])
def test_a_missing_pod_is_waited_for_where_a_controller_makes_it(owner: bool | None, stopped: bool) -> None:
    stop = conditions(member("a", "n", owner=owner), now=0)
    assert below(stop, gang("a")) == stopped
    assert not below(stop, gang("a", kind="Job")), "a Job is a controller"


# Run times


def timed(*names: str, seconds: int | None = 500, **fields: Any) -> Workload:
    fields = {"run_limit_enforced": False, "held": len(names), "kind": "Job", **fields}
    return gang(*names, max_run_seconds=seconds, **fields)


@pytest.mark.parametrize(("now", "over"), [(1499, False), (1500, True), (1501, True)])
def test_a_declared_time_is_over_at_its_end_counted_from_the_first_start(now: int, over: bool) -> None:
    stop = conditions(member("b", "n", started=2000), member("a", "n", started=1000), member("c", "n"), now=now)
    assert stop.duration_exceeded_reason(timed("b", "a", "c")) == (DURATION_EXCEEDED if over else "")


@pytest.mark.parametrize(
    "fields", [{"run_limit_enforced": True}, {"seconds": None}, {"held": None}, {"evicting": True}]
)
def test_whose_time_never_ends_here(fields: dict[str, Any]) -> None:
    stop = conditions(member("a", "n", started=1000), now=9000)
    assert stop.duration_exceeded_reason(timed("a"))
    assert stop.duration_exceeded_reason(timed("a", **fields)) == ""


def test_the_time_of_what_has_not_started_does_not_run() -> None:
    stop = conditions(member("a", "n"), now=9000)
    assert stop.duration_exceeded_reason(timed("a")) == ""
    assert stop.duration_exceeded_reason(timed("x")) == ""


# All workloads


def stopped_by(stop: StopConditions, workloads: list[Workload], single: list[Workload], **options: Any) -> list:
    found = stop.workloads_to_stop({workload.key: workload for workload in workloads}, single, **options)
    return [(workload.key, reason) for workload, reason in found]


def named(workload: Workload, key: str) -> Workload:
    return msgspec.structs.replace(workload, key=key)


def test_workloads_are_stopped_for_time_first_and_single_pods_only_for_time() -> None:
    stop = conditions(member("a", "n", started=1000), member("b"), now=9000)
    both = named(timed("a", "b", held=1, kind="PodGroup"), "default/both")
    low = named(gang("a", "b"), "default/low")
    over = named(timed("a", kind="Pod"), "default/over")
    fine = named(timed("a", kind="Pod", seconds=99_999), "default/fine")
    unlimited = named(gang("a", kind="Pod"), "default/unlimited")
    unplaced = named(timed("a", held=None), "default/unplaced")
    assert stopped_by(stop, [both, unlimited, low, unplaced], [fine, over, unlimited]) == [
        ("default/both", DURATION_EXCEEDED),
        ("default/low", GANG_BELOW_MINIMUM),
        ("default/over", DURATION_EXCEEDED),
    ]
    assert stopped_by(stop, [low, both], [over], changing={"default/low", "default/over"}) == [
        ("default/both", DURATION_EXCEEDED)
    ]
    # A gang among the single pods is not one whose pods are decided on here.
    assert stopped_by(stop, [], [named(timed("a", "b", held=1, kind="PodGroup", seconds=99_999), "default/x")]) == []


def test_late_workloads_are_told_apart_by_key() -> None:
    stop = conditions(member("a", "n"), member("b"), now=9000)
    found = [named(gang("a", "b", kind="Workload", held=2), f"default/{name}") for name in "xy"]
    assert stopped_by(stop, found, [], late={"default/y"}) == [("default/y", GANG_BELOW_MINIMUM)]


def test_the_fewest_pods_are_summed_over_sets_and_assignments() -> None:
    sets = (PodSet("a", 4, Pod()), PodSet("b", 3, Pod(), min_count=2), PodSet("c", 2, Pod(), min_count=5))
    parts = [PodSetAssignment(name, count, {}, {}) for name, count in (("a", 1), ("a", 2), ("c", 1))]
    workload = Workload("d/w", "Workload", sets, admission=Admission("q", tuple(parts)))
    assert min_running_pods(workload) == 3 + 2 + 1
    assert min_running_pods(msgspec.structs.replace(workload, kind="Job")) == 4 + 2 + 2
    assert min_running_pods(msgspec.structs.replace(workload, admission=None)) == 4 + 2 + 2
    assert min_running_pods(msgspec.structs.replace(workload, min_pods=1)) == 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, ""),
        ({"execution_seconds": 501}, ""),
        ({"execution_seconds": 500}, "MaximumExecutionTimeExceeded"),
        ({"execution_seconds": 0}, "MaximumExecutionTimeExceeded"),
        ({"execution_seconds": 0, "evicting": True}, ""),
        ({"execution_seconds": 0, "kind": "Job"}, ""),
        ({"unready_since": 1401}, ""),
        ({"unready_since": 1400}, "PodsReadyTimeout"),
        ({"unready_since": 1400, "requeues": 2}, "PodsReadyTimeout"),
        ({"unready_since": 1400, "requeues": 3}, "RequeuingLimitExceeded"),
        ({"unready_since": 1461, "is_recovering": True}, ""),
        ({"unready_since": 1460, "is_recovering": True}, "PodsReadyTimeout"),
    ],
)
def test_a_kueue_workload_stops_at_the_limits_of_kueue(fields: dict[str, Any], reason: str) -> None:
    workload = gang("a", **{"kind": "Workload", "started_at": 1000, **fields})
    snapshot = snapshot_of(gpu_node("n", 8), member("a", "n"))
    stop = StopConditions(snapshot, {}, 1500, GRACE, PlannedStartSettings(), Readiness(100, 40, 3))
    assert stop.kueue_reason(workload) == reason
    without = StopConditions(snapshot, {}, 1500, GRACE, PlannedStartSettings())
    assert without.kueue_reason(workload) == ("" if "unready_since" in fields else reason)
    if fields.get("is_recovering"):
        unlimited = StopConditions(snapshot, {}, 1500, GRACE, PlannedStartSettings(), Readiness(100))
        assert unlimited.kueue_reason(workload) == ""
