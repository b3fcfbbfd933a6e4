"""Annotations on a Job protect its pods also where each of them is a workload of its own: in no queue and no gang."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.placement.preemption.preemption_cases import NOW, gpu_node, pod

from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.meta import OwnerReference
from windlass.model.plan import Plan
from windlass.model.times import format_timestamp
from windlass.planner import plan_objects

KINDS = {
    "Job": "batch/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicaSet": "apps/v1",
}


def plan(*objects: Any) -> Plan:
    return plan_objects(objects, Settings(), NOW)[0]


def evicted(found: Plan) -> set[str]:
    return {evict.workload.partition("/")[2] for evict in found.evicts}


def owner(kind: str, name: str, *, above: tuple[OwnerReference, ...] = (), **annotations: str) -> Any:
    tree: dict[str, Any] = {
        "apiVersion": KINDS[kind],
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "uid": name, "annotations": annotations},
        "spec": {"template": {"spec": {"containers": []}}},
    }
    if kind == "JobSet":
        tree["spec"] = {"replicatedJobs": [{"name": "main", "replicas": 1, "template": tree.pop("spec") and {}}]}
    made = decode_object(tree)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, owner_references=above))


def reference(kind: str, name: str) -> OwnerReference:
    return OwnerReference(kind, name, api_version=KINDS[kind], uid=name, controller=True)


def owned(made: Any, by: OwnerReference) -> Any:
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, owner_references=(by,)))


def one_of_two(protected: Any, *owners: Any) -> set[str]:
    """Which of two running pods that are alike, `protected` being the cheaper one, goes for an urgent one."""
    other = pod("other", 4, 0, "b", 7200)
    urgent = pod("urgent", 4, 9)
    return evicted(plan(gpu_node("a", 4), gpu_node("b", 4), protected, other, urgent, *owners))


PROTECTED = {"volcano.sh/preemptable": "false"}


@pytest.mark.parametrize("kind", ["Job", "JobSet", "Deployment", "StatefulSet"])
def test_a_job_that_is_not_preemptable_keeps_its_single_pods(kind: str) -> None:
    cheap = owned(pod("cheap", 4, 0, "a", 600), reference(kind, "own"))
    assert one_of_two(cheap, owner(kind, "own")) == {"cheap"}
    assert one_of_two(cheap, owner(kind, "own", **PROTECTED)) == {"other"}


def test_what_is_protected_two_owners_up_is_kept_too() -> None:
    cheap = owned(pod("cheap", 4, 0, "a", 600), reference("Job", "own"))
    below = owner("Job", "own", above=(reference("JobSet", "set"),))
    assert one_of_two(cheap, below, owner("JobSet", "set", **PROTECTED)) == {"other"}


def test_the_hold_names_what_the_job_protects() -> None:
    low = owned(pod("low", 4, 0, "a", 600), reference("Job", "own"))
    found = plan(gpu_node("a", 4), low, pod("urgent", 4, 9), owner("Job", "own", **PROTECTED))
    assert found.evicts == ()
    (hold,) = found.holds
    assert [(item.kind, item.workloads) for item in hold.verdict.obstacles] == [("protected", ("default/low",))]


def test_the_checkpoint_of_a_job_makes_its_pods_the_cheaper_victims() -> None:
    saved = {"windlass.dev/last-checkpoint": format_timestamp(NOW - 10)}
    old = owned(pod("old", 4, 0, "a", 9000), reference("Job", "own"))
    assert one_of_two(old, owner("Job", "own")) == {"other"}
    assert one_of_two(old, owner("Job", "own", **saved)) == {"old"}


def test_the_restart_cost_of_a_job_makes_its_pods_the_dearer_victims() -> None:
    cheap = owned(pod("cheap", 4, 0, "a", 600), reference("Job", "own"))
    assert one_of_two(cheap, owner("Job", "own", **{"windlass.dev/restart-cost": "5h"})) == {"other"}


def test_kinds_that_the_live_scheduler_does_not_watch_protect_nothing_on_a_dump_either() -> None:
    cheap = owned(pod("cheap", 4, 0, "a", 600), reference("ReplicaSet", "own"))
    assert one_of_two(cheap, owner("ReplicaSet", "own", **PROTECTED)) == {"cheap"}
