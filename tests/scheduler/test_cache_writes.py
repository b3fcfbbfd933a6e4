"""What was sent and is not confirmed, what rests, and what deleted objects leave behind: nothing."""

from __future__ import annotations

from typing import Any

from tests.scheduler.caches import (
    budget,
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

from windlass.cluster.delta import Assume, Deleted, Forget, Put, Refused
from windlass.model.codec import Unreadable, decode_object
from windlass.model.errors import InputError
from windlass.model.refusal import Refusal

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
        [Put(decode_object({**ended, "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": "Failed"}}))]
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
    told(some, Deleted("PodDisruptionBudget", "a/b", "policy"), Deleted("PodDisruptionBudget", "a/c", "policy"))
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
    assert some.owners.without_parents() == []
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
    assert [delta.object.status.admission is not None for delta in applied if isinstance(delta, Put)] == [True]
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
