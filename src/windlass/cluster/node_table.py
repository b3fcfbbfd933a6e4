"""The nodes of a store, as objects and as rows of the arrays, and the errors of those that can't be read.

The store puts every node here. It asks for new arrays when nodes were added or removed, and for new rows when nodes
have changed. A node that can't be read keeps its last readable row (an empty one if there was none), takes no new pods,
and is reported with its error.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.cluster.change_detection import is_node_unchanged
from windlass.cluster.node_columns import NodeColumns
from windlass.cluster.node_state import ALIGNMENT, BLOCKED, DEV_END, DEV_FIRST, REPLICAS, NodeState
from windlass.cluster.node_state_builder import GpuModelCodes, NodeRow, build_state, read_node
from windlass.cluster.resource_columns import ResourceColumns
from windlass.model.bug import bug_of
from windlass.model.codec import Unreadable
from windlass.model.errors import InputError
from windlass.model.node import Node

_EMPTY_ROW = NodeRow({}, (), 1)


class NodeTable:
    def __init__(self, ranks: Mapping[str, int], resources: ResourceColumns, models: GpuModelCodes) -> None:
        """`ranks` orders nodes of equal score, lowest first; nodes without a rank have 0 and go by name."""
        self._ranks, self._resources, self._models = ranks, resources, models
        self._nodes: dict[str, Node] = {}
        self._rows: dict[str, NodeRow] = {}
        self.errors: dict[str, str] = {}
        """Node that can't be read → its error."""
        self._undecodable: set[str] = set()
        self.needs_rebuild = False
        """Nodes were added, removed, have another number of devices or a resource that is new: all arrays have to be
        built again."""
        self.changed_nodes: set[str] = set()
        """Nodes whose existing row has to be written again."""
        self.columns_are_stale = False
        """Node objects have changed since `NodeColumns` was built."""

    @property
    def objects(self) -> Mapping[str, Node]:
        return self._nodes

    def put(self, node: Node) -> bool:
        """Returns whether the node has changed."""
        known = self._nodes.get(node.name)
        if known is not None and is_node_unchanged(known, node) and node.name not in self._undecodable:
            return False
        had_error = self.errors.pop(node.name, None) is not None
        self._undecodable.discard(node.name)
        self._nodes[node.name] = node
        before = self._rows.get(node.name)
        row = self._rows[node.name] = self._read(node, before or _EMPTY_ROW)
        self.columns_are_stale = True
        self.needs_rebuild |= before is None or len(before.devices) != len(row.devices)
        if row != before or had_error or node.name in self.errors:
            self.changed_nodes.add(node.name)
        return True

    def _read(self, node: Node, fallback: NodeRow) -> NodeRow:
        """The node's row, with its models and resources registered; `fallback` where it can't be read."""
        try:
            row = read_node(node)
            for device in row.devices:
                self._models.code(device.model)
        except InputError as error:
            self.errors[node.name] = str(error.with_context(object=f"Node {node.name}"))
            return fallback
        except Exception as error:  # whatever it is: it concerns this node, and must not concern the others
            self.errors[node.name] = bug_of(error).message
            return fallback
        # Pods that request a resource which is new are accounted in another column from now on.
        self.needs_rebuild |= self._resources.add(row.allocatable.keys())
        return row

    def put_unreadable(self, unreadable: Unreadable) -> None:
        """An object that can't be decoded as a Node; its last readable version stays."""
        self.errors[unreadable.name] = str(unreadable.error.with_context(object=f"Node {unreadable.name}"))
        self._undecodable.add(unreadable.name)
        if unreadable.name in self._nodes:
            self.changed_nodes.add(unreadable.name)

    def delete(self, name: str) -> None:
        self.needs_rebuild |= self._nodes.pop(name, None) is not None
        self._rows.pop(name, None)
        self.changed_nodes.discard(name)
        self.errors.pop(name, None)
        self._undecodable.discard(name)

    def problems(self) -> dict[str, str]:
        """`Node name` → error, as the store reports it."""
        return {f"Node {name}": f"{error}; the node takes no new pods" for name, error in sorted(self.errors.items())}

    def rebuild(self) -> tuple[NodeColumns, NodeState]:
        """Columns and arrays of all nodes in rank order, with no pod accounted."""
        self.needs_rebuild = self.columns_are_stale = False
        self.changed_nodes.clear()
        names = sorted(self._nodes, key=lambda name: (self._ranks.get(name, 0), name))
        state = build_state([self._rows[name] for name in names], self._resources, self._models)
        for row_index, name in enumerate(names):
            state.node_info[row_index, BLOCKED] += name in self.errors
        return NodeColumns([self._nodes[name] for name in names]), state

    def update_row(self, state: NodeState, row_index: int, name: str) -> None:
        """Writes the node's row of the arrays again, with no pod accounted."""
        fresh = build_state([self._rows[name]], self._resources, self._models)
        state.free[row_index], state.allocatable[row_index], state.gpu_pod_counts[row_index] = (
            fresh.free[0],
            fresh.allocatable[0],
            fresh.gpu_pod_counts[0],
        )
        for column in (REPLICAS, ALIGNMENT):
            state.node_info[row_index, column] = fresh.node_info[0, column]
        state.node_info[row_index, BLOCKED] = name in self.errors
        devices = slice(state.node_info[row_index, DEV_FIRST], state.node_info[row_index, DEV_END])
        state.device_occupancy[devices], state.device_info[devices] = (
            fresh.device_occupancy,
            fresh.device_info,
        )

    def columns(self, before: NodeColumns) -> NodeColumns:
        """New columns of the same nodes in the same order."""
        self.columns_are_stale = False
        return NodeColumns([self._nodes[name] for name in before.names])
