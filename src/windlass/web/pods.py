"""A pod as the page needs it: a small record, kept instead of the object.

Made by `web.page_state` from every Pod that changes; read by `web.devices` (who is on which GPU) and `web.jobs` (what a
job's pods are doing).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.model.convert import convert
from windlass.model.errors import InputError
from windlass.model.gpu import gpu_request
from windlass.model.group_membership import group_reference
from windlass.model.names.kueue import MAX_EXEC_TIME_LABEL, QUEUE_NAME_LABEL
from windlass.model.names.nvidia import SHARED_GPU_RESOURCE
from windlass.model.names.windlass import (
    ALLOCATED_DEVICES_ANNOTATION,
    DECLARED_DURATION_ANNOTATION,
    DEVICES_ANNOTATION,
    SIMULATED_UTILIZATION_ANNOTATION,
    TEAM_LABEL,
)
from windlass.model.pod import Pod
from windlass.model.requests import pod_requests
from windlass.model.times import parse_duration, parse_timestamp

ENDED = ("Succeeded", "Failed")


class PodRecord(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    """`namespace/name`."""
    group: str
    """The job that it belongs to: `namespace/Kind/name`."""
    controller: str
    """The same of its controller; empty if it has none."""
    node: str
    state: str
    """waiting, starting, running, stopping, done, failed."""
    reason: str = ""
    """Why it waits or fails, in a word, as Kubernetes has it."""
    message: str = ""
    gpus: int = 0
    milli: int = 1000
    profile: str = ""
    shared: bool = False
    devices: tuple[int, ...] = ()
    util: int = 0
    """Percent, of each GPU that it has."""
    cpu: int = 0
    """Thousandths of a core."""
    memory: int = 0
    created: int = 0
    started: int = 0
    restarts: int = 0
    priority: int = 0
    priority_class: str = ""
    scheduler: str = ""
    team: str = ""
    """The label; empty: its namespace is its team."""
    queue: str = ""
    """The LocalQueue that its label names."""
    lasts: int = 0
    """Seconds that it may run at most, where that is declared."""

    @property
    def occupies_node(self) -> bool:
        """It takes room on its node."""
        return bool(self.node) and self.state not in ("done", "failed")


def pod_record(tree: Mapping[str, Any], group: str, controller: str) -> PodRecord:
    meta, spec, status = tree["metadata"], tree.get("spec") or {}, tree.get("status") or {}
    annotations = meta.get("annotations") or {}
    state, reason, message = pod_state(tree)
    ask = _ask(tree)
    return PodRecord(
        key=f"{meta.get('namespace', '')}/{meta['name']}",
        group=group,
        controller=controller,
        node=spec.get("nodeName") or "",
        state=state,
        reason=reason,
        message=message,
        devices=_indices(annotations.get(ALLOCATED_DEVICES_ANNOTATION) or annotations.get(DEVICES_ANNOTATION) or ""),
        util=_percent(annotations.get(SIMULATED_UTILIZATION_ANNOTATION), 100) if state == "running" else 0,
        created=parse_timestamp(meta.get("creationTimestamp") or ""),
        started=parse_timestamp(status.get("startTime") or ""),
        restarts=sum(int(container.get("restartCount") or 0) for container in status.get("containerStatuses") or ()),
        priority=int(spec.get("priority") or 0),
        priority_class=spec.get("priorityClassName") or "",
        scheduler=spec.get("schedulerName") or "",
        team=(meta.get("labels") or {}).get(TEAM_LABEL) or "",
        queue=(meta.get("labels") or {}).get(QUEUE_NAME_LABEL) or "",
        lasts=declared_seconds(tree) or int(spec.get("activeDeadlineSeconds") or 0),
        **ask,
    )


def pod_state(tree: Mapping[str, Any]) -> tuple[str, str, str]:
    """`(state, reason, message)`."""
    status = tree.get("status") or {}
    phase = status.get("phase") or "Pending"
    if tree["metadata"].get("deletionTimestamp") and phase not in ENDED:
        return "stopping", status.get("reason") or "", status.get("message") or ""
    if phase == "Succeeded":
        return "done", "", ""
    if phase == "Failed":
        return "failed", status.get("reason") or _exit_reason(status), status.get("message") or ""
    container_problem = _container_trouble(status)
    if phase == "Running":
        return "running", *container_problem
    if (tree.get("spec") or {}).get("nodeName"):
        return "starting", *container_problem
    return "waiting", *_unscheduled(status)


def job_key_of(tree: Mapping[str, Any]) -> tuple[str, str, str]:
    """`(namespace, kind, name)` of what the pod belongs to, as its metadata says: group, controller, or itself."""
    meta, spec = tree["metadata"], tree.get("spec") or {}
    native = (spec.get("schedulingGroup") or {}).get("podGroupName") or ""
    group = group_reference(meta.get("labels") or {}, meta.get("annotations") or {}, native)
    if group is not None:
        return meta.get("namespace", ""), "Group", group.name
    return controller_key_of(tree) or (meta.get("namespace", ""), "Pod", meta["name"])


def controller_key_of(tree: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """`(namespace, kind, name)` of the pod's controller."""
    meta = tree["metadata"]
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            return meta.get("namespace", ""), owner["kind"], owner["name"]
    return None


def gpu_request_fields(spec: Mapping[str, Any], annotations: Mapping[str, Any]) -> dict[str, Any]:
    """What a pod of this template would ask for, as fields of `PodRecord`."""
    return _ask({"metadata": {"name": "template", "annotations": dict(annotations)}, "spec": spec})


def declared_seconds(tree: Mapping[str, Any]) -> int:
    meta = tree.get("metadata") or {}
    text = (meta.get("annotations") or {}).get(DECLARED_DURATION_ANNOTATION) or ""
    text = text or (meta.get("labels") or {}).get(MAX_EXEC_TIME_LABEL) or ""
    try:
        return parse_duration(text) if text else 0
    except InputError:
        return 0


def _ask(tree: Mapping[str, Any]) -> dict[str, Any]:
    try:
        pod = convert({"metadata": tree["metadata"], "spec": tree.get("spec") or {}}, Pod)
        assert isinstance(pod, Pod)
        requests = pod_requests(pod)
        gpu = gpu_request(pod, requests)
    except InputError:
        return {}
    ask: dict[str, Any] = {"cpu": requests.get("cpu", 0), "memory": requests.get("memory", 0)}
    if gpu is not None:
        ask.update(gpus=gpu.count, milli=gpu.milli or 1000, profile=gpu.profile)
    elif requests.get(SHARED_GPU_RESOURCE):
        ask.update(gpus=requests[SHARED_GPU_RESOURCE], shared=True)
    return ask


def _unscheduled(status: Mapping[str, Any]) -> tuple[str, str]:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return condition.get("reason") or "", condition.get("message") or ""
    return "", ""


def _container_trouble(status: Mapping[str, Any]) -> tuple[str, str]:
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "", "ContainerCreating", "PodInitializing"):
            return waiting["reason"], waiting.get("message") or ""
    return "", ""


def _exit_reason(status: Mapping[str, Any]) -> str:
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return f"{ended.get('reason') or 'Error'} (exit code {ended['exitCode']})"
    return ""


def _indices(text: str) -> tuple[int, ...]:
    parts = (part.strip() for part in text.split(","))
    return tuple(int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 9)


def _percent(text: str | None, default: int) -> int:
    """`85`, `85%` and `0.85` are the same."""
    try:
        value = float((text or "").strip().rstrip("%"))
    except ValueError:
        return default
    if 0 < value <= 1 and "." in (text or ""):
        value *= 100
    return max(0, min(100, round(value)))
