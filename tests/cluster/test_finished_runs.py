"""The store reports every successful run of a queued workload exactly once."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.cluster.delta import Deleted, Put
from windlass.cluster.store import Store
from windlass.model.codec import decode_object
from windlass.model.run_time_history import FinishedRun
from windlass.model.times import parse_timestamp
from windlass.model.unstructured import Unstructured

STARTED = "2026-01-01T01:00:00Z"
ENDED = parse_timestamp(STARTED) + 1800
QUEUE, GROUP = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/pod-group-name"
BATCH, KUEUE = "batch/v1", "kueue.x-k8s.io/v1beta2"
SPEC: Unstructured = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}
SHAPE = "1x(), priority 0"
THE_RUN = FinishedRun("eng/gpu", 1800, ENDED, SHAPE)


def meta(name: str, **more: Any) -> Unstructured:
    return {"name": name, "namespace": "eng", "uid": name, "creationTimestamp": STARTED, **more}


def pod(name: str, phase: str = "Running", owner: str = "", node: str = "n", **more: Any) -> Unstructured:
    labels = {QUEUE: "gpu", **more}
    metadata = meta(name, labels=labels)
    if GROUP in more:
        metadata["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    if owner:
        metadata["labels"] = {}
        metadata["ownerReferences"] = [
            {"kind": "Job", "name": owner, "apiVersion": BATCH, "uid": owner, "controller": True}
        ]
    status = {"phase": phase, "startTime": STARTED}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**SPEC, "nodeName": node},
        "status": status,
    }


def job(*ends: str, suspended: bool = False) -> Unstructured:
    conditions = [{"type": one, "status": "True"} for one in ends]
    return {
        "apiVersion": BATCH,
        "kind": "Job",
        "metadata": meta("j", labels={QUEUE: "gpu"}),
        "spec": {"suspend": suspended, "parallelism": 1, "template": {"spec": SPEC}},
        "status": {"conditions": conditions},
    }


def workload(reason: str = "", admitted: bool = True) -> Unstructured:
    conditions = [{"type": "Admitted", "status": "True", "lastTransitionTime": STARTED}] if admitted else []
    if reason:
        conditions.append({"type": "Finished", "status": "True", "reason": reason})
    admission = {"clusterQueue": "team", "podSetAssignments": [{"name": "main", "count": 1}]}
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": meta("w"),
        "spec": {
            "queueName": "gpu",
            "podSets": [{"name": "main", "count": 1, "template": {"spec": SPEC}}],
        },
        "status": {"conditions": conditions, **({"admission": admission} if admitted else {})},
    }


def local_queue() -> Unstructured:
    spec = {"clusterQueue": "team"}
    return {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": meta("gpu"), "spec": spec}


class Watched:
    """A store with a snapshot after every change."""

    def __init__(self, *there: Unstructured) -> None:
        self._store = Store()
        self.put(local_queue(), *there, at=ENDED - 60)

    def put(self, *trees: Unstructured, at: int = ENDED) -> list[FinishedRun]:
        self._store.apply([Put(decode_object(tree)) for tree in trees])
        return self.look(at)

    def gone(self, kind: str, name: str) -> list[FinishedRun]:
        self._store.apply([Deleted(kind, f"eng/{name}")])
        return self.look(ENDED)

    def look(self, at: int) -> list[FinishedRun]:
        self._store.snapshot(at)
        return self._store.pop_finished_runs()


def test_a_pod_in_a_queue_that_succeeds_is_a_run_and_counted_once() -> None:
    watched = Watched(pod("p"))
    assert watched.put(pod("p", "Succeeded")) == [THE_RUN]
    assert watched.look(ENDED + 60) == []
    assert watched.gone("Pod", "p") == []


def test_a_pod_in_no_queue_is_nobodys_history() -> None:
    watched = Watched({**pod("p"), "metadata": meta("p")})
    assert watched.put({**pod("p", "Succeeded"), "metadata": meta("p")}) == []


def test_a_pod_that_fails_or_is_deleted_has_not_run_to_its_end() -> None:
    watched = Watched(pod("bad"), pod("gone"))
    assert watched.put(pod("bad", "Failed")) == []
    assert watched.gone("Pod", "gone") == []


def test_a_group_is_one_run_when_its_last_member_is_done() -> None:
    group = {GROUP: "g"}
    watched = Watched(pod("a", **group), pod("b", **group))
    assert watched.put(pod("a", "Succeeded", **group), at=ENDED - 30) == []
    assert watched.put(pod("b", "Succeeded", **group)) == [FinishedRun("eng/gpu", 1800, ENDED, "2x(), priority 0")]


def test_a_group_of_which_one_fails_is_none() -> None:
    group = {GROUP: "g"}
    watched = Watched(pod("a", **group), pod("b", **group))
    assert watched.put(pod("a", "Failed", **group), pod("b", "Succeeded", **group)) == []


def test_a_job_is_done_when_it_says_so() -> None:
    watched = Watched(job(), pod("j-0", owner="j"))
    assert watched.put(pod("j-0", "Succeeded", owner="j"), job("Complete")) == [THE_RUN]


@pytest.mark.parametrize("end", [job("Failed"), job(suspended=True)], ids=["failed", "suspended again"])
def test_a_job_that_fails_or_is_sent_back_is_not_done(end: Unstructured) -> None:
    watched = Watched(job(), pod("j-0", owner="j"))
    watched.put(end)
    assert watched.gone("Pod", "j-0") == []


@pytest.mark.parametrize(
    ("after", "runs"),
    [
        (workload("Succeeded"), [THE_RUN]),
        (workload("JobFinished"), [THE_RUN]),
        (workload("Failed"), []),
        (workload(admitted=False), []),
    ],
    ids=["succeeded", "finished", "failed", "evicted"],
)
def test_a_workload_is_done_when_its_condition_says_so(after: Unstructured, runs: list[FinishedRun]) -> None:
    watched = Watched(workload())
    assert watched.put(after) == runs
    assert watched.gone("Workload", "w") == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (pod("p", "Pending", node=""), pod("p", "Succeeded")),
        (workload(admitted=False), workload("Succeeded")),
        (job(), job("Complete")),
    ],
    ids=["pod", "workload", "job"],
)
def test_a_run_between_two_looks_is_counted_once_as_its_objects_tell_it(
    before: Unstructured, after: Unstructured
) -> None:
    watched = Watched(before)
    done = [pod("j-0", "Succeeded", owner="j")] if after["kind"] == "Job" else []
    assert watched.put(*done, after) == [THE_RUN]
    other = {**local_queue(), "metadata": meta("another")}
    assert watched.put(other, at=ENDED + 60) == [], "everything is worked out again"


def test_a_finished_workload_whose_pods_are_still_there_is_counted_once() -> None:
    member = pod("m")
    member["metadata"]["annotations"] = {"kueue.x-k8s.io/workload": "w"}
    watched = Watched(workload(), member)
    member = {**member, "status": {**member["status"], "phase": "Succeeded"}}
    assert watched.put(member, at=ENDED - 1) == [], "the Workload says when it is done"
    assert watched.put(workload("Succeeded")) == [THE_RUN]
    other = {**local_queue(), "metadata": meta("another")}
    assert watched.put(other, at=ENDED + 60) == []


def test_what_has_ended_before_it_was_ever_seen_to_run_is_not_counted() -> None:
    """A replica that has just started knows nothing of how long it took."""
    assert Watched().put(pod("p", "Succeeded"), workload("Succeeded"), job("Complete")) == []


def test_the_history_is_in_the_snapshot_until_it_is_gone() -> None:
    store = Store()
    week = {"from": "2026-01-01T00:00:00Z", "runs": {"60": 3}}
    history = {"apiVersion": "windlass.dev/v1", "kind": "RunTimeHistory", "metadata": meta("gpu")}
    store.apply([Put(decode_object({**history, "periods": [week]}))])
    before = store.snapshot(ENDED)
    assert list(before.run_times["eng/gpu"].periods.values()) == [{60: 3}]
    store.apply([Deleted("RunTimeHistory", "eng/gpu")])
    assert store.snapshot(ENDED).run_times == {}
    assert before.run_times, "a snapshot never changes"
