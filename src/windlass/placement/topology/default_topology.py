"""Topology levels where no Topology object names them: the default list of node labels, or the requested label itself.

`placement.implied_topology` asks for workloads that are in no queue, or in one whose flavors have no topology: Kueue's
annotations on plain gangs, the constraint of a PodGroup, pod affinity on a topology key. The tree depends only on the
nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.cluster.node_columns import NodeColumns
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.node import Node
from windlass.model.topology import DEFAULT_TOPOLOGY_KEYS, topology_domains
from windlass.model.workload import TopologyRequest
from windlass.placement.topology.tree import DomainTree

DEFAULT_TOPOLOGY_NAME = "default"
"""Name of the topology in messages."""
OWN_DOMAIN_PREFIX = "\0"
"""Prefix of the domain of a node that lacks a preferred label: the node is a domain of its own."""


class DefaultTopology:
    def __init__(self, columns: NodeColumns, ready: Sequence[bool], keys: Sequence[str] = ()) -> None:
        """`keys` replace the default list of levels, from the widest to the narrowest."""
        self._columns, self._ready = columns, ready
        self._keys = tuple(keys) or DEFAULT_TOPOLOGY_KEYS
        self._trees: dict[tuple[tuple[str, ...], bool], DomainTree] = {}

    def tree(self, request: TopologyRequest) -> DomainTree | None:
        """The tree for the levels of the request; None where it names no level."""
        labels = _requested_labels(request)
        if not labels:
            return None
        key = (labels, request.mode == "required")
        tree = self._trees.get(key)
        if tree is None:
            tree = self._trees[key] = self._build(labels, is_required=key[1])
        return tree

    def _build(self, labels: tuple[str, ...], *, is_required: bool) -> DomainTree:
        levels = self._levels(labels)
        values: list[tuple[str | None, ...]] = []
        for node, ready in zip(self._columns.objects, self._ready, strict=True):
            path = topology_domains(node, levels)
            # A preference must not exclude a node because it lacks the label.
            if not is_required:
                path = tuple(f"{OWN_DOMAIN_PREFIX}{node.name}" if value is None else value for value in path)
            values.append(path if ready else (None,) * len(levels))
        return DomainTree.build(levels, values, self._columns.names)

    def _levels(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """The known levels that all nodes with the requested labels have. A label that is not in the list is the only
        level above the node, since its place among the others is unknown."""
        if not set(labels) <= set(self._keys):
            return (*(key for key in labels if key != HOSTNAME_LABEL), HOSTNAME_LABEL)
        labelled = [node for node in self._columns.objects if _has_labels(node, labels)]
        shared = [
            key
            for key in self._keys
            if key in labels or (labelled and all(_has_labels(node, (key,)) for node in labelled))
        ]
        return tuple(shared if HOSTNAME_LABEL in shared else [*shared, HOSTNAME_LABEL])


def _requested_labels(request: TopologyRequest) -> tuple[str, ...]:
    """The labels that the request names, widest first, each once."""
    labels = [request.level, request.slice_level, *(level for level, _ in request.inner_slices)]
    return tuple(dict.fromkeys(label for label in labels if label))


def _has_labels(node: Node, keys: Sequence[str]) -> bool:
    return None not in topology_domains(node, keys)
