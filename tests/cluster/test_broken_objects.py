"""Reading an object fails in a way that nobody foresaw: it counts as unreadable, and all others as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.invariants.crowds import KUEUE
from tests.invariants.objects import node

from windlass.cluster import node_table, workload_sync
from windlass.cluster.auxiliary_objects import AuxiliaryObjects
from windlass.cluster.delta import Deleted, Put
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.store import Store
from windlass.model.codec import decode_object
from windlass.model.unstructured import Unstructured

NOW = 1_767_232_800


def job(name: str) -> Unstructured:
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    meta = {"name": name, "namespace": "team", "uid": name, "labels": {f"{KUEUE}/queue-name": f"queue-{name}"}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    spec = {"parallelism": 1, "completions": 1, "suspend": True, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def queue(name: str) -> Unstructured:
    meta = {"name": f"queue-{name}", "namespace": "team"}
    return {"apiVersion": f"{KUEUE}/v1beta2", "kind": "LocalQueue", "metadata": meta, "spec": {"clusterQueue": "main"}}


CLUSTER_QUEUE: Unstructured = {
    "apiVersion": f"{KUEUE}/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {"name": "main"},
    "spec": {"namespaceSelector": {}, "resourceGroups": []},
}
OBJECTS = [node("n1", 8, 0, "p", "r"), node("bad", 8, 0, "p", "r"), CLUSTER_QUEUE]
OBJECTS += [tree for name in ("a", "bad", "c") for tree in (job(name), queue(name))]


def fail_where(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, meets: Callable[..., bool]) -> None:
    real = getattr(owner, name)

    def trapped(*arguments: Any) -> Any:
        if meets(*arguments):
            raise ZeroDivisionError
        return real(*arguments)

    monkeypatch.setattr(owner, name, trapped)


def snapshot(store: Store) -> Snapshot:
    return store.snapshot(NOW)


def filled() -> Store:
    store = Store()
    store.apply(Put(decode_object(tree)) for tree in OBJECTS)
    return store


def test_an_owner_that_can_not_be_read_counts_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_where(monkeypatch, workload_sync, "owner_from_object", lambda obj: obj.metadata.name == "bad")
    found = snapshot(filled())
    assert [workload.key for workload in found.workloads] == ["team/a", "team/c"]
    assert "a bug in Windlass" in found.unreadable["Job.batch team/bad"]


def test_a_queue_that_can_not_be_read_counts_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    def has_bad(objects: list[Any], _: object) -> bool:
        return any(obj.metadata.name == "queue-bad" for obj in objects)

    fail_where(monkeypatch, workload_sync, "queue_system", has_bad)
    store = filled()
    found = snapshot(store)
    assert sorted(found.queue_system.local_queues) == ["team/queue-a", "team/queue-c"]
    assert {workload.key for workload in found.workloads} == {"team/a", "team/bad", "team/c"}
    assert [name for name in found.unreadable if name.startswith("LocalQueue")] == [
        f"LocalQueue.{KUEUE} team/queue-bad"
    ]
    store.apply([Deleted("LocalQueue", "team/queue-bad", KUEUE)])
    assert not snapshot(store).unreadable, "gone with it"


def test_a_node_that_can_not_be_read_takes_no_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_where(monkeypatch, node_table, "read_node", lambda obj: obj.name == "bad")
    found = snapshot(filled())
    assert [name for name in found.unreadable if "Node" in name] == ["Node bad"]
    assert sorted(found.nodes.names) == ["bad", "n1"]


def test_an_object_that_can_not_be_kept_is_reported_until_it_is_gone_or_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        fail_where(patched, AuxiliaryObjects, "put", lambda _, obj: obj.metadata.name == "bad")
        store = filled()
    found = snapshot(store)
    assert [workload.key for workload in found.workloads] == ["team/a", "team/c"]
    assert "a bug in Windlass" in found.unreadable["Job.batch team/bad"]
    store.apply([Put(decode_object(job("bad")))])
    assert not snapshot(store).unreadable
    assert [workload.key for workload in snapshot(store).workloads] == ["team/a", "team/bad", "team/c"]
