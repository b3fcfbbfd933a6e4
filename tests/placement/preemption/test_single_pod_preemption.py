"""Many single pods of which some preempt: each gets the result that it would get if the pods were placed one by one."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.preemption.preemption_cases import NOW, gpu_node, pod

from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import decide
from windlass.model.configuration import Settings
from windlass.model.plan import Plan
from windlass.placement.preemption import single_pods
from windlass.planner import engine_config


def plan(*objects: Any) -> Plan:
    """Without explanations."""
    store = Store()
    store.apply([Put(object_) for object_ in objects])
    return decide(store.snapshot(NOW), engine_config(Settings()), NOW)


def codes(found: Plan) -> dict[str, str]:
    return {hold.workload.partition("/")[2]: hold.verdict.code for hold in found.holds}


def binds(found: Plan) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {bind.pod.partition("/")[2]: (bind.node, bind.after) for bind in found.binds}


def asking(name: str, priority: int, age: int, **requests: str) -> Any:
    made = pod(name, 0, priority, age=age)
    resources = msgspec.structs.replace(made.spec.containers[0].resources, limits=requests)
    container = msgspec.structs.replace(made.spec.containers[0], resources=resources)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, containers=(container,)))


def test_every_hold_keeps_its_own_reason_before_and_behind_those_who_preempt() -> None:
    """Three preemptors among pods that are held for three reasons; more pods than one run has."""
    nodes = [gpu_node(f"n{at}", 4) for at in range(3)]
    running = [pod(f"low-{at}", 4, 0, f"n{at}", 600) for at in range(3)]
    held: dict[str, str] = {}
    waiting: list[Any] = []
    for at in range(60):
        age = 7200 - 60 * at
        if at in (9, 10, 40):
            waiting.append(pod(f"urgent-{at}", 4, 9, age=age))
        elif at % 7 == 5:
            gates = [{"name": "example.com/not-yet"}]
            waiting.append(pod(f"gated-{at}", 4, 9, age=age, schedulingGates=gates))
            held[f"gated-{at}"] = "SCHEDULING_GATED"
        elif at % 3 == 0:
            waiting.append(asking(f"cpu-{at}", 9, age, cpu="999"))
            held[f"cpu-{at}"] = "CPU_MEM_INSUFFICIENT"
        elif at % 3 == 1:
            waiting.append(pod(f"elsewhere-{at}", 1, 9, age=age, nodeSelector={"pool": "x"}))
            held[f"elsewhere-{at}"] = "SELECTOR_MISMATCH"
        else:
            waiting.append(pod(f"huge-{at}", 5, 9, age=age))
            held[f"huge-{at}"] = "REQUEST_EXCEEDS_CLUSTER"
    found = plan(*nodes, *running, *waiting)
    assert codes(found) == held
    assert sorted(binds(found)) == ["urgent-10", "urgent-40", "urgent-9"]
    assert {after for _, after in binds(found).values()} == {("default/low-0",), ("default/low-1",), ("default/low-2",)}
    counted = {hold.workload: hold.verdict.counts[0].nodes for hold in found.holds if hold.verdict.counts}
    assert set(counted.values()) == {3}


def test_pods_before_the_preemptor_keep_their_nodes_and_pods_behind_it_come_after_it() -> None:
    nodes = [gpu_node("a", 4), gpu_node("b", 2)]
    running = [pod("low", 3, 0, "a", 600)]
    first, urgent = pod("first", 2, 9, age=900), pod("urgent", 4, 9, age=800)
    last = pod("last", 1, 9, age=700)
    found = plan(*nodes, *running, first, urgent, last)
    assert binds(found) == {"first": ("b", ()), "urgent": ("a", ("default/low",))}
    assert codes(found) == {"last": "GPU_FULL"}


def test_pods_behind_the_second_preemptor_are_placed_once() -> None:
    """`last` is placed in the run in which `second` is refused, and again behind it; its node has room for one."""
    nodes = [gpu_node("a", 4), gpu_node("b", 3), gpu_node("c", 2)]
    running = [pod("low-a", 4, 0, "a", 600), pod("low-b", 3, 0, "b", 600)]
    urgent, first = pod("urgent", 4, 9, age=900), pod("first", 1, 9, age=840)
    second, last = pod("second", 3, 9, age=780), pod("last", 1, 9, age=720)
    found = plan(*nodes, *running, urgent, first, second, last)
    assert binds(found) == {
        "urgent": ("a", ("default/low-a",)),
        "first": ("c", ()),
        "second": ("b", ("default/low-b",)),
        "last": ("c", ()),
    }


def test_equal_pods_preempt_one_after_another_until_nobody_is_left() -> None:
    nodes = [gpu_node(f"n{at}", 1) for at in range(3)]
    running = [pod(f"low-{at}", 1, at, f"n{at}", 600) for at in range(3)]
    equal = [pod(f"u-{at}", 1, 2, age=900 - 60 * at) for at in range(4)]
    found = plan(*nodes, *running, *equal)
    assert binds(found) == {"u-0": ("n0", ("default/low-0",)), "u-1": ("n1", ("default/low-1",))}
    assert codes(found) == {"u-2": "GPU_FULL", "u-3": "GPU_FULL"}


def test_those_who_may_not_preempt_dont_stop_those_behind_them() -> None:
    """One whose class never preempts, one without lower pods, then one that may."""
    running = [pod("low", 2, 5, "a", 600)]
    never = pod("never", 2, 9, age=900, preemptionPolicy="Never")
    low = pod("equal", 2, 5, age=900)
    found = plan(gpu_node("a", 2), *running, never, low, pod("urgent", 2, 8, age=60))
    assert binds(found) == {"urgent": ("a", ("default/low",))}
    assert codes(found).keys() == {"never", "equal"}


def test_where_no_victims_help_the_pod_is_held_and_smaller_ones_behind_it_start() -> None:
    running = [pod("low", 1, 0, "a", 600), pod("kept", 1, 9, "a", 600)]
    found = plan(gpu_node("a", 2), *running, pod("large", 2, 9, age=900), pod("small", 1, 9, age=60))
    assert binds(found) == {"small": ("a", ("default/low",))}
    assert codes(found).keys() == {"large"}


def test_pods_on_a_node_that_was_cleared_wait_for_its_victims() -> None:
    """The victim frees four GPUs, of which the preemptor needs three: who takes the fourth waits too."""
    running = [pod("low", 4, 0, "a", 600)]
    found = plan(gpu_node("a", 4), *running, pod("urgent", 3, 9, age=900), pod("next", 1, 9, age=60))
    assert binds(found) == {"urgent": ("a", ("default/low",)), "next": ("a", ("default/low",))}
    (evict,) = found.evicts
    assert (evict.for_workload, evict.pods) == ("default/urgent", ("default/low",))


@given(st.randoms(use_true_random=False))
def test_the_length_of_a_run_changes_nothing(rng: Random) -> None:
    nodes = [gpu_node(f"n{at}", rng.choice([2, 4])) for at in range(rng.randint(1, 3))]
    running = []
    for at in range(len(nodes)):
        for number in range(rng.randint(0, 2)):
            running.append(pod(f"r{at}{number}", 1, rng.choice([0, 3]), f"n{at}", 60 * rng.randint(1, 9)))
    waiting = [
        pod(f"w{at:02}", rng.choice([1, 1, 2, 4, 9]), rng.choice([1, 5, 5]), age=60 * rng.randint(1, 60))
        for at in range(rng.randint(1, 14))
    ]
    objects = [*nodes, *running, *waiting]
    whole = plan(*objects)
    for length in (1, 2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(single_pods, "RUN_AFTER_PREEMPTION", length)
            other = plan(*objects)
        assert (other.binds, other.evicts, other.holds) == (whole.binds, whole.evicts, whole.holds)
