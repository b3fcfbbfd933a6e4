"""What the engine is told: everybody's pods on nodes, only ours that wait, and quota only where it is ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.cluster.delta import Assume, Deleted, Delta, Forget, Put, Refused
from windlass.model.codec import Unreadable, decode_object
from windlass.model.configuration import Settings
from windlass.model.errors import InputError
from windlass.model.owners import owner_from_object
from windlass.model.refusal import Refusal
from windlass.scheduler.cache import SchedulerCache
from windlass.scheduler.options import SchedulerOptions

QUEUE = {"kueue.x-k8s.io/queue-name": "main"}


def world(**options: Any) -> SchedulerCache:
    return SchedulerCache(SchedulerOptions(**options))


def pod(name: str, scheduler: str = "windlass", node: str = "", **meta: Any) -> Any:
    spec = {"schedulerName": scheduler, "containers": [{"name": "c"}]}
    if node:
        spec["nodeName"] = node
    metadata = {"name": name, "namespace": "a", "uid": f"u-{name}", **meta}
    return decode_object({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def node(name: str, **labels: str) -> Any:
    return decode_object({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})


def job(name: str, suspend: bool = True, scheduler: str = "windlass") -> Any:
    template = {"spec": {"schedulerName": scheduler, "containers": [{"name": "c"}]}}
    meta = {"name": name, "namespace": "a", "labels": QUEUE, "uid": name}
    spec = {"suspend": suspend, "parallelism": 1, "template": template}
    return decode_object({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec})


def workload(name: str, admitted: bool) -> Any:
    template = {"spec": {"containers": [{"name": "c"}]}}
    return decode_object(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": name, "namespace": "a", "uid": name},
            "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": template}]},
            "status": {"admission": {"clusterQueue": "cq"}} if admitted else {},
        }
    )


def told(some: SchedulerCache, *deltas: Any) -> list[str]:
    some.push([Put(one) if not isinstance(one, Deleted | Assume) else one for one in deltas])
    names = []
    for delta in some.flush(1_000).applied:
        if isinstance(delta, Put):
            names.append(delta.object.metadata.name)
        elif isinstance(delta, Deleted):
            names.append(f"-{delta.key}")
    return names


def test_pods_that_wait_for_others_are_left_out_and_all_on_nodes_count() -> None:
    some = world()
    assert told(some, pod("mine"), pod("theirs", "default-scheduler")) == ["mine"]
    assert told(some, pod("theirs", "default-scheduler", "n1")) == ["theirs"]
    assert told(some, pod("static", "", "n1"), Deleted("Pod", "a/theirs")) == ["static", "-a/theirs"]


def test_a_pod_that_is_being_deleted_is_not_decided_on() -> None:
    some = world()
    assert told(some, pod("p")) == ["p"]
    assert told(some, pod("p", deletionTimestamp="2026-01-01T00:00:00Z")) == ["-a/p"]


def test_nodes_without_the_labels_are_not_looked_at() -> None:
    some = world(settings=Settings(node_selector={"pool": "gpu"}))
    assert told(some, node("n1", pool="gpu"), node("n2")) == ["n1"]
    assert told(some, node("n1"), node("n2", pool="gpu")) == ["-n1", "n2"]
    assert some.nodes == {"n2"}


def test_what_only_changes_its_version_is_no_news() -> None:
    some = world()
    told(some, pod("p", resourceVersion="1"), node("n1"))
    some.push([Put(pod("p", resourceVersion="2")), Put(node("n1"))])
    assert some.flush(1_000) == ([], False)


def test_a_bind_of_ours_that_is_confirmed_is_no_news_and_anything_else_is() -> None:
    some = world()
    told(some, node("n1"), node("n2"), pod("p"), pod("q"))
    some.assume([Assume("a/p", "n1"), Assume("a/q", "n1")])
    some.push([Put(pod("p", node="n1"))])
    settled = some.flush(1_000)
    assert [delta.object.metadata.name for delta in settled.applied] == ["p"]
    assert not settled.needs_decision
    some.push([Put(pod("q", node="n2"))])
    assert some.flush(1_000).needs_decision, "it is not where we thought"


def test_a_pod_just_bound_counts_as_started_now_and_not_when_it_was_made() -> None:
    some = world()
    some.push([Put(pod("p", node="n1", creationTimestamp="1970-01-01T00:00:00Z"))])
    (delta,) = some.flush(1_000_000).applied
    assert delta.object.status.start_time == "1970-01-12T13:46:40Z"


def test_a_resting_pod_is_left_alone_until_it_wakes() -> None:
    some = world()
    told(some, node("n1"), pod("p"))
    some.assume([Assume("a/p", "n1")])
    some.start_backoff("a/p")
    assert told(some) == ["-a/p"]
    assert told(some, pod("p", resourceVersion="9")) == []
    some.end_backoff("a/p")
    assert told(some) == ["p"]


def test_beside_kueue_only_what_it_admitted_is_seen() -> None:
    some = world()
    some.kueue_is_live = True
    assert told(some, job("j"), workload("waits", False), workload("runs", True)) == ["runs"]
    assert some.queued_owners() == []
    some.kueue_is_live = False
    some.reevaluate_queue_ownership()
    assert told(some) == ["j", "waits"]
    assert [one.metadata.name for one in some.queued_owners()] == ["j"]
    some.kueue_is_live = True
    some.reevaluate_queue_ownership()
    assert told(some) == ["-a/j", "-a/waits"]


@pytest.mark.parametrize("name", ["a/main", "cq"])
def test_a_queue_that_is_taken_over_is_ours_beside_kueue(name: str) -> None:
    some = world(take_over=frozenset({name}))
    some.kueue_is_live = True
    queue = decode_object(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": "main", "namespace": "a"},
            "spec": {"clusterQueue": "cq"},
        }
    )
    assert told(some, queue, job("j"), workload("waits", False)) == ["main", "j", "waits"]


def test_a_queue_that_is_taken_over_admits_although_it_is_on_hold() -> None:
    def queue(kind: str, name: str, **spec: Any) -> Any:
        metadata = {"name": name, **({"namespace": "a"} if kind == "LocalQueue" else {})}
        return decode_object(
            {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec}
        )

    some = world(take_over=frozenset({"a/main"}))
    held = queue("ClusterQueue", "cq", stopPolicy="Hold")
    others = queue("ClusterQueue", "other", stopPolicy="Hold")
    some.push([Put(held), Put(others), Put(queue("LocalQueue", "main", clusterQueue="cq"))])
    some.flush(1_000)
    some.flush(1_000)
    stopped = {name: one.stop_policy for name, one in some.store.snapshot().queue_system.queues.items()}
    assert stopped == {"cq": "None", "other": "Hold"}


def test_another_schedulers_jobs_are_not_ours_to_admit() -> None:
    some = world()
    assert told(some, job("j", scheduler="default-scheduler")) == []
    assert some.queued_owners() == []


def test_classes_are_told_whatever_else_there_is() -> None:
    some = world()
    high = decode_object(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 5,
        }
    )
    assert told(some, high) == ["high"]
    assert told(some, pod("alone")) == ["alone"]


def test_an_unreadable_pod_blocks_its_node_and_is_kept_to_be_told_of() -> None:
    some = world()
    odd = Unreadable(InputError("no", path="spec.priority"), "Pod", "a", "odd", "n1")
    waits = Unreadable(InputError("no"), "Pod", "a", "waits", "")
    some.push([Put(node("n1")), Put(odd), Put(waits)])
    settled = some.flush(1_000)
    assert [one.object.name for one in settled.applied if isinstance(one, Put)] == ["n1", "odd"]
    assert some.unreadable == {("Pod", "a/odd"): odd, ("Pod", "a/waits"): waits}
    told(some, pod("odd", node="n1"), Deleted("Pod", "a/waits"))
    assert not some.unreadable, "one can be read now, and the other is gone"


def test_a_pod_that_can_no_longer_be_read_is_not_decided_on_as_it_was() -> None:
    some = world()
    told(some, node("n1"), pod("p"))
    some.push([Put(Unreadable(InputError("no"), "Pod", "a", "p", "", "windlass"))])
    settled = some.flush(1_000)
    assert settled.applied == [Deleted("Pod", "a/p")]
    assert settled.needs_decision, "its owner hears of it soon"


def test_what_comes_while_it_is_decided_is_known_and_not_told() -> None:
    some = world()
    told(some, node("n1"), pod("p"), pod("q"))
    some.push([Deleted("Pod", "a/p"), Put(pod("q", node="n1")), Deleted("Node", "n1")])
    some.drain_inbox()
    assert set(some.pods) == {"a/q"}
    assert some.pods["a/q"].is_bound
    assert not some.nodes
    assert some.changed.is_set(), "the next decision comes at once"
    snapshot = some.store.snapshot()
    assert snapshot.nodes.size == 1, "the store is as it was when the decision began"
    assert [*map(type, some.flush(1_000).applied)] == [Deleted, Put, Deleted]


def owned(name: str, kind: str = "Job", api: str = "batch/v1", **meta: Any) -> Any:
    reference = {"apiVersion": api, "kind": kind, "name": "j", "uid": "j", "controller": True}
    return pod(name, ownerReferences=[reference], **meta)


def watching(*kinds: str) -> SchedulerCache:
    some = world()
    some.awaiting_owner.is_watched = lambda kind, group: kind in kinds
    return some


def test_a_pod_that_is_seen_before_its_owner_waits_for_it() -> None:
    some = watching("Job")
    assert told(some, owned("p"), owned("q"), pod("alone")) == ["alone"]
    assert told(some, owned("p", labels={"a": "b"})) == [], "it still waits, whatever changes about it"
    assert told(some, job("j", suspend=False)) == ["j", "p", "q"], "the owner is told of first"
    assert told(some, Deleted("Job", "a/j", "batch")) == ["-a/j"], "what is known already doesn't wait again"


def test_a_plain_owner_gives_its_pods_back_too() -> None:
    some = watching("Job")
    assert told(some, owned("p")) == []
    plain = decode_object(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "a"}}
    )
    assert told(some, plain) == ["p"], "the engine needs to know of the pod only"


def test_nobody_waits_for_an_owner_that_never_comes() -> None:
    some = watching("Job")
    some.push([Put(owned("p"))])
    assert not some.flush(1_000).applied
    assert not some.flush(1_004).applied
    assert [delta.object.metadata.name for delta in some.flush(1_005).applied] == ["p"]
    some.push([Put(owned("p", labels={"a": "b"}))])
    assert some.flush(1_006).applied, "it is not held again"


def test_nobody_waits_for_owners_that_are_not_watched() -> None:
    assert told(watching(), owned("p")) == ["p"]
    assert told(watching("ReplicaSet"), owned("p", "ReplicaSet", "apps/v1")) == ["p"]


def test_the_pods_of_a_leader_worker_set_wait_for_it_below_their_stateful_set() -> None:
    some = watching("LeaderWorkerSet")
    labels = {"leaderworkerset.sigs.k8s.io/name": "llama"}
    assert told(some, owned("llama-0", "StatefulSet", "apps/v1", labels=labels)) == []
    template = {"spec": {"schedulerName": "windlass", "containers": [{"name": "c"}]}}
    served = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "llama", "namespace": "a"},
        "spec": {"leaderWorkerTemplate": {"size": 2, "workerTemplate": template}},
    }
    assert told(some, decode_object(served)) == ["llama", "llama-0"]


def test_a_pod_that_has_gone_is_not_brought_back_by_its_rest() -> None:
    """The watch tells of its end before the bind's refusal does, and the loop has taken neither in."""
    some = world()
    assert told(some, node("n"), pod("p")) == ["n", "p"]
    some.push([Deleted("Pod", "a/p")])
    some.start_backoff("a/p")
    some.end_backoff("a/p")
    some.flush(1_001)
    assert "a/p" not in some.pods
    assert not some.store.snapshot(1_001).pods.pending().size


