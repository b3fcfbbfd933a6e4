"""What has gone leaves nothing behind: memory doesn't grow with the number of objects that there ever were."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from tests.apply.objects import custom, decoded, job, node, pod, queues, reference, workload

from windlass.cluster.delta import Deleted, Delta, Put
from windlass.cluster.store import Store
from windlass.model.codec import object_id
from windlass.model.unstructured import Unstructured

ROUNDS = 400
WARM_UP = 100
BYTES_A_ROUND = 200
"""Less than an empty set: a pod has some 4,000 bytes."""


def trees(number: int) -> Iterator[Unstructured]:
    """A queued Job below a JobSet with a pod, and a pod of an owner that nobody knows."""
    of_round = {"round": str(number)}
    top = custom(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        f"set-{number}",
        metadata={"labels": {"kueue.x-k8s.io/queue-name": "main"}},
        spec={"replicatedJobs": [{"name": "w", "template": {"spec": {"template": pod("x")}}}]},
    )
    below = job(f"job-{number}", queue="", suspend=False, ownerReferences=[reference(top)])
    yield top
    yield below
    yield workload(f"workload-{number}", owner=top, annotations=of_round)
    yield pod(f"pod-{number}", on="n1", labels=of_round, annotations=of_round, ownerReferences=[reference(below)])
    own = {"apiVersion": "example.com/v1", "kind": "Own", "metadata": {"name": f"own-{number}", "uid": str(number)}}
    yield pod(f"own-{number}", on="n1", annotations=of_round, ownerReferences=[reference(own)])


def play(store: Store, number: int) -> None:
    objects = [decoded(tree) for tree in trees(number)]
    for ready in (False, True):
        store.apply([Put(decoded(tree) if ready else tree) for tree in (trees(number) if ready else objects)])
        store.snapshot(number)
    store.apply([deletion(obj) for obj in objects])
    store.snapshot(number)


def deletion(obj: Any) -> Delta:
    group, kind, key = object_id(obj)
    return Deleted(kind, key, group)


def test_objects_that_are_gone_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.cluster.pod_table._COMPACT_ABOVE", 16)
    store = Store()
    store.apply([Put(decoded(tree)) for tree in (node("n1"), *queues())])
    tracemalloc.start(1)
    try:
        for number in range(WARM_UP):
            play(store, number)
        gc.collect()
        before = tracemalloc.take_snapshot()
        for number in range(WARM_UP, WARM_UP + ROUNDS):
            play(store, number)
        gc.collect()
        grown = tracemalloc.take_snapshot().compare_to(before, "lineno")
    finally:
        tracemalloc.stop()
    assert sum(line.size_diff for line in grown) < BYTES_A_ROUND * ROUNDS, "\n".join(map(str, grown[:12]))
