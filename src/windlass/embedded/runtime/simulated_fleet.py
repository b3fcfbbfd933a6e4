"""The device managers of a simulated cluster's nodes, created on first use, and which nodes have failed.

The kubelet and `heartbeat` ask it, `faults` changes it. A node is ours if it has the annotation that `fleet_nodes`
writes.
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
"""Annotation of nodes that the embedded cluster's kubelet serves."""
MigInstances = Sequence[tuple[int, str]]
"""GPU index and profile of each MIG instance of a node."""


class SimulatedFleet:
    def __init__(self, cache: Cache, mig_instances: Mapping[str, MigInstances] | None = None) -> None:
        self._cache = cache
        self._mig_instances = dict(mig_instances or {})
        self._device_managers: dict[str, DeviceManager] = {}
        self._uids: dict[str, str] = {}
        self.down_nodes: set[str] = set()

    def is_ours(self, node: str) -> bool:
        node_object = self._cache.get("nodes", node)
        return node_object is not None and SIMULATED_NODE_ANNOTATION in annotations_of(node_object)

    def device_manager(self, node: str) -> DeviceManager | None:
        node_object = self._cache.get("nodes", node)
        if node_object is None or SIMULATED_NODE_ANNOTATION not in annotations_of(node_object):
            return None
        if self._uids.get(node) != node_object["metadata"].get("uid"):
            self._device_managers[node] = self._make_device_manager(node_object)
            self._uids[node] = node_object["metadata"].get("uid", "")
        return self._device_managers[node]

    def is_down(self, node: str) -> bool:
        return node in self.down_nodes

    def node_names(self) -> list[str]:
        return [
            node["metadata"]["name"]
            for node in self._cache.all("nodes")
            if SIMULATED_NODE_ANNOTATION in annotations_of(node)
        ]

    def _make_device_manager(self, node: Unstructured) -> DeviceManager:
        decoded = convert(node, Node)
        assert isinstance(decoded, Node)
        return DeviceManager.from_node(decoded, self._mig_instances.get(decoded.name, ()))
