"""The DaemonSet controller: one pod on every node that matches selector, affinity and tolerations.

`reconcile_daemonset` is pure; `workload_controllers` calls it. Each pod has a required node affinity for its node
and goes through the scheduler like any other pod.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.embedded.api.json_trees import nested_value
from windlass.embedded.controllers.objects import (
    created_at,
    is_deleting,
    labels_of,
    name_of,
    scaled_int_or_percent,
)
from windlass.embedded.controllers.pod_state import (
    is_available,
    is_finished,
    is_ready,
    phase_of,
    soonest_available,
)
from windlass.embedded.controllers.pod_template import generate_name_of, pod_from_template
from windlass.embedded.controllers.reconcile_result import (
    Create,
    Delete,
    EmitEvent,
    ReconcileResult,
    ReconcileResultBuilder,
    UpdateStatus,
)
from windlass.embedded.controllers.revisions import REVISION_HASH_LABEL, sync_revision, truncate_history
from windlass.model.affinity import matches_required_node_affinity
from windlass.model.convert import convert
from windlass.model.names.kubernetes import (
    DISK_PRESSURE_TAINT,
    MEMORY_PRESSURE_TAINT,
    NETWORK_UNAVAILABLE_TAINT,
    NOT_READY_TAINT,
    PID_PRESSURE_TAINT,
    UNREACHABLE_TAINT,
    UNSCHEDULABLE_TAINT,
)
from windlass.model.node import Taint
from windlass.model.pod import Pod
from windlass.model.taints import find_untolerated_taint
from windlass.model.unstructured import Unstructured

RESOURCE = "daemonsets.apps"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NODE_NAME = "metadata.name"
_DEFAULT_TOLERATIONS = (
    (NOT_READY_TAINT, "NoExecute"),
    (UNREACHABLE_TAINT, "NoExecute"),
    (DISK_PRESSURE_TAINT, "NoSchedule"),
    (MEMORY_PRESSURE_TAINT, "NoSchedule"),
    (PID_PRESSURE_TAINT, "NoSchedule"),
    (UNSCHEDULABLE_TAINT, "NoSchedule"),
)


def reconcile_daemonset(
    owner: Unstructured,
    pods: Sequence[Unstructured],
    nodes: Sequence[Unstructured],
    revisions: Sequence[Unstructured],
    now: float,
) -> ReconcileResult:
    plan = ReconcileResultBuilder()
    if is_deleting(owner):
        return plan.build()
    _, template_hash = sync_revision(plan, owner, revisions)
    by_node: dict[str, list[Unstructured]] = {}
    for pod in pods:
        by_node.setdefault(node_of(pod), []).append(pod)
    wanted = _wanted_nodes(owner, nodes)
    _create_and_delete(plan, owner, by_node, wanted, template_hash)
    _update(plan, owner, by_node, wanted, template_hash, now)
    in_use = {template_hash, *(labels_of(pod).get(REVISION_HASH_LABEL, "") for pod in pods)}
    truncate_history(plan, owner, revisions, in_use)
    plan.add(UpdateStatus(RESOURCE, owner, _status(owner, by_node, wanted, template_hash, now)))
    plan.requeue(soonest_available(pods, _min_ready(owner), now))
    return plan.build()


def node_of(pod: Unstructured) -> str:
    """The node that it is bound to, or that its affinity names."""
    spec = pod.get("spec") or {}
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    for term in nested_value(spec, "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == _NODE_NAME and field.get("values"):
                return str(field["values"][0])
    return ""


def _wanted_nodes(owner: Unstructured, nodes: Sequence[Unstructured]) -> dict[str, bool]:
    """Node → whether a pod should start there. Running pods stay on all of them, but not on nodes that are absent."""
    template = {**owner["spec"]["template"].get("spec", {}), "tolerations": _tolerations(owner)}
    pod = convert({"metadata": {"name": "template"}, "spec": template}, Pod)
    assert isinstance(pod, Pod)
    wanted: dict[str, bool] = {}
    for node in nodes:
        if not matches_required_node_affinity(pod, labels_of(node), name_of(node)):
            continue
        raw_taints = (node.get("spec") or {}).get("taints") or ()
        taints = [msgspec.convert(_taint_fields(taint), Taint) for taint in raw_taints]
        if find_untolerated_taint(taints, pod.spec.tolerations, ("NoExecute",)) is None:
            wanted[name_of(node)] = find_untolerated_taint(taints, pod.spec.tolerations) is None
    return wanted


def _desired(wanted: dict[str, bool]) -> list[str]:
    """Nodes that should have a pod."""
    return [node for node, should in wanted.items() if should]


def _taint_fields(taint: Unstructured) -> dict[str, Any]:
    return {key: value for key, value in taint.items() if key in ("key", "value", "effect") and value}


def _tolerations(owner: Unstructured) -> list[Unstructured]:
    spec = owner["spec"]["template"].get("spec") or {}
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _DEFAULT_TOLERATIONS]
    if spec.get("hostNetwork"):
        network = {"key": NETWORK_UNAVAILABLE_TAINT, "operator": "Exists"}
        added.append({**network, "effect": "NoSchedule"})
    return [*(spec.get("tolerations") or ()), *added]


def _create_and_delete(
    plan: ReconcileResultBuilder,
    owner: Unstructured,
    by_node: dict[str, list[Unstructured]],
    wanted: dict[str, bool],
    template_hash: str,
) -> None:
    for node, may_start in wanted.items():
        pods = by_node.get(node, [])
        for pod in pods:
            if phase_of(pod) in ("Failed", "Succeeded") and not is_deleting(pod):
                message = f"Found failed daemon pod {owner['metadata']['namespace']}/{name_of(pod)} on node {node}, "
                if phase_of(pod) == "Failed":
                    plan.add(EmitEvent(owner, "FailedDaemonPod", f"{message}will try to kill it", "Warning"))
                plan.add(Delete("pods", pod, owner))
        active = [pod for pod in pods if not is_deleting(pod) and not is_finished(pod)]
        if not pods and may_start:
            plan.add(Create("pods", owner, _pod(owner, node, template_hash)))
        for duplicate in sorted(active, key=created_at)[1:]:
            plan.add(Delete("pods", duplicate, owner))
    for node, pods in by_node.items():
        if node not in wanted:
            plan.add(*(Delete("pods", pod, owner) for pod in pods if not is_deleting(pod)))


def _pod(owner: Unstructured, node: str, template_hash: str) -> Unstructured:
    pod = pod_from_template(owner["spec"]["template"], owner, prefix=generate_name_of(name_of(owner)))
    generation = str(owner["metadata"].get("generation", 1))
    added_labels = {REVISION_HASH_LABEL: template_hash, "pod-template-generation": generation}
    pod["metadata"]["labels"] = {**pod["metadata"]["labels"], **added_labels}
    spec = pod["spec"]
    spec["tolerations"] = _tolerations(owner)
    field = {"key": _NODE_NAME, "operator": "In", "values": [node]}
    affinity = dict(spec.get("affinity") or {})
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    # Kubernetes replaces the template's own terms, which `_wanted_nodes` has checked already.
    node_affinity[_REQUIRED] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    spec["affinity"] = {**affinity, "nodeAffinity": node_affinity}
    return pod


def _update(
    plan: ReconcileResultBuilder,
    owner: Unstructured,
    by_node: dict[str, list[Unstructured]],
    wanted: dict[str, bool],
    template_hash: str,
    now: float,
) -> None:
    """Rolling update: deletes old pods, as many at a time as maxUnavailable allows."""
    strategy = owner["spec"].get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return
    rolling = strategy.get("rollingUpdate") or {}
    limit = rolling.get("maxUnavailable", 1)
    max_unavailable = max(1, scaled_int_or_percent(limit, len(_desired(wanted)), round_up=True))
    unavailable, candidates = 0, []
    for node in _desired(wanted):
        active = [pod for pod in by_node.get(node, ()) if not is_deleting(pod) and not is_finished(pod)]
        is_up = any(is_available(pod, _min_ready(owner), now) for pod in active)
        old = [pod for pod in active if labels_of(pod).get(REVISION_HASH_LABEL) != template_hash]
        if old and not is_up:
            plan.add(*(Delete("pods", pod, owner) for pod in old))
        elif old:
            candidates += old
        unavailable += not is_up
    plan.add(*(Delete("pods", pod, owner) for pod in candidates[: max(0, max_unavailable - unavailable)]))


def _min_ready(owner: Unstructured) -> int:
    return int(owner["spec"].get("minReadySeconds") or 0)


def _status(
    owner: Unstructured,
    by_node: dict[str, list[Unstructured]],
    wanted: dict[str, bool],
    template_hash: str,
    now: float,
) -> Unstructured:
    desired = _desired(wanted)
    pods_by_node = {node: [pod for pod in by_node.get(node, ()) if not is_deleting(pod)] for node in desired}
    first = [pods[0] for pods in pods_by_node.values() if pods]
    available = sum(is_available(pod, _min_ready(owner), now) for pod in first)
    status = dict(owner.get("status") or {})
    status["desiredNumberScheduled"] = len(desired)
    status["currentNumberScheduled"] = len(first)
    status["numberMisscheduled"] = sum(bool(pods) for node, pods in by_node.items() if node not in desired)
    status["numberReady"] = sum(map(is_ready, first))
    status["updatedNumberScheduled"] = (
        sum(labels_of(pod).get(REVISION_HASH_LABEL) == template_hash for pod in first) or None
    )
    status["numberAvailable"] = available or None
    status["numberUnavailable"] = len(desired) - available or None
    status["observedGeneration"] = owner["metadata"].get("generation", 1)
    return status
