"""Breaking and mending the simulated cluster: whole nodes, and single GPUs with an Xid.

`windlass sandbox` asks over HTTPS (`runtime.sandbox_routes`), the page in this process; both call `fail` and `heal`
with the same words, `node/x` and `gpu/x:3`.
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
_FORMS = "write node/NAME or gpu/NODE:INDEX, such as gpu/h100-0:3"


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
        """`wake` brings a pod ("pod", its key) or a node ("node", its name) back into the loop."""
        self._park, self._kubelet = fleet, kubelet
        self._wake, self._clock = enqueue, clock
        self._health = DeviceHealth(client, kubelet, heartbeat)

    def fail(self, target: str, xid: int | None = None) -> str:
        """Break something; returns what was done, in a sentence."""
        node, index = self._find(target)
        if index is None:
            if xid is not None:
                raise InputError("an Xid is a GPU's", remedy=f"name the GPU: gpu/{node}:0")
            return self._fail_node(node)
        return self._fail_gpu(node, index, DEFAULT_XID if xid is None else xid)

    def heal(self, target: str = "") -> str:
        """Mend it; without a target, everything."""
        if not target:
            broken = self.active_faults()
            for each in broken:
                self.heal(str(each["target"]))
            return f"healed {len(broken)}" if broken else "nothing was broken"
        node, index = self._find(target)
        return self._heal_node(node) if index is None else self._heal_gpu(node, index)

    def active_faults(self) -> list[Unstructured]:
        """Everything that is broken now."""
        found: list[Unstructured] = [
            {"target": f"node/{name}", "xid": 0, "says": "silent"} for name in sorted(self._park.down_nodes)
        ]
        for name in self._park.node_names():
            machine = self._park.device_manager(name)
            for index, illness in sorted(machine.unhealthy.items()) if machine is not None else ():
                found.append({"target": f"gpu/{name}:{index}", "xid": illness.xid, "says": illness.message})
        return found

    def _find(self, target: str) -> tuple[str, int | None]:
        kind, slash, name = target.partition("/")
        if not slash or kind not in ("node", "gpu"):
            raise InputError(f"{target[:80]!r} is nothing that can fail", remedy=_FORMS)
        node, _, number = name.partition(":")
        machine = self._park.device_manager(node)
        if machine is None:
            known = ", ".join(self._park.node_names()[:8])
            raise InputError(f"there is no simulated node {node[:80]!r}", remedy=f"there are {known}")
        if kind == "node":
            if number:
                raise InputError(f"{target[:80]!r} names a GPU", remedy=f"write gpu/{name[:80]}")
            return node, None
        if not (number.isascii() and number.isdigit() and int(number[:6]) < len(machine.devices)):
            count = len(machine.devices)
            remedy = f"its GPUs are 0 to {count - 1}" if count else "the node has no GPUs"
            raise InputError(f"node {node} has no GPU {number[:16]!r}", remedy=remedy)
        return node, int(number)

    def _fail_node(self, node: str) -> str:
        if node in self._park.down_nodes:
            return f"node {node} has failed already"
        self._park.down_nodes.add(node)
        self._kubelet.crash_node(node, self._clock())
        return f"node {node} has failed: it falls silent, and becomes NotReady when its lease has run out"

    def _heal_node(self, node: str) -> str:
        if node not in self._park.down_nodes:
            return f"node {node} is well"
        self._park.down_nodes.discard(node)
        self._wake("node", node)
        for key in self._kubelet.pod_keys_on_node(node):
            self._wake("pod", key)
        return f"node {node} is back"

    def _fail_gpu(self, node: str, index: int, code: int) -> str:
        machine = self._machine(node)
        known = xid_of(code)
        illness = DeviceFault(code, f"{known.description}; {known.action.value}")
        said, now = fault_message(machine, index, illness), self._clock()
        if not known.is_fatal:
            self._health.record_event(node, XID, said, now)
            return f"GPU {index} of {node}: Xid {code} ({illness.message}); the device stays healthy"
        machine.unhealthy[index] = illness
        self._health.record_event(node, UNHEALTHY, said, now)
        self._health.update_node_status(node, now)
        failed = self._health.fail_pods(machine, index, said, now)
        count = f"{failed} pod{'s' * (failed != 1)} failed"
        return f"GPU {index} of {node}: Xid {code} ({illness.message}); {count}"

    def _heal_gpu(self, node: str, index: int) -> str:
        machine = self._machine(node)
        if machine.unhealthy.pop(index, None) is None:
            return f"GPU {index} of {node} is well"
        now = self._clock()
        self._health.record_event(
            node, HEALTHY, fault_message(machine, index, DeviceFault(0, "is healthy again")), now
        )
        self._health.update_node_status(node, now)
        return f"GPU {index} of {node} is healthy again"

    def _machine(self, node: str) -> DeviceManager:
        machine = self._park.device_manager(node)
        assert machine is not None, "_find has looked"
        return machine
