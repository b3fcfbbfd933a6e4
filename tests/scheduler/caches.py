"""Caches and decoded objects, shared by the tests of the scheduler's cache."""

from __future__ import annotations

from typing import Any

from windlass.cluster.delta import Assume, Deleted, Put
from windlass.model.codec import decode_object
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


def owned(name: str, kind: str = "Job", api: str = "batch/v1", **meta: Any) -> Any:
    reference = {"apiVersion": api, "kind": kind, "name": "j", "uid": "j", "controller": True}
    return pod(name, ownerReferences=[reference], **meta)


def watching(*kinds: str) -> SchedulerCache:
    some = world()
    some.awaiting_owner.is_watched = lambda kind, group: kind in kinds
    return some


def web(name: str, phase: str, is_ready: bool) -> Any:
    ready = [{"type": "Ready", "status": str(is_ready)}]
    status = {"phase": phase, "startTime": "2026-01-01T00:00:00Z", "conditions": ready}
    meta = {"name": name, "namespace": "a", "uid": name, "labels": {"app": "web"}}
    spec = {"nodeName": "n", "containers": [{"name": "c"}]}
    return decode_object({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status})


def tree(kind: str, name: str, api: str = "kueue.x-k8s.io/v1beta2", **fields: Any) -> Any:
    metadata = {"name": name, "namespace": "a", "uid": f"u-{name}", **fields.pop("metadata", {})}
    return decode_object({"apiVersion": api, "kind": kind, "metadata": metadata, **fields})


def budget(name: str, app: str, namespace: str = "a") -> Any:
    spec = {"selector": {"matchLabels": {"app": app}}, "minAvailable": 1}
    return tree("PodDisruptionBudget", name, "policy/v1", metadata={"namespace": namespace}, spec=spec)
