"""The nodes' signs of life: a Lease for each, renewed in turn, and their status when something about it changes.

A worker of the controllers' loop. Ten seconds between renewals, as a kubelet does; in a park of more than five
hundred nodes longer, so that signs of life stay under twenty writes a second, with leases that last accordingly.
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.embedded.api.errors import ApiError
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.events import EventRecorder
from windlass.embedded.controllers.objects import (
    condition_of,
    format_micro_time,
    is_deleting,
    name_of,
    uid_of,
    with_condition,
)
from windlass.embedded.runtime.fleet_nodes import node_conditions
from windlass.embedded.runtime.kubelet import NodeFleet
from windlass.model.device import UNHEALTHY_ANNOTATION
from windlass.model.unstructured import Unstructured

LEASES, NAMESPACE = "leases.coordination.k8s.io", "kube-node-lease"
RENEW_INTERVAL_SECONDS = 10.0
MAX_RENEWALS_PER_SECOND = 20.0


class Heartbeat:
    name = "kubelet-heartbeat"
    resources = ("nodes",)

    def __init__(self, client: Client, fleet: NodeFleet) -> None:
        self._door, self._park = client, fleet
        self._events = EventRecorder(client, "kubelet")
        self._count = 0

    def keys_for(
        self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None
    ) -> Iterator[str]:
        if event_type == "ADDED":
            self._count += 1
            yield name_of(new)
        elif event_type == "DELETED":
            self._count -= 1

    def sync(self, key: str, now: float) -> float | None:
        if not self._park.is_ours(key) or self._park.is_down(key):
            return None
        self.renew_lease(key, now)
        node = self._door.get("nodes", "", key)
        if (condition_of(node, "Ready") or {}).get("status") != "True":
            self.update_node_status(key, now)
        return now + self.interval

    @property
    def interval(self) -> float:
        return max(RENEW_INTERVAL_SECONDS, self._count / MAX_RENEWALS_PER_SECOND)

    def update_node_status(self, node_name: str, now: float) -> None:
        """The kubelet's view of its node: ready, with so many healthy devices."""
        machine = self._park.device_manager(node_name)
        if machine is None:
            return
        node = self._door.get("nodes", "", node_name)
        status = dict(node.get("status") or {})
        was_ready = (condition_of(node, "Ready") or {}).get("status") == "True"
        conditions = list(status.get("conditions") or ())
        for new in node_conditions(now):
            new.pop("lastTransitionTime")
            conditions = with_condition(conditions, new, now)
        healthy = {name: str(count) for name, count in machine.allocatable().items()}
        capacity = status.get("capacity") or {}
        known = {name: count for name, count in healthy.items() if name in capacity}
        status["allocatable"] = {**(status.get("allocatable") or {}), **known}
        status["conditions"] = conditions
        self._door.update("nodes", "", node_name, {**node, "status": status}, "status")
        ill = ",".join(map(str, sorted(machine.unhealthy)))
        merge = {"metadata": {"annotations": {UNHEALTHY_ANNOTATION: ill or None}}}
        self._door.patch("nodes", "", node_name, merge)
        if not was_ready:
            said = f"Node {node_name} status is now: NodeReady"
            self._events.record(node, "NodeReady", said, now, host=node_name)

    def renew_lease(self, node_name: str, now: float) -> None:
        """The lease is good for another while."""
        merge = {
            "spec": {"renewTime": format_micro_time(now), "leaseDurationSeconds": int(4 * self.interval)}
        }
        try:
            self._door.patch(LEASES, NAMESPACE, node_name, merge)
        except ApiError as error:
            if error.code != 404:
                raise
            self._create(node_name, now)

    def _create(self, key: str, now: float) -> None:
        node = self._door.get("nodes", "", key)
        if is_deleting(node):
            return
        owner = {"apiVersion": "v1", "kind": "Node", "name": key, "uid": uid_of(node)}
        spec = {
            "holderIdentity": key,
            "leaseDurationSeconds": int(4 * self.interval),
            "renewTime": format_micro_time(now),
        }
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": key, "namespace": NAMESPACE, "ownerReferences": [owner]},
            "spec": spec,
        }
        self._door.create(LEASES, NAMESPACE, lease)
