"""The machines of a simulated cluster, made when they are first needed, and which of them have failed.

The kubelet asks here for its machines, `runtime.faults` breaks and mends them, `runtime.heartbeat` leaves out the
silent. A node is ours if it carries the annotation that `runtime.fleet_nodes` writes; nodes of others are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.objects import Tree, annotations_of
from windlass.embedded.runtime.machine import Machine
from windlass.model.convert import convert
from windlass.model.node import Node

OURS = "sandbox.windlass.dev/node"
"""The annotation of nodes that the embedded cluster's own kubelet stands for."""
Parts = Sequence[tuple[int, str]]
"""Which GPU each MIG instance of a node is cut from."""


class SimulatedPark:
    def __init__(self, cache: Cache, parts: Mapping[str, Parts] | None = None) -> None:
        self._cache = cache
        self._parts = dict(parts or {})
        self._machines: dict[str, Machine] = {}
        self._uids: dict[str, str] = {}
        self.down: set[str] = set()

    def is_ours(self, node: str) -> bool:
        found = self._cache.get("nodes", node)
        return found is not None and OURS in annotations_of(found)

    def machine(self, node: str) -> Machine | None:
        found = self._cache.get("nodes", node)
        if found is None or OURS not in annotations_of(found):
            return None
        if self._uids.get(node) != found["metadata"].get("uid"):
            self._machines[node] = self._made(found)
            self._uids[node] = found["metadata"].get("uid", "")
        return self._machines[node]

    def is_down(self, node: str) -> bool:
        return node in self.down

    def names(self) -> list[str]:
        return [node["metadata"]["name"] for node in self._cache.all("nodes") if OURS in annotations_of(node)]

    def _made(self, node: Tree) -> Machine:
        decoded = convert(node, Node)
        assert isinstance(decoded, Node)
        return Machine.of_node(decoded, self._parts.get(decoded.name, ()))
