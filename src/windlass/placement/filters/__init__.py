"""Filters on a pod and one node: each returns a mask of the nodes that it refuses, or None where it refuses none.

`static_reasons` combines them for one pod over all nodes; `placement.score_table` keeps the result per shape, so it
is computed once for all pods alike. A filter may therefore read only pod fields that `cluster.shape.shape_key`
contains; `tests/placement/test_shape_key.py` notices one that reads another.

`prefilter_pod` says why a pod is held before any node is checked. Rules between pods are in `placement.inter_pod`;
resources and devices are checked by `placement.kernels`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import NodeColumns
from windlass.model.pod import Pod
from windlass.model.reasons import (
    WHY_GPU_UNLABELLED,
    WHY_NODE_AFFINITY,
    WHY_NODE_NAME,
    WHY_TAINT,
    WHY_UNSCHEDULABLE,
    WHY_VOLUME_BINDING,
    WHY_VOLUME_NODE_AFFINITY,
    WHY_VOLUME_ZONE,
)
from windlass.placement.filters.node_filters import (
    refused_as_unschedulable,
    refused_by_node_affinity,
    refused_by_node_name,
    refused_by_taints,
    refused_by_unknown_gpus,
)
from windlass.placement.filters.prefilter import prefilter_pod
from windlass.placement.filters.volume_binding import refused_by_volume_affinity, refused_by_volume_binding
from windlass.placement.filters.volume_zone import refused_by_volume_zone

__all__ = ["prefilter_pod", "static_reasons"]


def static_reasons(pod: Pod, nodes: NodeColumns, listers: Listers) -> npt.NDArray[np.uint64]:
    """For every node, the bits of the reasons that follow from the Node, the pod and its volumes alone."""
    why = np.zeros(nodes.size, dtype=np.uint64)
    for bit, refused in (
        (WHY_UNSCHEDULABLE, refused_as_unschedulable(pod, nodes)),
        (WHY_NODE_NAME, refused_by_node_name(pod, nodes)),
        (WHY_TAINT, refused_by_taints(pod, nodes)),
        (WHY_NODE_AFFINITY, refused_by_node_affinity(pod, nodes)),
        (WHY_GPU_UNLABELLED, refused_by_unknown_gpus(pod, nodes)),
        (WHY_VOLUME_NODE_AFFINITY, refused_by_volume_affinity(pod, nodes, listers)),
        (WHY_VOLUME_BINDING, refused_by_volume_binding(pod, nodes, listers)),
        (WHY_VOLUME_ZONE, refused_by_volume_zone(pod, nodes, listers)),
    ):
        if refused is not None:
            why |= np.where(refused, np.uint64(bit), np.uint64(0))
    return why
