"""What an ill GPU means in the cluster: fewer devices to give away, an Event on the node, and failed pods.

`runtime.faults` calls it for GPUs that are broken on purpose, `process.health` for real ones. The Events bear the node
agent's names. What the page and `windlass why` show comes from the node's status and annotation, which
`runtime.heartbeat` writes.
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
        self._door, self._kubelet, self._heartbeat = client, kubelet, heartbeat
        self._events = EventRecorder(client, "windlass-node")

    def record_event(self, node: str, reason: str, message: str, now: float) -> None:
        """An Event on the node."""
        kind = "Normal" if reason == HEALTHY else "Warning"
        self._events.record(self._door.get("nodes", "", node), reason, message, now, type=kind, host=node)

    def update_node_status(self, node: str, now: float) -> None:
        """Write what can be given away now."""
        self._heartbeat.update_node_status(node, now)

    def fail_pods(self, device_manager: DeviceManager, device: int | str, message: str, now: float) -> int:
        """Pods that hold a broken GPU, or MIG instance by its UUID, fail, and whoever owns them makes others."""
        holders = device_manager.pods_using(device)
        for key in holders:
            ended = ContainerExit(1, "Error", message)
            self._kubelet.fail_pod(key, UNHEALTHY, f"node {device_manager.name}, {message}", now, ended)
        return len(holders)


def fault_message(device_manager: DeviceManager, index: int, fault: DeviceFault, uuid: str = "") -> str:
    """The device and what ails it, in a line."""
    xid = f"Xid {fault.xid}: " if fault.xid else ""
    return f"GPU {index} ({uuid or device_manager.uuids[index]}): {xid}{fault.message}"
