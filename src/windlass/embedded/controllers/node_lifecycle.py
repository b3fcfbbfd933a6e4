"""Nodes whose kubelet stopped renewing its lease: condition, taints, and eviction of their pods.

Run by `controller_manager`. `NodeLifecycleController` reads leases and conditions and writes conditions, taints and
the readiness of pods; `TaintEvictionController` deletes pods that don't tolerate a NoExecute taint (any longer);
`PodGarbageCollector` deletes pods whose node no longer exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windlass.embedded.api.timestamps import format_time, parse_time
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.events import EventRateLimiter
from windlass.embedded.controllers.executor import ActionExecutor
from windlass.embedded.controllers.objects import (
    condition,
    condition_of,
    created_at,
    is_deleting,
    key_of,
    name_of,
    with_condition,
)
from windlass.embedded.controllers.pod_state import is_finished, is_ready, node_name
from windlass.embedded.controllers.reconcile_result import (
    Delete,
    EmitEvent,
    Patch,
    ReconcileResult,
    ReconcileResultBuilder,
)
from windlass.model.names.kubernetes import (
    DISK_PRESSURE_TAINT,
    MEMORY_PRESSURE_TAINT,
    NETWORK_UNAVAILABLE_TAINT,
    NOT_READY_TAINT,
    PID_PRESSURE_TAINT,
    UNREACHABLE_TAINT,
    UNSCHEDULABLE_TAINT,
)
from windlass.model.unstructured import Unstructured

NODE_MONITOR_GRACE_SECONDS = 40.0
"""How long a node may go without a heartbeat (kube-controller-manager's default)."""
LEASES, LEASE_NAMESPACE = "leases.coordination.k8s.io", "kube-node-lease"
_PRESSURE = {
    "MemoryPressure": MEMORY_PRESSURE_TAINT,
    "DiskPressure": DISK_PRESSURE_TAINT,
    "PIDPressure": PID_PRESSURE_TAINT,
    "NetworkUnavailable": NETWORK_UNAVAILABLE_TAINT,
}
_MANAGED = {NOT_READY_TAINT, UNREACHABLE_TAINT, UNSCHEDULABLE_TAINT, *_PRESSURE.values()}
_UNKNOWN_REASON = ("NodeStatusUnknown", "Kubelet stopped posting node status.")


def reconcile_node(
    node: Unstructured, lease: Unstructured | None, pods: Sequence[Unstructured], now: float
) -> ReconcileResult:
    plan = ReconcileResultBuilder()
    conditions = list((node.get("status") or {}).get("conditions") or ())
    grace_ends = _last_heartbeat(node, lease) + _grace(lease)
    if lease is None:
        pass  # a node that never had a kubelet has no heartbeat to miss
    elif now >= grace_ends:
        conditions = _all_unknown(conditions, now)
        if (condition_of(node, "Ready") or {}).get("status") != "Unknown":
            plan.add(Patch("nodes", node, {"status": {"conditions": conditions}}, "status"))
            message = f"Node {name_of(node)} status is now: NodeNotReady"
            plan.add(EmitEvent(node, "NodeNotReady", message))
    else:
        plan.requeue(grace_ends)
    updated = {**node, "status": {**(node.get("status") or {}), "conditions": conditions}}
    taints = wanted_taints(updated, now)
    if taints != ((node.get("spec") or {}).get("taints") or []):
        plan.add(Patch("nodes", node, {"spec": {"taints": taints or None}}))
    if (condition_of(updated, "Ready") or {}).get("status", "True") != "True":
        for pod in pods:
            if is_ready(pod) and not is_finished(pod):
                plan.add(*_mark_not_ready(pod, now))
    return plan.build()


def _last_heartbeat(node: Unstructured, lease: Unstructured | None) -> float:
    renewed = parse_time((lease or {}).get("spec", {}).get("renewTime"))
    return max(renewed, created_at(node))


def _grace(lease: Unstructured | None) -> float:
    own = (lease or {}).get("spec", {}).get("leaseDurationSeconds") or 0
    return max(NODE_MONITOR_GRACE_SECONDS, float(own))


def _all_unknown(conditions: list[Unstructured], now: float) -> list[Unstructured]:
    kinds = [item["type"] for item in conditions] or ["Ready"]
    for kind in kinds:
        new = condition(kind, "Unknown", *_UNKNOWN_REASON)
        heartbeat = next((item.get("lastHeartbeatTime") for item in conditions if item["type"] == kind), None)
        conditions = with_condition(conditions, {**new, "lastHeartbeatTime": heartbeat}, now)
    return conditions


def wanted_taints(node: Unstructured, now: float) -> list[Unstructured]:
    """Taints of others unchanged, and ours as the node's state requires."""
    known = (node.get("spec") or {}).get("taints") or []
    ours = _taints_of_state(node)
    taints = [dict(taint) for taint in known if taint["key"] not in _MANAGED or (taint["key"], taint["effect"]) in ours]
    present = {(taint["key"], taint["effect"]) for taint in taints}
    for key, effect in ours:
        if (key, effect) not in present:
            is_dated = effect == "NoExecute" or key in (NOT_READY_TAINT, UNREACHABLE_TAINT)
            time_added = {"timeAdded": format_time(now)} if is_dated else {}
            taints.append({"key": key, "effect": effect, **time_added})
    return taints


def _taints_of_state(node: Unstructured) -> list[tuple[str, str]]:
    taints: list[tuple[str, str]] = []
    if (node.get("spec") or {}).get("unschedulable"):
        taints.append((UNSCHEDULABLE_TAINT, "NoSchedule"))
    ready = (condition_of(node, "Ready") or {}).get("status", "True")
    if ready != "True":
        key = UNREACHABLE_TAINT if ready == "Unknown" else NOT_READY_TAINT
        taints += [(key, "NoSchedule"), (key, "NoExecute")]
    for kind, key in _PRESSURE.items():
        if (condition_of(node, kind) or {}).get("status") == "True":
            taints.append((key, "NoSchedule"))
    return taints


def _mark_not_ready(pod: Unstructured, now: float) -> list[Patch | EmitEvent]:
    new = {"type": "Ready", "status": "False", "reason": "NodeNotReady"}
    conditions = with_condition((pod.get("status") or {}).get("conditions") or (), new, now)
    return [
        Patch("pods", pod, {"status": {"conditions": conditions}}, "status"),
        EmitEvent(pod, "NodeNotReady", "Node is not ready", "Warning"),
    ]


class NodeLifecycleController:
    name = "node-controller"
    resources = ("nodes", LEASES, "pods")

    def __init__(self, client: Client, cache: Cache) -> None:
        self._cache = cache
        # Thousands of nodes that register at once must not write thousands of events.
        self._executor = ActionExecutor(client, self.name, EventRateLimiter())

    def keys_for(self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None) -> Iterator[str]:
        if resource == "nodes":
            if event_type == "ADDED":
                message = f"Node {name_of(new)} event: Registered Node {name_of(new)} in Controller"
                self._executor.events.record(new, "RegisteredNode", message, created_at(new))
            yield name_of(new)
        elif resource == LEASES and new["metadata"].get("namespace") == LEASE_NAMESPACE:
            # A timely renewal changes nothing: the check at the old deadline reads the new one.
            matters = old is None or event_type == "DELETED" or self._is_unknown(name_of(new))
            yield from [name_of(new)] if matters else []

    def sync(self, key: str, now: float) -> float | None:
        node = self._cache.get("nodes", key)
        if node is None or is_deleting(node):
            return None
        lease = self._cache.get(LEASES, f"{LEASE_NAMESPACE}/{key}")
        result = reconcile_node(node, lease, self._cache.pods_on_node(key), now)
        self._executor.execute(result, now)
        return result.requeue_at

    def _is_unknown(self, name: str) -> bool:
        node = self._cache.get("nodes", name)
        return node is not None and (condition_of(node, "Ready") or {}).get("status") == "Unknown"


class TaintEvictionController:
    name = "taint-eviction-controller"
    resources = ("nodes", "pods")

    def __init__(self, client: Client, cache: Cache) -> None:
        self._cache = cache
        self._executor = ActionExecutor(client, self.name)
        self._since: dict[str, float] = {}
        """When a pod's NoExecute taint was first seen, for taints without `timeAdded`."""

    def keys_for(self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None) -> Iterator[str]:
        if resource == "pods" and event_type == "DELETED":
            self._since.pop(key_of(new), None)
        elif resource == "pods":
            node = self._cache.get("nodes", node_name(new)) if node_name(new) else None
            if node is not None and _evicting_taints(node):
                yield key_of(new)
        elif event_type != "DELETED" and _evicting_taints(new) != (_evicting_taints(old) if old is not None else []):
            yield from (key_of(pod) for pod in self._cache.pods_on_node(name_of(new)))

    def sync(self, key: str, now: float) -> float | None:
        pod = self._cache.get("pods", key)
        node = self._cache.get("nodes", node_name(pod)) if pod is not None else None
        if pod is None or node is None or is_deleting(pod) or is_finished(pod):
            return None
        evict_at = eviction_time(pod, _evicting_taints(node), now, self._since.get(key, now))
        if evict_at is None:
            self._since.pop(key, None)
            return None
        self._since.setdefault(key, now)
        if evict_at > now:
            return evict_at
        message = "Taint manager: deleting due to NoExecute taint"
        conditions = _disruption_target(pod, "DeletionByTaintManager", message, now)
        actions = (
            EmitEvent(pod, "TaintManagerEviction", f"Marking for deletion Pod {key}"),
            Patch("pods", pod, {"status": {"conditions": conditions}}, "status"),
            Delete("pods", pod),
        )
        self._executor.execute(ReconcileResult(actions), now)
        return None


def eviction_time(pod: Unstructured, taints: Sequence[Unstructured], now: float, since: float) -> float | None:
    """When the pod has to be deleted; None if it may stay. `since` counts for a taint without `timeAdded`."""
    times: list[float] = []
    for taint in taints:
        matching = (item for item in pod["spec"].get("tolerations") or () if tolerates(item, taint))
        first = next(matching, None)  # the first matching toleration counts
        if first is None:
            return now
        if first.get("tolerationSeconds") is not None:
            times.append((parse_time(taint.get("timeAdded")) or since) + max(0, first["tolerationSeconds"]))
    return min(times, default=None)


def tolerates(toleration: Unstructured, taint: Unstructured) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def _evicting_taints(node: Unstructured) -> list[Unstructured]:
    return [taint for taint in (node.get("spec") or {}).get("taints") or () if taint["effect"] == "NoExecute"]


def _disruption_target(pod: Unstructured, reason: str, message: str, now: float) -> list[Unstructured]:
    new = condition("DisruptionTarget", "True", reason, message)
    return with_condition((pod.get("status") or {}).get("conditions") or (), new, now)


class PodGarbageCollector:
    """Deletes pods that no kubelet will ever finish: their node does not exist, or they never had one."""

    name = "pod-garbage-collector"
    resources = ("nodes", "pods")

    def __init__(self, client: Client, cache: Cache) -> None:
        self._cache = cache
        self._executor = ActionExecutor(client, self.name)
        self._missing: dict[str, float] = {}

    def keys_for(self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None) -> Iterator[str]:
        if resource == "nodes":
            if event_type == "DELETED":
                yield from (key_of(pod) for pod in self._cache.pods_on_node(name_of(new)))
            self._missing.pop(name_of(new), None)
        elif event_type == "DELETED":
            return
        elif not node_name(new):
            yield from [key_of(new)] if is_deleting(new) else []
        elif self._cache.get("nodes", node_name(new)) is None:
            yield key_of(new)

    def sync(self, key: str, now: float) -> float | None:
        pod = self._cache.get("pods", key)
        if pod is None:
            return None
        if not node_name(pod):
            if is_deleting(pod):  # a finalizer keeps it until it is finished
                self._fail_and_delete(pod, {}, now)
            return None
        if self._cache.get("nodes", node_name(pod)) is not None:
            return None
        since = self._missing.setdefault(node_name(pod), now)
        if now < since + NODE_MONITOR_GRACE_SECONDS:
            return since + NODE_MONITOR_GRACE_SECONDS
        conditions = _disruption_target(pod, "DeletionByPodGC", "PodGC: node no longer exists", now)
        self._fail_and_delete(pod, {"conditions": conditions}, now)
        return None

    def _fail_and_delete(self, pod: Unstructured, status: Unstructured, now: float) -> None:
        actions: list[Patch | Delete] = []
        if not is_finished(pod):
            actions.append(Patch("pods", pod, {"status": {"phase": "Failed", **status}}, "status"))
        actions.append(Delete("pods", pod, grace=0))
        self._executor.execute(ReconcileResult(tuple(actions)), now)
