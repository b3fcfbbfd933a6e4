"""Nodes that are only objects, and pods of fifty shapes for them, as plain data."""

from __future__ import annotations

from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.names.kueue import KUEUE_POD_GROUP_NAME, POD_GROUP_TOTAL_COUNT_ANNOTATION
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.names.windlass import BENCH_LABEL
from windlass.model.unstructured import Unstructured

NAMESPACE = "windlass-bench"
POOLS = 4
GPUS = (1, 1, 1, 2, 2, 4, 1, 1, 2, 8)
SHAPES = 50


def node(number: int) -> Unstructured:
    """Eight GPUs, 96 CPUs, 768 GiB, in one of four pools."""
    room = {"cpu": "96", "memory": "768Gi", "pods": "110", "ephemeral-storage": "1Ti", GPU_RESOURCE: "8"}
    labels = {HOSTNAME_LABEL: name_of_node(number), "pool": f"pool-{number % POOLS}", BENCH_LABEL: "node"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name_of_node(number), "labels": labels},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def running_pod(number: int, nodes: int) -> Unstructured:
    """One that is on a node already, and of nobody's concern."""
    tree = pod(number, "nobody")
    tree["spec"] |= {"nodeName": name_of_node(number % nodes), "nodeSelector": {}}
    tree["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m", "memory": "128Mi"}}
    return tree


def name_of_node(number: int) -> str:
    return f"bench-{number:05}"


def pod(number: int, scheduler: str, gang: str = "", size: int = 0) -> Unstructured:
    """One of fifty shapes: GPUs, CPU, memory, and for every third a pool."""
    shape = number % SHAPES
    requests = {"cpu": str(1 + shape % 7), "memory": f"{1 + shape % 11}Gi"}
    container = {
        "name": "main",
        "image": "none",
        "resources": {"requests": requests, "limits": {GPU_RESOURCE: str(GPUS[shape % 10])}},
    }
    metadata: Unstructured = {
        "name": f"p-{number:06}",
        "namespace": NAMESPACE,
        "labels": {BENCH_LABEL: "pod"},
    }
    if gang:
        container["resources"] = {"limits": {GPU_RESOURCE: "8"}}
        metadata["labels"][KUEUE_POD_GROUP_NAME] = gang
        metadata["annotations"] = {POD_GROUP_TOTAL_COUNT_ANNOTATION: str(size)}
    selector = {"pool": f"pool-{shape % POOLS}"} if shape % 3 == 0 and not gang else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": selector,
            "containers": [container],
        },
    }
