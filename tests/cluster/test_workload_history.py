"""A workload's past as objects record it: preemptions, when it was stopped, nominations."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.cluster.workloads import group_workloads, grouping_inputs
from windlass.model.codec import decode_object
from windlass.model.times import parse_timestamp
from windlass.model.workload import Workload

CREATED = "2026-01-01T01:00:00Z"
QUEUE = "kueue.x-k8s.io/queue-name"


def job() -> dict[str, Any]:
    meta = {"name": "j", "namespace": "d", "uid": "j", "creationTimestamp": CREATED, "labels": {QUEUE: "q"}}
    spec = {"parallelism": 1, "template": {"spec": {"containers": [{"name": "m"}]}}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def pod(nominated: str = "", node: str = "", annotations: dict[str, str] | None = None) -> dict[str, Any]:
    meta = {"name": "p", "namespace": "d", "uid": "p", "creationTimestamp": CREATED}
    spec = {"containers": [{"name": "m"}], "nodeName": node}
    status = {"nominatedNodeName": nominated}
    meta["annotations"] = annotations or {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def only(tree: dict[str, Any]) -> Workload:
    (found,) = group_workloads(grouping_inputs([decode_object(tree)], 0)).workloads
    return found


@pytest.mark.parametrize(("text", "count"), [("2", 2), ("", 0), ("-1", 0), ("many", 0), ("9" * 12, 0)])
def test_evictions_are_counted_on_the_object(text: str, count: int) -> None:
    tree = job()
    tree["metadata"]["annotations"] = {"windlass.dev/evictions": text}
    assert only(tree).evictions == count


def test_evictions_of_a_pod_are_its_own() -> None:
    assert only(pod(annotations={"windlass.dev/evictions": "3"})).evictions == 3


def test_who_was_stopped_at_its_declared_end_queues_since_then() -> None:
    tree = job()
    assert only(tree).queued_at == parse_timestamp(CREATED)
    tree["metadata"]["annotations"] = {"windlass.dev/requeued-at": "2026-01-01T05:00:00Z"}
    assert only(tree).queued_at == parse_timestamp("2026-01-01T05:00:00Z")
    assert only(tree).created == parse_timestamp(CREATED)


def test_a_promise_is_a_node_that_a_waiting_pod_is_named_for() -> None:
    assert only(pod(nominated="n")).nominated
    assert not only(pod()).nominated
    assert not only(pod(nominated="n", node="n")).nominated, "it has what it was promised"


def test_what_was_evicted_goes_until_its_pods_are_gone() -> None:
    """Its status says so before its pods end; until then it holds quota, and no other victim is needed."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    template = {"spec": {"containers": [{"name": "m"}]}}
    meta = {
        "name": "w",
        "namespace": "d",
        "uid": "w",
        "creationTimestamp": CREATED,
        "ownerReferences": [owner],
    }
    work = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": meta,
        "spec": {"queueName": "q", "podSets": [{"name": "main", "count": 1, "template": template}]},
        "status": {"conditions": [{"type": "Evicted", "status": "True", "reason": "Preempted"}]},
    }
    runs = pod(node="n")
    runs["metadata"]["ownerReferences"] = [owner]
    objects = [decode_object(one) for one in (job(), work, runs)]
    (found,) = group_workloads(grouping_inputs(objects, 0)).workloads
    assert found.admission is not None
    assert found.evicting
    (waits,) = group_workloads(grouping_inputs(objects[:2], 0)).workloads
    assert waits.admission is None
    assert not waits.evicting, "it waits for its next turn"