def web(name: str, phase: str, is_ready: bool) -> Any:
    ready = [{"type": "Ready", "status": str(is_ready)}]
    status = {"phase": phase, "startTime": "2026-01-01T00:00:00Z", "conditions": ready}
    meta = {"name": name, "namespace": "a", "uid": name, "labels": {"app": "web"}}
    spec = {"nodeName": "n", "containers": [{"name": "c"}]}
    return decode_object(
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}
    )


def test_how_pods_are_is_told_where_a_budget_reads_it_and_is_no_news() -> None:
    some = world()
    told(some, node("n"), web("p", "Pending", False))
    assert told(some, web("p", "Running", False)) == [], "no budget, no interest"
    selector = {"matchLabels": {"app": "web"}}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "a"},
        "spec": {"minAvailable": 1, "selector": selector},
    }
    assert told(some, decode_object(budget)) == ["b", "p"], "with what was not told before"
    before = some.store.snapshot(1_000)
    some.push([Put(web("p", "Running", True))])
    settled = some.flush(1_000)
    assert [delta.object.is_ready for delta in settled.applied if isinstance(delta, Put)] == [True]
    assert not settled.needs_decision
    (now,) = some.store.snapshot(1_000).pods.objects
    assert now.is_ready
    assert not before.pods.objects[0].is_ready, "an earlier snapshot stays as it was"


