"""Domains where no Topology object names them: node labels from the default list, or the very label that is asked for.

`placement.workload_placer` asks for workloads that are in no queue, or in one whose flavors have no topology: Kueue's
annotations on plain gangs, a PodGroup's own constraint, pod affinity on a topology key. The tree depends on the nodes
alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.cluster.node_columns import NodeColumns
from windlass.model.node import Node
from windlass.model.topology import DEFAULT_TOPOLOGY_KEYS, HOSTNAME, topology_domains
from windlass.model.workload import TopologyRequest
from windlass.placement.topology.tree import DomainTree

DEFAULT_TOPOLOGY_NAME = "default"
"""What messages call it."""
OWN_DOMAIN_PREFIX = "\0"
"""Before the name of a node that lacks a label which was only preferred: a domain of its own."""


class DefaultTopology:
    def __init__(self, facts: NodeColumns, ready: Sequence[bool], keys: Sequence[str] = ()) -> None:
        """`keys` are the levels from the widest to the narrowest, in place of the default list."""
        self._facts, self._ready = facts, ready
        self._keys = tuple(keys) or DEFAULT_TOPOLOGY_KEYS
        self._trees: dict[tuple[tuple[str, ...], bool], DomainTree] = {}

    def tree(self, request: TopologyRequest) -> DomainTree | None:
        """The domains that the request is about; None where it is about none."""
        asked = _labels(request)
        if not asked:
            return None
        key = (asked, request.mode == "required")
        found = self._trees.get(key)
        if found is None:
            found = self._trees[key] = self._build(asked, is_required=key[1])
        return found

    def _build(self, asked: tuple[str, ...], *, is_required: bool) -> DomainTree:
        levels = self._levels(asked)
        values: list[tuple[str | None, ...]] = []
        for node, ready in zip(self._facts.objects, self._ready, strict=True):
            path = topology_domains(node, levels)
            if not is_required:
                path = tuple(f"{OWN_DOMAIN_PREFIX}{node.name}" if value is None else value for value in path)
            values.append(path if ready else (None,) * len(levels))
        return DomainTree.build(levels, values, self._facts.names)

    def _levels(self, asked: tuple[str, ...]) -> tuple[str, ...]:
        """Known levels that every node has which has those that are asked for; a label that is nobody's custom stands
        alone above the node, since nothing tells what lies around it."""
        if not set(asked) <= set(self._keys):
            return (*(key for key in asked if key != HOSTNAME), HOSTNAME)
        inside = [node for node in self._facts.objects if _has(node, asked)]
        shared = [
            key for key in self._keys if key in asked or (inside and all(_has(one, (key,)) for one in inside))
        ]
        return tuple(shared if HOSTNAME in shared else [*shared, HOSTNAME])


def _labels(request: TopologyRequest) -> tuple[str, ...]:
    """Widest first, each once."""
    labels = [request.level, request.slice_level, *(level for level, _ in request.inner_slices)]
    return tuple(dict.fromkeys(label for label in labels if label))


def _has(node: Node, keys: Sequence[str]) -> bool:
    return None not in topology_domains(node, keys)
