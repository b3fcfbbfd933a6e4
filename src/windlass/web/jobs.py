"""A job as the page lists it: its requests, its state, and why it waits.

Called by `web.page_state` with the records of a job's pods, their owner (if any) and its Workload (if it is queued). A
job is a gang, the pods of one controller, or a single pod.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.diagnose.causes import CAUSES
from windlass.model.message_code import CODE_AT_END, planned_start_of
from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.model.names.windlass import TEAM_LABEL
from windlass.model.times import parse_timestamp
from windlass.model.unstructured import Unstructured
from windlass.web.changes import PERSON, TIME
from windlass.web.pods import PodRecord, declared_seconds, gpu_request_fields

OTHERS = "(others)"
"""Namespace of pods that the viewer sees nothing of but the room that they take (`web.visible_objects`)."""
SUSPENDED = "Suspended (spec.suspend: true)."
MOST_PODS = 256
"""Most pods in a job's details; counts include all."""
_NODES_LACK = re.compile(r"^0/\d+ nodes are available: (.*)$", re.DOTALL)
_COUNTS = re.compile(r"\d+ (node\(s\)|Insufficient |Too many pods)")
"""How kube-scheduler's counts of nodes begin."""


def job_view(
    key: str, pods: Sequence[PodRecord], owner: Mapping[str, Any] | None, workload: Mapping[str, Any] | None
) -> Unstructured | None:
    """None if there is nothing to show."""
    namespace, kind, name = key.split("/", 2)
    if namespace == OTHERS:
        return None
    if not pods and (owner is None or kind not in ("Job", "StatefulSet", "Deployment")):
        return None
    live = [pod for pod in pods if pod.state not in ("done", "failed")]
    state, reason, message = _state(pods, live, owner, workload)
    wanted, ask = _wanted(pods, live, owner)
    view: Unstructured = {
        "key": key,
        "ns": namespace,
        "kind": kind,
        "name": name,
        "state": state,
        "wants": _words(wanted, ask),
        "gpus": wanted * int(ask.get("gpus", 0)),
        "created": _created(pods, owner),
        "pods": [_pod_view(pod) for pod in sorted(pods, key=_order)[:MOST_PODS]],
        "count": len(pods),
    }
    if reason or message:
        view["reason"], view["why"], view["message"] = reason, shorten_message(message), message
    view |= _outlook(state, message, reason)
    for field, value in _facts(pods, owner, workload).items():
        if value:
            view[field] = value
    return view


def shorten_message(message: str) -> str:
    """The message without kube-scheduler's counts of nodes if Windlass's own sentence follows them."""
    found = _NODES_LACK.match(message)
    sentence = found[1] if found else message
    counts, _, own = sentence.partition(". ")
    if found and own and _COUNTS.match(counts):
        sentence = f"{counts}." if own.startswith("preemption:") else own
    return sentence[:1].upper() + sentence[1:] if sentence else ""


def _outlook(state: str, message: str, reason: str) -> Unstructured:
    """The cause that binds, as the engine named it; whether it needs a person or only time; when it shall start."""
    if state == "failed" or (state in ("starting", "running") and reason):
        return {"needs": PERSON}
    if state != "waiting":
        return {}
    found, starts = CODE_AT_END.search(message), planned_start_of(message)
    cause = found[1] if found else "JOB_SUSPENDED" if message == SUSPENDED else ""
    needs_person = cause in CAUSES and not CAUSES[cause].is_wait and not starts
    view: Unstructured = {"needs": PERSON if needs_person else TIME}
    if cause:
        view["cause"] = cause
    if starts:
        view["starts"] = starts
    return view


def _state(
    pods: Sequence[PodRecord],
    live: Sequence[PodRecord],
    owner: Mapping[str, Any] | None,
    workload: Mapping[str, Any] | None,
) -> tuple[str, str, str]:
    ended = _ended(pods, live, owner)
    if ended:
        return ended
    held = _held(owner, workload)
    if held and not any(pod.occupies_node for pod in live):
        return "waiting", *held
    waiting = [pod for pod in live if pod.state == "waiting"]
    if waiting:
        example = next((pod for pod in waiting if pod.message), waiting[0])
        return "waiting", example.reason, example.message
    for state in ("starting", "running", "stopping"):
        found = [pod for pod in live if pod.state == state]
        if found:
            example = next((pod for pod in found if pod.reason), found[0])
            return state, example.reason, example.message
    return "waiting", "", "Its pods are being created."


def _ended(
    pods: Sequence[PodRecord], live: Sequence[PodRecord], owner: Mapping[str, Any] | None
) -> tuple[str, str, str] | None:
    for condition in ((owner or {}).get("status") or {}).get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            done = condition["type"] == "Complete"
            return "done" if done else "failed", condition.get("reason") or "", condition.get("message") or ""
    if live or not pods or owner is not None:
        return None
    failed = next((pod for pod in pods if pod.state == "failed"), None)
    return ("failed", failed.reason, failed.message) if failed else ("done", "", "")