# What `apply` reads


def tree(kind: str, name: str, api: str = "kueue.x-k8s.io/v1beta2", **fields: Any) -> Any:
    metadata = {"name": name, "namespace": "a", "uid": f"u-{name}", **fields.pop("metadata", {})}
    return decode_object({"apiVersion": api, "kind": kind, "metadata": metadata, **fields})


def budget(name: str, app: str, namespace: str = "a") -> Any:
    spec = {"selector": {"matchLabels": {"app": app}}, "minAvailable": 1}
    return tree("PodDisruptionBudget", name, "policy/v1", metadata={"namespace": namespace}, spec=spec)


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
    assert some.workload_key_of(job("j")) == ""
    told(some, of_job("seen", controller=False))
    assert some.workload_key_of(job("j")) == ""
    told(some, of_job("first"))
    assert some.workload_key_of(job("j")) == "a/first"
    told(some, of_job("second"), Deleted("Workload", "a/first", "kueue.x-k8s.io"))
    assert some.workload_key_of(job("j")) == "a/second", "the end of the first takes nothing from the second"
    told(some, Deleted("Workload", "a/second", "kueue.x-k8s.io"))
    assert some.workload_key_of(job("j")) == ""


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
        return [owner.metadata.name for owner in some.queued_owners()]

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
    served = tree(
        "LeaderWorkerSet", "llama", "leaderworkerset.x-k8s.io/v1", metadata={"labels": QUEUE}, spec=spec
    )
    assert told(some, served) == ["llama"]
    assert some.queued_owners() == []


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
    assert some.is_responsible_for_unreadable(unreadable) is ours
    if name:
        assert some.is_responsible_for(pod("p", name)) is ours
        assert some.is_responsible_for_owner(owner_from_object(job("j", scheduler=name))) is ours


