"""The topology request of a pod set whose flavors name no topology.

`placement.pod_set_builder` asks for pod sets in no queue, or in a queue without topologies. The request is the set's
own (Kueue's annotations, a PodGroup's constraint) or derived from its pods' affinity to one another; the domains come
from the default list of node labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.cluster.shape import Shape
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.reasons import WHY_POD_AFFINITY
from windlass.model.workload import PodSet, TopologyRequest, Workload
from windlass.placement.overlay import Overlay
from windlass.placement.topology import DomainTree
from windlass.placement.topology.affinity_request import request_from_affinity
from windlass.placement.topology.default_topology import DefaultTopology

RequestAndTree = tuple[TopologyRequest | None, DomainTree | None]


class ImpliedTopology:
    def __init__(self, overlay: Overlay, levels: Sequence[str] = ()) -> None:
        """`levels`: node labels from the widest to the narrowest; empty: the default list."""
        self._overlay, self.levels = overlay, tuple(levels)
        self._default_topology: DefaultTopology | None = None

    def request_for(self, workload: Workload, pod_set: PodSet, pod: Pod, shape: Shape) -> RequestAndTree:
        """The request and its domains; None for both where the set may go anywhere."""
        request = pod_set.topology
        if request is None and sum(own.count for own in workload.pod_sets) > 1:
            request = request_from_affinity(pod, [own.template for own in workload.pod_sets])
            if request is not None and self._has_affinity_to_others(pod, shape):
                request = None  # matching pods run already, and the pod has to go to their domain
        tree = self._domains().tree(request) if request is not None else None
        return (request, tree) if tree is not None else (None, None)

    def _has_affinity_to_others(self, pod: Pod, shape: Shape) -> bool:
        overlay = self._overlay
        row = overlay.table.row(shape, overlay.snapshot, pod)
        why = overlay.inter_pod_rules().reasons(pod, overlay.table.static(row))
        return bool((why & np.uint64(WHY_POD_AFFINITY)).any())

    def _domains(self) -> DefaultTopology:
        if self._default_topology is None:
            nodes = self._overlay.snapshot.nodes
            self._default_topology = DefaultTopology(
                nodes, [is_node_ready(node) for node in nodes.objects], self.levels
            )
        return self._default_topology


def is_node_ready(node: Node) -> bool:
    """By the Ready condition: its taint may come later, and a gang must not start on the node meanwhile."""
    return all(condition.status == "True" for condition in node.status.conditions if condition.type == "Ready")
