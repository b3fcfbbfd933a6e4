"""Objects of injected faults, a line each. Everything of a fault carries its name: namespace, nodes, node selector."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from windlass.model.unstructured import Unstructured

GPU = "nvidia.com/gpu"
FAULT_LABEL = "why-live/fault"
KUBELET_LABEL = "why-live/kubelet"
"""On pods whose status the fault itself writes: the kubelets of the tests leave them alone."""
TAINT = {"key": GPU, "value": "true", "effect": "NoSchedule"}

NO_PATCH, PATCH = "no patch", "patch"
ANYWHERE, WINDLASS = "anywhere", "windlass"


class Fault(NamedTuple):
    """A fault: what is injected, what is asked, what the answer has to name, and what becomes of its patch."""

    name: str
    make: Callable[[str], list[Unstructured]]
    """The objects, given the fault's name."""
    codes: Sequence[str]
    """The first is expected; the others name the same fault at another depth."""
    remedy: str = NO_PATCH
    """`PATCH`: the printed patch makes it run. `NO_PATCH`: the text says that none can, or the printed one works."""
    question: str = "deployment/asked"
    scheduler: str = ANYWHERE
    """`WINDLASS`: queues and gangs, which kube-scheduler does not know."""


def node(fault: str, gpus: int = 8, suffix: str = "", **more: Any) -> Unstructured:
    """`labels`, `taints`, `cordoned`, `allocatable` where it differs, `cpu`, `pods`, `ready`, `played` by the
    simulated kubelet of `windlass up`."""
    room = {
        "cpu": more.get("cpu", "32"),
        "memory": "128Gi",
        "ephemeral-storage": "100Gi",
        "pods": more.get("pods", "110"),
    }
    capacity = room | ({GPU: str(gpus)} if gpus else {})
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    if not more.get("ready", True):
        ready = {**ready, "status": "Unknown", "reason": "NodeStatusUnknown"}
    name = f"{fault}{suffix}"
    is_played = more.get("ready", True) and more.get("played", True)
    played = {"sandbox.windlass.dev/node": "true"} if is_played else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, FAULT_LABEL: fault, **more.get("labels", {})},
            "annotations": played,
        },
        "spec": {
            **({"taints": more["taints"]} if "taints" in more else {}),
            **({"unschedulable": True} if more.get("cordoned") else {}),
        },
        "status": {
            "capacity": capacity,
            "allocatable": capacity | more.get("allocatable", {}),
            "conditions": [ready],
            "nodeInfo": {"kubeletVersion": "v1.36.3", "operatingSystem": "linux", "architecture": "amd64"},
        },
    }


def silent_node(fault: str, gpus: int = 8, **more: Any) -> list[Unstructured]:
    """A node whose kubelet the fault itself plays, with a lease that lasts."""
    spec = {"holderIdentity": fault, "leaseDurationSeconds": 40, "renewTime": "2099-01-01T00:00:00.000000Z"}
    meta = {"name": fault, "namespace": "kube-node-lease"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
    return [lease, node(fault, gpus, played=False, **more)]


def spec(fault: str, gpus: int = 1, **more: Any) -> Unstructured:
    """A pod's spec on the fault's nodes; `limits`, `container`, and any field of the spec."""
    limits = {"cpu": "1", "memory": "1Gi", **({GPU: str(gpus)} if gpus else {}), **more.pop("limits", {})}
    container = {"name": "main", "image": "registry.example/app:1", "resources": {"limits": limits}}
    selector = {FAULT_LABEL: fault, **more.pop("nodeSelector", {})}
    extra = more.pop("container", {})
    return {"nodeSelector": selector, "containers": [{**container, **extra}], **more}


def pod(fault: str, content: Mapping[str, Any], name: str = "asked", **metadata: Any) -> Unstructured:
    labels = {"app": name, **metadata.pop("labels", {})}
    meta = {"name": name, "namespace": fault, "labels": labels, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": dict(content)}


def deployment(fault: str, content: Mapping[str, Any], name: str = "asked", replicas: int = 1) -> Unstructured:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": dict(content)}
    return owner(
        fault, "Deployment", "apps/v1", name, replicas=replicas, selector={"matchLabels": labels}, template=template
    )


def job(fault: str, content: Mapping[str, Any], labels: Mapping[str, str] | None = None, **more: Any) -> Unstructured:
    template = {"spec": {"restartPolicy": "Never", **content}}
    made = owner(fault, "Job", "batch/v1", "asked", template=template, **more)
    made["metadata"]["labels"] = dict(labels or {})
    return made


def owner(fault: str, kind: str, version: str, name: str, **content: Any) -> Unstructured:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": fault}, "spec": content}


def failing(fault: str, status: Mapping[str, Any], content: Mapping[str, Any] | None = None) -> list[Unstructured]:
    """A node and a bound pod with the status that its kubelet would have written."""
    place = {**(content or spec(fault)), "nodeName": fault}
    return [*silent_node(fault), {**pod(fault, place, labels={KUBELET_LABEL: "injected"}), "status": dict(status)}]


def container_status(restarts: int = 3, **state: Any) -> Unstructured:
    return {
        "phase": "Running" if "lastState" in state else "Pending",
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "containerStatuses": [
            {
                "name": "main",
                "image": "registry.example/app:1",
                "imageID": "",
                "ready": False,
                "restartCount": restarts,
                **state,
            }
        ],
    }


def waiting(reason: str, message: str = "") -> Unstructured:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def terminated(code: int, reason: str, message: str = "") -> Unstructured:
    times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:00Z"}
    return {"terminated": {"exitCode": code, "reason": reason, **times, **({"message": message} if message else {})}}


def event(fault: str, about: str, reason: str, message: str, source: str = "kubelet") -> Unstructured:
    """A warning about `Kind/name`; nodes' events are in the namespace default."""
    kind, name = about.split("/")
    namespace = "default" if kind == "Node" else fault
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{fault}.{reason.lower()}", "namespace": namespace},
        "involvedObject": {"kind": kind, "name": name, **({"namespace": fault} if kind != "Node" else {})},
        "reason": reason,
        "message": message,
        "type": "Warning",
        "count": 1,
        "source": {"component": source},
    }


def claim(fault: str, storage_class: str) -> Unstructured:
    request = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return owner(fault, "PersistentVolumeClaim", "v1", "data", storageClassName=storage_class, **request)


VOLUME = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