def test_an_owner_with_one_pod_set_of_ours_is_ours() -> None:
    def replica(scheduler: str) -> dict[str, Any]:
        return {"template": {"spec": {"schedulerName": scheduler, "containers": [{"name": "c"}]}}}

    roles = {"Master": replica("default-scheduler"), "Worker": replica("windlass")}
    owner = owner_from_object(tree("PyTorchJob", "t", "kubeflow.org/v1", spec={"pytorchReplicaSpecs": roles}))
    assert world().is_responsible_for_owner(owner)


# Binds and backing off


class Assumes:
    def __init__(self) -> None:
        self.seen: list[tuple[int, list[str]]] = []

    def on_assume(self, now: int, binds: Any) -> None:
        self.seen.append((now, [bind.pod for bind in binds]))


def test_assumed_binds_are_in_the_store_at_once_and_are_recorded() -> None:
    some = world()
    observer = some.assume_observer = Assumes()
    told(some, node("n1"), pod("p"), pod("q"))
    some.assume([Assume("a/p", "n1"), Assume("a/q", "n1")])
    assert some.assumed == {"a/p": "n1", "a/q": "n1"}
    assert not some.store.snapshot(1_000).pods.pending().size
    assert observer.seen == [(1_000, ["a/p", "a/q"])]


def test_a_confirmed_bind_is_assumed_no_more() -> None:
    some = world()
    told(some, node("n1"), pod("p"))
    some.assume([Assume("a/p", "n1")])
    told(some, pod("p", node="n1"))
    assert some.assumed == {}


def test_a_bound_pod_that_has_ended_is_news() -> None:
    some = world()
    told(some, node("n1"), pod("p"))
    some.assume([Assume("a/p", "n1")])
    ended = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "a", "uid": "u-p"}}
    some.push(
        [
            Put(
                decode_object(
                    {**ended, "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": "Failed"}}
                )
            )
        ]
    )
    assert some.flush(1_000).needs_decision, "its resources are free"


def test_a_failed_bind_is_forgotten_and_calls_for_a_decision() -> None:
    some = world()
    told(some, node("n1"), pod("p"))
    some.assume([Assume("a/p", "n1")])
    some.push([Forget("a/p")])
    assert some.flush(1_001).needs_decision
    assert some.assumed == {}
    assert some.store.snapshot(1_001).pods.pending().size == 1


def test_a_refusal_calls_for_a_decision() -> None:
    some = world()
    told(some, node("n1"), pod("p"))
    refusal = Refusal("bind", "a/p", 2_000, "u-p", node="n1")
    some.push([Refused(refusal)])
    assert some.flush(1_001) == ([Refused(refusal)], True)


def test_who_backs_off_is_brought_back_by_its_end_and_by_nothing_else() -> None:
    some = world()
    told(some, node("n1"), pod("p"), pod("q"))
    some.start_backoff("a/p")
    told(some)
    assert told(some, pod("p", labels={"a": "b"}), pod("q", labels={"a": "b"})) == ["q"]
    some.end_backoff("a/p")
    (put,) = some.flush(1_000).applied
    assert isinstance(put, Put)
    assert put.object.metadata.labels == {"a": "b"}, "as it is by now"


