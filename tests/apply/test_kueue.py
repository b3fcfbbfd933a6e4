"""What is written for Kueue's users: Workloads of Jobs and their conditions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.apply import kueue
from windlass.apply.owners import pod_templates_of
from windlass.apply.topology_assignment import topology_assignment
from windlass.model.codec import decode_object
from windlass.model.decision import Admit, AdmittedPodSet
from windlass.model.kueue import WorkloadObject, is_finished, workload_from_object
from windlass.model.kueue.workload_wire import Condition
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.owners import OwnerObject, owner_from_object
from windlass.model.queue import QueueSystem
from windlass.queueing.outcome import DEACTIVATING_REASONS

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
    hosts = {"n1": {HOSTNAME_LABEL: "host-1"}, "n2": {HOSTNAME_LABEL: "host-2"}}
    where = {"main": topology_assignment(nodes, (), hosts, version)}
    status = kueue.admission_status(wire, admit, read, where, 1_000)
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


def test_an_eviction_closes_the_preemption_gates_again() -> None:
    """As in Kueue: what was let through once waits for whoever opens them."""
    opened = {"preemptionGates": [{"name": "g", "position": "Open"}]}
    wire = decode_object({**tree(), "status": opened})
    assert isinstance(wire, WorkloadObject)
    (gate,) = kueue.eviction_status(wire, "InClusterQueue", 2_000)["preemptionGates"]
    assert gate == {"name": "g", "position": "Closed", "lastTransitionTime": "1970-01-01T00:33:20Z"}
    assert "preemptionGates" not in kueue.eviction_status(workload(), "InClusterQueue", 2_000)


@pytest.mark.parametrize("reason", kueue.NON_PREEMPTION_MESSAGES)
def test_one_that_went_for_nobodys_sake_was_not_preempted(reason: str) -> None:
    status = kueue.eviction_status(workload(), reason, 2_000)
    kinds = {one["type"]: one["reason"] for one in status["conditions"]}
    deactivates = reason in DEACTIVATING_REASONS
    assert kinds["Evicted"] == (f"DeactivatedDueTo{reason}" if deactivates else reason)
    assert "Preempted" not in kinds
    in_queue = reason != "Deactivated" and not deactivates
    assert ("Requeued" in kinds) == in_queue, "what was deactivated waits in no queue"


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
    for queue in ("another", "next"):
        assert not kueue.matches_owner(workload(), owner_from_object(wire), queue)


def test_a_condition_keeps_the_time_since_when_it_holds() -> None:
    wire = workload()
    first = kueue.pending_status(wire, "Pending", "no quota", 1_000)
    again = decode_object({**tree(), "status": first})
    assert isinstance(again, WorkloadObject)
    second = kueue.pending_status(again, "Pending", "other words", 5_000)["conditions"][0]
    assert second["message"] == "other words"
    assert second["lastTransitionTime"] == "1970-01-01T00:16:40Z"
    assert kueue.has_condition(again, "QuotaReserved", "False", "Pending", "no quota")


def status_of(wire: WorkloadObject, reason: str, now: int) -> WorkloadObject:
    """The Workload after an eviction for this reason."""
    made = decode_object({**tree(), "status": kueue.eviction_status(wire, reason, now)})
    assert isinstance(made, WorkloadObject)
    return made


LETTERS = st.text("abcdefghijklmnopqrstuvwxyz0123456789-.", min_size=1, max_size=80)


@given(kind=st.sampled_from(["Job", "PyTorchJob", "RayCluster"]), name=LETTERS, uid=LETTERS)
def test_a_workload_name_fits_a_label_and_shows_kind_and_name(kind: str, name: str, uid: str) -> None:
    made = kueue.workload_name(kind, name, uid)
    stem, _, digest = made.rpartition("-")
    assert len(made) <= 63
    assert len(digest) == 5
    assert f"{kind.lower()}-{name}".startswith(stem)
    assert not stem.endswith(("-", "."))
    assert made == kueue.workload_name(kind, name, uid)
    assert made != kueue.workload_name(kind, name, f"{uid}x"), "a new owner has a new Workload"


def test_a_workload_name_keeps_as_much_as_fits() -> None:
    made = kueue.workload_name("Job", "x" * 80, "u")
    assert len(made) == 63
    assert made.startswith(f"job-{'x' * 53}-")
    cut_at_a_dash = kueue.workload_name("Job", "x" * 52 + "-" + "y" * 20, "u")
    assert cut_at_a_dash.startswith(f"job-{'x' * 52}-")
    assert len(cut_at_a_dash) == 62


def test_a_workload_belongs_to_its_owner_and_is_marked_as_ours() -> None:
    made = tree()
    assert (made["apiVersion"], made["kind"]) == ("kueue.x-k8s.io/v1beta2", "Workload")
    assert made["metadata"] == {
        "name": kueue.workload_name("Job", "train", "u1"),
        "namespace": "a",
        "labels": {"app.kubernetes.io/managed-by": "windlass", "kueue.x-k8s.io/job-uid": "u1"},
        "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u1", "controller": True}
        ],
    }
    assert made["spec"] == {
        "podSets": [{"name": "main", "count": 3, "template": JOB["spec"]["template"]}],
        "queueName": "main",
        "priority": 7,
        "active": True,
    }
    assert kueue.is_written_by_windlass(workload())
    others = decode_object({**made, "metadata": {"name": "w", "namespace": "a"}})
    assert isinstance(others, WorkloadObject)
    assert not kueue.is_written_by_windlass(others)


@pytest.mark.parametrize(("minimum", "written"), [("2", {"minCount": 2}), ("3", {}), ("9", {}), ("", {})])
def test_a_minimum_below_the_whole_is_written(minimum: str, written: dict[str, int]) -> None:
    annotations = {"kueue.x-k8s.io/job-min-parallelism": minimum}
    elastic = {**JOB, "metadata": {**JOB["metadata"], "annotations": annotations}}
    (pod_set,) = tree(owner=elastic)["spec"]["podSets"]
    assert {field: value for field, value in pod_set.items() if field == "minCount"} == written


def test_an_elastic_job_still_matches_its_workload_until_its_minimum_changes() -> None:
    def elastic(minimum: str) -> dict[str, Any]:
        annotations = {"kueue.x-k8s.io/job-min-parallelism": minimum}
        return {**JOB, "metadata": {**JOB["metadata"], "annotations": annotations}}

    made = decode_object(tree(owner=elastic("2")))
    assert isinstance(made, WorkloadObject)
    for minimum, fits in (("2", True), ("1", False), ("3", False)):
        owner = decode_object(elastic(minimum))
        assert isinstance(owner, OwnerObject)
        assert kueue.matches_owner(made, owner_from_object(owner), "main") is fits


def admitted(wire: WorkloadObject, *pod_sets: AdmittedPodSet) -> dict[str, Any]:
    admit = Admit(wire.key, "Workload", "team", pod_sets)
    read = workload_from_object(wire, QueueSystem())
    where = {part.name: {"levels": ["of", part.name]} for part in pod_sets if part.nodes}
    return kueue.admission_status(wire, admit, read, where, 1_000)


def test_an_admission_says_what_is_used_of_which_flavor_and_where() -> None:
    status = admitted(workload(), AdmittedPodSet("main", 2, {GPU: "h100"}, {"n1": 1, "n2": 1}))
    assert status["admission"] == {
        "clusterQueue": "team",
        "podSetAssignments": [
            {
                "name": "main",
                "count": 2,
                "flavors": {GPU: "h100"},
                "resourceUsage": {GPU: "4"},
                "topologyAssignment": {"levels": ["of", "main"]},
            }
        ],
    }
    assert [(known["type"], known["status"], known["reason"]) for known in status["conditions"]] == [
        ("QuotaReserved", "True", "QuotaReserved"),
        ("Admitted", "True", "Admitted"),
    ]
    assert all("ClusterQueue team" in known["message"] for known in status["conditions"])


def test_an_admission_without_nodes_has_no_topology_and_an_unasked_resource_uses_nothing() -> None:
    status = admitted(workload(), AdmittedPodSet("main", 3, {GPU: "h100", "cpu": "h100"}, {}))
    (assignment,) = status["admission"]["podSetAssignments"]
    assert "topologyAssignment" not in assignment
    assert assignment["resourceUsage"] == {GPU: "6", "cpu": "0"}


READY = Condition(type="PodsReady", status="True")


def test_an_admission_clears_the_traces_of_an_eviction_and_keeps_the_rest() -> None:
    evicted = status_of(workload(), "InClusterQueue", 2_000)
    other = Condition(type="WaitingForReplacementPods", status="True", last_transition_time="1970-01-01T00:00:01Z")
    known = msgspec.structs.replace(
        evicted,
        status=msgspec.structs.replace(evicted.status, conditions=(*evicted.status.conditions, READY, other)),
    )
    status = admitted(known, AdmittedPodSet("main", 3, {GPU: "h100"}, {}))
    kinds = {condition["type"]: condition for condition in status["conditions"]}
    assert kinds.keys() == {"QuotaReserved", "Admitted", "WaitingForReplacementPods"}
    assert kinds["WaitingForReplacementPods"] == {
        "type": "WaitingForReplacementPods",
        "status": "True",
        "reason": "Unknown",
        "message": "",
        "lastTransitionTime": "1970-01-01T00:00:01Z",
    }, "a condition needs a reason"
    assert kinds["QuotaReserved"]["lastTransitionTime"] == "1970-01-01T00:16:40Z", "its status has changed"


@pytest.mark.parametrize(
    ("reason", "why"),
    [("InClusterQueue", "Preempted"), ("Priority", "Preempted"), ("DurationExceeded", "DurationExceeded")],
)
def test_evictions_are_counted_by_their_reason(reason: str, why: str) -> None:
    once = status_of(workload(), reason, 2_000)
    status = kueue.eviction_status(status_of(once, "Deactivated", 3_000), reason, 4_000)
    assert status["schedulingStats"]["evictions"] == [
        {"reason": why, "underlyingCause": "", "count": 2},
        {"reason": "Deactivated", "underlyingCause": "", "count": 1},
    ], "Kueue's CRD refuses a row without a cause"
    kinds = {condition["type"]: condition for condition in status["conditions"]}
    assert kinds["Requeued"]["reason"] == why
    assert kinds["Admitted"]["status"] == "False"
    assert kinds["Evicted"]["message"] == kinds["QuotaReserved"]["message"]
    assert reason in kinds["Evicted"]["message"] or "duration" in kinds["Evicted"]["message"]


def test_a_deactivation_is_counted_by_its_cause() -> None:
    once = status_of(workload(), "RequeuingLimitExceeded", 2_000)
    status = kueue.eviction_status(status_of(once, "Deactivated", 3_000), "RequeuingLimitExceeded", 4_000)
    assert status["schedulingStats"]["evictions"] == [
        {"reason": "Deactivated", "underlyingCause": "RequeuingLimitExceeded", "count": 2},
        {"reason": "Deactivated", "underlyingCause": "", "count": 1},
    ]


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
def test_a_workload_finishes_as_its_owner_did(end: str) -> None:
    status = kueue.finished_status(workload(), end, 2_000)
    assert status == {
        "conditions": [
            {
                "type": "Finished",
                "status": "True",
                "reason": end,
                "message": f"The owner has ended: {end}",
                "lastTransitionTime": "1970-01-01T00:33:20Z",
            }
        ]
    }
    made = decode_object({**tree(), "status": status})
    assert isinstance(made, WorkloadObject)
    assert is_finished(made)


@pytest.mark.parametrize(
    ("asked", "has"),
    [
        (("QuotaReserved", "False", "Pending", "no quota"), True),
        (("Admitted", "False", "Pending", "no quota"), False),
        (("QuotaReserved", "True", "Pending", "no quota"), False),
        (("QuotaReserved", "False", "Other", "no quota"), False),
        (("QuotaReserved", "False", "Pending", "other"), False),
    ],
)
def test_a_condition_is_the_same_only_in_all_of_its_parts(asked: tuple[str, str, str, str], has: bool) -> None:
    pending = kueue.pending_status(workload(), "Pending", "no quota", 1_000)
    made = decode_object({**tree(), "status": pending})
    assert isinstance(made, WorkloadObject)
    assert kueue.has_condition(made, *asked) is has
    assert not kueue.has_condition(workload(), *asked)


REASONS = st.sampled_from(["InClusterQueue", "Priority", *kueue.NON_PREEMPTION_MESSAGES])


@given(steps=st.lists(st.sampled_from(["admit", "pending", "evict", "finish"]), max_size=8), reason=REASONS)
def test_conditions_have_one_entry_a_type_and_change_their_time_with_their_status(
    steps: list[str], reason: str
) -> None:
    wire = workload()
    for now, step in enumerate(steps, 1):
        before = {known.type: known for known in wire.status.conditions}
        match step:
            case "admit":
                status = admitted(wire, AdmittedPodSet("main", 3, {GPU: "h100"}, {}))
            case "pending":
                status = kueue.pending_status(wire, "Pending", f"at {now}", 10_000 + now)
            case "evict":
                status = kueue.eviction_status(wire, reason, 10_000 + now)
            case _:
                status = kueue.finished_status(wire, "Succeeded", 10_000 + now)
        made = decode_object({**tree(), "status": status})
        assert isinstance(made, WorkloadObject)
        after = {known.type: known for known in made.status.conditions}
        assert len(after) == len(made.status.conditions)
        for kind, known in after.items():
            assert known.reason
            old = before.get(kind)
            if old is not None and old.status == known.status:
                assert known.last_transition_time == old.last_transition_time
        wire = made
