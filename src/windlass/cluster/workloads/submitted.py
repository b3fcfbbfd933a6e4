"""What the namespace's ResourceQuota says about workloads that are not submitted yet.

The API server counts a ResourceQuota when pods are made; what is in the cluster has passed it. `group` runs this on
what comes from manifests, in order, so that the second of two that don't fit together is the one that is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.model.errors import InputError
from windlass.model.namespace_rules import ResourceQuota, beyond_quota
from windlass.model.quota import quota_requests
from windlass.model.workload import Workload


def with_quota_holds(workloads: Sequence[Workload], quotas: Sequence[ResourceQuota]) -> tuple[Workload, ...]:
    """The same workloads; those from manifests for which their namespace has no quota left are held."""
    if not quotas:
        return tuple(workloads)
    asked: dict[str, dict[str, int]] = {}
    return tuple(_checked(workload, quotas, asked) for workload in workloads)


def _checked(
    workload: Workload, quotas: Sequence[ResourceQuota], asked: dict[str, dict[str, int]]
) -> Workload:
    if workload.uid or workload.hold or workload.admission is not None:
        return workload
    try:
        wanted = _wanted(workload, asked.get(workload.namespace, {}))
    except InputError as error:
        return _held(workload, str(error), error.code or "INVALID_OBJECT")
    for quota in quotas:
        if quota.namespace == workload.namespace:
            problem = beyond_quota(quota, wanted)
            if problem:
                return _held(workload, problem, "RESOURCE_QUOTA_EXCEEDED")
    asked[workload.namespace] = wanted
    return workload


def _wanted(workload: Workload, before: dict[str, int]) -> dict[str, int]:
    total = dict(before)
    for one in workload.pod_sets:
        for resource, amount in quota_requests(one.pod).items():
            total[resource] = total.get(resource, 0) + amount * one.count
    return total


def _held(workload: Workload, message: str, code: str) -> Workload:
    return msgspec.structs.replace(workload, hold=message, hold_code=code)
