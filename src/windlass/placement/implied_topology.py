"""How close together the pods of a set have to be, where no flavor of theirs names a topology.

`placement.workload_placer` asks for every set of a workload that is in no queue, or in one without topologies: the
set's own request (Kueue's annotations, a PodGroup's constraint) or what its pods' affinity to one another stands for,
with the domains of the default list of node labels.
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
        """`levels` are node labels from the widest to the narrowest; empty: the default list."""
        self._overlay, self.levels = overlay, tuple(levels)
        self._topology: DefaultTopology | None = None

    def request_for(self, workload: Workload, pod_set: PodSet, pod: Pod, shape: Shape) -> RequestAndTree:
        """The set's request and its domains; nothing of both where it may be anywhere."""
        request = pod_set.topology
        if request is None and sum(one.count for one in workload.pod_sets) > 1:
            request = request_from_affinity(pod, [one.template for one in workload.pod_sets])
            if request is not None and self._is_drawn_elsewhere(pod, shape):
                request = None  # it has to go where others are already
        tree = self._domains().tree(request) if request is not None else None
        return (request, tree) if tree is not None else (None, None)

    def _is_drawn_elsewhere(self, pod: Pod, shape: Shape) -> bool:
        overlay = self._overlay
        static = overlay.table.cells.static[overlay.table.row(shape, overlay.snapshot, pod)]
        why = overlay.inter_pod_rules().reasons(pod, static)
        return bool((why & np.uint64(WHY_POD_AFFINITY)).any())

    def _domains(self) -> DefaultTopology:
        if self._topology is None:
            facts = self._overlay.snapshot.nodes
            self._topology = DefaultTopology(
                facts, [is_node_ready(node) for node in facts.objects], self.levels
            )
        return self._topology


def is_node_ready(node: Node) -> bool:
    """A node that says it is not ready is no place for a gang, whether or not its taint has arrived yet."""
    return all(
        condition.status == "True" for condition in node.status.conditions if condition.type == "Ready"
    )
