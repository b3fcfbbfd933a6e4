"""Which changes call for a decision, and which only keep the cache up to date."""

from __future__ import annotations

from typing import Any

import pytest
from tests.scheduler.caches import (
    job,
    node,
    owned,
    pod,
    told,
    tree,
    watching,
    web,
    world,
)

from windlass.cluster.delta import Deleted, Put
from windlass.model.codec import Unreadable, decode_object
from windlass.model.errors import InputError


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
def test_queues_are_taken_over_by_either_name(names: tuple[str, ...], namespace: str, queue: str, taken: bool) -> None:
    some = world(take_over=frozenset(names))
    told(some, tree("LocalQueue", "main", spec={"clusterQueue": "cq"}))
    assert some.responsibility.is_taken_over(namespace, queue) is taken


def test_owners_of_independent_pods_do_not_concern_the_engine_unless_they_are_owned() -> None:
    some = world()
    template = {"spec": {"schedulerName": "windlass", "containers": [{"name": "c"}]}}

    def plain(name: str, controller: bool | None) -> Any:
        reference = {"apiVersion": "example.com/v1", "kind": "Pipeline", "name": "x", "uid": "x"}
        owners = [] if controller is None else [{**reference, "controller": controller}]
        return tree("Job", name, "batch/v1", metadata={"ownerReferences": owners}, spec={"template": template})

    assert told(some, plain("alone", None), plain("seen", False), plain("owned", True)) == ["owned"]


def test_a_pod_that_was_bound_keeps_the_start_that_its_kubelet_reports() -> None:
    some = world()
    some.push([Put(web("p", "Running", True)), Put(pod("waits"))])
    starts = {delta.object.metadata.name: delta.object.status.start_time for delta in some.flush(1_000).applied}
    assert starts == {"p": "2026-01-01T00:00:00Z", "waits": ""}
