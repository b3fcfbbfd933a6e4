"""Pods created after the admission of their Workload: they have quota, but may have to wait for nodes."""

from __future__ import annotations

import pytest
from tests.engine.plain_objects import NOW, START, node, planned, pod

from windlass.model.unstructured import Unstructured

GPU = "nvidia.com/gpu"


def queues() -> list[Unstructured]:
    flavors = [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 16}]}]
    groups = [{"coveredResources": [GPU], "flavors": flavors}]
    kueue = "kueue.x-k8s.io/v1beta1"
    return [
        {"apiVersion": kueue, "kind": "ResourceFlavor", "metadata": {"name": "any"}},
        {
            "apiVersion": kueue,
            "kind": "ClusterQueue",
            "metadata": {"name": "team"},
            "spec": {"namespaceSelector": {}, "resourceGroups": groups},
        },
        {
            "apiVersion": kueue,
            "kind": "LocalQueue",
            "metadata": {"name": "team", "namespace": "default"},
            "spec": {"clusterQueue": "team"},
        },
    ]


def admitted(name: str) -> Unstructured:
    """A Workload of one pod with four GPUs that holds its quota."""
    part = {"name": "main", "count": 1, "flavors": {GPU: "any"}, "resourceUsage": {GPU: "4"}}
    template = {"spec": pod("template", 4)["spec"]}
    true = {"status": "True", "lastTransitionTime": START, "reason": "Admitted"}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "default", "uid": name, "creationTimestamp": START},
        "spec": {"queueName": "team", "podSets": [{"name": "main", "count": 1, "template": template}]},
        "status": {
            "admission": {"clusterQueue": "team", "podSetAssignments": [part]},
            "conditions": [{"type": "QuotaReserved", **true}, {"type": "Admitted", **true}],
        },
    }


def late() -> Unstructured:
    return pod("late", 4, metadata={"annotations": {"kueue.x-k8s.io/workload": "w"}})


def test_a_late_pod_waits_for_those_who_leave_its_node() -> None:
    """A more urgent pod has preempted another; what is left of the victim's room is free only once it has ended."""
    leaving = pod("leaving", on="n1", metadata={"deletionTimestamp": NOW})
    urgent = pod("urgent", 4, priority=10)
    plan, _ = planned(node("n1"), *queues(), admitted("w"), leaving, urgent, late())
    assert {bind.pod: bind.after for bind in plan.binds} == {
        "default/urgent": ("default/leaving",),
        "default/late": ("default/leaving",),
    }


def test_a_late_pod_starts_at_once_where_room_is_free() -> None:
    plan, _ = planned(node("n1"), *queues(), admitted("w"), late())
    assert [(bind.pod, bind.node, bind.after) for bind in plan.binds] == [("default/late", "n1", ())]


def test_a_lost_member_takes_the_place_of_a_lower_priority() -> None:
    """Its workload has quota; without a place for the pod all of it would be stopped, and come back."""
    urgent = admitted("w")
    urgent["spec"]["podSets"][0]["template"]["spec"]["priority"] = 10
    member = late() | {"spec": {**late()["spec"], "priority": 10}}
    plan, _ = planned(node("n1"), *queues(), urgent, pod("low", on="n1"), member)
    assert [(bind.pod, bind.after) for bind in plan.binds] == [("default/late", ("default/low",))]
    assert [(evict.workload, evict.for_workload) for evict in plan.evicts] == [("default/low", "default/w")]


def test_a_lost_member_evicts_no_equal_priority() -> None:
    plan, _ = planned(node("n1"), *queues(), admitted("w"), pod("equal", on="n1"), late())
    assert plan.binds == ()
    assert [(evict.workload, evict.reason) for evict in plan.evicts] == [("default/w", "GangBelowMinimum")]
    assert [hold.workload for hold in plan.holds] == ["default/w"]


def admitted_on(where: str) -> Unstructured:
    made = admitted("w")
    part = made["status"]["admission"]["podSetAssignments"][0]
    part["topologyAssignment"] = {
        "levels": ["kubernetes.io/hostname"],
        "domains": [{"values": [where], "count": 1}],
    }
    return made


@pytest.mark.parametrize("where", ["n1", "n2", "n3"])
def test_a_late_pod_goes_where_its_admission_says(where: str) -> None:
    """Other decisions have counted on that. By itself it would go where the least is left."""
    others = [pod(f"other-{size}", size, on=f"n{size}") for size in (1, 2, 3)]
    nodes = [node(f"n{number}") for number in (1, 2, 3)]
    plan, _ = planned(*nodes, *queues(), admitted_on(where), *others, late())
    assert [(bind.pod, bind.node) for bind in plan.binds] == [("default/late", where)]


