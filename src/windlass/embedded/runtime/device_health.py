"""Effects of an unhealthy GPU in the cluster: fewer allocatable devices, an Event on the node, failed pods.

`faults` calls it for injected faults, `process.gpu_health` for real ones. Event reasons are the node agent's. The
page and `windlass why` read the node's status and annotation, which `heartbeat` writes.
"""

from __future__ import annotations

from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.events import EventRecorder
from windlass.embedded.runtime.container_runtime import ContainerExit
from windlass.embedded.runtime.device_manager import DeviceFault, DeviceManager
from windlass.embedded.runtime.heartbeat import Heartbeat
from windlass.embedded.runtime.kubelet import Kubelet

UNHEALTHY, HEALTHY, XID = "GPUUnhealthy", "GPUHealthy", "GPUXid"


class DeviceHealth:
    def __init__(self, client: Client, kubelet: Kubelet, heartbeat: Heartbeat) -> None:
        self._client, self._kubelet, self._heartbeat = client, kubelet, heartbeat
        self._events = EventRecorder(client, "windlass-node")

    def record_event(self, node: str, reason: str, message: str, now: float) -> None:
        """An Event on the node."""
        kind = "Normal" if reason == HEALTHY else "Warning"
        self._events.record(self._client.get("nodes", "", node), reason, message, now, type=kind, host=node)

    def update_node_status(self, node: str, now: float) -> None:
        """Writes the allocatable devices."""
        self._heartbeat.update_node_status(node, now)

    def fail_pods(self, device_manager: DeviceManager, device: int | str, message: str, now: float) -> int:
        """Fails the pods that hold a broken GPU (by index) or MIG instance (by UUID); their owners create others."""
        holders = device_manager.pods_using(device)
        for key in holders:
            ended = ContainerExit(1, "Error", message)
            self._kubelet.fail_pod(key, UNHEALTHY, f"node {device_manager.name}, {message}", now, ended)
        return len(holders)


def fault_message(device_manager: DeviceManager, index: int, fault: DeviceFault, uuid: str = "") -> str:
    """The device and its fault in one line."""
    xid = f"Xid {fault.xid}: " if fault.xid else ""
    return f"GPU {index} ({uuid or device_manager.uuids[index]}): {xid}{fault.message}"
