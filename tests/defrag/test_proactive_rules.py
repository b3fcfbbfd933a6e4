"""Proactive defragmentation, rule by rule: what is worth a move, who may be moved for whom, and what is decided."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from defrag_clusters import NOW, running
from tests.placement.explain.held_objects import flavor, queue

from reference.park import GPU, gpu_node, pod
from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import decide
from windlass.model.codec import decode_object
from windlass.model.configuration import Defragmentation, Settings
from windlass.model.decision import Evict, Hold
from windlass.model.plan import Plan
from windlass.model.times import format_timestamp
from windlass.model.verdict import Verdict
from windlass.placement.defrag.proactive import HORIZON_SECONDS, MAX_TARGETS, with_moves
from windlass.planner import engine_config

HOSTNAME = "kubernetes.io/hostname"
CLASS = decode_object(
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "normal"}, "value": 0}
)
QUEUE = "kueue.x-k8s.io/queue-name"


def plan(*objects: Any, moves: int = 4, workloads: bool = True) -> Plan:
    policy = Settings(defrag=Defragmentation(proactive=True, max_moves=moves))
    store = Store()
    store.apply([Put(object_) for object_ in (*objects, *([CLASS] if workloads else []))])
    return decide(store.snapshot(NOW), engine_config(policy), NOW)


def moved(found: Plan) -> dict[str, str]:
    """Evicted pod → for which workload."""
    return {key.removeprefix("default/"): evict.for_workload for evict in found.evicts for key in evict.pods}


def waits(name: str, size: int, age: int = 60, **more: Any) -> Any:
    return pod(name, size, created=format_timestamp(NOW - age), **more)


def gang(name: str, count: int, size: int, age: int = 60, **more: Any) -> list[Any]:
    return [waits(f"{name}{at}", size, age, group=(name, count), **more) for at in range(count)]


TWO = [gpu_node("n0", 8, cpu=64), gpu_node("n1", 8, cpu=64)]


@pytest.mark.parametrize(("age", "moves"), [(8 * HORIZON_SECONDS - 1, True), (8 * HORIZON_SECONDS, False)])
def test_a_move_loses_less_than_an_hour_of_what_waits(age: int, moves: bool) -> None:
    """One GPU for eight hours is as much as eight GPUs for one."""
    stays = running("stays", 1, on="n1", kind="")
    found = plan(*TWO, running("p", 1, on="n0", age=age), stays, *gang("w", 1, 8))
    assert moved(found) == ({"p": "default/w"} if moves else {})


@pytest.mark.parametrize(("age", "moves"), [(8 * 600 - 1, True), (8 * 600, False)])
def test_a_start_that_is_planned_soon_gains_less(age: int, moves: bool) -> None:
    """Without moves it starts in ten minutes, when `ends` has run out."""
    ends = running("ends", 1, on="n1", age=3000, kind="", active_deadline_seconds=3600)
    found = plan(*TWO, running("p", 1, on="n0", age=age), ends, *gang("w", 1, 8))
    assert moved(found) == ({"p": "default/w"} if moves else {})


@pytest.mark.parametrize(("held", "moves"), [(3, True), (4, False)])
def test_who_moves_is_smaller_than_who_waits(held: int, moves: bool) -> None:
    nodes = [gpu_node("n0", 4, cpu=64), gpu_node("n1", 4, cpu=64)]
    found = plan(*nodes, running("p", held, on="n0"), *gang("w", 1, 4, node_selector={HOSTNAME: "n0"}))
    assert moved(found) == ({"p": "default/w"} if moves else {})


def test_nobody_moves_for_a_lower_priority_and_an_equal_one_does() -> None:
    stays = running("stays", 1, on="n1", kind="", priority=9)
    for priority, moves in ((4, {}), (5, {"p": "default/w"})):
        found = plan(*TWO, running("p", 1, on="n0", priority=5), stays, *gang("w", 1, 8, priority=priority))
        assert moved(found) == moves


def test_the_cheapest_moves_are_taken_and_those_who_moved_are_named_once() -> None:
    pods = [running("a", 1, on="n0", age=500), running("b0", 1, on="n1", age=100), running("b1", 1, on="n1", age=100)]
    found = plan(*TWO, *pods, *gang("w", 1, 8))
    assert moved(found) == {"b0": "default/w", "b1": "default/w"}
    (bind,) = found.binds
    assert (bind.pod, bind.node, sorted(bind.after)) == ("default/w0", "n1", ["default/b0", "default/b1"])
    (admit,) = found.admits
    assert (admit.workload, admit.queue, sorted(admit.after)) == (
        "default/w",
        "",
        ["default/b0", "default/b1"],
    )
    assert [(one.name, one.count, one.nodes) for one in admit.pod_sets] == [("main", 1, {"n1": 1})]
    assert list(found.holds) == []
    assert moved(plan(*TWO, *pods, *gang("w", 1, 8), moves=1)) == {"a": "default/w"}


def test_a_lone_pod_is_bound_and_not_admitted() -> None:
    found = plan(*TWO, running("p", 1, on="n0"), running("stays", 1, on="n1", kind=""), waits("w", 8), workloads=False)
    assert moved(found) == {"p": "default/w"}
    assert [(bind.pod, bind.node, bind.after) for bind in found.binds] == [("default/w", "n0", ("default/p",))]
    assert list(found.admits) == []


def test_nothing_moves_where_somebody_behind_could_take_what_is_freed() -> None:
    """`small` waits for the cores of `p`, which the large pod doesn't need."""
    objects = [
        *TWO,
        running("p", 1, on="n0", cpu="40"),
        running("stays", 1, on="n1", kind=""),
        *gang("w", 1, 8, node_selector={HOSTNAME: "n0"}),
    ]
    small = waits("small", 0, 30, cpu="30", node_selector={HOSTNAME: "n0"})
    assert moved(plan(*objects)) == {"p": "default/w"}
    assert moved(plan(*objects, small)) == {}
    other = waits("small", 0, 30, cpu="70", node_selector={HOSTNAME: "n0"})
    assert moved(plan(*objects, other)) == {"p": "default/w"}, "one that could not start anyway is no matter"


