"""A queue with quota for the whole cluster, and Jobs of one to four pods for it, as plain data."""

from __future__ import annotations

from windlass.kube.resources import KUEUE_API_GROUP
from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.names.windlass import BENCH_LABEL
from windlass.model.unstructured import Unstructured
from windlass_bench.live.objects import NAMESPACE

QUEUE = "bench"
PODS = (1, 1, 2, 1, 1, 3, 1, 1, 1, 4)
"""Pods of a Job, in turn: 1.6 in the mean, so that 500 Jobs of one-GPU pods fill 100 nodes exactly."""
VERSION = f"{KUEUE_API_GROUP}/v1beta2"


def pods_of(number: int) -> int:
    return PODS[number % len(PODS)]


def job(number: int, scheduler: str) -> Unstructured:
    """Created suspended, as Kueue's webhook would make it."""
    container = {
        "name": "main",
        "image": "none",
        "resources": {"requests": {"cpu": "1"}, "limits": {GPU_RESOURCE: "1"}},
    }
    spec = {
        "schedulerName": scheduler,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    pods = pods_of(number)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"j{number:05}", "namespace": NAMESPACE, "labels": {QUEUE_NAME_LABEL: QUEUE}},
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": pods,
            "template": {"metadata": {"labels": {BENCH_LABEL: "pod"}}, "spec": spec},
        },
    }


def queue_objects(gpus: int) -> list[tuple[str, Unstructured]]:
    """Plural and object of a flavor, a ClusterQueue with so many GPUs, and its LocalQueue."""
    quota = [{"name": "cpu", "nominalQuota": "100000"}, {"name": GPU_RESOURCE, "nominalQuota": str(gpus)}]
    group = {"coveredResources": ["cpu", GPU_RESOURCE], "flavors": [{"name": QUEUE, "resources": quota}]}
    return [
        ("resourceflavors", _object("ResourceFlavor", {})),
        ("clusterqueues", _object("ClusterQueue", {"namespaceSelector": {}, "resourceGroups": [group]})),
        ("localqueues", _object("LocalQueue", {"clusterQueue": QUEUE}, NAMESPACE)),
    ]


def _object(kind: str, spec: Unstructured, namespace: str = "") -> Unstructured:
    metadata = {"name": QUEUE, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": VERSION, "kind": kind, "metadata": metadata, "spec": spec}
