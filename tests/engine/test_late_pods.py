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