def test_a_pod_that_is_bound_by_another_while_it_backs_off_counts() -> None:
    some = world()
    told(some, node("n1"), pod("p"))
    some.start_backoff("a/p")
    told(some)
    assert told(some, pod("p", node="n1")) == ["p"]


def test_the_end_of_an_unknown_pods_rest_is_nothing() -> None:
    some = world()
    some.start_backoff("a/none")
    some.end_backoff("a/none")
    assert [delta for delta in some.flush(1_000).applied if isinstance(delta, Put)] == []


# State of deleted objects


def test_a_deleted_pod_leaves_nothing_behind() -> None:
    some = watching("Job")
    deleted: list[str] = []
    some.on_pod_deleted = deleted.append
    told(some, node("n1"), pod("p"))
    some.assume([Assume("a/p", "n1")])
    some.start_backoff("a/p")
    told(some)
    assert told(some, Deleted("Pod", "a/p")) == [], "the store had forgotten it before"
    assert deleted == ["a/p"]
    assert (some.pods, some.assumed) == ({}, {})
    assert told(some, pod("p")) == ["p"], "the next pod of its name doesn't rest"
    some.push([Put(pod("p", node="n1"))])
    assert some.flush(1_000).needs_decision, "and its bind is not ours"


def test_a_bind_of_a_deleted_pod_is_not_taken_for_one_of_its_successor() -> None:
    some = world()
    told(some, node("n1"), pod("p"))
    some.assume([Assume("a/p", "n1")])
    told(some, Deleted("Pod", "a/p"))
    assert some.assumed == {}
    some.push([Put(pod("p", node="n1"))])
    assert some.flush(1_000).needs_decision


def test_without_its_last_budget_the_health_of_pods_is_of_no_interest_again() -> None:
    some = world()
    told(some, node("n"), web("p", "Running", False), budget("b", "web"), budget("c", "web"))
    told(some, Deleted("PodDisruptionBudget", "a/c", "policy"))
    assert told(some, web("p", "Running", True)) == ["p"], "one is left"
    told(some, Deleted("PodDisruptionBudget", "a/b", "policy"))
    assert told(some, web("p", "Running", False)) == []
    assert told(some, budget("b", "web")) == ["b", "p"]


def test_a_second_budget_of_a_namespace_or_one_of_another_tells_no_pod_again() -> None:
    some = world()
    told(some, node("n"), web("p", "Pending", False))
    told(some, web("p", "Running", True))
    assert told(some, budget("b", "web", namespace="z")) == ["b"], "its pods are elsewhere"
    assert told(some, budget("b", "web"), budget("c", "web")) == ["b", "p", "c"]
    some.push([Put(pod("waits"))])
    told(
        some, Deleted("PodDisruptionBudget", "a/b", "policy"), Deleted("PodDisruptionBudget", "a/c", "policy")
    )
    assert told(some, budget("d", "web")) == ["d", "p"], "pods that wait have no health"


def test_a_pod_becomes_unreadable_and_that_alone_calls_for_a_decision() -> None:
    some = world()
    some.push([Put(Unreadable(InputError("no"), "Pod", "a", "p", "", "windlass"))])
    assert some.flush(1_000) == ([], True), "the pod is to be told"
    some.push([Forget("a/q")])
    assert some.flush(1_000) == ([Forget("a/q")], True)
    assert some.unreadable.keys() == {("Pod", "a/p")}, "the end of another's bind changes nothing about it"


def test_the_next_pod_of_a_name_waits_for_its_owner_again() -> None:
    some = watching("Job")
    some.push([Put(owned("p"))])
    some.flush(1_000)
    some.flush(1_005)
    told(some, Deleted("Pod", "a/p"))
    some.push([Put(owned("p"))])
    assert not some.flush(1_006).applied


def test_a_deleted_node_is_no_place_for_anything() -> None:
    some = world()
    told(some, node("n1"))
    assert told(some, Deleted("Node", "n1")) == ["-n1"]
    assert (some.nodes, some.get("Node", "n1")) == (set(), None)
    assert told(some, Deleted("Node", "n1")) == []
    assert told(some, node("n1")) == ["n1"]


def test_a_deleted_owner_is_queued_no_more() -> None:
    some = world()
    told(some, job("j"))
    assert told(some, Deleted("Job", "a/j", "batch")) == ["-a/j"]
    assert some.queued_owners() == []
    assert some.get("Job", "a/j", "batch") is None
    assert some.object_count == 0


def test_a_deleted_workload_takes_its_assumed_status_along() -> None:
    some = world()
    told(some, workload("w", admitted=False))
    known = some.get("Workload", "a/w", "kueue.x-k8s.io")
    sent = some.assume_status(known, workload("w", admitted=True), is_admission=True)
    assert some.is_unconfirmed(sent)
    told(some, Deleted("Workload", "a/w", "kueue.x-k8s.io"))
    assert not some.is_unconfirmed(sent)
    told(some, workload("w", admitted=False))
    assert some.get("Workload", "a/w", "kueue.x-k8s.io").status.admission is None


