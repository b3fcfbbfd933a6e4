"""Reads Kubernetes objects as trees: the few fields that judges look at."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.model.times import parse_timestamp
from windlass.model.unstructured import Unstructured

ENDED = ("Succeeded", "Failed")


def key_of(tree: Unstructured) -> str:
    meta = tree["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def labels_of(tree: Unstructured) -> dict[str, str]:
    return tree["metadata"].get("labels") or {}


def annotations_of(tree: Unstructured) -> dict[str, str]:
    return tree["metadata"].get("annotations") or {}


def node_of(pod: Unstructured) -> str:
    return str(pod["spec"].get("nodeName", ""))


def is_deleted(tree: Unstructured) -> bool:
    return "deletionTimestamp" in tree["metadata"]


def admission(tree: Unstructured) -> Unstructured | None:
    return (tree.get("status") or {}).get("admission")


def conditions(tree: Unstructured) -> Iterable[Unstructured]:
    return (tree.get("status") or {}).get("conditions") or ()


def condition(tree: Unstructured, kind: str) -> str:
    return next((found["status"] for found in conditions(tree) if found["type"] == kind), "")


def message(tree: Unstructured, kind: str) -> str:
    return next((str(found.get("message", "")) for found in conditions(tree) if found["type"] == kind), "")


def condition_time(tree: Unstructured, kind: str) -> float:
    return next((seconds(found["lastTransitionTime"]) for found in conditions(tree) if found["type"] == kind), 0.0)


def seconds(text: str) -> float:
    return float(parse_timestamp(text))


def created_at(tree: Unstructured) -> float:
    return seconds(tree["metadata"]["creationTimestamp"])


def is_gated(pod: Unstructured) -> bool:
    return bool(pod["spec"].get("schedulingGates"))


def owner_uids(tree: Unstructured) -> set[str]:
    return {owner["uid"] for owner in tree["metadata"].get("ownerReferences", ())}


def owner_kind(pod: Unstructured) -> str:
    return next((owner["kind"] for owner in pod["metadata"].get("ownerReferences", ())), "")