@pytest.mark.parametrize("where", ["full", "gone"])
def test_a_late_pod_goes_elsewhere_where_that_node_is_full_or_gone(where: str) -> None:
    crowd = pod("crowd", 8, on="full")
    plan, _ = planned(node("full"), node("n1"), *queues(), admitted_on(where), crowd, late())
    assert [(bind.pod, bind.node) for bind in plan.binds] == [("default/late", "n1")]


def queue_with(policy: str, quota: int = 16) -> list[Unstructured]:
    made = queues()
    made[1]["spec"]["preemption"] = {"withinClusterQueue": policy}
    made[1]["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = quota
    return made


def running(name: str, **created: str) -> list[Unstructured]:
    """An admitted Workload of one pod with all GPUs of n1, and the pod."""
    workload = admitted(name)
    workload["metadata"] |= created
    annotations = {"kueue.x-k8s.io/workload": name}
    return [workload, pod(f"{name}-0", on="n1", metadata={"annotations": annotations, "uid": f"{name}-0"})]


def member_of(workload: Unstructured, priority: int) -> list[Unstructured]:
    workload["spec"]["priority"] = priority
    workload["spec"]["podSets"][0]["template"]["spec"]["priority"] = priority
    return [workload, late() | {"spec": {**late()["spec"], "priority": priority}}]


def test_a_lost_member_takes_the_place_of_queued_work_that_its_queue_lets_it_evict() -> None:
    """Else all of its workload would idle, be stopped when its grace ends, and evict the same when it comes back."""
    plan, _ = planned(node("n1"), *queue_with("LowerPriority"), *running("low"), *member_of(admitted("w"), 10))
    assert [(bind.pod, bind.after) for bind in plan.binds] == [("default/late", ("default/low",))]
    evicts = [(evict.workload, evict.for_workload, evict.reason) for evict in plan.evicts]
    assert evicts == [("default/low", "default/w", "InClusterQueue")]


@pytest.mark.parametrize(("policy", "priority"), [("Never", 10), ("LowerPriority", 0)])
def test_a_lost_member_evicts_no_queued_work_that_its_queue_protects(policy: str, priority: int) -> None:
    plan, _ = planned(node("n1"), *queue_with(policy), *running("low"), *member_of(admitted("w"), priority))
    assert plan.binds == ()
    assert [evict.workload for evict in plan.evicts] == ["default/w"]


def test_another_workload_counts_on_the_same_victim() -> None:
    """What a lost member evicts is not evicted again in the same decision, and its room is not given away twice."""
    other = admitted("v")
    del other["status"]
    other["metadata"]["creationTimestamp"] = NOW
    waiting = pod("next", 4, priority=10, metadata={"annotations": {"kueue.x-k8s.io/workload": "v"}})
    other["spec"]["priority"] = 10
    other["spec"]["podSets"][0]["template"]["spec"]["priority"] = 10
    objects = [*running("low"), *member_of(admitted("w"), 10), other, waiting]
    plan, _ = planned(node("n1"), *queue_with("LowerPriority", 8), *objects)
    assert [(evict.workload, evict.for_workload) for evict in plan.evicts] == [("default/low", "default/w")]
    assert {bind.pod: bind.after for bind in plan.binds} == {
        "default/late": ("default/low",),
        "default/next": ("default/low",),
    }


def test_a_victim_of_a_lost_member_evicts_nothing_for_its_own() -> None:
    """It has lost a member, too, and is evicted for one of higher priority: nothing is gained by its place."""
    urgent, member = member_of(admitted("w"), 10)
    for spec in (member["spec"], urgent["spec"]["podSets"][0]["template"]["spec"]):
        spec["nodeSelector"] = {"kubernetes.io/hostname": "n1"}
    low = running("low")
    low[0]["spec"]["podSets"][0]["count"] = 2
    low[0]["status"]["admission"]["podSetAssignments"][0] |= {"count": 2, "resourceUsage": {GPU: "8"}}
    lost = pod("low-1", 4, metadata={"annotations": {"kueue.x-k8s.io/workload": "low"}})
    lower = pod("lower", on="n2", priority=-1)
    plan, _ = planned(node("n1"), node("n2"), *queue_with("LowerPriority"), *low, lost, lower, urgent, member)
    assert [(evict.workload, evict.for_workload) for evict in plan.evicts] == [("default/low", "default/w")]
    assert [bind.pod for bind in plan.binds] == ["default/late"]
