"""Changes that controllers make to a Job, a Workload or a Node, on plain data.

Used by `scenario.executor` and `scenario.player`; every function returns a new object.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from windlass.cluster.workloads.workload_attributes import EVICTIONS
from windlass.model.decision import Admit
from windlass.model.kueue.workloads import PREEMPTED
from windlass.model.names.kubernetes import HOSTNAME_LABEL, NOT_READY_TAINT
from windlass.model.quota import format_quota, quota_requests
from windlass.model.unstructured import Unstructured
from windlass.model.workload import Workload
from windlass.queueing.outcome import DEACTIVATING_REASONS
from windlass.simulate.clock import virtual_timestamp

_EVICTED_REASONS = {reason: f"DeactivatedDueTo{reason}" for reason in DEACTIVATING_REASONS}
_IN_RUN_POLICY = ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")
SUSPENDED_IN_SPEC = ("Job", "JobSet", "RayCluster", "RayJob", "TrainJob")


def with_suspend(obj: Unstructured, suspend: bool) -> Unstructured:
    """The owner with its suspend field set, if its kind has one."""
    changed = copy.deepcopy(obj)
    if obj["kind"] in SUSPENDED_IN_SPEC:
        changed["spec"]["suspend"] = suspend
    elif obj["kind"] in _IN_RUN_POLICY:
        changed["spec"].setdefault("runPolicy", {})["suspend"] = suspend
    return changed


def with_finished(obj: Unstructured, at: int) -> Unstructured:
    return _with_condition(obj, "Finished" if obj["kind"] == "Workload" else "Complete", "True", at)


def with_admission(
    obj: Unstructured, decision: Admit, workload: Workload, hostnames: Mapping[str, str], at: int
) -> Unstructured:
    templates = {pod_set.name: pod_set.template for pod_set in workload.pod_sets}
    assignments = []
    for pod_set in decision.pod_sets:
        requests, count = quota_requests(templates[pod_set.name]), pod_set.count
        used = {name: format_quota(name, requests.get(name, 0) * count) for name in pod_set.flavors}
        assignment: Unstructured = {"name": pod_set.name, "count": count, "flavors": dict(pod_set.flavors)}
        assignment["resourceUsage"] = used
        if pod_set.nodes:
            pods_by_host = [(hostnames.get(node, node), pods) for node, pods in pod_set.nodes.items()]
            domains = [{"values": [host], "count": pods} for host, pods in pods_by_host]
            assignment["topologyAssignment"] = {"levels": [HOSTNAME_LABEL], "domains": domains}
        assignments.append(assignment)
    changed = _with_condition(_with_condition(obj, "QuotaReserved", "True", at), "Admitted", "True", at)
    changed["status"]["conditions"] = _without(changed["status"]["conditions"], "type", "Evicted")
    changed["status"]["admission"] = {"clusterQueue": decision.queue, "podSetAssignments": assignments}
    return changed


def with_evicted(obj: Unstructured, at: int, reason: str) -> Unstructured:
    """The Workload without its admission; deactivated, where that is what the eviction is for."""
    changed = _with_condition(obj, "Evicted", "True", at, _EVICTED_REASONS.get(reason, PREEMPTED))
    if reason in DEACTIVATING_REASONS:
        changed["spec"]["active"] = False
    changed = _with_condition(_with_condition(changed, "QuotaReserved", "False", at), "Admitted", "False", at)
    changed["status"].pop("admission", None)
    return changed


def with_eviction_counted(obj: Unstructured) -> Unstructured:
    """The object with one more preemption: in Kueue's field of a Workload, else in an annotation."""
    changed = copy.deepcopy(obj)
    if obj["kind"] == "Workload":
        stats = changed.setdefault("status", {}).setdefault("schedulingStats", {"evictions": []})
        counts = {(row["reason"], row.get("underlyingCause", "")): row["count"] for row in stats["evictions"]}
        counts[PREEMPTED, ""] = counts.get((PREEMPTED, ""), 0) + 1
        stats["evictions"] = [
            {"reason": reason, "underlyingCause": cause, "count": count} for (reason, cause), count in counts.items()
        ]
    else:
        annotations = changed["metadata"].setdefault("annotations", {})
        annotations[EVICTIONS] = str(int(annotations.get(EVICTIONS, "0")) + 1)
    return changed


def with_node_not_ready(node: Unstructured) -> Unstructured:
    """The node as the node controller marks one that doesn't respond."""
    changed = _with_ready(node, "False")
    taints = _without(changed["spec"].get("taints", []), "key", NOT_READY_TAINT)
    effects = ("NoSchedule", "NoExecute")
    changed["spec"]["taints"] = [*taints, *({"key": NOT_READY_TAINT, "effect": effect} for effect in effects)]
    return changed


def with_node_ready(node: Unstructured) -> Unstructured:
    changed = _with_ready(node, "True")
    changed["spec"]["taints"] = _without(changed["spec"].get("taints", []), "key", NOT_READY_TAINT)
    return changed


def merge_patch(target: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7386)."""
    if not isinstance(patch, Mapping):
        return patch
    changed = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            changed.pop(key, None)
        else:
            changed[key] = merge_patch(changed.get(key), value)
    return changed


def _with_ready(node: Unstructured, status: str) -> Unstructured:
    changed = copy.deepcopy(node)
    changed.setdefault("spec", {})
    others = _without(changed.setdefault("status", {}).get("conditions", []), "type", "Ready")
    changed["status"]["conditions"] = [*others, {"type": "Ready", "status": status}]
    return changed


def _with_condition(obj: Unstructured, kind: str, status: str, at: int, reason: str = "") -> Unstructured:
    changed = copy.deepcopy(obj)
    conditions = changed.setdefault("status", {}).get("conditions", [])
    condition = {"type": kind, "status": status, "lastTransitionTime": virtual_timestamp(at)}
    if reason:
        condition["reason"] = reason
    changed["status"]["conditions"] = [*_without(conditions, "type", kind), condition]
    return changed


def _without(items: list[Unstructured], field: str, value: str) -> list[Unstructured]:
    return [item for item in items if item[field] != value]