def test_objects_that_were_never_told_need_no_deletion() -> None:
    some = world()
    assert told(some, Deleted("Pod", "a/p"), Deleted("Job", "a/j", "batch"), Deleted("Workload", "a/w")) == []
    theirs = job("j", scheduler="default-scheduler")
    assert told(some, theirs, Deleted("Job", "a/j", "batch")) == []


# Assumed statuses


def test_an_assumed_status_is_what_the_next_decision_sees() -> None:
    some = world()
    told(some, workload("w", admitted=False))
    known = some.get("Workload", "a/w", "kueue.x-k8s.io")
    sent = some.assume_status(known, workload("w", admitted=True), is_admission=True)
    applied = some.flush(1_000).applied
    assert [delta.object.status.admission is not None for delta in applied if isinstance(delta, Put)] == [
        True
    ]
    some.changed.clear()
    some.forget_status(sent)
    assert some.changed.is_set(), "its quota is free again"
    assert [delta.object.status.admission for delta in some.flush(1_000).applied] == [None]


def test_an_answer_before_the_watch_changes_nothing() -> None:
    some = world()
    told(some, workload("w", admitted=False))
    known = some.get("Workload", "a/w", "kueue.x-k8s.io")
    sent = some.assume_status(known, workload("w", admitted=True), is_admission=True)
    some.flush(1_000)
    some.changed.clear()
    some.finish_status(sent, "9")
    assert some.is_unconfirmed(sent)
    assert some.flush(1_000).applied == []
    assert not some.changed.is_set()


def test_what_the_watch_has_shown_meanwhile_is_heeded_before_a_status_ends() -> None:
    some = world()
    told(some, workload("w", admitted=False))
    known = some.get("Workload", "a/w", "kueue.x-k8s.io")
    sent = some.assume_status(known, workload("w", admitted=True), is_admission=True)
    some.push([Deleted("Workload", "a/w", "kueue.x-k8s.io")])
    some.forget_status(sent)
    assert some.get("Workload", "a/w", "kueue.x-k8s.io") is None


# News and no news


def test_only_changes_wake_the_loop() -> None:
    some = world()
    some.push([])
    assert not some.changed.is_set()
    some.push([Put(pod("p"))])
    assert some.changed.is_set()
    assert some.flush(1_000).needs_decision
    assert not some.flush(1_000).needs_decision
    assert not some.changed.is_set()


@pytest.mark.parametrize(
    ("change", "is_news"),
    [
        ({"labels": {"a": "b"}}, True),
        ({"annotations": {"a": "b"}}, True),
        ({"resourceVersion": "7"}, False),
        ({}, False),
    ],
)
def test_of_a_pod_what_the_engine_reads_is_news(change: dict[str, Any], is_news: bool) -> None:
    some = world()
    told(some, pod("p"))
    assert bool(told(some, pod("p", **change))) is is_news


def test_the_end_of_a_pod_is_news_and_its_other_phases_are_none() -> None:
    some = world()
    told(some, node("n"), web("p", "Pending", False))
    assert told(some, web("p", "Running", True)) == []
    assert told(some, web("p", "Succeeded", False)) == ["p"]
    assert told(some, web("p", "Succeeded", False)) == []


