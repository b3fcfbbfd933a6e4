"""What `apply` reads of the cluster: objects, budgets, owners and priorities, and whose they are."""

from __future__ import annotations

from typing import Any

import pytest
from tests.scheduler.caches import (
    QUEUE,
    budget,
    job,
    node,
    pod,
    told,
    tree,
    world,
)

from windlass.cluster.delta import Deleted
from windlass.model.codec import Unreadable, decode_object
from windlass.model.configuration import Settings
from windlass.model.errors import InputError
from windlass.model.owners import owner_from_object


def test_objects_are_found_by_kind_key_and_group() -> None:
    some = world()
    told(some, job("j"), node("n1"), tree("PersistentVolumeClaim", "data", "v1"))
    assert some.get("Job", "a/j", "batch").metadata.name == "j"
    assert some.get("Job", "a/j") is None
    assert some.get("Node", "n1").name == "n1"
    claim = some.persistent_volume_claim("a/data")
    assert claim is not None
    assert claim.metadata.name == "data"
    assert some.persistent_volume_claim("a/other") is None
    assert some.object_count == 3, "pods are not counted"


def test_the_budget_of_a_pod_is_the_first_that_covers_it() -> None:
    some = world()
    mine, other = pod("p", labels={"app": "web"}), pod("q", labels={"app": "db"})
    assert some.disruption_budget_of(mine) == ""
    told(some, budget("z", "web"), budget("b", "web"), budget("c", "db", namespace="elsewhere"))
    assert some.disruption_budget_of(mine) == "a/b"
    assert some.disruption_budget_of(other) == "", "that one is in another namespace"
    told(some, Deleted("PodDisruptionBudget", "a/b", "policy"))
    assert some.disruption_budget_of(mine) == "a/z"
    told(some, Deleted("PodDisruptionBudget", "a/z", "policy"))
    assert some.disruption_budget_of(mine) == ""


def test_pods_and_budgets_without_a_namespace_are_in_the_default_one() -> None:
    some = world()
    told(some, budget("b", "web", namespace=""))
    assert some.disruption_budget_of(pod("p", namespace="", labels={"app": "web"})) == "default/b"
    assert some.disruption_budget_of(pod("p", labels={"app": "web"})) == ""


def test_a_workload_belongs_to_the_owner_that_controls_it() -> None:
    some = world()

    def of_job(name: str, controller: bool = True) -> Any:
        reference = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "j",
            "uid": "j",
            "controller": controller,
        }
        spec = {"podSets": [{"name": "main", "count": 1, "template": {"spec": {}}}]}
        return tree("Workload", name, metadata={"ownerReferences": [reference]}, spec=spec)

    told(some, job("j"))
    assert some.owners.workload_key_of(job("j")) == ""
    told(some, of_job("seen", controller=False))
    assert some.owners.workload_key_of(job("j")) == ""
    told(some, of_job("first"))
    assert some.owners.workload_key_of(job("j")) == "a/first"
    told(some, of_job("second"), Deleted("Workload", "a/first", "kueue.x-k8s.io"))
    assert some.owners.workload_key_of(job("j")) == "a/second", "the end of the first takes nothing from the second"
    told(some, Deleted("Workload", "a/second", "kueue.x-k8s.io"))
    assert some.owners.workload_key_of(job("j")) == ""


def test_queued_owners_are_those_at_the_top() -> None:
    some = world()
    top = tree("JobSet", "set", "jobset.x-k8s.io/v1alpha2", metadata={"labels": QUEUE}, spec={})

    def child(name: str, controller: bool) -> Any:
        template = {"spec": {"schedulerName": "windlass", "containers": [{"name": "c"}]}}
        reference = {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "name": "set",
            "uid": "u-set",
        }
        metadata = {"labels": QUEUE, "ownerReferences": [{**reference, "controller": controller}]}
        return tree("Job", name, "batch/v1", metadata=metadata, spec={"template": template, "suspend": True})

    def names() -> list[str]:
        return [owner.metadata.name for owner in some.owners.without_parents()]

    told(some, child("controlled", True), child("referenced", False))
    assert names() == ["controlled", "referenced"], "its parent has not been seen"
    told(some, top)
    assert names() == ["referenced", "set"]
    told(some, Deleted("JobSet", "a/set", "jobset.x-k8s.io"))
    assert names() == ["controlled", "referenced"]
    without_queue = decode_object(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "referenced", "namespace": "a"}}
    )
    told(some, without_queue)
    assert names() == ["controlled"], "its label was taken off"


def test_kinds_that_are_held_by_gates_have_no_workload_of_ours() -> None:
    some = world()
    template = {"spec": {"schedulerName": "windlass", "containers": [{"name": "c"}]}}
    spec = {"leaderWorkerTemplate": {"size": 2, "workerTemplate": template}}
    served = tree("LeaderWorkerSet", "llama", "leaderworkerset.x-k8s.io/v1", metadata={"labels": QUEUE}, spec=spec)
    assert told(some, served) == ["llama"]
    assert some.owners.without_parents() == []


def test_the_priority_is_that_of_the_class_of_the_workload_then_of_the_pods() -> None:
    some = world()
    told(
        some,
        tree("WorkloadPriorityClass", "urgent", metadata={"namespace": ""}, value=9),
        tree("PriorityClass", "high", "scheduling.k8s.io/v1", metadata={"namespace": ""}, value=7),
    )

    def priority(label: str, **spec: Any) -> int:
        template = {"spec": {"containers": [{"name": "c"}], "priority": 3, **spec}}
        labels = {"kueue.x-k8s.io/priority-class": label} if label else {}
        owner = tree("Job", "j", "batch/v1", metadata={"labels": labels}, spec={"template": template})
        return some.priority_of(owner_from_object(owner))

    assert priority("urgent", priorityClassName="high") == 9
    assert priority("", priorityClassName="high") == 7
    assert priority("missing", priorityClassName="high") == 7
    assert priority("missing", priorityClassName="missing") == 3
    assert priority("") == 3


@pytest.mark.parametrize(
    ("options", "name", "ours"),
    [
        ({}, "windlass", True),
        ({}, "default-scheduler", False),
        ({}, "", False),
        ({"settings": Settings(scheduler_names=("gpu", "default-scheduler"))}, "default-scheduler", True),
        ({"settings": Settings(scheduler_names=("gpu", "default-scheduler"))}, "", True),
        ({"settings": Settings(scheduler_names=("gpu",))}, "windlass", False),
        ({"shadow": True}, "default-scheduler", True),
        ({"shadow": True}, "", True),
    ],
)
def test_pods_are_ours_by_the_name_of_the_scheduler(options: dict[str, Any], name: str, ours: bool) -> None:
    some = world(**options)
    unreadable = Unreadable(InputError("no"), "Pod", "a", "p", "", name)
    assert some.responsibility.covers_unreadable(unreadable) is ours
    if name:
        assert some.responsibility.covers(pod("p", name)) is ours
        assert some.responsibility.covers_owner(owner_from_object(job("j", scheduler=name))) is ours


def test_an_owner_with_one_pod_set_of_ours_is_ours() -> None:
    def replica(scheduler: str) -> dict[str, Any]:
        return {"template": {"spec": {"schedulerName": scheduler, "containers": [{"name": "c"}]}}}

    roles = {"Master": replica("default-scheduler"), "Worker": replica("windlass")}
    owner = owner_from_object(tree("PyTorchJob", "t", "kubeflow.org/v1", spec={"pytorchReplicaSpecs": roles}))
    assert world().responsibility.covers_owner(owner)
