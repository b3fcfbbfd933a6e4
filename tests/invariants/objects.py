"""Kubernetes objects as trees for the worlds of these tests: nodes, queues, and the work that people submit."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from typing import Any

from windlass.model.unstructured import Unstructured

GPU = "nvidia.com/gpu"
FRACTION = "gpu-fraction"
DEVICES = "windlass.dev/devices"
HOSTNAME = "kubernetes.io/hostname"
RACK = "example.com/rack"
POOL = "example.com/pool"
LAYOUT = "windlass.dev/devices-layout"
UNHEALTHY = "windlass.dev/unhealthy-devices"
H100 = "NVIDIA-H100-80GB-HBM3"
MIG = "nvidia.com/mig-"
GROUP = "scheduling.x-k8s.io/pod-group"
QUEUE = "kueue.x-k8s.io/queue-name"
OWNER = "kueue.x-k8s.io/workload"
PODSET = "kueue.x-k8s.io/podset"
NAMESPACE = "team"
EPOCH = 1_767_225_600
"""Worlds begin here, in seconds since 1970."""


def stamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def node(name: str, cpus: int, gpus: int, pool: str, rack: str) -> Unstructured:
    amounts = {"cpu": str(cpus), "memory": "64Gi", "pods": "20"}
    labels = {HOSTNAME: name, POOL: pool, RACK: rack}
    if gpus:
        amounts[GPU] = str(gpus)
        labels |= {
            "nvidia.com/gpu.product": H100,
            "nvidia.com/gpu.count": str(gpus),
            "nvidia.com/gpu.memory": "81559",
        }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def mig_node(name: str, cpus: int, gpus: int, pool: str, rack: str) -> Unstructured:
    """GPUs on which MIG instances are made as they are asked for."""
    made = node(name, cpus, 0, pool, rack)
    made["metadata"]["annotations"] = {LAYOUT: json.dumps([{"model": H100, "count": gpus, "mig": "dynamic"}])}
    return made


def with_ill_gpus(tree: Unstructured, ill: list[int]) -> Unstructured:
    """The node with these of its GPUs unhealthy, and all others healthy."""
    changed = copy.deepcopy(tree)
    there = int(changed["status"]["capacity"].get(GPU, 0))
    changed["status"]["allocatable"] = {**changed["status"]["capacity"]}
    if there:
        changed["status"]["allocatable"][GPU] = str(there - len(ill))
    notes = changed["metadata"].setdefault("annotations", {})
    notes[UNHEALTHY] = ",".join(map(str, ill))
    return changed


def pod_spec(cpus: int, gpus: int = 0, *, mig: str = "", **more: Any) -> Unstructured:
    requests: Unstructured = {"cpu": str(cpus)}
    resources: Unstructured = {"requests": requests}
    devices = {GPU: str(gpus)} if gpus else {f"{MIG}{mig}": "1"} if mig else {}
    if devices:
        requests |= devices
        resources["limits"] = devices
    return {"containers": [{"name": "main", "resources": resources}], **more}


def pod(name: str, spec: Unstructured, *, created: int, share: str = "", **metadata: Any) -> Unstructured:
    meta: Unstructured = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-{name}-{created}",
        "creationTimestamp": stamp(created),
        "labels": {},
        "annotations": {},
        **metadata,
    }
    if share:
        meta["annotations"] = {**meta["annotations"], FRACTION: share}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def pod_group(name: str, minimum: int, created: int, queue: str = "") -> Unstructured:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "creationTimestamp": stamp(created),
            "labels": {QUEUE: queue} if queue else {},
        },
        "spec": {"minMember": minimum},
    }


def workload(name: str, queue: str, sets: list[Unstructured], *, priority: int, created: int) -> Unstructured:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "creationTimestamp": stamp(created),
        },
        "spec": {"queueName": queue, "priority": priority, "podSets": sets},
        "status": {"conditions": []},
    }


def pod_set(name: str, count: int, spec: Unstructured, **more: Any) -> Unstructured:
    return {"name": name, "count": count, "template": {"metadata": {}, "spec": spec}, **more}


def cluster_queue(name: str, flavors: dict[str, Unstructured], **spec: Any) -> Unstructured:
    """`flavors`: flavor → resource → quota fields."""
    resources = sorted({resource for cells in flavors.values() for resource in cells})
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [
                {
                    "coveredResources": resources,
                    "flavors": [
                        {
                            "name": flavor,
                            "resources": [{"name": resource, **cells[resource]} for resource in resources],
                        }
                        for flavor, cells in flavors.items()
                    ],
                }
            ],
            **spec,
        },
    }


def local_queue(name: str, queue: str) -> Unstructured:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"clusterQueue": queue},
    }


def cohort(name: str, parent: str) -> Unstructured:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Cohort",
        "metadata": {"name": name},
        "spec": {"parentName": parent} if parent else {},
    }


def flavor(name: str, labels: dict[str, str], topology: str = "") -> Unstructured:
    spec: Unstructured = {"nodeLabels": labels} if labels else {}
    if topology:
        spec["topologyName"] = topology
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": spec,
    }


def topology(name: str, levels: list[str]) -> Unstructured:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": [{"nodeLabel": level} for level in levels]},
    }
