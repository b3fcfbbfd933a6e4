"""The Jobs of canary work: how one is made for a node, and what is read of it.

`decide.canary_work` decides on them, `operator.cache` keeps them. They are in a namespace of their own, where the
operator may make Jobs; a FleetChange owns its Jobs, so that they go with it.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.names.kubernetes import APP_MANAGED_BY_LABEL, HOSTNAME_LABEL
from windlass.model.names.windlass import (
    CANARY_LABEL,
    CANARY_NODE_ANNOTATION,
    CHANGE_TAINT,
    OPERATOR_API_VERSION,
)
from windlass.model.times import parse_timestamp
from windlass.model.unstructured import Unstructured
from windlass.operator.kinds.base import seconds_of
from windlass.operator.kinds.fleet_change import CanaryWork, FleetChange


class _JobCondition(KubeStruct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _JobStatus(KubeStruct, frozen=True):
    start_time: str = ""
    completion_time: str = ""
    conditions: tuple[_JobCondition, ...] = ()


class JobWire(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: _JobStatus = _JobStatus()


class CanaryJob(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    namespace: str = ""
    uid: str = ""
    change: str = ""
    """The uid of its FleetChange."""
    node: str = ""
    state: str = ""
    """Succeeded or Failed; empty while it runs."""
    seconds: int = 0
    message: str = ""
    is_deleting: bool = False


def canary_job(wire: JobWire) -> CanaryJob:
    metadata, status = wire.metadata, wire.status
    ended = next((each for each in status.conditions if each.type in _STATES and each.status == "True"), None)
    began, done = parse_timestamp(status.start_time), parse_timestamp(status.completion_time)
    return CanaryJob(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        change=metadata.labels.get(CANARY_LABEL, ""),
        node=metadata.annotations.get(CANARY_NODE_ANNOTATION, ""),
        state=_STATES[ended.type] if ended is not None else "",
        seconds=max(0, done - began) if began and done else 0,
        message=(ended.message or ended.reason) if ended is not None else "",
        is_deleting=bool(metadata.deletion_timestamp),
    )


_STATES = {"Complete": "Succeeded", "Failed": "Failed"}


def job_name(change: FleetChange, node: str) -> str:
    """The same after a restart, and another one when the change is tried again."""
    digest = hashlib.sha256(f"{change.metadata.uid}/{change.status.attempts}/{node}".encode()).hexdigest()[:10]
    return f"{change.name[:50].rstrip('-')}-{digest}"


def job_body(change: FleetChange, work: CanaryWork, node: str, hostname: str, namespace: str) -> Unstructured:
    """The template's Job for this node alone: it tolerates the taint of the change, and a failure is an answer."""
    labels = {CANARY_LABEL: change.metadata.uid, APP_MANAGED_BY_LABEL: "windlass"}
    owner = {
        "apiVersion": OPERATOR_API_VERSION,
        "kind": "FleetChange",
        "name": change.name,
        "uid": change.metadata.uid,
    }
    given: dict[str, Any] = work.job_template.get("spec") or {}
    template: dict[str, Any] = given.get("template") or {}
    pod: dict[str, Any] = template.get("spec") or {}
    theirs: dict[str, Any] = work.job_template.get("metadata") or {}
    metadata = {
        "name": job_name(change, node),
        "namespace": namespace,
        "labels": {**(theirs.get("labels") or {}), **labels},
        "annotations": {**(theirs.get("annotations") or {}), CANARY_NODE_ANNOTATION: node},
        "ownerReferences": [owner],
    }
    toleration = {"key": CHANGE_TAINT, "operator": "Exists", "effect": "NoSchedule"}
    placed = {
        "restartPolicy": "Never",
        **pod,
        "nodeSelector": {**(pod.get("nodeSelector") or {}), HOSTNAME_LABEL: hostname},
        "tolerations": [*(pod.get("tolerations") or ()), toleration],
    }
    pod_metadata = {**(template.get("metadata") or {})}
    pod_metadata["labels"] = {**(pod_metadata.get("labels") or {}), **labels}
    spec = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": seconds_of(work.timeout),
        **given,
        "template": {**template, "metadata": pod_metadata, "spec": placed},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
