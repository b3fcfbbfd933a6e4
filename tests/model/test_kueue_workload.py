"""A Kueue Workload becomes a workload: what it asks for, what it holds, why it waits."""

from __future__ import annotations

from typing import Any

import pytest
from tests.model.kueue_samples import ADMITTED, QUEUE_OBJECTS, WORKLOAD, changed, decoded

from windlass.model.codec import decode_object
from windlass.model.errors import InputError
from windlass.model.kueue import queue_system, workload_from_object
from windlass.model.requests import pod_requests
from windlass.model.times import parse_timestamp
from windlass.model.unstructured import Unstructured
from windlass.model.workload import TopologyRequest, Workload

ASSIGNED = "status/admission/podSetAssignments/0"


def made(tree: Unstructured, hostnames: dict[str, str] | None = None) -> Workload:
    [wire] = decoded(tree)
    return workload_from_object(wire, queue_system(decoded(*QUEUE_OBJECTS)), hostnames)


def test_what_waits_arrives_whole() -> None:
    workload = made(WORKLOAD)
    assert (workload.key, workload.kind, workload.uid) == ("eng/train", "Workload", "u7")
    assert (workload.queue_name, workload.priority, workload.max_run_seconds) == ("main", 7, 600)
    assert workload.created == workload.queued_at == parse_timestamp("2026-01-01T00:00:00Z")
    assert workload.admission is None
    assert workload.hold == ""
    assert workload.owner == "Job eng/train-job"
    [workers] = workload.pod_sets
    assert (workers.name, workers.count, workers.min_count) == ("workers", 4, 2)
    assert workers.topology == TopologyRequest("required", "example.com/rack", "kubernetes.io/hostname", 2, group="g")
    assert pod_requests(workers.template) == {"cpu": 2000, "nvidia.com/gpu": 4, "pods": 1}
    assert workers.template.metadata.namespace == "eng"


def test_what_is_admitted_holds_its_quota_and_its_places() -> None:
    workload = made(ADMITTED, {"x1-a": "node-1"})
    assert workload.admission is not None
    assert workload.admission.cluster_queue == "team-a"
    assert workload.admission.reserved_at == parse_timestamp("2026-01-01T01:00:00Z")
    assert workload.started_at == workload.admission.reserved_at + 5
    [held] = workload.admission.assignments
    assert held.usage == {"cpu": 8000, "nvidia.com/gpu": 16000}
    assert held.flavors == {"cpu": "h100", "nvidia.com/gpu": "h100"}
    assert held.domains == ((("r1", "x1-a"), 3), (("r1", "x2-a"), 1))
    assert held.nodes == {"node-1": 3, "x2-a": 1}


def test_the_plain_domains_of_the_old_version_are_the_same() -> None:
    plain = {
        "levels": ["example.com/rack", "kubernetes.io/hostname"],
        "domains": [{"values": ["r1", "x1-a"], "count": 3}, {"values": ["r1", "x2-a"], "count": 1}],
    }
    old = changed(changed(ADMITTED, f"{ASSIGNED}/topologyAssignment", plain), "apiVersion", "kueue.x-k8s.io/v1beta1")
    assert made(old).admission == made(ADMITTED).admission


def test_domains_that_are_no_hosts_name_no_nodes() -> None:
    racks = {"levels": ["example.com/rack"], "domains": [{"values": ["r1"], "count": 4}]}
    admission = made(changed(ADMITTED, f"{ASSIGNED}/topologyAssignment", racks)).admission
    assert admission is not None
    assert admission.assignments[0].nodes == {}
    assert admission.assignments[0].domains == ((("r1",), 4),)


def test_usage_that_is_not_written_is_counted_from_the_template() -> None:
    admission = made(changed(ADMITTED, f"{ASSIGNED}/resourceUsage", None)).admission
    assert admission is not None
    assert admission.assignments[0].usage == {"cpu": 8000, "nvidia.com/gpu": 16000}


def test_pods_that_are_done_give_their_share_back() -> None:
    workload = made(changed(ADMITTED, "status/reclaimablePods", [{"name": "workers", "count": 1}]))
    assert workload.pod_sets[0].count == 3
    assert workload.admission is not None
    [held] = workload.admission.assignments
    assert (held.count, held.usage) == (3, {"cpu": 6000, "nvidia.com/gpu": 12000})


def condition(kind: str, status: str = "True", reason: str = "") -> Unstructured:
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": "2026-02-01T00:00:00Z"}


def test_a_denied_reservation_is_none() -> None:
    conditions = [condition("QuotaReserved", "False"), condition("Evicted", reason="Preempted")]
    workload = made(changed(ADMITTED, "status/conditions", conditions))
    assert workload.admission is None
    assert not workload.evicting


def test_an_eviction_under_way_is_seen() -> None:
    assert not made(ADMITTED).evicting
    both = [*ADMITTED["status"]["conditions"], condition("Evicted", reason="Preempted")]
    assert made(changed(ADMITTED, "status/conditions", both)).evicting


@pytest.mark.parametrize(
    ("reason", "moved"), [("PodsReadyTimeout", True), ("AdmissionCheck", True), ("Preempted", False)]
)
def test_only_some_evictions_cost_the_place_in_the_queue(reason: str, moved: bool) -> None:
    workload = made(changed(WORKLOAD, "status/conditions", [condition("Evicted", reason=reason)]))
    assert (workload.queued_at == parse_timestamp("2026-02-01T00:00:00Z")) is moved
    assert workload.created == parse_timestamp("2026-01-01T00:00:00Z")


