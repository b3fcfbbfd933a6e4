"""Nodes that fall silent: marked, tainted, and in the end left by their pods.

`NodeLifecycleController` reads leases and conditions and writes conditions, taints and the readiness of pods;
`TaintEvictionController` removes pods that don't tolerate a NoExecute taint (any longer); `PodGarbageCollector`
forgets those whose node is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.events import EventRateLimiter
from windlass.embedded.controllers.executor import ActionExecutor
from windlass.embedded.controllers.objects import (
    condition_of,
    created_at,
    format_time,
    is_deleting,
    key_of,
    name_of,
    parse_time,
    with_condition,
)
from windlass.embedded.controllers.pod_state import is_finished, is_ready
from windlass.embedded.controllers.reconcile_result import (
    Delete,
    EmitEvent,
    Patch,
    ReconcileResult,
    ReconcileResultBuilder,
)
from windlass.model.unstructured import Unstructured

NODE_MONITOR_GRACE_SECONDS = 40.0
"""How long a node may be silent."""
LEASES, LEASE_NAMESPACE = "leases.coordination.k8s.io", "kube-node-lease"
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_PRESSURE = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_MANAGED = {NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_PRESSURE.values()}
_SILENT = ("NodeStatusUnknown", "Kubelet stopped posting node status.")


def reconcile_node(
    node: Unstructured, lease: Unstructured | None, pods: Sequence[Unstructured], now: float
) -> ReconcileResult:
    plan = ReconcileResultBuilder()
    conditions = list((node.get("status") or {}).get("conditions") or ())
    silent_at = _last_heard(node, lease) + _grace(lease)
    if lease is None:
        pass  # a node that never had a kubelet can't fall silent
    elif now >= silent_at:
        conditions = _unknown(conditions, now)
        if (condition_of(node, "Ready") or {}).get("status") != "Unknown":
            plan.add(Patch("nodes", node, {"status": {"conditions": conditions}}, "status"))
            said = f"Node {name_of(node)} status is now: NodeNotReady"
            plan.add(EmitEvent(node, "NodeNotReady", said))
    else:
        plan.requeue(silent_at)
    seen = {**node, "status": {**(node.get("status") or {}), "conditions": conditions}}
    taints = wanted_taints(seen, now)
    if taints != ((node.get("spec") or {}).get("taints") or []):
        plan.add(Patch("nodes", node, {"spec": {"taints": taints or None}}))
    if (condition_of(seen, "Ready") or {}).get("status", "True") != "True":
        for pod in pods:
            if is_ready(pod) and not is_finished(pod):
                plan.add(*_not_ready_any_more(pod, now))
    return plan.build()


def _last_heard(node: Unstructured, lease: Unstructured | None) -> float:
    renewed = parse_time((lease or {}).get("spec", {}).get("renewTime"))
    return max(renewed, created_at(node))


def _grace(lease: Unstructured | None) -> float:
    return max(
        NODE_MONITOR_GRACE_SECONDS, float((lease or {}).get("spec", {}).get("leaseDurationSeconds") or 0)
    )


def _unknown(conditions: list[Unstructured], now: float) -> list[Unstructured]:
    kinds = [each["type"] for each in conditions] or ["Ready"]
    for kind in kinds:
        new = {"type": kind, "status": "Unknown", "reason": _SILENT[0], "message": _SILENT[1]}
        beat = next((each.get("lastHeartbeatTime") for each in conditions if each["type"] == kind), None)
        conditions = with_condition(conditions, {**new, "lastHeartbeatTime": beat}, now)
    return conditions


def wanted_taints(node: Unstructured, now: float) -> list[Unstructured]:
    """Those of others as they are, and ours as the node's state wants them."""
    known = (node.get("spec") or {}).get("taints") or []
    ours = _own_taints(node)
    kept = [
        dict(each) for each in known if each["key"] not in _MANAGED or (each["key"], each["effect"]) in ours
    ]
    present = {(each["key"], each["effect"]) for each in kept}
    added = [
        {"key": key, "effect": effect, "timeAdded": format_time(now)}
        if effect == "NoExecute" or key in (NOT_READY, UNREACHABLE)
        else {"key": key, "effect": effect}
        for key, effect in ours
        if (key, effect) not in present
    ]
    return [*kept, *added]


def _own_taints(node: Unstructured) -> list[tuple[str, str]]:
    taints: list[tuple[str, str]] = []
    if (node.get("spec") or {}).get("unschedulable"):
        taints.append((UNSCHEDULABLE, "NoSchedule"))
    ready = (condition_of(node, "Ready") or {}).get("status", "True")
    if ready != "True":
        key = UNREACHABLE if ready == "Unknown" else NOT_READY
        taints += [(key, "NoSchedule"), (key, "NoExecute")]
    for kind, key in _PRESSURE.items():
        if (condition_of(node, kind) or {}).get("status") == "True":
            taints.append((key, "NoSchedule"))
    return taints


