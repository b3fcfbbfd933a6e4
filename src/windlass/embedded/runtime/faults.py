"""Injects and heals faults of the simulated cluster: whole nodes, and single GPUs with an Xid.

`windlass sandbox` calls it over HTTPS (`sandbox_routes`), the page in this process; both call `fail` and `heal`
with targets such as `node/x` and `gpu/x:3`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from windlass.embedded.controllers.client import Client
from windlass.embedded.runtime.device_health import HEALTHY, UNHEALTHY, XID, DeviceHealth, fault_message
from windlass.embedded.runtime.device_manager import DeviceFault, DeviceManager
from windlass.embedded.runtime.heartbeat import Heartbeat
from windlass.embedded.runtime.kubelet import Kubelet
from windlass.embedded.runtime.simulated_fleet import SimulatedFleet
from windlass.model.errors import InputError
from windlass.model.unstructured import Unstructured
from windlass.node.xid import lookup_xid as xid_of

DEFAULT_XID = 79
_TARGET_FORMS = "write node/NAME or gpu/NODE:INDEX, such as gpu/h100-0:3"


class Faults:
    def __init__(
        self,
        client: Client,
        fleet: SimulatedFleet,
        kubelet: Kubelet,
        heartbeat: Heartbeat,
        enqueue: Callable[[str, str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`enqueue` puts a pod ("pod", its key) or a node ("node", its name) into the controllers' queue."""
        self._fleet, self._kubelet = fleet, kubelet
        self._enqueue, self._clock = enqueue, clock
        self._health = DeviceHealth(client, kubelet, heartbeat)

    def fail(self, target: str, xid: int | None = None) -> str:
        """Injects a fault; returns a sentence about the effect."""
        node, index = self._find(target)
        if index is None:
            if xid is not None:
                raise InputError("a node has no Xid", remedy=f"name a GPU: gpu/{node}:0")
            return self._fail_node(node)
        return self._fail_gpu(node, index, DEFAULT_XID if xid is None else xid)

    def heal(self, target: str = "") -> str:
        """Heals the target; everything if there is none."""
        if not target:
            broken = self.active_faults()
            for fault in broken:
                self.heal(str(fault["target"]))
            return f"healed {len(broken)} fault{'s' * (len(broken) != 1)}" if broken else "nothing to heal"
        node, index = self._find(target)
        return self._heal_node(node) if index is None else self._heal_gpu(node, index)

    def active_faults(self) -> list[Unstructured]:
        """All current faults."""
        found: list[Unstructured] = [
            {"target": f"node/{name}", "xid": 0, "says": "sends no heartbeats"}
            for name in sorted(self._fleet.down_nodes)
        ]
        for name in self._fleet.node_names():
            device_manager = self._fleet.device_manager(name)
            for index, fault in sorted(device_manager.unhealthy.items()) if device_manager is not None else ():
                found.append({"target": f"gpu/{name}:{index}", "xid": fault.xid, "says": fault.message})
        return found

    def _find(self, target: str) -> tuple[str, int | None]:
        kind, slash, name = target.partition("/")
        if not slash or kind not in ("node", "gpu"):
            raise InputError(f"{target[:80]!r} is not a node or GPU", remedy=_TARGET_FORMS)
        node, _, number = name.partition(":")
        device_manager = self._fleet.device_manager(node)
        if device_manager is None:
            known = ", ".join(self._fleet.node_names()[:8])
            raise InputError(f"there is no simulated node {node[:80]!r}", remedy=f"there are {known}")
        if kind == "node":
            if number:
                raise InputError(f"{target[:80]!r} names a GPU", remedy=f"write gpu/{name[:80]}")
            return node, None
        if not (number.isascii() and number.isdigit() and int(number[:6]) < len(device_manager.devices)):
            count = len(device_manager.devices)
            remedy = f"its GPUs are 0 to {count - 1}" if count else "the node has no GPUs"
            raise InputError(f"node {node} has no GPU {number[:16]!r}", remedy=remedy)
        return node, int(number)

    def _fail_node(self, node: str) -> str:
        if node in self._fleet.down_nodes:
            return f"node {node} has failed already"
        self._fleet.down_nodes.add(node)
        self._kubelet.crash_node(node, self._clock())
        return f"node {node} has failed: it sends no more heartbeats and becomes NotReady when its lease expires"

    def _heal_node(self, node: str) -> str:
        if node not in self._fleet.down_nodes:
            return f"node {node} has no fault"
        self._fleet.down_nodes.discard(node)
        self._enqueue("node", node)
        for key in self._kubelet.pod_keys_on_node(node):
            self._enqueue("pod", key)
        return f"node {node} is healthy again and sends heartbeats"

    def _fail_gpu(self, node: str, index: int, code: int) -> str:
        device_manager = self._device_manager(node)
        known = xid_of(code)
        fault = DeviceFault(code, f"{known.description}; {known.action.value}")
        message, now = fault_message(device_manager, index, fault), self._clock()
        if not known.is_fatal:
            self._health.record_event(node, XID, message, now)
            return f"GPU {index} of {node}: Xid {code} ({fault.message}); the GPU stays healthy"
        device_manager.unhealthy[index] = fault
        self._health.record_event(node, UNHEALTHY, message, now)
        self._health.update_node_status(node, now)
        failed = self._health.fail_pods(device_manager, index, message, now)
        count = f"{failed} pod{'s' * (failed != 1)} failed"
        return f"GPU {index} of {node}: Xid {code} ({fault.message}); {count}"

    def _heal_gpu(self, node: str, index: int) -> str:
        device_manager = self._device_manager(node)
        if device_manager.unhealthy.pop(index, None) is None:
            return f"GPU {index} of {node} has no fault"
        now = self._clock()
        self._health.record_event(
            node, HEALTHY, fault_message(device_manager, index, DeviceFault(0, "healthy again")), now
        )
        self._health.update_node_status(node, now)
        return f"GPU {index} of {node} is healthy again"

    def _device_manager(self, node: str) -> DeviceManager:
        device_manager = self._fleet.device_manager(node)
        assert device_manager is not None, "_find has checked the node"
        return device_manager
