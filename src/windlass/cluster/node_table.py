"""The nodes of a store: as objects, as numbers, and which of them can't be understood.

The store puts every node here, and asks for new arrays when nodes have come or gone, and for new rows when they have
changed. A node of which something can't be read is kept as it was last understood, or as one that offers nothing, and
takes no new work; what is wrong with it is said by name.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.cluster.change_detection import is_node_unchanged
from windlass.cluster.node_columns import NodeColumns
from windlass.cluster.node_state import BLOCKED, DEV_END, DEV_FIRST, REPLICAS, NodeState
from windlass.cluster.node_state_builder import GpuModelCodes, NodeRow, build_state, read_node
from windlass.cluster.resource_columns import ResourceColumns
from windlass.model.codec import Unreadable
from windlass.model.errors import InputError
from windlass.model.node import Node

_NOTHING = NodeRow({}, (), 1)


class NodeTable:
    def __init__(self, ranks: Mapping[str, int], resources: ResourceColumns, models: GpuModelCodes) -> None:
        """`ranks` orders nodes of equal score (lowest first); by name where nothing is given."""
        self._ranks, self._resources, self._models = ranks, resources, models
        self._nodes: dict[str, Node] = {}
        self._rows: dict[str, NodeRow] = {}
        self.errors: dict[str, str] = {}
        """Node that can't be understood → what is wrong with it."""
        self._undecoded: set[str] = set()
        self.needs_rebuild = False
        """Rows have come, gone or got another number of devices: all arrays have to be built again."""
        self.changed_nodes: set[str] = set()
        """Nodes that offer something else than before, in the rows that they have."""
        self.columns_are_stale = False
        """Nodes have changed since facts were made of them; their names and order may have stayed."""

    @property
    def objects(self) -> Mapping[str, Node]:
        return self._nodes

    def put(self, node: Node) -> bool:
        """Whether that makes a difference."""
        known = self._nodes.get(node.name)
        if known is not None and is_node_unchanged(known, node) and node.name not in self._undecoded:
            return False
        was_odd = self.errors.pop(node.name, None) is not None
        self._undecoded.discard(node.name)
        self._nodes[node.name] = node
        before = self._rows.get(node.name)
        row = self._rows[node.name] = self._read(node, before or _NOTHING)
        self.columns_are_stale = True
        self.needs_rebuild |= before is None or len(before.devices) != len(row.devices)
        if row != before or was_odd or node.name in self.errors:
            self.changed_nodes.add(node.name)
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
            self.changed_nodes.add(found.name)

    def delete(self, name: str) -> None:
        self.needs_rebuild |= self._nodes.pop(name, None) is not None
        self._rows.pop(name, None)
        self.changed_nodes.discard(name)
        self.errors.pop(name, None)
        self._undecoded.discard(name)

    def problems(self) -> dict[str, str]:
        """By `Node name`, as the store reports them."""
        return {
            f"Node {name}": f"{why}; the node takes no new work" for name, why in sorted(self.errors.items())
        }

    def rebuild(self) -> tuple[NodeColumns, NodeState]:
        """Facts and arrays of all nodes in order, with nothing booked."""
        self.needs_rebuild = self.columns_are_stale = False
        self.changed_nodes.clear()
        names = sorted(self._nodes, key=lambda name: (self._ranks.get(name, 0), name))
        state = build_state([self._rows[name] for name in names], self._resources, self._models)
        for at, name in enumerate(names):
            state.node_info[at, BLOCKED] += name in self.errors
        return NodeColumns([self._nodes[name] for name in names]), state

    def update_row(self, state: NodeState, at: int, name: str) -> None:
        """Write what the node offers now into its row of the arrays, with nothing booked."""
        alone = build_state([self._rows[name]], self._resources, self._models)
        state.free[at], state.allocatable[at], state.gpu_pod_counts[at] = (
            alone.free[0],
            alone.allocatable[0],
            alone.gpu_pod_counts[0],
        )
        state.node_info[at, REPLICAS] = alone.node_info[0, REPLICAS]
        state.node_info[at, BLOCKED] = name in self.errors
        devices = slice(state.node_info[at, DEV_FIRST], state.node_info[at, DEV_END])
        state.device_occupancy[devices], state.device_info[devices] = (
            alone.device_occupancy,
            alone.device_info,
        )

    def columns(self, before: NodeColumns) -> NodeColumns:
        """Of the same nodes in the same order, as they are now."""
        self.columns_are_stale = False
        return NodeColumns([self._nodes[name] for name in before.names])
