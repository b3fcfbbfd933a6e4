"""A node as the page draws it: rack, readiness and GPUs.

Called by `web.page_state` with a Node object and the pods on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.model.errors import InputError
from windlass.model.names.kubernetes import ZONE_LABEL
from windlass.model.names.nvidia import GPU_PRODUCT_LABEL
from windlass.model.rack import rack_of
from windlass.model.requests import parse_amount
from windlass.model.unstructured import Unstructured
from windlass.web.devices import extract_common_fields, gpu_views
from windlass.web.pods import PodRecord


def node_view(tree: Mapping[str, Any], pods: Sequence[PodRecord]) -> Unstructured:
    meta, spec, status = tree["metadata"], tree.get("spec") or {}, tree.get("status") or {}
    labels = meta.get("labels") or {}
    ready, why = _ready(status)
    room = status.get("allocatable") or {}
    gpus = gpu_views(tree, pods)
    view: Unstructured = {
        **extract_common_fields(gpus),
        "name": meta["name"],
        "rack": rack_of(labels),
        "zone": labels.get(ZONE_LABEL, ""),
        "ready": ready,
        "gpus": gpus,
        "cpu": [sum(pod.cpu for pod in pods), _amount("cpu", room)],
        "memory": [sum(pod.memory for pod in pods), _amount("memory", room)],
        "pods": len(pods),
    }
    if not ready and why:
        view["why"] = why
    if spec.get("unschedulable"):
        view["cordoned"] = True
    taints = [_taint(taint) for taint in spec.get("taints") or ()]
    if taints:
        view["taints"] = taints
    if labels.get(GPU_PRODUCT_LABEL):
        view["product"] = labels[GPU_PRODUCT_LABEL]
    problems = _problems(status)
    if problems:
        view["problems"] = problems
    return view


def _ready(status: Mapping[str, Any]) -> tuple[bool, str]:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready":
            return condition.get("status") == "True", condition.get("message") or condition.get("reason") or ""
    return False, "the node has not reported yet"


def _problems(status: Mapping[str, Any]) -> list[str]:
    """Conditions that say something is wrong (a GPU's Xid among them); the kubelet's own are wrong when True too."""
    return [
        str(condition.get("message") or condition.get("reason") or condition.get("type"))
        for condition in status.get("conditions") or ()
        if condition.get("type") != "Ready" and condition.get("status") == "True"
    ]


def _taint(taint: Mapping[str, Any]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key', '')}{value}:{taint.get('effect', '')}"


def _amount(name: str, room: Mapping[str, Any]) -> int:
    try:
        return parse_amount(name, room.get(name, 0))
    except InputError:
        return 0
