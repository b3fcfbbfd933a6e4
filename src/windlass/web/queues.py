"""A ClusterQueue as the page shows it: what it may use, what it uses, and what it has borrowed.

Fed by `web.page_state` with the object, whose status the scheduler writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.model.errors import InputError
from windlass.model.names.nvidia import NVIDIA_PREFIX
from windlass.model.requests import parse_amount
from windlass.model.unstructured import Unstructured


def queue_view(tree: Mapping[str, Any]) -> Unstructured:
    spec, status = tree.get("spec") or {}, tree.get("status") or {}
    quota: dict[str, list[int]] = {}
    for group in spec.get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for resource in flavor.get("resources") or ():
                if str(resource.get("name", "")).startswith(NVIDIA_PREFIX):
                    _add(quota, resource["name"], 0, resource.get("nominalQuota", 0))
    for flavor in status.get("flavorsUsage") or ():
        for resource in flavor.get("resources") or ():
            if resource.get("name") in quota:
                _add(quota, resource["name"], 1, resource.get("total", 0))
                _add(quota, resource["name"], 2, resource.get("borrowed", 0))
    return {
        "name": tree["metadata"]["name"],
        "cohort": spec.get("cohortName") or spec.get("cohort") or "",
        "quota": [
            {"resource": name, "nominal": nominal, "used": used, "borrowed": borrowed}
            for name, (nominal, used, borrowed) in quota.items()
        ],
        "pending": int(status.get("pendingWorkloads") or 0),
        "admitted": int(status.get("admittedWorkloads") or 0),
    }


def _add(quota: dict[str, list[int]], name: str, column: int, raw: Any) -> None:
    try:
        quota.setdefault(name, [0, 0, 0])[column] += parse_amount(name, raw)
    except InputError:
        return
