"""Accessors of Kubernetes objects as the store keeps them: names, owners, labels, conditions, times.

Used by all controllers and node runtimes. Objects are shared and never modified: functions return changed copies.
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.embedded.api.numbers import parse_decimal
from windlass.embedded.api.timestamps import format_time, parse_time
from windlass.model.unstructured import Unstructured


def key_of(obj: Unstructured) -> str:
    """`namespace/name`, or the name of a cluster-scoped object."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace", "")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def split_key(key: str) -> tuple[str, str]:
    namespace, _, name = key.rpartition("/")
    return namespace, name


def name_of(obj: Unstructured) -> str:
    return str(obj["metadata"]["name"])


def namespace_of(obj: Unstructured) -> str:
    return str(obj["metadata"].get("namespace", ""))


def uid_of(obj: Unstructured) -> str:
    return str(obj["metadata"].get("uid", ""))


def labels_of(obj: Unstructured) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: Unstructured) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def is_deleting(obj: Unstructured) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def created_at(obj: Unstructured) -> float:
    return parse_time(obj["metadata"].get("creationTimestamp"))


def controller_of(obj: Unstructured) -> Unstructured | None:
    """The owner reference of its controller."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return None


def owner_reference(owner: Unstructured) -> Unstructured:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def condition_of(obj: Unstructured, kind: str) -> Unstructured | None:
    for found in (obj.get("status") or {}).get("conditions") or ():
        if found.get("type") == kind:
            return dict(found)
    return None


def has_condition(obj: Unstructured, kind: str, status: str = "True") -> bool:
    found = condition_of(obj, kind)
    return found is not None and found.get("status") == status


def condition(kind: str, status: str, reason: str, message: str) -> Unstructured:
    """A new condition, without its times."""
    return {"type": kind, "status": status, "reason": reason, "message": message}


def with_condition(
    conditions: Iterable[Unstructured], new: Unstructured, now: float, *, update_time_field: str = ""
) -> list[Unstructured]:
    """The list with the condition set. Its transition time changes only with its status.

    `update_time_field` names another time field, such as `lastUpdateTime`, which changes when any field changes.
    """
    updated = [dict(known) for known in conditions]
    timestamp = format_time(now)
    stamped = {**new, "lastTransitionTime": timestamp}
    if update_time_field:
        stamped[update_time_field] = timestamp
    for index, old in enumerate(updated):
        if old["type"] != new["type"]:
            continue
        if old.get("status") == new.get("status"):
            stamped["lastTransitionTime"] = old.get("lastTransitionTime", timestamp)
            if update_time_field and all(old.get(field) == value for field, value in new.items()):
                stamped[update_time_field] = old.get(update_time_field, timestamp)
        updated[index] = stamped
        return updated
    return [*updated, stamped]


def scaled_int_or_percent(value: object, whole: int, *, round_up: bool) -> int:
    """An IntOrString such as 3 or "25%" of `whole`."""
    if isinstance(value, str) and value.endswith("%"):
        share = (parse_decimal(value[:-1]) or 0) * whole
        return -(-share // 100) if round_up else share // 100
    return (parse_decimal(value) or 0) if isinstance(value, str) else int(value) if isinstance(value, int) else 0
