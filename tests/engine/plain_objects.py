"""Nodes and pods as plain JSON, and the engine's plan for them."""

from __future__ import annotations

from typing import Any

from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.plan import Plan
from windlass.model.times import parse_timestamp
from windlass.model.unstructured import Unstructured
from windlass.planner import plan_objects

START, NOW = "2026-01-01T00:00:00Z", "2026-01-01T12:00:00Z"


def node(name: str, gpus: int = 8) -> Unstructured:
    room = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    ready = [{"type": "Ready", "status": "True"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": room, "allocatable": room, "conditions": ready},
    }


def pod(name: str, gpus: int = 8, on: str = "", at: str = START, **more: Any) -> Unstructured:
    metadata = {"name": name, "namespace": "default", "uid": name, "creationTimestamp": at}
    metadata |= more.pop("metadata", {})
    spec = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}], **more}
    status: Unstructured = {"phase": "Pending"}
    if on:
        spec["nodeName"] = on
        status = {"phase": "Running", "startTime": at}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def owned(api: str, kind: str) -> Unstructured:
    return {"ownerReferences": [{"apiVersion": api, "kind": kind, "name": "o", "uid": "o", "controller": True}]}


def planned(*objects: Unstructured) -> tuple[Plan, tuple[str, ...]]:
    plan, notes = plan_objects([decode_object(obj) for obj in objects], Settings(), parse_timestamp(NOW))
    return plan, tuple(notes)


def holds(plan: Plan) -> dict[str, str]:
    return {hold.workload: hold.verdict.code for hold in plan.holds}


TWO_NODES = [node("n1"), node("n2")]
