"""The nodes of a store: as objects, as numbers, and which of them can't be understood.

The store puts every node here, and asks for new arrays when nodes have come or gone, and for new rows when they have
changed. A node of which something can't be read is kept as it was last understood, or as one that offers nothing, and
takes no new work; what is wrong with it is said by name.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.cluster.columns import ModelBook, NodeRow, build_state, read_node
from windlass.cluster.facts import NodeFacts
from windlass.cluster.likeness import same_node
from windlass.cluster.resources import ResourceBook
from windlass.cluster.state import BLOCKED, DEV_END, DEV_FIRST, REPLICAS, NodeState
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
        """Rows have come, gone or got another number of devices: all arrays have to be built again."""
        self.revised: set[str] = set()
        """Nodes that offer something else than before, in the rows that they have."""
        self.facts_are_old = False
        """Nodes have changed since facts were made of them; their names and order may have stayed."""

    @property
    def objects(self) -> Mapping[str, Node]:
        return self._nodes

    def put(self, node: Node) -> bool:
        """Whether that makes a difference."""
        known = self._nodes.get(node.name)
        if known is not None and same_node(known, node) and node.name not in self._undecoded:
            return False
        was_odd = self.errors.pop(node.name, None) is not None
        self._undecoded.discard(node.name)
        self._nodes[node.name] = node
        before = self._rows.get(node.name)
        row = self._rows[node.name] = self._read(node, before or _NOTHING)
        self.facts_are_old = True
        self.has_changed |= before is None or len(before.devices) != len(row.devices)
        if row != before or was_odd or node.name in self.errors:
            self.revised.add(node.name)
        return True

    def _read(self, node: Node, otherwise: NodeRow) -> NodeRow:
        """Its row, with codes and columns for everything in it; `otherwise` where it can't be understood."""
        try:
            row = read_node(node)
            for device in row.devices:
                self._models.code(device.model)
        except InputError as error:
            self.errors[node.name] = str(error.with_context(object=f"Node {node.name}"))
            return otherwise
        for name in row.allocatable:
            self._resources.column(name)
        return row

    def put_unreadable(self, found: Unreadable) -> None:
        """What arrived is no Node at all; what was known of it stands."""
        self.errors[found.name] = str(found.error.with_context(object=f"Node {found.name}"))
        self._undecoded.add(found.name)
        if found.name in self._nodes:
            self.revised.add(found.name)

    def drop(self, name: str) -> None:
        self.has_changed |= self._nodes.pop(name, None) is not None
        self._rows.pop(name, None)
        self.revised.discard(name)
        self.errors.pop(name, None)
        self._undecoded.discard(name)

    def problems(self) -> dict[str, str]:
        """By `Node name`, as the store reports them."""
        return {
            f"Node {name}": f"{why}; the node takes no new work" for name, why in sorted(self.errors.items())
        }

    def build(self) -> tuple[NodeFacts, NodeState]:
        """Facts and arrays of all nodes in order, with nothing booked."""
        self.has_changed = self.facts_are_old = False
        self.revised.clear()
        names = sorted(self._nodes, key=lambda name: (self._ranks.get(name, 0), name))
        state = build_state([self._rows[name] for name in names], self._resources, self._models)
        for at, name in enumerate(names):
            state.node[at, BLOCKED] += name in self.errors
        return NodeFacts([self._nodes[name] for name in names]), state

    def revise(self, state: NodeState, at: int, name: str) -> None:
        """Write what the node offers now into its row of the arrays, with nothing booked."""
        alone = build_state([self._rows[name]], self._resources, self._models)
        state.free[at], state.total[at], state.kinds[at] = alone.free[0], alone.total[0], alone.kinds[0]
        state.node[at, REPLICAS] = alone.node[0, REPLICAS]
        state.node[at, BLOCKED] = name in self.errors
        devices = slice(state.node[at, DEV_FIRST], state.node[at, DEV_END])
        state.room[devices], state.device[devices] = alone.room, alone.device

    def facts(self, before: NodeFacts) -> NodeFacts:
        """Of the same nodes in the same order, as they are now."""
        self.facts_are_old = False
        return NodeFacts([self._nodes[name] for name in before.names])
