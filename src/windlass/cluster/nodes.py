"""The nodes of a store: as objects, as numbers, and which of them can't be understood.

The store puts every node here, and asks for new arrays when nodes have come, changed or gone, which is rare. A node of
which something can't be read is kept as it was last understood, or as one that offers nothing, and takes no new work;
what is wrong with it is said by name.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.cluster.columns import ModelBook, NodeRow, build_state, read_node
from windlass.cluster.facts import NodeFacts
from windlass.cluster.likeness import same_node
from windlass.cluster.resources import ResourceBook
from windlass.cluster.state import BLOCKED, NodeState
from windlass.model.errors import InputError
from windlass.model.node import Node
from windlass.model.objects import Unreadable

_NOTHING = NodeRow({}, (), 1)


class NodeBook:
    def __init__(self, ranks: Mapping[str, int], resources: ResourceBook, models: ModelBook) -> None:
        """`ranks` orders nodes of equal score (lowest first); by name where nothing is given."""
        self._ranks, self._resources, self._models = ranks, resources, models
        self._nodes: dict[str, Node] = {}
        self._rows: dict[str, NodeRow] = {}
        self.errors: dict[str, str] = {}
        """Node that can't be understood → what is wrong with it."""
        self._undecoded: set[str] = set()
        self.has_changed = False

    @property
    def objects(self) -> Mapping[str, Node]:
        return self._nodes

    def put(self, node: Node) -> bool:
        """Whether that makes a difference."""
        known = self._nodes.get(node.name)
        if known is not None and same_node(known, node) and node.name not in self._undecoded:
            return False
        self.errors.pop(node.name, None)
        self._undecoded.discard(node.name)
        self._nodes[node.name] = node
        self.has_changed = True
        try:
            row = read_node(node)
            for device in row.devices:
                self._models.code(device.model)
        except InputError as error:
            self.errors[node.name] = str(error.with_context(object=f"Node {node.name}"))
            self._rows.setdefault(node.name, _NOTHING)
        else:
            self._rows[node.name] = row
        return True

    def put_unreadable(self, found: Unreadable) -> None:
        """What arrived is no Node at all; what was known of it stands."""
        self.errors[found.name] = str(found.error.with_context(object=f"Node {found.name}"))
        self._undecoded.add(found.name)
        self.has_changed |= found.name in self._nodes

    def drop(self, name: str) -> None:
        self.has_changed |= self._nodes.pop(name, None) is not None
        self._rows.pop(name, None)
        self.errors.pop(name, None)
        self._undecoded.discard(name)

    def problems(self) -> dict[str, str]:
        """By `Node name`, as the store reports them."""
        return {
            f"Node {name}": f"{why}; the node takes no new work" for name, why in sorted(self.errors.items())
        }

    def build(self) -> tuple[NodeFacts, NodeState]:
        """Facts and arrays of all nodes in order, with nothing booked."""
        self.has_changed = False
        names = sorted(self._nodes, key=lambda name: (self._ranks.get(name, 0), name))
        state = build_state([self._rows[name] for name in names], self._resources, self._models)
        for at, name in enumerate(names):
            state.node[at, BLOCKED] += name in self.errors
        return NodeFacts([self._nodes[name] for name in names]), state
