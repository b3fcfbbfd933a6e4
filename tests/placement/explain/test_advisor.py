"""Texts of holds: the cause, relief, changes and remedies are named correctly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.engine.plain_objects import TWO_NODES, node, planned, pod

from windlass.model.hold_document import hold_document
from windlass.model.unstructured import Unstructured
from windlass.model.verdict import Verdict
from windlass.placement.explain.remedies import find_remedy
from windlass.queueing.admit import NOT_CONSIDERED

KUEUE = "kueue.x-k8s.io/v1beta2"
LATER = "2026-01-01T01:00:00Z"
QUEUED = {"labels": {"kueue.x-k8s.io/queue-name": "q"}}


def verdict(workload: str, *objects: Unstructured) -> Verdict:
    plan, _ = planned(*objects)
    return next(hold.verdict for hold in plan.holds if hold.workload == workload)


def queue(resources: dict[str, int], **spec: Any) -> list[Unstructured]:
    quotas = [{"name": name, "nominalQuota": amount} for name, amount in resources.items()]
    group = {"coveredResources": list(resources), "flavors": [{"name": "f", "resources": quotas}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group], **spec}
    return [
        {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "f"}},
        {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec},
        local_queue(),
    ]


def local_queue(**spec: Any) -> Unstructured:
    named = {"name": "q", "namespace": "default"}
    return {
        "apiVersion": KUEUE,
        "kind": "LocalQueue",
        "metadata": named,
        "spec": {"clusterQueue": "q", **spec},
    }


@pytest.mark.parametrize(
    ("objects", "remedy"),
    [
        ([], "create LocalQueue q in namespace default"),
        ([local_queue()], "create ClusterQueue q"),
        (queue({"nvidia.com/gpu": 8}, stopPolicy="Hold"), "set spec.stopPolicy of ClusterQueue q to None"),
        ([*queue({"nvidia.com/gpu": 8})[:2], local_queue(stopPolicy="Hold")], "of LocalQueue q to None"),
        (
            queue({"nvidia.com/gpu": 8}, admissionChecks=["c"]),
            "remove the unsupported field, or let Kueue manage the queue",
        ),
        ([*queue({"nvidia.com/gpu": 8})[:2], local_queue(news=1)], "remove the unsupported field"),
        (queue({"nvidia.com/gpu": 8})[1:], "create or correct the objects that ClusterQueue q refers to"),
        (
            queue({"nvidia.com/gpu": 8}, namespaceSelector={"matchLabels": {"a": "b"}}),
            "label namespace default",
        ),
        (queue({"memory": 8}), "add the resource to the queue's coveredResources"),
    ],
)
def test_a_hold_for_the_queues_sake_says_what_to_do(objects: list[Unstructured], remedy: str):
    found = verdict("default/p", *TWO_NODES, *objects, pod("p", metadata=QUEUED))
    assert remedy in found.remedy
    assert remedy in found.message
    assert remedy in found.public_message


def test_a_closed_queue_of_volcano_is_opened_with_its_own_command():
    closed = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "team"},
        "spec": {"weight": 1},
        "status": {"state": "Closed"},
    }
    queued = {"annotations": {"scheduling.volcano.sh/queue-name": "team"}}
    found = verdict("default/p", *TWO_NODES, closed, pod("p", metadata=queued))
    assert "vcctl queue operate --name team --action open" in found.remedy
    assert "stopPolicy" not in found.message, "a field that Volcano's queues don't have"


def test_quota_that_lacks_names_its_queue_and_flavor_first():
    used = pod("runs", on="n1", metadata=QUEUED)
    found = verdict("default/p", *TWO_NODES, *queue({"nvidia.com/gpu": 8}), used, pod("p", metadata=QUEUED))
    assert found.sentences[0] == "over quota: ClusterQueue q has 0 nvidia.com/gpu left in flavor f, 8 requested"


@pytest.mark.parametrize(
    ("objects", "remedy"),
    [
        ([pod("p", schedulingGates=[{"name": "a/b"}])], "remove it from spec.schedulingGates"),
        ([pod("p")], "add nodes"),
        ([{**node("n1"), "spec": {"unschedulable": True}}, pod("p")], "uncordon nodes"),
    ],
)
def test_a_hold_of_a_lone_pod_says_what_to_do(objects: list[Unstructured], remedy: str):
    assert remedy in verdict("default/p", *objects).remedy


def test_gpus_that_a_rule_keeps_it_from_are_not_called_fragments():
    zones = [node("n1"), node("n2", 1)]
    for number, zone_node in enumerate(zones):
        zone_node["metadata"]["labels"]["zone"] = str(number)
    labels = {"labels": {"app": "x"}}
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    waits = pod("p", 1, metadata=labels, topologySpreadConstraints=[spread])
    found = verdict("default/p", *zones, pod("a", 1, on="n1", metadata=labels), pod("b", 1, on="n2"), waits)
    assert found.code == "GPU_FULL"
    assert "spread over" not in found.message
    assert found.relief is not None


def test_gpus_on_a_node_without_cpu_are_not_called_fragments():
    busy, full = node("n1"), node("n2")
    busy["status"]["allocatable"]["cpu"] = "1"
    eater = pod("eater", 0, on="n1")
    eater["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "1"}
    waits = pod("p", 1)
    waits["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "1"
    found = verdict("default/p", busy, full, eater, pod("a", 8, on="n2"), waits)
    assert found.code in ("GPU_FULL", "CPU_MEM_INSUFFICIENT")
    assert "spread over" not in found.message


def test_the_end_of_a_neighbour_helps_where_a_rule_between_pods_binds():
    labels = {"labels": {"app": "x"}}
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    runs, waits = pod("a", 1, on="n1", metadata=labels), pod("p", 1, metadata=labels, affinity=apart)
    found = verdict("default/p", node("n1"), runs, waits)
    assert found.code == "POD_AFFINITY_CONFLICT"
    assert found.relief is not None
    assert found.relief.names == ("default/a",)


def test_of_any_resource_a_smaller_amount_is_offered():
    nics = node("n1")
    nics["status"]["allocatable"]["example.com/nic"] = "2"
    waits = pod("p", 1)
    waits["spec"]["containers"][0]["resources"]["limits"]["example.com/nic"] = "3"
    found = verdict("default/p", nics, waits)
    assert found.changes[0].text == "with 2 example.com/nic per pod instead of 3"


def test_a_promise_does_not_pass_over_those_who_wait_before_it():
    bounded = pod("runs", on="n1", activeDeadlineSeconds=50_000)
    first, second = pod("first"), pod("second", at=LATER)
    ahead, behind = (verdict(f"default/{name}", node("n1"), bounded, first, second) for name in ("first", "second"))
    assert ahead.planned_start is not None
    assert behind.planned_start is None
    assert behind.relief is not None
    assert behind.relief.at is None
    assert "other workloads wait ahead of it" in behind.relief.basis


def test_what_can_not_ever_fit_is_promised_no_time():
    found = verdict("default/p", *TWO_NODES, pod("runs", 1, on="n1", activeDeadlineSeconds=50_000), pod("p", 9))
    assert found.is_infeasible
    assert "no planned start" not in found.message


def test_pods_that_start_in_the_same_decision_stand_in_the_way_too():
    plan, _ = planned(*TWO_NODES, *[pod(f"p-{i}") for i in range(3)])
    (hold,) = plan.holds
    assert hold.verdict.relief is not None
    assert hold.verdict.relief.names == ("default/p-0",)
    assert hold_document(hold)["estimate"]["basis"]


def test_a_start_behind_a_reservation_says_so():
    reservation = {
        "apiVersion": "windlass.dev/v1",
        "kind": "Reservation",
        "metadata": {"name": "launch"},
        "spec": {
            "gpus": 16,
            "from": "2026-01-01T13:00:00Z",
            "until": "2026-01-01T15:00:00Z",
            "who": {"namespaces": ["research"]},
        },
    }
    found = verdict("default/p", *TWO_NODES, reservation, pod("p"))
    assert "when Reservation launch ends (by its schedule)" in found.message


def test_quota_that_never_suffices_says_what_to_do():
    found = verdict("default/p", *TWO_NODES, *queue({"nvidia.com/gpu": 0}), pod("p", metadata=QUEUED))
    assert found.sentences[0].startswith("it never starts: ClusterQueue q can have at most 0 nvidia.com/gpu")
    assert found.remedy == "ask for less, or have the quota of its queue raised"


def test_a_decision_that_ended_too_early_is_reported_and_no_pods_are_looked_for():
    held = SimpleNamespace(
        verdict=Verdict("ADMISSION_DEFERRED", 3, detail=f"{NOT_CONSIDERED}: stopped"), piece=None, pod_sets=()
    )
    assert "windlass dump" in find_remedy(held)
    held.verdict = Verdict("ADMISSION_DEFERRED", 3, detail="waits until the pods of team/a are ready")
    assert "`windlass why` on the workload whose pods are not ready" in find_remedy(held)
