"""What the engine is told: everybody's pods on nodes, only ours that wait, and quota only where it is ours."""

from __future__ import annotations

from typing import Any

import pytest
from tests.scheduler.caches import (
    job,
    node,
    owned,
    pod,
    told,
    watching,
    web,
    workload,
    world,
)

from windlass.cluster.delta import Assume, Deleted, Put
from windlass.model.codec import Unreadable, decode_object
from windlass.model.configuration import Settings
from windlass.model.errors import InputError


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
    some.responsibility.kueue_is_live = True
    assert told(some, job("j"), workload("waits", False), workload("runs", True)) == ["runs"]
    assert some.owners.without_parents() == []
    some.responsibility.kueue_is_live = False
    some.reevaluate_queue_ownership()
    assert told(some) == ["j", "waits"]
    assert [one.metadata.name for one in some.owners.without_parents()] == ["j"]
    some.responsibility.kueue_is_live = True
    some.reevaluate_queue_ownership()
    assert told(some) == ["-a/j", "-a/waits"]


@pytest.mark.parametrize("name", ["a/main", "cq"])
def test_a_queue_that_is_taken_over_is_ours_beside_kueue(name: str) -> None:
    some = world(take_over=frozenset({name}))
    some.responsibility.kueue_is_live = True
    queue = decode_object(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": "main", "namespace": "a"},
            "spec": {"clusterQueue": "cq"},
        }
    )
    seen = told(some, queue, job("j"), workload("waits", False))
    # The LocalQueue once more where its own ClusterQueue makes it ours: only then is its hold known to be for Kueue.
    assert list(dict.fromkeys(seen)) == ["main", "j", "waits"]


def test_a_queue_that_is_taken_over_admits_although_it_is_on_hold() -> None:
    def queue(kind: str, name: str, **spec: Any) -> Any:
        metadata = {"name": name, **({"namespace": "a"} if kind == "LocalQueue" else {})}
        return decode_object({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec})

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
    assert some.owners.without_parents() == []


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


def test_a_pod_that_is_seen_before_its_owner_waits_for_it() -> None:
    some = watching("Job")
    assert told(some, owned("p"), owned("q"), pod("alone")) == ["alone"]
    assert told(some, owned("p", labels={"a": "b"})) == [], "it still waits, whatever changes about it"
    assert told(some, job("j", suspend=False)) == ["j", "p", "q"], "the owner is told of first"
    assert told(some, Deleted("Job", "a/j", "batch")) == ["-a/j"], "what is known already doesn't wait again"


def test_a_plain_owner_gives_its_pods_back_too() -> None:
    some = watching("Job")
    assert told(some, owned("p")) == []
    plain = decode_object({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "a"}})
    assert told(some, plain) == ["p"], "the engine needs to know of the pod only"


def test_nobody_waits_for_an_owner_that_never_comes() -> None:
    some = watching("Job")
    some.push([Put(owned("p"))])
    assert not some.flush(1_000).applied
    assert not some.flush(1_059).applied
    assert [delta.object.metadata.name for delta in some.flush(1_060).applied] == ["p"]
    some.push([Put(owned("p", labels={"a": "b"}))])
    assert some.flush(1_061).applied, "it is not held again"


def test_nobody_waits_for_owners_that_are_not_watched() -> None:
    assert told(watching(), owned("p")) == ["p"]
    assert told(watching("ReplicaSet"), owned("p", "ReplicaSet", "apps/v1")) == ["p"]


def test_a_pod_waits_for_the_deployment_above_its_replica_set() -> None:
    """It may be in a queue, which its pods don't say."""
    some = watching("Deployment")
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f", "uid": "r", "controller": True}
    labels = {"pod-template-hash": "5d4f"}
    waits = pod("web-5d4f-x", labels=labels, ownerReferences=[reference])
    assert told(some, waits) == []
    template = {"spec": {"schedulerName": "windlass", "containers": [{"name": "c"}]}}
    made = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "a", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {"template": template},
    }
    assert told(some, decode_object(made)) == ["web", "web-5d4f-x"]


def test_a_deployment_in_no_queue_is_nothing_to_the_engine() -> None:
    made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "a"}}
    assert told(watching("Deployment"), decode_object(made)) == []


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
