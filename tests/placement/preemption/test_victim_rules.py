"""Which pods may be victims by priority, and for which preemptors: one rule per test."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.placement.preemption.preemption_cases import NOW, gpu_node, pod, pod_group

from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.meta import OwnerReference
from windlass.model.plan import Plan
from windlass.planner import plan_objects

CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "some"},
    "value": 7,
}


def plan(*objects: Any, **settings: Any) -> Plan:
    return plan_objects(objects, Settings(**settings), NOW)[0]


def evicted(found: Plan) -> set[str]:
    return {evict.workload.partition("/")[2] for evict in found.evicts}


def changed(object_: Any, **meta: Any) -> Any:
    return msgspec.structs.replace(object_, metadata=msgspec.structs.replace(object_.metadata, **meta))


def budget(name: str, app: str, **spec: Any) -> Any:
    tree = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
    }
    return decode_object(tree)


@pytest.mark.parametrize("extra", [[], [decode_object(CLASS)]], ids=["pods alone", "with workloads"])
def test_lower_goes_for_higher_and_never_for_equal(extra: list[Any]) -> None:
    node, low = gpu_node("n", 4), pod("low", 4, 5, "n", 600)
    assert evicted(plan(node, low, pod("urgent", 4, 6), *extra)) == {"low"}
    assert evicted(plan(node, low, pod("urgent", 4, 5), *extra)) == set()
    assert evicted(plan(node, low, pod("urgent", 4, 4), *extra)) == set()


def test_the_place_waits_for_the_victim_and_says_so() -> None:
    found = plan(gpu_node("n", 4), pod("low", 4, 0, "n"), pod("urgent", 4, 1))
    (bind,) = found.binds
    assert (bind.node, bind.after) == ("n", ("default/low",))
    assert list(found.holds) == []


def test_who_has_room_without_it_evicts_nobody() -> None:
    assert evicted(plan(gpu_node("a", 4), gpu_node("b", 4), pod("low", 4, 0, "a"), pod("urgent", 4, 9))) == set()


@pytest.mark.parametrize("kind", ["DaemonSet", "mirror"])
def test_what_comes_back_at_once_is_left_alone(kind: str) -> None:
    low = pod("low", 4, 0, "n")
    if kind == "mirror":
        low = changed(low, annotations={"kubernetes.io/config.mirror": "x"})
    else:
        owner = OwnerReference("DaemonSet", "d", api_version="apps/v1", controller=True)
        low = changed(low, owner_references=(owner,))
    found = plan(gpu_node("n", 4), low, pod("urgent", 4, 9))
    assert evicted(found) == set()
    assert [hold.workload for hold in found.holds] == ["default/urgent"]


def test_pods_of_any_scheduler_may_go() -> None:
    low = pod("low", 4, 0, "n", schedulerName="another")
    assert evicted(plan(gpu_node("n", 4), low, pod("urgent", 4, 9))) == {"low"}


def test_the_class_by_name_counts_where_the_api_server_has_not_filled_the_number_in() -> None:
    urgent = pod("urgent", 4, 0, priorityClassName="some")
    found = plan(gpu_node("n", 4), pod("low", 4, 0, "n"), urgent, decode_object(CLASS))
    assert evicted(found) == {"low"}
    never = decode_object({**CLASS, "preemptionPolicy": "Never"})
    assert evicted(plan(gpu_node("n", 4), pod("low", 4, 0, "n"), urgent, never)) == set()


def test_work_that_has_just_started_may_be_spared() -> None:
    objects = [gpu_node("n", 4), pod("low", 4, 0, "n", age=60), pod("urgent", 4, 9)]
    assert evicted(plan(*objects, min_run_seconds=600)) == set()
    assert evicted(plan(*objects, min_run_seconds=60)) == {"low"}


def test_what_is_leaving_already_is_waited_for_and_nobody_else_goes() -> None:
    leaving = changed(pod("going", 4, 0, "a", 3600), deletion_timestamp="2026-01-01T08:59:50Z")
    found = plan(gpu_node("a", 4), gpu_node("b", 4), leaving, pod("low", 4, 0, "b", 60), pod("urgent", 4, 9))
    assert list(found.evicts) == []
    assert [(bind.node, bind.after) for bind in found.binds] == [("a", ("default/going",))]


def test_one_for_whom_others_went_comes_before_its_equals() -> None:
    """It keeps the node while its victim terminates, and no second pod is evicted for the older pod."""
    going = changed(pod("going", 4, 0, "a", 3600), deletion_timestamp="2026-01-01T08:59:50Z")
    older = pod("older", 4, 9, age=900)
    named = msgspec.structs.replace(
        pod("named", 4, 9), status=msgspec.structs.replace(older.status, nominated_node_name="a")
    )
    found = plan(gpu_node("a", 4), going, older, named)
    assert [bind.pod for bind in found.binds] == ["default/named"]
    assert [hold.workload for hold in found.holds] == ["default/older"]
    higher = plan(gpu_node("a", 4), going, pod("higher", 4, 10), named)
    assert [bind.pod for bind in higher.binds] == ["default/higher"], "a higher priority has its way all the same"


def test_a_budget_keeps_its_pods_and_the_dearer_one_goes() -> None:
    kept = changed(pod("kept", 4, 0, "a", 60), labels={"app": "kept"})
    objects = [gpu_node("a", 4), gpu_node("b", 4), kept, pod("other", 4, 0, "b", 3600), pod("urgent", 4, 9)]
    assert evicted(plan(*objects)) == {"kept"}
    assert evicted(plan(*objects, budget("b", "kept", minAvailable=1))) == {"other"}
    assert evicted(plan(*objects[:3], pod("urgent", 4, 9), budget("b", "kept", minAvailable=1))) == set()


def test_a_budget_counts_over_all_victims_of_a_decision() -> None:
    web = [changed(pod(f"web-{at}", 4, 0, f"n{at}"), labels={"app": "web"}) for at in range(3)]
    nodes = [gpu_node(f"n{at}", 4) for at in range(3)]
    urgent = [pod(f"urgent-{at}", 4, 9) for at in range(3)]
    assert len(evicted(plan(*nodes, *web, *urgent, budget("b", "web", minAvailable=1)))) == 2
    gang = [pod_group("gang", 3), *(pod(f"gang-{at}", 4, 9, group="gang") for at in range(3))]
    assert evicted(plan(*nodes, *web, *gang, budget("b", "web", minAvailable=1))) == set(), "all three or none"
    assert len(evicted(plan(*nodes, *web, *gang, budget("b", "web", minAvailable=0)))) == 3


def test_budgets_yield_to_priority_only_where_the_policy_says_so() -> None:
    kept = changed(pod("kept", 4, 0, "n"), labels={"app": "kept"})
    objects = [gpu_node("n", 4), kept, pod("urgent", 4, 9), budget("b", "kept", maxUnavailable=0)]
    assert evicted(plan(*objects)) == set()
    assert evicted(plan(*objects, budgets_yield_to=("reclaim",))) == set()
    assert evicted(plan(*objects, budgets_yield_to=("priority",))) == {"kept"}


def test_victims_that_forbid_each_others_neighbourhood_make_room_too() -> None:
    """The node has free GPUs; the anti-affinity of a pod of lower priority excludes the urgent pod."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "urgent"}}}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    shy = pod("shy", 1, 0, "n", affinity=rule)
    urgent = changed(pod("urgent", 1, 9), labels={"app": "urgent"})
    node = gpu_node("n", 4, **{"kubernetes.io/hostname": "n"})
    found = plan(node, shy, pod("other", 1, 0, "n"), urgent)
    assert evicted(found) == {"shy"}