def _held(owner: Mapping[str, Any] | None, workload: Mapping[str, Any] | None) -> tuple[str, str] | None:
    """(reason, message) of a workload that its queue has not admitted, or that is suspended."""
    for kind in ("QuotaReserved", "Admitted"):
        for condition in ((workload or {}).get("status") or {}).get("conditions") or ():
            if condition.get("type") == kind and condition.get("status") == "False":
                return condition.get("reason") or "", condition.get("message") or ""
    if owner is not None and (owner.get("spec") or {}).get("suspend"):
        queue = (owner["metadata"].get("labels") or {}).get(QUEUE_NAME_LABEL)
        return "Suspended", _suspended_message(queue)
    return None


def _suspended_message(queue: str | None) -> str:
    return f"Waiting for queue {queue} to admit it." if queue else SUSPENDED


def _wanted(
    pods: Sequence[PodRecord], live: Sequence[PodRecord], owner: Mapping[str, Any] | None
) -> tuple[int, Mapping[str, Any]]:
    """(number of pods that run at a time, requests of each)."""
    spec = (owner or {}).get("spec") or {}
    template = spec.get("template") or {}
    if template:
        count = spec.get("parallelism", spec.get("replicas", 1))
        meta = template.get("metadata") or {}
        ask = gpu_request_fields(template.get("spec") or {}, meta.get("annotations") or {})
        return int(count if count is not None else 1), ask
    first = (live or pods)[0] if pods else None
    if first is None:
        return 0, {}
    ask = {"gpus": first.gpus, "milli": first.milli, "profile": first.profile, "shared": first.shared}
    return len(live or pods), ask


def _words(count: int, ask: Mapping[str, Any]) -> str:
    """`2 × 8 GPUs`, `1g.10gb`, `0.5 GPU`, `no GPU`."""
    gpus = int(ask.get("gpus") or 0)
    if not gpus:
        each = "no GPU"
    elif ask.get("profile"):
        each = f"{gpus} × {ask['profile']}" if gpus > 1 else str(ask["profile"])
    elif ask.get("shared"):
        each = f"{gpus} shared GPU" + "s" * (gpus > 1)
    elif int(ask.get("milli") or 1000) < 1000:
        each = f"{gpus * int(ask['milli']) / 1000:g} GPU"
    else:
        each = f"{gpus} GPU" + "s" * (gpus > 1)
    return f"{count} × {each}" if count != 1 else each


def _facts(
    pods: Sequence[PodRecord], owner: Mapping[str, Any] | None, workload: Mapping[str, Any] | None
) -> dict[str, Any]:
    meta = (owner or {}).get("metadata") or {}
    spec = (workload or {}).get("spec") or {}
    held = [pod for pod in pods if pod.occupies_node]
    return {
        "team": (meta.get("labels") or {}).get(TEAM_LABEL) or (pods[0].team if pods else ""),
        "lasts": _declared_seconds(owner) or (pods[0].lasts if pods else 0),
        "queue": _queue(spec, meta, pods),
        "priority": spec.get("priority") or (pods[0].priority if pods else 0),
        "class": spec.get("priorityClassName") or (pods[0].priority_class if pods else ""),
        "started": min((pod.started for pod in held if pod.started), default=0),
        "util": round(sum(pod.util for pod in held) / len(held)) if held else 0,
        "holds": sum(pod.gpus for pod in held),
        "nodes": len({pod.node for pod in held}),
        "restarts": sum(pod.restarts for pod in pods),
        "succeeded": int(((owner or {}).get("status") or {}).get("succeeded") or 0),
    }


def _queue(spec: Mapping[str, Any], meta: Mapping[str, Any], pods: Sequence[PodRecord]) -> str:
    named = spec.get("queueName") or (meta.get("labels") or {}).get(QUEUE_NAME_LABEL)
    return named or (pods[0].queue if pods else "")


def _declared_seconds(owner: Mapping[str, Any] | None) -> int:
    """How long it may run at most, as its object or the template of its pods says; 0 if neither does."""
    spec = (owner or {}).get("spec") or {}
    template = spec.get("template") or {}
    for tree in (owner or {}, template):
        seconds = declared_seconds(tree)
        if seconds:
            return seconds
    return int(spec.get("activeDeadlineSeconds") or (template.get("spec") or {}).get("activeDeadlineSeconds") or 0)


def _pod_view(pod: PodRecord) -> Unstructured:
    view: Unstructured = {"key": pod.key, "state": pod.state}
    for field in ("node", "reason", "devices", "profile", "util"):
        value = getattr(pod, field)
        if value:
            view[field] = value
    if pod.message:
        view["why"] = shorten_message(pod.message)
    return view


def _order(pod: PodRecord) -> tuple[bool, str]:
    return pod.state in ("done", "failed"), pod.key


def _created(pods: Sequence[PodRecord], owner: Mapping[str, Any] | None) -> int:
    if owner is not None:
        return parse_timestamp(owner["metadata"].get("creationTimestamp") or "")
    return min((pod.created for pod in pods), default=0)
