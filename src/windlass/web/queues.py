"""A ClusterQueue as the page shows it: what it may use, what it uses, and what it has borrowed.

Fed by `web.page_state` with the object, whose status the scheduler writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.model.errors import InputError
from windlass.model.names.nvidia import GPU_RESOURCE, NVIDIA_PREFIX
from windlass.model.quota import MILLI_PER_GPU, parse_quota
from windlass.model.unstructured import Unstructured


def queue_view(tree: Mapping[str, Any]) -> Unstructured:
    spec, status = tree.get("spec") or {}, tree.get("status") or {}
    quota: dict[str, list[float]] = {}
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


def _add(quota: dict[str, list[float]], name: str, column: int, raw: Any) -> None:
    """Quota counts GPUs in thousandths, so that half a GPU (`500m`) may be used."""
    try:
        amount = parse_quota(name, raw)
    except InputError:
        return
    gpus, rest = divmod(amount, MILLI_PER_GPU)
    shown = amount if name != GPU_RESOURCE else amount / MILLI_PER_GPU if rest else gpus
    quota.setdefault(name, [0, 0, 0])[column] += shown