@pytest.mark.parametrize(
    ("labels", "annotations", "is_news"),
    [({"pool": "b"}, {}, True), ({"pool": "a"}, {"heartbeat": "7"}, False), ({"pool": "a"}, {}, False)],
)
def test_of_a_node_what_placement_reads_is_news(
    labels: dict[str, str], annotations: dict[str, str], is_news: bool
) -> None:
    some = world()
    told(some, node("n1", pool="a"))
    metadata = {"name": "n1", "labels": labels, "annotations": annotations, "resourceVersion": "7"}
    changed = decode_object({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    assert bool(told(some, changed)) is is_news


def test_of_other_objects_everything_but_the_version_is_news() -> None:
    some = world()

    def queue(version: str, **spec: Any) -> Any:
        return tree("LocalQueue", "main", metadata={"resourceVersion": version}, spec=spec)

    assert told(some, queue("1", clusterQueue="cq")) == ["main"]
    assert told(some, queue("2", clusterQueue="cq")) == []
    assert told(some, queue("3", clusterQueue="other")) == ["main"]


def test_an_unreadable_object_of_another_kind_is_kept_and_no_news() -> None:
    some = world()
    odd = Unreadable(InputError("no"), "LocalQueue", "a", "main", "")
    wide = Unreadable(InputError("no"), "Node", "", "n1", "")
    some.push([Put(odd), Put(wide)])
    assert some.flush(1_000) == ([], False)
    assert some.unreadable.keys() == {("LocalQueue", "a/main"), ("Node", "n1")}
    told(some, tree("LocalQueue", "main", spec={"clusterQueue": "cq"}), Deleted("Node", "n1"))
    assert some.unreadable == {}


def test_an_unreadable_pod_that_becomes_another_unreadable_one_stays() -> None:
    some = world()
    for reason in ("first", "second"):
        some.push([Put(Unreadable(InputError(reason), "Pod", "a", "p", "n1"))])
        some.flush(1_000)
    assert str(some.unreadable["Pod", "a/p"].error) == "second"
    assert "a/p" not in some.pods


def test_run_times_are_told_and_are_no_news() -> None:
    some = world()
    history = tree("RunTimeHistory", "main", "windlass.dev/v1")
    some.push([Put(history)])
    settled = some.flush(1_000)
    assert [delta.object.metadata.name for delta in settled.applied] == ["main"]
    assert not settled.needs_decision
    assert told(some, Deleted("RunTimeHistory", "a/main", "windlass.dev")) == ["-a/main"]


def test_a_pod_of_a_gated_namespace_waits_before_its_first_decision_only() -> None:
    """Once the engine knows a pod, the deletion of its owner doesn't hide it."""
    some = watching("Job")
    told(some, job("j", suspend=False), owned("p"))
    told(some, Deleted("Job", "a/j", "batch"))
    assert told(some, owned("p", labels={"a": "b"})) == ["p"]


def test_a_taken_over_local_queue_frees_its_cluster_queue_and_itself_from_hold() -> None:
    some = world(take_over=frozenset({"a/main"}))

    def queue(name: str, policy: str) -> Any:
        return tree("LocalQueue", name, spec={"clusterQueue": "cq", "stopPolicy": policy})

    told(some, queue("main", "Hold"), queue("other", "Hold"), queue("drained", "HoldAndDrain"))
    held = some.store.snapshot().queue_system.local_queues
    assert {key: local.stop_policy for key, local in held.items()} == {
        "a/main": "None",
        "a/other": "Hold",
        "a/drained": "HoldAndDrain",
    }


def test_a_cluster_queue_is_taken_over_by_its_own_name_or_by_its_local_queue() -> None:
    some = world(take_over=frozenset({"cq", "a/main"}))
    queues = [
        tree("ClusterQueue", name, metadata={"namespace": ""}, spec={"stopPolicy": "Hold"})
        for name in ("cq", "by-local", "other")
    ]
    told(some, tree("LocalQueue", "main", spec={"clusterQueue": "by-local"}), *queues)
    found = some.store.snapshot().queue_system.queues
    assert {name: queue.stop_policy for name, queue in found.items()} == {
        "cq": "None",
        "by-local": "None",
        "other": "Hold",
    }


@pytest.mark.parametrize(
    ("names", "namespace", "queue", "taken"),
    [
        ((), "a", "main", False),
        (("a/main",), "a", "main", True),
        (("a/main",), "b", "main", False),
        (("cq",), "a", "main", True),
        (("cq",), "a", "unknown", False),
        (("other",), "a", "main", False),
    ],
)
def test_queues_are_taken_over_by_either_name(
    names: tuple[str, ...], namespace: str, queue: str, taken: bool
) -> None:
    some = world(take_over=frozenset(names))
    told(some, tree("LocalQueue", "main", spec={"clusterQueue": "cq"}))
    assert some.is_taken_over(namespace, queue) is taken


def test_owners_of_independent_pods_do_not_concern_the_engine_unless_they_are_owned() -> None:
    some = world()
    template = {"spec": {"schedulerName": "windlass", "containers": [{"name": "c"}]}}

    def plain(name: str, controller: bool | None) -> Any:
        reference = {"apiVersion": "example.com/v1", "kind": "Pipeline", "name": "x", "uid": "x"}
        owners = [] if controller is None else [{**reference, "controller": controller}]
        return tree(
            "Job", name, "batch/v1", metadata={"ownerReferences": owners}, spec={"template": template}
        )

    assert told(some, plain("alone", None), plain("seen", False), plain("owned", True)) == ["owned"]


def test_a_pod_that_was_bound_keeps_the_start_that_its_kubelet_reports() -> None:
    some = world()
    some.push([Put(web("p", "Running", True)), Put(pod("waits"))])
    starts = {
        delta.object.metadata.name: delta.object.status.start_time for delta in some.flush(1_000).applied
    }
    assert starts == {"p": "2026-01-01T00:00:00Z", "waits": ""}


# A replica that saw every change knows the same as one that starts now


NAMES = st.sampled_from(["p0", "p1", "p2"])
STATES = st.sampled_from(
    ["pending", "theirs", "leaving", "n1", "n2", "ended", "failed", "odd", "odd n1", "deleted"]
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), NAMES, STATES),
        st.tuples(st.just("node"), st.sampled_from(["n1", "n2"]), st.sampled_from(["in", "out", "deleted"])),
        st.tuples(st.just("job"), st.just("j"), st.sampled_from(["mine", "theirs", "deleted"])),
        st.tuples(st.just("workload"), st.just("w"), st.sampled_from(["waits", "admitted", "deleted"])),
        st.tuples(st.just("kueue"), st.just(""), st.sampled_from(["live", "gone"])),
        st.tuples(st.just("flush"), st.just(""), st.just("")),
    ),
    max_size=30,
)