def test_what_is_finished_holds_nothing_and_wants_nothing() -> None:
    ended = [*ADMITTED["status"]["conditions"], condition("Finished")]
    workload = made(changed(ADMITTED, "status/conditions", ended))
    assert workload.admission is None
    assert not workload.active


@pytest.mark.parametrize(
    ("path", "value", "code", "words"),
    [
        ("spec/queueName", "nowhere", "KUEUE_QUEUE_MISSING", "LocalQueue nowhere doesn't exist"),
        ("spec/queueName", "", "KUEUE_QUEUE_MISSING", "names no LocalQueue"),
        ("spec/active", False, "JOB_SUSPENDED", "spec.active"),
        ("status/conditions", [condition("Requeued", "False")], "REQUEUE_BACKOFF", "is not queued again yet"),
        (
            "spec/podSets/0/topologyRequest/podSetSliceSize",
            0,
            "INVALID_OBJECT",
            "spec.podSets[0].topologyRequest",
        ),
        (
            "spec/podSets/0/topologyRequest/preferred",
            "x",
            "INVALID_OBJECT",
            "spec.podSets[0].topologyRequest",
        ),
    ],
)
def test_what_holds_it_is_said(path: str, value: Any, code: str, words: str) -> None:
    workload = made(changed(WORKLOAD, path, value))
    assert workload.hold_code == code
    assert words in workload.hold


@pytest.mark.parametrize(
    ("reason", "held"),
    [
        ("ClusterQueueStopped", False),
        ("Inadmissible", False),
        ("LocalQueueStopped", False),
        ("Deactivated", False),
        ("DeactivatedDueToRequeuingLimitExceeded", False),
        ("PodsReadyTimeout", True),
        ("AdmissionCheck", True),
    ],
)
def test_what_kueue_stopped_waits_no_longer_than_its_reason(reason: str, held: bool) -> None:
    """Its queue is open again and it is active; Kueue, which would have said so, may be gone."""
    workload = made(changed(WORKLOAD, "status/conditions", [condition("Requeued", "False", reason)]))
    assert bool(workload.hold) is held


@pytest.mark.parametrize(
    ("fields", "priority"),
    [
        ({"priority": -2}, -2),
        ({"priorityClassRef": {"kind": "WorkloadPriorityClass", "name": "urgent"}}, 900),
        ({"priorityClassName": "urgent", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"}, 900),
        (
            {
                "priorityClassName": "system-node-critical",
                "priorityClassSource": "scheduling.k8s.io/priorityclass",
            },
            2_000_001_000,
        ),
        ({}, 0),
    ],
)
def test_priority_comes_from_the_object_or_its_class(fields: Unstructured, priority: int) -> None:
    tree = changed(WORKLOAD, "spec/priority", None)
    tree["spec"].update(fields)
    assert made(tree).priority == priority


def test_gates_forbid_preemption_until_all_of_them_are_open() -> None:
    assert made(WORKLOAD).preemption_policy == "PreemptLowerPriority"
    gated = changed(WORKLOAD, "spec/preemptionGates", [{"name": "g"}, {"name": "h"}])
    assert made(gated).preemption_policy == "Never"
    opened = {("Open",): "Never", ("Open", "Closed"): "Never", ("Open", "Open"): "PreemptLowerPriority"}
    for positions, policy in opened.items():
        states = [{"name": name, "position": position} for name, position in zip("gh", positions, strict=False)]
        assert made(changed(gated, "status/preemptionGates", states)).preemption_policy == policy, positions


def test_layers_of_slices_come_widest_first() -> None:
    layers = [{"topology": "a", "size": 8}, {"topology": "b", "size": 4}, {"topology": "c", "size": 2}]
    request = {"preferred": "z", "podsetSliceRequiredTopologyConstraints": layers}
    topology = made(changed(WORKLOAD, "spec/podSets/0/topologyRequest", request)).pod_sets[0].topology
    assert topology == TopologyRequest("preferred", "z", "a", 8, (("b", 4), ("c", 2)))


def test_an_extended_request_without_a_limit_gets_one() -> None:
    container = {"name": "c", "resources": {"requests": {"example.com/gpu": "2"}}}
    [one] = made(changed(WORKLOAD, "spec/podSets/0/template/spec/containers", [container])).pod_sets
    assert pod_requests(one.template)["example.com/gpu"] == 2


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        ("spec/podSets", [], "spec.podSets"),
        ("spec/priority", 2**31, "spec.priority"),
        ("spec/podSets/0/count", -1, "spec.podSets[0].count"),
        ("spec/podSets/0/minCount", 9, "spec.podSets[0].minCount"),
        (
            "spec/podSets/0/template/spec/tolerations",
            [{"operator": "Is"}],
            "spec.podSets[0].template.spec.tolerations[0]",
        ),
        (f"{ASSIGNED}/resourceUsage/cpu", "lots", "status.admission.podSetAssignments[0].resourceUsage"),
        (f"{ASSIGNED}/topologyAssignment/slices/0/domainCount", 3, "slices[0].valuesPerLevel[1]"),
        (f"{ASSIGNED}/topologyAssignment/levels", ["a"], "topologyAssignment"),
    ],
)
def test_the_wrong_field_is_named(path: str, value: Any, where: str) -> None:
    with pytest.raises(InputError) as caught:
        decode_object(changed(ADMITTED, path, value))
    assert where in caught.value.path
    assert caught.value.object == "Workload eng/train"