def _not_ready_any_more(pod: Unstructured, now: float) -> list[Patch | EmitEvent]:
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
        # Thousands of nodes that come at once are no thousands of pieces of news.
        self._carrier = ActionExecutor(client, self.name, EventRateLimiter())

    def keys_for(
        self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None
    ) -> Iterator[str]:
        if resource == "nodes":
            if event_type == "ADDED":
                said = f"Node {name_of(new)} event: Registered Node {name_of(new)} in Controller"
                self._carrier.events.record(new, "RegisteredNode", said, created_at(new))
            yield name_of(new)
        elif resource == LEASES and new["metadata"].get("namespace") == LEASE_NAMESPACE:
            # A renewal on time changes nothing; the check at the old deadline reads the new one.
            news = old is None or event_type == "DELETED" or self._is_marked(name_of(new))
            yield from [name_of(new)] if news else []

    def sync(self, key: str, now: float) -> float | None:
        node = self._cache.get("nodes", key)
        if node is None or is_deleting(node):
            return None
        lease = self._cache.get(LEASES, f"{LEASE_NAMESPACE}/{key}")
        outcome = reconcile_node(node, lease, self._cache.pods_on_node(key), now)
        self._carrier.execute(outcome, now)
        return outcome.requeue_at

    def _is_marked(self, name: str) -> bool:
        node = self._cache.get("nodes", name)
        return node is not None and (condition_of(node, "Ready") or {}).get("status") == "Unknown"


class TaintEvictionController:
    name = "taint-eviction-controller"
    resources = ("nodes", "pods")

    def __init__(self, client: Client, cache: Cache) -> None:
        self._cache = cache
        self._carrier = ActionExecutor(client, self.name)
        self._since: dict[str, float] = {}
        """Since when a pod is known to have to go some time; only taints that don't say when they came need it."""

    def keys_for(
        self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None
    ) -> Iterator[str]:
        if resource == "pods" and event_type == "DELETED":
            self._since.pop(key_of(new), None)
        elif resource == "pods":
            node = self._cache.get("nodes", _node_name(new)) if _node_name(new) else None
            if node is not None and _evicting(node):
                yield key_of(new)
        elif event_type != "DELETED" and _evicting(new) != (_evicting(old) if old is not None else []):
            yield from (key_of(pod) for pod in self._cache.pods_on_node(name_of(new)))

    def sync(self, key: str, now: float) -> float | None:
        pod = self._cache.get("pods", key)
        node = self._cache.get("nodes", _node_name(pod)) if pod is not None else None
        if pod is None or node is None or is_deleting(pod) or is_finished(pod):
            return None
        ends = eviction_time(pod, _evicting(node), now, self._since.get(key, now))
        if ends is None:
            self._since.pop(key, None)
            return None
        self._since.setdefault(key, now)
        if ends > now:
            return ends
        new = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
        }
        conditions = with_condition((pod.get("status") or {}).get("conditions") or (), new, now)
        actions = (
            EmitEvent(pod, "TaintManagerEviction", f"Marking for deletion Pod {key}"),
            Patch("pods", pod, {"status": {"conditions": conditions}}, "status"),
            Delete("pods", pod),
        )
        self._carrier.execute(ReconcileResult(actions), now)
        return None


def eviction_time(
    pod: Unstructured, taints: Sequence[Unstructured], now: float, since: float
) -> float | None:
    """When the pod has to go; None where it may stay. `since` counts for a taint that doesn't say when it came."""
    ends: list[float] = []
    for taint in taints:
        covering = (each for each in pod["spec"].get("tolerations") or () if tolerates(each, taint))
        first = next(covering, None)  # of several that fit, the first one counts
        if first is None:
            return now
        if first.get("tolerationSeconds") is not None:
            ends.append((parse_time(taint.get("timeAdded")) or since) + max(0, first["tolerationSeconds"]))
    return min(ends, default=None)


def tolerates(toleration: Unstructured, taint: Unstructured) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def _evicting(node: Unstructured) -> list[Unstructured]:
    return [each for each in (node.get("spec") or {}).get("taints") or () if each["effect"] == "NoExecute"]


def _node_name(pod: Unstructured) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


class PodGarbageCollector:
    """Pods of which nobody will ever say that they have ended: their node doesn't exist, or they never had one."""

    name = "pod-garbage-collector"
    resources = ("nodes", "pods")

    def __init__(self, client: Client, cache: Cache) -> None:
        self._door, self._cache = client, cache
        self._carrier = ActionExecutor(client, self.name)
        self._missing: dict[str, float] = {}

    def keys_for(
        self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None
    ) -> Iterator[str]:
        if resource == "nodes":
            if event_type == "DELETED":
                yield from (key_of(pod) for pod in self._cache.pods_on_node(name_of(new)))
            self._missing.pop(name_of(new), None)
        elif event_type == "DELETED":
            return
        elif not _node_name(new):
            yield from [key_of(new)] if is_deleting(new) else []
        elif self._cache.get("nodes", _node_name(new)) is None:
            yield key_of(new)

    def sync(self, key: str, now: float) -> float | None:
        pod = self._cache.get("pods", key)
        if pod is None:
            return None
        if not _node_name(pod):
            if is_deleting(pod):  # a finalizer keeps it, and whoever put that there waits for its end
                self._give_up(pod, {}, now)
            return None
        if self._cache.get("nodes", _node_name(pod)) is not None:
            return None
        since = self._missing.setdefault(_node_name(pod), now)
        if now < since + NODE_MONITOR_GRACE_SECONDS:
            return since + NODE_MONITOR_GRACE_SECONDS
        new = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
        }
        conditions = with_condition((pod.get("status") or {}).get("conditions") or (), new, now)
        self._give_up(pod, {"conditions": conditions}, now)
        return None

    def _give_up(self, pod: Unstructured, status: Unstructured, now: float) -> None:
        actions: list[Patch | Delete] = []
        if not is_finished(pod):
            actions.append(Patch("pods", pod, {"status": {"phase": "Failed", **status}}, "status"))
        actions.append(Delete("pods", pod, grace=0))
        self._carrier.execute(ReconcileResult(tuple(actions)), now)
