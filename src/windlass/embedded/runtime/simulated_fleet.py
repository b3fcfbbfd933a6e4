"""The machines of a simulated cluster, made when they are first needed, and which of them have failed.

The kubelet asks here for its machines, `runtime.faults` breaks and mends them, `runtime.heartbeat` leaves out the
silent. A node is ours if it carries the annotation that `runtime.fleet_nodes` writes; nodes of others are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.objects import annotations_of
from windlass.embedded.runtime.device_manager import DeviceManager
from windlass.model.convert import convert
from windlass.model.node import Node
from windlass.model.unstructured import Unstructured

SIMULATED_NODE_ANNOTATION = "sandbox.windlass.dev/node"
"""The annotation of nodes that the embedded cluster's own kubelet stands for."""
MigInstances = Sequence[tuple[int, str]]
"""Which GPU each MIG instance of a node is cut from."""


class SimulatedFleet:
    def __init__(self, cache: Cache, mig_instances: Mapping[str, MigInstances] | None = None) -> None:
        self._cache = cache
        self._parts = dict(mig_instances or {})
        self._machines: dict[str, DeviceManager] = {}
        self._uids: dict[str, str] = {}
        self.down_nodes: set[str] = set()

    def is_ours(self, node: str) -> bool:
        found = self._cache.get("nodes", node)
        return found is not None and SIMULATED_NODE_ANNOTATION in annotations_of(found)

    def device_manager(self, node: str) -> DeviceManager | None:
        found = self._cache.get("nodes", node)
        if found is None or SIMULATED_NODE_ANNOTATION not in annotations_of(found):
            return None
        if self._uids.get(node) != found["metadata"].get("uid"):
            self._machines[node] = self._made(found)
            self._uids[node] = found["metadata"].get("uid", "")
        return self._machines[node]

    def is_down(self, node: str) -> bool:
        return node in self.down_nodes

    def node_names(self) -> list[str]:
        return [
            node["metadata"]["name"]
            for node in self._cache.all("nodes")
            if SIMULATED_NODE_ANNOTATION in annotations_of(node)
        ]

    def _made(self, node: Unstructured) -> DeviceManager:
        decoded = convert(node, Node)
        assert isinstance(decoded, Node)
        return DeviceManager.from_node(decoded, self._parts.get(decoded.name, ()))