def test_shares_of_a_gpu_make_room_for_a_whole_one() -> None:
    share = {"annotations": {"gpu-fraction": "0.5"}}
    halves = [changed(pod(f"half-{at}", 0, 0, "n", 60 * (at + 1)), **share) for at in range(4)]
    halves = [msgspec.structs.replace(half, spec=_without_gpus(half.spec)) for half in halves]
    found = plan(gpu_node("n", 2), *halves, pod("urgent", 1, 9))
    assert len(evicted(found)) == 2
    assert [len(bind.devices) for bind in found.binds] == [1]


@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_one_replica_of_a_shared_gpu_is_freed_by_one_pod(replicas: int) -> None:
    labels = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": str(replicas)}
    node = gpu_node("n", replicas, **labels, **{"nvidia.com/gpu.count": "1"})
    low = [pod(f"low-{at}", 1, 0, "n", 60 * (at + 1)) for at in range(replicas)]
    found = plan(node, *low, pod("urgent", 1, 9))
    assert len(evicted(found)) == 1
    assert [bind.pod for bind in found.binds] == ["default/urgent"]


def _without_gpus(spec: Any) -> Any:
    return msgspec.structs.replace(
        spec,
        containers=(msgspec.structs.replace(spec.containers[0], resources=type(spec.containers[0].resources)()),),
    )


