"""What is written for Kueue's users: Workloads of Jobs, their conditions, and the status of queues."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.apply import kueue
from windlass.apply.owners import pod_templates_of
from windlass.model.codec import decode_object
from windlass.model.decision import Admit, AdmittedPodSet
from windlass.model.kueue import WorkloadObject, workload_from_object
from windlass.model.owners import OwnerObject, owner_from_object
from windlass.model.queue import QueueSystem
from windlass.model.workload import Admission, PodSet, PodSetAssignment, Workload
from windlass.scheduler.queue_status import queue_statuses

GPU = "nvidia.com/gpu"
JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "a", "uid": "u1"},
    "spec": {
        "parallelism": 4,
        "completions": 3,
        "template": {"spec": {"containers": [{"name": "c", "resources": {"limits": {GPU: "2"}}}]}},
    },
}


def tree(version: str = "v1beta2", owner: dict[str, Any] = JOB) -> dict[str, Any]:
    wire = decode_object(owner)
    assert isinstance(wire, OwnerObject)
    queue = kueue.WorkloadQueue("main", 7, version)
    return kueue.build_workload(owner, owner_from_object(wire), pod_templates_of(owner), queue)


def workload() -> WorkloadObject:
    made = decode_object(tree())
    assert isinstance(made, WorkloadObject)
    return made


def test_names_are_stable_short_and_of_one_job() -> None:
    assert kueue.workload_name("Job", "train", "u1") == kueue.workload_name("Job", "train", "u1")
    assert kueue.workload_name("Job", "train", "u1") != kueue.workload_name("Job", "train", "u2")
    assert len(kueue.workload_name("Job", "x" * 63, "u1")) <= 63


def test_a_job_as_a_workload() -> None:
    made = workload()
    assert made.spec.pod_sets[0].count == 3, "no more pods than completions are left"
    assert made.spec.priority == 7
    owner = made.metadata.owner_references[0]
    assert (owner.kind, owner.name, owner.uid, owner.controller) == ("Job", "train", "u1", True)


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_what_is_written_as_admitted_is_read_as_admitted(version: str) -> None:
    """By the model that the next leader reads it with."""
    wire = workload()
    nodes = {"n1": 2, "n2": 1}
    admit = Admit(wire.key, "Workload", "team", (AdmittedPodSet("main", 3, {GPU: "h100"}, nodes),))
    read = workload_from_object(wire, QueueSystem())
    status = kueue.admission_status(wire, admit, read, {"n1": "host-1", "n2": "host-2"}, version, 1_000)
    again = decode_object({**tree(version), "status": status})
    assert isinstance(again, WorkloadObject)
    held = workload_from_object(again, QueueSystem(), {"host-1": "n1", "host-2": "n2"}).admission
    assert held is not None
    assert held.cluster_queue == "team"
    assert held.assignments[0].nodes == nodes
    assert held.assignments[0].usage == {GPU: 6_000}
    assert held.reserved_at == 1_000


def test_an_evicted_one_holds_nothing_and_counts_its_evictions() -> None:
    wire = workload()
    status = kueue.eviction_status(wire, "InClusterQueue", 2_000)
    assert status["admission"] is None
    kinds = {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}
    assert kinds["Evicted"] == ("True", "Preempted")
    assert kinds["Preempted"] == ("True", "InClusterQueue")
    assert kinds["QuotaReserved"] == ("False", "Pending")
    again = decode_object({**tree(), "status": status})
    assert isinstance(again, WorkloadObject)
    assert workload_from_object(again, QueueSystem()).evictions == 1


@pytest.mark.parametrize("reason", kueue.NON_PREEMPTION_MESSAGES)
def test_one_that_went_for_nobodys_sake_was_not_preempted(reason: str) -> None:
    status = kueue.eviction_status(workload(), reason, 2_000)
    kinds = {one["type"]: one["reason"] for one in status["conditions"]}
    assert kinds["Evicted"] == reason
    assert "Preempted" not in kinds
    assert ("Requeued" in kinds) == (reason != "Deactivated"), "what was deactivated waits in no queue"


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"suspend": True}, True),
        ({"parallelism": 2}, False),
        ({"template": {"spec": {"containers": [{"name": "c", "resources": {"limits": {GPU: "4"}}}]}}}, False),
    ],
)
def test_whether_a_workload_still_says_what_its_job_does(change: dict[str, Any], fits: bool) -> None:
    wire = decode_object({**JOB, "spec": {**JOB["spec"], **change}})
    assert isinstance(wire, OwnerObject)
    assert kueue.matches_owner(workload(), owner_from_object(wire), "main") is fits
    assert not kueue.matches_owner(workload(), owner_from_object(wire), "another")


def test_a_condition_keeps_the_time_since_when_it_holds() -> None:
    wire = workload()
    first = kueue.pending_status(wire, "Pending", "no quota", 1_000)
    again = decode_object({**tree(), "status": first})
    assert isinstance(again, WorkloadObject)
    second = kueue.pending_status(again, "Pending", "other words", 5_000)["conditions"][0]
    assert second["message"] == "other words"
    assert second["lastTransitionTime"] == "1970-01-01T00:16:40Z"
    assert kueue.has_condition(again, "QuotaReserved", "False", "Pending", "no quota")


def test_queue_status_counts_and_borrows() -> None:
    def kind(name: str, key: str, **spec: Any) -> Any:
        namespace = {"namespace": "a"} if name == "LocalQueue" else {}
        return decode_object(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": name,
                "metadata": {"name": key, **namespace},
                "spec": spec,
            }
        )

    from windlass.model.kueue import queue_system

    quota = {"name": "h100", "resources": [{"name": GPU, "nominalQuota": 2}]}
    groups = [{"coveredResources": [GPU], "flavors": [quota]}]
    system = queue_system(
        [
            kind("ResourceFlavor", "h100"),
            kind("ClusterQueue", "team", cohortName="all", namespaceSelector={}, resourceGroups=groups),
            kind("LocalQueue", "main", clusterQueue="team"),
            kind("LocalQueue", "lost", clusterQueue="nowhere"),
        ]
    )
    template = workload_from_object(workload(), QueueSystem()).pod_sets[0]
    held = Admission("team", (PodSetAssignment("main", 3, {GPU: "h100"}, {GPU: 6_000}),))
    sets = (PodSet("main", 3, template.template),)
    runs = Workload("a/runs", "Workload", sets, queue_name="main", admission=held)
    waits = Workload("a/waits", "Workload", sets, queue_name="main")
    found = queue_statuses(system, [runs, waits])
    team = found["ClusterQueue", "team"]
    assert (team["pendingWorkloads"], team["admittedWorkloads"]) == (1, 1)
    assert team["flavorsUsage"] == [
        {"name": "h100", "resources": [{"name": GPU, "total": "6", "borrowed": "4"}]}
    ]
    assert team["conditions"][0]["reason"] == "Ready"
    assert found["LocalQueue", "a/main"]["pendingWorkloads"] == 1
    assert found["LocalQueue", "a/lost"]["conditions"][0]["reason"] == "ClusterQueueDoesNotExist"
