"""Holds workloads whose pods don't exist yet and would exceed the namespace's ResourceQuota.

The API server checks a ResourceQuota when pods are created; pods in the cluster have passed it. `workload_index` calls
this for workloads from manifests, in order, so that of two that don't fit together the second is refused; and for
queued workloads without pods: if admitted, they would hold quota for pods that can't be created.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.model.errors import InputError
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.namespace_limits import ResourceQuota, exceeded_quota_message
from windlass.model.quota import MILLI_PER_GPU
from windlass.model.requests import pod_requests
from windlass.model.workload import Workload

Amounts = dict[str, int]


def hold_over_resource_quota(workloads: Sequence[Workload], quotas: Sequence[ResourceQuota]) -> tuple[Workload, ...]:
    """The same workloads, with a hold on those whose pods would exceed a ResourceQuota of their namespace."""
    if not quotas:
        return tuple(workloads)
    requested = _admitted_without_pods(workloads, {quota.namespace for quota in quotas})
    return tuple(_check(workload, quotas, requested) for workload in workloads)


def _admitted_without_pods(workloads: Sequence[Workload], namespaces: set[str]) -> dict[str, Amounts]:
    """Namespace → requests of pods that don't exist yet, of admitted workloads."""
    owed: dict[str, Amounts] = {}
    for workload in workloads:
        namespace = workload.namespace
        if namespace in namespaces and workload.kind == "Workload" and workload.admission is not None:
            try:
                owed[namespace] = _with_missing_pods(workload, owed.get(namespace, {}))
            except InputError:
                continue  # the workload itself carries this error
    return owed


def _check(workload: Workload, quotas: Sequence[ResourceQuota], requested: dict[str, Amounts]) -> Workload:
    is_queued = workload.kind == "Workload" and not any(pod_set.pod_keys for pod_set in workload.pod_sets)
    if (workload.uid and not is_queued) or workload.hold or workload.admission is not None:
        return workload
    try:
        total = _with_missing_pods(workload, requested.get(workload.namespace, {}))
    except InputError as error:
        return _held(workload, str(error), error.code or "INVALID_OBJECT")
    for quota in quotas:
        if quota.namespace == workload.namespace:
            problem = exceeded_quota_message(quota, total)
            if problem:
                return _held(workload, problem, "RESOURCE_QUOTA_EXCEEDED")
    if not workload.uid:
        # Only unsubmitted workloads count against later ones: a queued one may wait for long.
        requested[workload.namespace] = total
    return workload


def _with_missing_pods(workload: Workload, before: Amounts) -> Amounts:
    """The amounts `before`, plus the requests of the workload's pods that don't exist yet: as in the API server, by
    the name of the resource, so that a share of a GPU counts for nothing."""
    sums = dict(before)
    for pod_set in workload.pod_sets:
        missing = max(0, pod_set.count - len(pod_set.pod_keys)) if workload.uid else pod_set.count
        for resource, amount in pod_requests(pod_set.template).items():
            units = amount * MILLI_PER_GPU if resource == GPU_RESOURCE else amount
            sums[resource] = sums.get(resource, 0) + units * missing
    return sums


def _held(workload: Workload, message: str, code: str) -> Workload:
    return msgspec.structs.replace(workload, hold=message, hold_code=code)