def test_a_whole_gang_in_pods_alone_goes_for_one_pod() -> None:
    """Only pods, no other objects: the group's label says which pods are a gang."""
    labels = {"kueue.x-k8s.io/pod-group-name": "gang"}
    total = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    members = [changed(pod(f"m{at}", 4, 0, f"n{at}"), labels=labels, annotations=total) for at in range(2)]
    found = plan(gpu_node("n0", 4), gpu_node("n1", 4), *members, pod("urgent", 4, 9))
    (evict,) = found.evicts
    assert (evict.workload, len(evict.pods)) == ("default/gang", 2)


def test_lower_pods_dont_take_what_a_higher_one_needs() -> None:
    """Four GPUs are free; a pod of high priority needs them and four more; a low one that would fit has to wait."""
    objects = [gpu_node("n", 8), pod("victim", 4, 0, "n"), pod("small", 4, 0), pod("urgent", 8, 9)]
    found = plan(*objects)
    assert [bind.pod for bind in found.binds] == ["default/urgent"]
    assert evicted(found) == {"victim"}


def test_a_member_that_is_gated_holds_its_gang_and_a_lone_pod_between_gangs_itself() -> None:
    gate = {"schedulingGates": [{"name": "example.com/not-yet"}]}
    gang = [
        pod_group("gang", 2),
        pod("gang-0", 1, 0, group="gang"),
        pod("gang-1", 1, 0, group="gang", **gate),
    ]
    found = plan(gpu_node("n", 8), *gang)
    assert list(found.binds) == []
    assert [(hold.workload, hold.verdict.code) for hold in found.holds] == [("default/gang", "SCHEDULING_GATED")]
    first = [pod_group("first", 2), *(pod(f"first-{at}", 1, 0, age=900, group="first") for at in range(2))]
    alone = pod("alone", 1, 0, age=600, **gate)
    last = [pod_group("last", 2), *(pod(f"last-{at}", 1, 0, age=60, group="last") for at in range(2))]
    found = plan(gpu_node("n", 8), *first, alone, *last)
    assert "default/alone" not in {bind.pod for bind in found.binds}
    assert len(found.binds) == 4


def test_every_pod_evicts_below_its_own_priority_not_below_the_highest_that_waits() -> None:
    running = [pod("young", 4, 5, "a", 60), pod("old", 4, 5, "b", 600)]
    running += [pod("kept", 3, 9, "c"), pod("tiny", 1, 0, "c")]
    nodes = [gpu_node(name, 4) for name in "abc"]
    found = plan(*nodes, *running, pod("top", 4, 9), pod("equal", 4, 5))
    assert [(bind.pod, bind.after) for bind in found.binds] == [("default/top", ("default/young",))]
    assert [hold.workload for hold in found.holds] == ["default/equal"]


def test_a_victim_that_a_later_one_makes_needless_stays() -> None:
    """The cheap pod would suffice for one member; the other needs the gang's node, which has capacity for both."""
    nodes = [gpu_node(f"n{at}", 2) for at in range(3)]
    low = [pod_group("low", 2), *(pod(f"low-{at}", 2, 0, f"n{at + 1}", 7200, "low") for at in range(2))]
    urgent = [pod_group("urgent", 2), *(pod(f"urgent-{at}", 2, 9, group="urgent") for at in range(2))]
    assert evicted(plan(*nodes, pod("cheap", 2, 0, "n0", 60), *low, *urgent)) == {"low"}
