"""The DaemonSet controller: one pod on every node that it fits by selector, affinity and taints.

`reconcile_daemonset` is pure. A pod is tied to its node by affinity and goes through the scheduler like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

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
from windlass.model.node import Taint
from windlass.model.pod import Pod
from windlass.model.taints import find_untolerated_taint
from windlass.model.unstructured import Unstructured

RESOURCE = "daemonsets.apps"
_NODE_NAME = "metadata.name"
_EVERYWHERE = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
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
    _, digest = sync_revision(plan, owner, revisions)
    by_node: dict[str, list[Unstructured]] = {}
    for pod in pods:
        by_node.setdefault(node_of(pod), []).append(pod)
    wanted = _wanted_nodes(owner, nodes)
    _place(plan, owner, by_node, wanted, digest)
    _update(plan, owner, by_node, wanted, digest, now)
    in_use = {digest, *(labels_of(pod).get(REVISION_HASH_LABEL, "") for pod in pods)}
    truncate_history(plan, owner, revisions, in_use)
    plan.add(UpdateStatus(RESOURCE, owner, _status(owner, by_node, wanted, digest, now)))
    plan.requeue(soonest_available(pods, _min_ready(owner), now))
    return plan.build()


def node_of(pod: Unstructured) -> str:
    """Where it runs, or the node that it is tied to."""
    spec = pod.get("spec") or {}
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    for term in affinity.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == _NODE_NAME and field.get("values"):
                return str(field["values"][0])
    return ""


def _wanted_nodes(owner: Unstructured, nodes: Sequence[Unstructured]) -> dict[str, bool]:
    """Nodes on which a pod may be → whether one should be: a running one stays through a NoSchedule taint."""
    template = {**owner["spec"]["template"].get("spec", {}), "tolerations": _tolerations(owner)}
    pod = convert({"metadata": {"name": "template"}, "spec": template}, Pod)
    assert isinstance(pod, Pod)
    wanted: dict[str, bool] = {}
    for node in nodes:
        if not matches_required_node_affinity(pod, labels_of(node), name_of(node)):
            continue
        listed = (node.get("spec") or {}).get("taints") or ()
        taints = [msgspec.convert(_bare(each), Taint) for each in listed]
        if find_untolerated_taint(taints, pod.spec.tolerations, ("NoExecute",)) is None:
            wanted[name_of(node)] = find_untolerated_taint(taints, pod.spec.tolerations) is None
    return wanted


def _desired(wanted: dict[str, bool]) -> list[str]:
    """Nodes that should have a pod."""
    return [node for node, should in wanted.items() if should]


def _bare(taint: Unstructured) -> dict[str, Any]:
    return {key: value for key, value in taint.items() if key in ("key", "value", "effect") and value}


def _tolerations(owner: Unstructured) -> list[Unstructured]:
    spec = owner["spec"]["template"].get("spec") or {}
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _EVERYWHERE]
    if spec.get("hostNetwork"):
        network = {"key": "node.kubernetes.io/network-unavailable", "operator": "Exists"}
        added.append({**network, "effect": "NoSchedule"})
    return [*(spec.get("tolerations") or ()), *added]


def _place(
    plan: ReconcileResultBuilder,
    owner: Unstructured,
    by_node: dict[str, list[Unstructured]],
    wanted: dict[str, bool],
    digest: str,
) -> None:
    for node, may_start in wanted.items():
        here = by_node.get(node, [])
        for pod in here:
            if phase_of(pod) in ("Failed", "Succeeded") and not is_deleting(pod):
                said = f"Found failed daemon pod {owner['metadata']['namespace']}/{name_of(pod)} on node {node}, "
                if phase_of(pod) == "Failed":
                    plan.add(EmitEvent(owner, "FailedDaemonPod", f"{said}will try to kill it", "Warning"))
                plan.add(Delete("pods", pod, owner))
        standing = [pod for pod in here if not is_deleting(pod) and not is_finished(pod)]
        if not here and may_start:
            plan.add(Create("pods", owner, _pod(owner, node, digest)))
        for extra in sorted(standing, key=created_at)[1:]:
            plan.add(Delete("pods", extra, owner))
    for node, here in by_node.items():
        if node not in wanted:
            plan.add(*(Delete("pods", pod, owner) for pod in here if not is_deleting(pod)))


def _pod(owner: Unstructured, node: str, digest: str) -> Unstructured:
    pod = pod_from_template(owner["spec"]["template"], owner, prefix=generate_name_of(name_of(owner)))
    generation = str(owner["metadata"].get("generation", 1))
    marks = {REVISION_HASH_LABEL: digest, "pod-template-generation": generation}
    pod["metadata"]["labels"] = {**pod["metadata"]["labels"], **marks}
    spec = pod["spec"]
    spec["tolerations"] = _tolerations(owner)
    field = {"key": _NODE_NAME, "operator": "In", "values": [node]}
    affinity = dict(spec.get("affinity") or {})
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    # Kubernetes replaces whatever terms there were: the controller has checked them already.
    of_nodes[required] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    spec["affinity"] = {**affinity, "nodeAffinity": of_nodes}
    return pod


def _update(
    plan: ReconcileResultBuilder,
    owner: Unstructured,
    by_node: dict[str, list[Unstructured]],
    wanted: dict[str, bool],
    digest: str,
    now: float,
) -> None:
    """Old pods go, as many at a time as may be away."""
    strategy = owner["spec"].get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return
    rolling = strategy.get("rollingUpdate") or {}
    most = max(
        1, scaled_int_or_percent(rolling.get("maxUnavailable", 1), len(_desired(wanted)), round_up=True)
    )
    away, candidates = 0, []
    for node in _desired(wanted):
        standing = [pod for pod in by_node.get(node, ()) if not is_deleting(pod) and not is_finished(pod)]
        well = any(is_available(pod, _min_ready(owner), now) for pod in standing)
        old = [pod for pod in standing if labels_of(pod).get(REVISION_HASH_LABEL) != digest]
        if old and not well:
            plan.add(*(Delete("pods", pod, owner) for pod in old))
        elif old:
            candidates += old
        away += not well
    plan.add(*(Delete("pods", pod, owner) for pod in candidates[: max(0, most - away)]))


def _min_ready(owner: Unstructured) -> int:
    return int(owner["spec"].get("minReadySeconds") or 0)


def _status(
    owner: Unstructured,
    by_node: dict[str, list[Unstructured]],
    wanted: dict[str, bool],
    digest: str,
    now: float,
) -> Unstructured:
    desired = _desired(wanted)
    standing = {node: [pod for pod in by_node.get(node, ()) if not is_deleting(pod)] for node in desired}
    first = [pods[0] for pods in standing.values() if pods]
    available = sum(is_available(pod, _min_ready(owner), now) for pod in first)
    status = dict(owner.get("status") or {})
    status["desiredNumberScheduled"] = len(desired)
    status["currentNumberScheduled"] = len(first)
    status["numberMisscheduled"] = sum(bool(pods) for node, pods in by_node.items() if node not in desired)
    status["numberReady"] = sum(map(is_ready, first))
    status["updatedNumberScheduled"] = (
        sum(labels_of(pod).get(REVISION_HASH_LABEL) == digest for pod in first) or None
    )
    status["numberAvailable"] = available or None
    status["numberUnavailable"] = len(desired) - available or None
    status["observedGeneration"] = owner["metadata"].get("generation", 1)
    return status