def test_moves_are_for_the_first_that_they_help() -> None:
    """Nothing helps who is larger than every node; the next few are considered."""
    stays = running("stays", 1, on="n1", kind="")
    pods = [running("p", 1, on="n0"), stays]
    for ahead, moves in ((MAX_TARGETS - 1, True), (MAX_TARGETS, False)):
        first = [member for at in range(ahead) for member in gang(f"a{at}", 2, 8, 900 - at)]
        assert bool(moved(plan(*TWO, *pods, *first, *gang("w", 1, 8)))) == moves


def test_what_runs_in_another_queue_stays_and_in_the_same_queue_it_moves() -> None:
    quotas = [flavor(), *queue({"f": {GPU: 99, "cpu": 99}}, "q"), *queue({"f": {GPU: 99, "cpu": 99}}, "z")]
    objects = [*TWO, *map(decode_object, quotas), running("stays", 1, on="n1", kind="")]
    waiting = gang("w", 1, 8, labels={QUEUE: "q"})
    for name, moves in (("q", True), ("z", False), ("", True)):
        labels = {QUEUE: name} if name else {}
        found = plan(*objects, running("p", 1, on="n0", labels=labels), *waiting)
        assert bool(moved(found)) == moves, name
        if moves:
            assert [admit.queue for admit in found.admits] == ["q"]


def test_no_moves_beside_an_eviction_or_for_part_of_a_gang() -> None:
    stays = running("stays", 1, on="n1", kind="")
    low = [gpu_node("n2", 1, labels={"pool": "x"}), running("low", 1, on="n2", priority=-5, kind="")]
    urgent = waits("urgent", 1, priority=5, node_selector={"pool": "x"})
    found = plan(*TWO, *low, running("p", 1, on="n0"), stays, urgent, *gang("w", 1, 8))
    assert moved(found) == {"low": "default/urgent"}
    members = [running("w0", 8, on="n2", group=("w", 2)), waits("w1", 8, group=("w", 2))]
    lost = plan(*TWO, gpu_node("n2", 8, cpu=64), running("p", 1, on="n0"), stays, *members)
    assert "p" not in moved(lost)


def test_a_gang_with_a_required_level_gets_one_domain() -> None:
    """Rack `a` would need two moves, rack `b` one."""
    level = {"kueue.x-k8s.io/podset-required-topology": "windlass.dev/rack"}
    nodes = [gpu_node(f"n{at}", 2, cpu=64, labels={"windlass.dev/rack": "aabbc"[at]}) for at in range(5)]
    pods = [running(f"p{at}", 1, on=f"n{at}", age=100) for at in range(3)]
    full = running("full", 1, on="n4", kind="")
    members = [
        msgspec.structs.replace(
            one,
            metadata=msgspec.structs.replace(one.metadata, annotations={**one.metadata.annotations, **level}),
        )
        for one in gang("w", 2, 2)
    ]
    found = plan(*nodes, *pods, full, *members)
    assert moved(found) == {"p2": "default/w"}
    assert sorted(bind.node for bind in found.binds) == ["n2", "n3"]


def test_a_policy_without_moves_looks_at_nothing() -> None:
    """Nor is anything moved beside evictions, or where nobody waits."""

    def look() -> Any:
        raise LookupError("the state after the decision")

    held = Hold("default/w", Verdict("NoCapacity"))
    evict = Evict("default/p", ("default/p",), "default/w", "Priority")
    on, off = Defragmentation(proactive=True), Defragmentation(proactive=False)
    for given, policy in ((Plan(holds=(held,)), off), (Plan(), on), (Plan(holds=(held,), evicts=(evict,)), on)):
        assert with_moves(given, look, policy) is given
    with pytest.raises(LookupError):
        with_moves(Plan(holds=(held,)), look, on)
