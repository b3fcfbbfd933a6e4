"""Small changes of objects as plain data: what controllers write into a Job, a Workload, a Node.

Used by `carry` and `player`; every function returns a new object.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from windlass.cluster.workloads.workload_attributes import EVICTIONS
from windlass.model.decision import Admit
from windlass.model.kueue.workloads import PREEMPTED
from windlass.model.quota import format_quota, quota_requests
from windlass.model.topology import HOSTNAME
from windlass.model.unstructured import Unstructured
from windlass.model.workload import Workload
from windlass.simulate.clock import virtual_timestamp

NOT_READY = "node.kubernetes.io/not-ready"
_IN_RUN_POLICY = ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")
SUSPENDED_IN_SPEC = ("Job", "JobSet", "RayCluster", "RayJob", "TrainJob")


def with_suspend(tree: Unstructured, suspend: bool) -> Unstructured:
    """The owner with its suspend field set, where its kind has one."""
    made = copy.deepcopy(tree)
    if tree["kind"] in SUSPENDED_IN_SPEC:
        made["spec"]["suspend"] = suspend
    elif tree["kind"] in _IN_RUN_POLICY:
        made["spec"].setdefault("runPolicy", {})["suspend"] = suspend
    return made


def with_finished(tree: Unstructured, at: int) -> Unstructured:
    """The Workload or owner as it stands when its work is done."""
    return _with_condition(tree, "Finished" if tree["kind"] == "Workload" else "Complete", "True", at)


def with_admission(
    tree: Unstructured, decision: Admit, workload: Workload, hostnames: Mapping[str, str], at: int
) -> Unstructured:
    """The Workload with what it holds in its status."""
    pods = {one.name: one.template for one in workload.pod_sets}
    assignments = []
    for one in decision.pod_sets:
        asked = quota_requests(pods[one.name])
        usage = {name: format_quota(name, asked.get(name, 0) * one.count) for name in one.flavors}
        assignment: Unstructured = {"name": one.name, "count": one.count, "flavors": dict(one.flavors)}
        assignment["resourceUsage"] = usage
        if one.nodes:
            domains = [
                {"values": [hostnames.get(node, node)], "count": pods} for node, pods in one.nodes.items()
            ]
            assignment["topologyAssignment"] = {"levels": [HOSTNAME], "domains": domains}
        assignments.append(assignment)
    made = _with_condition(_with_condition(tree, "QuotaReserved", "True", at), "Admitted", "True", at)
    made["status"]["conditions"] = [one for one in made["status"]["conditions"] if one["type"] != "Evicted"]
    made["status"]["admission"] = {"clusterQueue": decision.queue, "podSetAssignments": assignments}
    return made


def with_evicted(tree: Unstructured, at: int) -> Unstructured:
    """The Workload as it stands after its eviction."""
    made = _with_condition(tree, "Evicted", "True", at, PREEMPTED)
    made = _with_condition(_with_condition(made, "QuotaReserved", "False", at), "Admitted", "False", at)
    made["status"].pop("admission", None)
    return made


def with_eviction_counted(tree: Unstructured) -> Unstructured:
    """The object with one more preemption counted: where Kueue counts them, or in an annotation."""
    made = copy.deepcopy(tree)
    if tree["kind"] == "Workload":
        stats = made.setdefault("status", {}).setdefault("schedulingStats", {"evictions": []})
        counts = {one["reason"]: one["count"] for one in stats["evictions"]}
        counts[PREEMPTED] = counts.get(PREEMPTED, 0) + 1
        stats["evictions"] = [{"reason": reason, "count": count} for reason, count in counts.items()]
    else:
        annotations = made["metadata"].setdefault("annotations", {})
        annotations[EVICTIONS] = str(int(annotations.get(EVICTIONS, "0")) + 1)
    return made


def with_node_not_ready(node: Unstructured) -> Unstructured:
    """The node as its controller marks one that doesn't answer any more."""
    made = _ready(node, "False")
    taints = [one for one in made["spec"].get("taints", []) if one["key"] != NOT_READY]
    effects = ("NoSchedule", "NoExecute")
    made["spec"]["taints"] = [*taints, *({"key": NOT_READY, "effect": effect} for effect in effects)]
    return made


def with_node_ready(node: Unstructured) -> Unstructured:
    made = _ready(node, "True")
    made["spec"]["taints"] = [one for one in made["spec"].get("taints", []) if one["key"] != NOT_READY]
    return made


def merge_patch(target: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7386)."""
    if not isinstance(patch, Mapping):
        return patch
    made = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merge_patch(made.get(key), value)
    return made


def _ready(node: Unstructured, status: str) -> Unstructured:
    made = copy.deepcopy(node)
    made.setdefault("spec", {})
    others = [one for one in made.setdefault("status", {}).get("conditions", []) if one["type"] != "Ready"]
    made["status"]["conditions"] = [*others, {"type": "Ready", "status": status}]
    return made


def _with_condition(tree: Unstructured, kind: str, status: str, at: int, reason: str = "") -> Unstructured:
    made = copy.deepcopy(tree)
    conditions = made.setdefault("status", {}).get("conditions", [])
    condition = {"type": kind, "status": status, "lastTransitionTime": virtual_timestamp(at)}
    if reason:
        condition["reason"] = reason
    made["status"]["conditions"] = [*(one for one in conditions if one["type"] != kind), condition]
    return made
