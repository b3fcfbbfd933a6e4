"""The nodes' heartbeats: a Lease each, renewed regularly, and their status when it changes.

A controller on the controllers' loop. Renews every ten seconds, as a kubelet does; with more than 200 nodes less
often, so that there are at most 20 writes per second, with longer leases accordingly.
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.timestamps import format_micro_time
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.events import EventRecorder
from windlass.embedded.controllers.objects import condition_of, is_deleting, name_of, uid_of, with_condition
from windlass.embedded.runtime.device_manager import DeviceManager
from windlass.embedded.runtime.fleet_nodes import node_conditions
from windlass.embedded.runtime.kubelet import NodeFleet
from windlass.model.names.kubernetes import COORDINATION_API_VERSION
from windlass.model.names.windlass import DEVICE_FAULTS_ANNOTATION, UNHEALTHY_DEVICES_ANNOTATION
from windlass.model.unstructured import Unstructured
from windlass.node.operator_link import DeviceFaultReport, encode_faults, rung_of_action
from windlass.node.xid import lookup_xid

LEASES, NAMESPACE = "leases.coordination.k8s.io", "kube-node-lease"
RENEW_INTERVAL_SECONDS = 10.0
MAX_RENEWALS_PER_SECOND = 20.0


class Heartbeat:
    name = "kubelet-heartbeat"
    resources = ("nodes",)

    def __init__(self, client: Client, fleet: NodeFleet) -> None:
        self._client, self._fleet = client, fleet
        self._events = EventRecorder(client, "kubelet")
        self._count = 0

    def keys_for(self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None) -> Iterator[str]:
        if event_type == "ADDED":
            self._count += 1
            yield name_of(new)
        elif event_type == "DELETED":
            self._count -= 1

    def sync(self, key: str, now: float) -> float | None:
        if not self._fleet.is_ours(key) or self._fleet.is_down(key):
            return None
        self.renew_lease(key, now)
        node = self._client.get("nodes", "", key)
        if (condition_of(node, "Ready") or {}).get("status") != "True":
            self.update_node_status(key, now)
        return now + self.interval

    @property
    def interval(self) -> float:
        return max(RENEW_INTERVAL_SECONDS, self._count / MAX_RENEWALS_PER_SECOND)

    def update_node_status(self, node_name: str, now: float) -> None:
        """Writes the kubelet's view of its node: ready, with its healthy devices."""
        device_manager = self._fleet.device_manager(node_name)
        if device_manager is None:
            return
        node = self._client.get("nodes", "", node_name)
        status = dict(node.get("status") or {})
        was_ready = (condition_of(node, "Ready") or {}).get("status") == "True"
        conditions = list(status.get("conditions") or ())
        for new in node_conditions(now):
            new.pop("lastTransitionTime")
            conditions = with_condition(conditions, new, now)
        healthy = {name: str(count) for name, count in device_manager.allocatable().items()}
        capacity = status.get("capacity") or {}
        known = {name: count for name, count in healthy.items() if name in capacity}
        status["allocatable"] = {**(status.get("allocatable") or {}), **known}
        status["conditions"] = conditions
        self._client.update("nodes", "", node_name, {**node, "status": status}, "status")
        unhealthy = ",".join(map(str, sorted(device_manager.unhealthy.keys() | device_manager.held)))
        annotations = {
            UNHEALTHY_DEVICES_ANNOTATION: unhealthy or None,
            DEVICE_FAULTS_ANNOTATION: _faults(device_manager) or None,
        }
        merge = {"metadata": {"annotations": annotations}}
        self._client.patch("nodes", "", node_name, merge)
        if not was_ready:
            message = f"Node {node_name} status is now: NodeReady"
            self._events.record(node, "NodeReady", message, now, host=node_name)

    def renew_lease(self, node_name: str, now: float) -> None:
        merge = {"spec": {"renewTime": format_micro_time(now), "leaseDurationSeconds": int(4 * self.interval)}}
        try:
            self._client.patch(LEASES, NAMESPACE, node_name, merge)
        except ApiError as error:
            if error.code != 404:
                raise
            self._create(node_name, now)

    def _create(self, key: str, now: float) -> None:
        node = self._client.get("nodes", "", key)
        if is_deleting(node):
            return
        owner = {"apiVersion": "v1", "kind": "Node", "name": key, "uid": uid_of(node)}
        spec = {
            "holderIdentity": key,
            "leaseDurationSeconds": int(4 * self.interval),
            "renewTime": format_micro_time(now),
        }
        lease = {
            "apiVersion": COORDINATION_API_VERSION,
            "kind": "Lease",
            "metadata": {"name": key, "namespace": NAMESPACE, "ownerReferences": [owner]},
            "spec": spec,
        }
        self._client.create(LEASES, NAMESPACE, lease)


def _faults(machine: DeviceManager) -> str:
    """What the node's agent would report of its GPUs."""
    reports = []
    for device, fault in sorted(machine.unhealthy.items()):
        xid = lookup_xid(fault.xid)
        name = f"Xid {fault.xid}" if fault.xid else "unhealthy"
        reports.append(DeviceFaultReport(device, name, rung_of_action(xid.action.value), fault.message))
    return encode_faults(reports)