ORDER = {"deleted": 0, "pending": 1, "theirs": 1, "odd": 1, "leaving": 1, "n1": 2, "n2": 2, "odd n1": 2}
ORDER |= {"ended": 3, "failed": 3}


def state_of(name: str, state: str) -> Delta:
    match state:
        case "deleted":
            return Deleted("Pod", f"a/{name}")
        case "odd" | "odd n1":
            return Put(Unreadable(InputError("no"), "Pod", "a", name, state[4:], "windlass"))
        case "n1" | "n2":
            return Put(pod(name, node=state))
        case "theirs":
            return Put(pod(name, "default-scheduler"))
        case "leaving":
            return Put(pod(name, deletionTimestamp="2026-01-01T00:00:00Z"))
        case "ended" | "failed":
            spec = {"containers": [{"name": "c"}], **({"nodeName": "n1"} if state == "ended" else {})}
            meta = {"name": name, "namespace": "a", "uid": f"u-{name}"}
            status = {"phase": "Succeeded" if state == "ended" else "Failed"}
            tree_ = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}
            return Put(decode_object(tree_))
        case _:
            return Put(pod(name))


def delta_of(kind: str, name: str, state: str) -> Delta:
    if kind == "pod":
        return state_of(name, state)
    if kind == "node":
        return Deleted("Node", name) if state == "deleted" else Put(node(name, pool=state))
    if kind == "job":
        scheduler = "windlass" if state == "mine" else "default-scheduler"
        return Deleted("Job", "a/j", "batch") if state == "deleted" else Put(job("j", scheduler=scheduler))
    deleted = Deleted("Workload", "a/w", "kueue.x-k8s.io")
    return deleted if state == "deleted" else Put(workload("w", state == "admitted"))


def known_to(some: SchedulerCache) -> dict[str, Any]:
    some.flush(2_000)
    snapshot = some.store.snapshot(2_000)
    pods = snapshot.pods
    return {
        "pods": {pods.keys[row]: int(pods.node[row]) for row in np.flatnonzero(pods.alive)},
        "nodes": sorted(found.name for found in snapshot.nodes.objects),
        "workloads": sorted((found.key, found.admission is not None) for found in snapshot.workloads),
        "unreadable": sorted(snapshot.unreadable),
        "queued": sorted(owner.metadata.name for owner in some.queued_owners()),
        "cache": (sorted(some.pods), sorted(some.nodes), sorted(some.unreadable), sorted(some.objects)),
    }


@given(steps=STEPS)
@settings(max_examples=150)
def test_a_replica_that_saw_every_change_knows_what_one_knows_that_starts_now(
    steps: list[tuple[str, str, str]],
) -> None:
    options = {"settings": Settings(node_selector={"pool": "in"})}
    old, last = world(**options), dict[tuple[str, str], Delta]()
    states: dict[str, str] = {}
    for kind, name, state in steps:
        if kind == "pod" and ORDER[state] <= ORDER[states.get(name, "deleted")]:
            old.push(
                [Deleted("Pod", f"a/{name}")]
            )  # a pod never leaves its node: this is the next one of its name
        if kind == "flush":
            old.flush(1_000)
        elif kind == "kueue":
            old.kueue_is_live = state == "live"
            old.reevaluate_queue_ownership()
        else:
            last[kind, name] = delta_of(kind, name, state)
            old.push([last[kind, name]])
            states |= {name: state} if kind == "pod" else {}
    new = world(**options)
    new.kueue_is_live = old.kueue_is_live
    new.push([delta for delta in last.values() if isinstance(delta, Put)])
    assert known_to(old) == known_to(new)
