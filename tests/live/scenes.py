"""Objects and questions that the live tests share."""

from __future__ import annotations

from typing import Any

from tests.real_cluster.api import Api, Object

GPU = "nvidia.com/gpu"
NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


def pod(name: str, gpus: int = 1, scheduler: str = "windlass", **more: Any) -> Object:
    """A pod that asks for GPUs; `labels`, `annotations` and spec fields by name."""
    meta = {key: more.pop(key) for key in ("labels", "annotations", "ownerReferences") if key in more}
    resources = {"limits": {GPU: str(gpus)}} if gpus else {"requests": {"cpu": "100m"}}
    container = {"name": "main", "image": "none", "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, **meta},
        "spec": {
            "schedulerName": scheduler,
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
            **more,
        },
    }


def gang(name: str, size: int, gpus: int = 8, scheduler: str = "windlass") -> list[Object]:
    """Pods that start together or not at all, as Kueue marks them."""
    return [
        pod(
            f"{name}-{number}",
            gpus,
            scheduler,
            labels={"kueue.x-k8s.io/pod-group-name": name},
            annotations={"kueue.x-k8s.io/pod-group-total-count": str(size)},
        )
        for number in range(size)
    ]


def pods(api: Api, prefix: str = "") -> dict[str, Object]:
    return {one["metadata"]["name"]: one for one in api.items(PODS) if one["metadata"]["name"].startswith(prefix)}


def bound(api: Api, prefix: str = "") -> dict[str, str]:
    """Pod → node of those that have one and have not ended."""
    return {
        name: one["spec"]["nodeName"]
        for name, one in pods(api, prefix).items()
        if one["spec"].get("nodeName") and one["status"].get("phase") not in ("Failed", "Succeeded")
    }


def condition(one: Object, kind: str = "PodScheduled") -> Object:
    found = [each for each in one["status"].get("conditions") or () if each["type"] == kind]
    return found[0] if found else {}


def overbooked(api: Api) -> dict[str, int]:
    """Nodes on which pods hold more GPUs than there are."""
    room = {
        one["metadata"]["name"]: int(one["status"]["allocatable"].get(GPU, 0)) for one in api.items("/api/v1/nodes")
    }
    used: dict[str, int] = {}
    for one in api.items("/api/v1/pods"):
        node = one["spec"].get("nodeName")
        if node and one["status"].get("phase") not in ("Failed", "Succeeded"):
            asked = sum(int((c["resources"].get("limits") or {}).get(GPU, 0)) for c in one["spec"]["containers"])
            used[node] = used.get(node, 0) + asked
    return {node: count for node, count in used.items() if node in room and count > room[node]}
