"""Small clusters for the tests of diagnosis: nodes, pods, events and logs in a line each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from windlass.diagnose.evidence import Evidence
from windlass.diagnose.finding import Diagnosis
from windlass.diagnose.why import why
from windlass.dump.raw_objects import ObjectHeader, RawObject
from windlass.model.meta import ObjectMeta
from windlass.model.unstructured import Unstructured

GPU = "nvidia.com/gpu"
NOW = 1_772_366_400
YOUNG = "2026-03-01T11:58:00Z"
GPU_TAINT = {"key": GPU, "value": "true", "effect": "NoSchedule"}
TOLERATES = [{"key": GPU, "operator": "Exists"}]


def node(name: str, gpus: Mapping[str, int] | int = 0, **more: Any) -> Unstructured:
    """`capacity` where it differs; `labels`, `taints`, `cordoned`, `cpu`, `pods`, `created`."""
    devices = {GPU: gpus} if isinstance(gpus, int) else dict(gpus)
    devices = {key: value for key, value in devices.items() if value or not isinstance(gpus, int)}
    amounts = {
        "cpu": more.get("cpu", "32"),
        "memory": "256Gi",
        "pods": more.get("pods", "110"),
        "ephemeral-storage": "500Gi",
    }
    allocatable = amounts | {key: str(value) for key, value in devices.items()}
    capacity = allocatable | {key: str(value) for key, value in more.get("capacity", {}).items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **more.get("labels", {})},
            "creationTimestamp": more.get("created", "2026-01-01T00:00:00Z"),
        },
        "spec": {"taints": more.get("taints", []), "unschedulable": more.get("cordoned", False)},
        "status": {"capacity": capacity, "allocatable": allocatable},
    }


def pod(name: str, gpus: int = 0, on: str = "", **more: Any) -> Unstructured:
    """`resource`, `cpu`, `spec`, `status`, `phase`, `labels`, `annotations`, `namespace`, `owner`."""
    limits = {"cpu": more.get("cpu", "1"), "memory": "1Gi"}
    if gpus:
        limits[more.get("resource", GPU)] = str(gpus)
    spec: Unstructured = {
        "containers": [{"name": "main", "resources": {"limits": limits}}],
        **more.get("spec", {}),
    }
    if on:
        spec["nodeName"] = on
    metadata: Unstructured = {
        "name": name,
        "namespace": more.get("namespace", "team"),
        "labels": more.get("labels", {}),
        "annotations": more.get("annotations", {}),
        "creationTimestamp": "2026-03-01T10:00:00Z",
    }
    if "owner" in more:
        kind, owner = more["owner"]
        metadata["ownerReferences"] = [{"kind": kind, "name": owner, "controller": True}]
    phase = more.get("phase", "Running" if on else "Pending")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": phase, **more.get("status", {})},
    }


def ended(code: int = 1, **more: Any) -> Unstructured:
    """A pod whose program has ended badly, several times."""
    terminated = {"exitCode": code, "reason": "Error"}
    status = {"containerStatuses": [{"name": "main", "restartCount": 3, "state": {"terminated": terminated}}]}
    return pod("asked", more.pop("gpus", 1), on="g1", phase="Failed", status=status, **more)


def event(about: str, reason: str, message: str, source: str = "default-scheduler", **more: Any) -> Unstructured:
    kind, name = about.split("/")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.1", "namespace": "team"},
        "involvedObject": {"kind": kind, "namespace": "" if kind == "Node" else "team", "name": name},
        "reason": reason,
        "message": message,
        "count": more.get("count", 1),
        "source": {"component": source},
        "lastTimestamp": "2026-03-01T11:00:00Z",
    }


def thing(kind: str, name: str, spec: Unstructured, version: str = "apps/v1", **more: Any) -> Unstructured:
    metadata = {"name": name, "namespace": more.get("namespace", "team"), "labels": more.get("labels", {})}
    if "owner" in more:
        owner_kind, owner = more["owner"]
        metadata["ownerReferences"] = [{"kind": owner_kind, "name": owner, "controller": True}]
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
        "status": more.get("status", {}),
    }


def plugin(on: str, restarts: int = 0) -> list[Unstructured]:
    """A device plugin's DaemonSet, with a pod on the node if one is named."""
    template = {"metadata": {"labels": {"app": "p"}}, "spec": {"containers": [{"name": "c"}]}}
    daemon = thing("DaemonSet", "nvidia-device-plugin", {"template": template}, namespace="kube-system")
    status = {"containerStatuses": [{"name": "main", "restartCount": restarts}]}
    there = pod("nvidia-device-plugin-x", on=on, namespace="kube-system", status=status)
    return [daemon, there] if on else [daemon]


def evidence(
    objects: Iterable[Unstructured],
    logs: Mapping[str, str] | None = None,
    hosts: Mapping[str, str] | None = None,
) -> Evidence:
    """`logs`: `namespace/pod` → a line of it; `hosts`: node → a line of its kernel log."""
    found = Evidence()
    for tree in objects:
        metadata = msgspec.convert(tree["metadata"], ObjectMeta)
        found.add(
            RawObject(ObjectHeader(api_version=tree["apiVersion"], kind=tree["kind"], metadata=metadata), "", tree)
        )
    for key, line in (logs or {}).items():
        namespace, name = key.split("/")
        found.add_pod_log(namespace, name, "main", line.splitlines())
    for name, line in (hosts or {}).items():
        found.add_host_log(name, "dmesg", line.splitlines())
    return found


def ask(
    question: str,
    *objects: Unstructured,
    logs: Mapping[str, str] | None = None,
    hosts: Mapping[str, str] | None = None,
) -> Diagnosis:
    return why(evidence(objects, logs, hosts), question, "", NOW)
