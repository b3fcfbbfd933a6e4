"""What the namespace's ResourceQuota says about workloads whose pods are not made yet.

The API server counts a ResourceQuota when pods are made; pods that are in the cluster have passed it. `book` runs this
on what comes from manifests, in order, so that the second of two that don't fit together is the one that is refused;
and on what waits in a queue without pods: admitted, it would hold quota for pods that nobody may make.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.model.errors import InputError
from windlass.model.namespace_limits import ResourceQuota, exceeded_quota_message
from windlass.model.quota import quota_requests
from windlass.model.workload import Workload

Amounts = dict[str, int]


def hold_over_resource_quota(
    workloads: Sequence[Workload], quotas: Sequence[ResourceQuota]
) -> tuple[Workload, ...]:
    """The same workloads; those for whose pods their namespace has no quota left are held."""
    if not quotas:
        return tuple(workloads)
    asked = _owed(workloads, {quota.namespace for quota in quotas})
    return tuple(_checked(workload, quotas, asked) for workload in workloads)


def _owed(workloads: Sequence[Workload], namespaces: set[str]) -> dict[str, Amounts]:
    """Namespace → what was admitted there and has no pods yet."""
    owed: dict[str, Amounts] = {}
    for one in workloads:
        if one.namespace in namespaces and one.kind == "Workload" and one.admission is not None:
            try:
                owed[one.namespace] = _wanted(one, owed.get(one.namespace, {}))
            except InputError:
                continue  # it says so itself
    return owed


def _checked(workload: Workload, quotas: Sequence[ResourceQuota], asked: dict[str, Amounts]) -> Workload:
    is_queued = workload.kind == "Workload" and not any(one.pod_keys for one in workload.pod_sets)
    if (workload.uid and not is_queued) or workload.hold or workload.admission is not None:
        return workload
    try:
        wanted = _wanted(workload, asked.get(workload.namespace, {}))
    except InputError as error:
        return _held(workload, str(error), error.code or "INVALID_OBJECT")
    for quota in quotas:
        if quota.namespace == workload.namespace:
            problem = exceeded_quota_message(quota, wanted)
            if problem:
                return _held(workload, problem, "RESOURCE_QUOTA_EXCEEDED")
    if not workload.uid:
        asked[workload.namespace] = wanted  # what only waits in a queue keeps nobody else from going
    return workload


def _wanted(workload: Workload, before: Amounts) -> Amounts:
    """With what all of its pods that are not there yet ask for."""
    total = dict(before)
    for one in workload.pod_sets:
        missing = max(0, one.count - len(one.pod_keys)) if workload.uid else one.count
        for resource, amount in quota_requests(one.template).items():
            total[resource] = total.get(resource, 0) + amount * missing
    return total


def _held(workload: Workload, message: str, code: str) -> Workload:
    return msgspec.structs.replace(workload, hold=message, hold_code=code)
