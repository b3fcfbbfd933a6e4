"""The DaemonSet controller: one pod on every node that matches selector, affinity and tolerations.

`reconcile_daemonset` is pure; `workload_controllers` calls it. Each pod has a required node affinity for its node
and goes through the scheduler like any other pod.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from windlass.embedded.api.json_trees import nested_value
from windlass.embedded.controllers.objects import (
    created_at,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    scaled_int_or_percent,
)
from windlass.embedded.controllers.pod_state import (
    is_active,
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
    sync = _DaemonSetSync(owner, template_hash, _wanted_nodes(owner, nodes), now, plan)
    for pod in pods:
        sync.by_node.setdefault(node_of(pod), []).append(pod)
    sync.create_and_delete()
    sync.update()
    in_use = {template_hash, *(labels_of(pod).get(REVISION_HASH_LABEL, "") for pod in pods)}
    truncate_history(plan, owner, revisions, in_use)
    plan.add(UpdateStatus(RESOURCE, owner, sync.status()))
    plan.requeue(soonest_available(pods, sync.min_ready, now))
    return plan.build()


@dataclass
class _DaemonSetSync:
    owner: Unstructured
    template_hash: str
    wanted: dict[str, bool]
    """Node → whether a pod should start there."""
    now: float
    plan: ReconcileResultBuilder
    by_node: dict[str, list[Unstructured]] = field(default_factory=dict)

    @property
    def min_ready(self) -> int:
        return int(self.owner["spec"].get("minReadySeconds") or 0)

    @property
    def desired(self) -> list[str]:
        """Nodes that should have a pod."""
        return [node for node, should in self.wanted.items() if should]

    def create_and_delete(self) -> None:
        for node, may_start in self.wanted.items():
            pods = self.by_node.get(node, [])
            for pod in pods:
                if is_finished(pod) and not is_deleting(pod):
                    if phase_of(pod) == "Failed":
                        message = f"Found failed daemon pod {key_of(pod)} on node {node}, will try to kill it"
                        self.plan.add(EmitEvent(self.owner, "FailedDaemonPod", message, "Warning"))
                    self.plan.add(Delete("pods", pod, self.owner))
            active = list(filter(is_active, pods))
            if not pods and may_start:
                self.plan.add(Create("pods", self.owner, _pod(self.owner, node, self.template_hash)))
            for duplicate in sorted(active, key=created_at)[1:]:
                self.plan.add(Delete("pods", duplicate, self.owner))
        for node, pods in self.by_node.items():
            if node not in self.wanted:
                self.plan.add(*(Delete("pods", pod, self.owner) for pod in pods if not is_deleting(pod)))

    def update(self) -> None:
        """Rolling update: deletes old pods, as many at a time as maxUnavailable allows."""
        strategy = self.owner["spec"].get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return
        rolling = strategy.get("rollingUpdate") or {}
        limit = rolling.get("maxUnavailable", 1)
        max_unavailable = max(1, scaled_int_or_percent(limit, len(self.desired), round_up=True))
        unavailable, candidates = 0, []
        for node in self.desired:
            active = list(filter(is_active, self.by_node.get(node, ())))
            is_up = any(is_available(pod, self.min_ready, self.now) for pod in active)
            old = [pod for pod in active if labels_of(pod).get(REVISION_HASH_LABEL) != self.template_hash]
            if old and not is_up:
                self.plan.add(*(Delete("pods", pod, self.owner) for pod in old))
            elif old:
                candidates += old
            unavailable += not is_up
        allowed = max(0, max_unavailable - unavailable)
        self.plan.add(*(Delete("pods", pod, self.owner) for pod in candidates[:allowed]))

    def status(self) -> Unstructured:
        desired = self.desired
        pods_by_node = {node: [pod for pod in self.by_node.get(node, ()) if not is_deleting(pod)] for node in desired}
        first = [pods[0] for pods in pods_by_node.values() if pods]
        available = sum(is_available(pod, self.min_ready, self.now) for pod in first)
        status = dict(self.owner.get("status") or {})
        status["desiredNumberScheduled"] = len(desired)
        status["currentNumberScheduled"] = len(first)
        status["numberMisscheduled"] = sum(bool(pods) for node, pods in self.by_node.items() if node not in desired)
        status["numberReady"] = sum(map(is_ready, first))
        status["updatedNumberScheduled"] = (
            sum(labels_of(pod).get(REVISION_HASH_LABEL) == self.template_hash for pod in first) or None
        )
        status["numberAvailable"] = available or None
        status["numberUnavailable"] = len(desired) - available or None
        status["observedGeneration"] = self.owner["metadata"].get("generation", 1)
        return status


def node_of(pod: Unstructured) -> str:
    """The node that it is bound to, or that its affinity names."""
    spec = pod.get("spec") or {}
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    for term in nested_value(spec, "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms") or ():
        for match in term.get("matchFields") or ():
            if match.get("key") == _NODE_NAME and match.get("values"):
                return str(match["values"][0])
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


def _taint_fields(taint: Unstructured) -> dict[str, Any]:
    return {key: value for key, value in taint.items() if key in ("key", "value", "effect") and value}


def _tolerations(owner: Unstructured) -> list[Unstructured]:
    spec = owner["spec"]["template"].get("spec") or {}
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _DEFAULT_TOLERATIONS]
    if spec.get("hostNetwork"):
        network = {"key": NETWORK_UNAVAILABLE_TAINT, "operator": "Exists"}
        added.append({**network, "effect": "NoSchedule"})
    return [*(spec.get("tolerations") or ()), *added]


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
