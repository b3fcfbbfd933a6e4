"""What an ill GPU means in the cluster: fewer devices to give away, an Event on the node, and failed pods.

`runtime.faults` calls it for GPUs that are broken on purpose, `process.health` for real ones. The Events bear the node
agent's names. What the page and `windlass why` show comes from the node's status and annotation, which
`runtime.heartbeat` writes.
"""

from __future__ import annotations

from windlass.embedded.controllers.doors import Door
from windlass.embedded.controllers.events import EventWriter
from windlass.embedded.runtime.containers import Exit
from windlass.embedded.runtime.heartbeat import Heartbeat
from windlass.embedded.runtime.kubelet import Kubelet
from windlass.embedded.runtime.machine import Illness, Machine

UNHEALTHY, HEALTHY, XID = "GPUUnhealthy", "GPUHealthy", "GPUXid"


class DeviceHealth:
    def __init__(self, door: Door, kubelet: Kubelet, heartbeat: Heartbeat) -> None:
        self._door, self._kubelet, self._heartbeat = door, kubelet, heartbeat
        self._events = EventWriter(door, "windlass-node")

    def tell(self, node: str, reason: str, said: str, now: float) -> None:
        """An Event on the node."""
        kind = "Normal" if reason == HEALTHY else "Warning"
        self._events.write(self._door.get("nodes", "", node), reason, said, now, type=kind, host=node)

    def report(self, node: str, now: float) -> None:
        """Write what can be given away now."""
        self._heartbeat.report(node, now)

    def fail_pods(self, machine: Machine, device: int | str, said: str, now: float) -> int:
        """Pods that hold a broken GPU, or MIG instance by its UUID, fail, and whoever owns them makes others."""
        holders = machine.holders(device)
        for key in holders:
            ended = Exit(1, "Error", said)
            self._kubelet.fail_pod(key, UNHEALTHY, f"node {machine.name}, {said}", now, ended)
        return len(holders)


def words(machine: Machine, index: int, illness: Illness, uuid: str = "") -> str:
    """The device and what ails it, in a line."""
    xid = f"Xid {illness.xid}: " if illness.xid else ""
    return f"GPU {index} ({uuid or machine.uuids[index]}): {xid}{illness.words}"
