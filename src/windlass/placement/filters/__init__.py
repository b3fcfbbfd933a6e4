"""Filters that look at the pod and one node: each a file, each a mask of the nodes it refuses.

`static_reasons` puts them together for one pod over all nodes; `placement.score_table` keeps the result per pod
shape, so it is worked out once and not for every pod. `pod_holds` says why a pod is not looked at with any
node at all. Rules between pods are in `placement.inter_pod`; resources and devices are the table's own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import NodeColumns
from windlass.model.pod import Pod
from windlass.model.reasons import (
    WHY_NODE_AFFINITY,
    WHY_NODE_NAME,
    WHY_TAINT,
    WHY_UNSCHEDULABLE,
    WHY_VOLUME_BINDING,
    WHY_VOLUME_NODE_AFFINITY,
    WHY_VOLUME_ZONE,
)
from windlass.placement.filters.node_affinity import refused_by_node_affinity
from windlass.placement.filters.node_name import refused_by_node_name
from windlass.placement.filters.prefilter import prefilter_pod
from windlass.placement.filters.taints import refused_by_taints
from windlass.placement.filters.unschedulable import refused_as_unschedulable
from windlass.placement.filters.volume_binding import refused_by_volume_affinity, refused_by_volume_binding
from windlass.placement.filters.volume_zone import refused_by_volume_zone

__all__ = ["prefilter_pod", "static_reasons"]


def static_reasons(pod: Pod, facts: NodeColumns, objects: Listers) -> npt.NDArray[np.uint64]:
    """For every node, the bits of the reasons why the pod can't go there, whoever else is there."""
    why = np.zeros(facts.size, dtype=np.uint64)
    for bit, refused in (
        (WHY_UNSCHEDULABLE, refused_as_unschedulable(pod, facts)),
        (WHY_NODE_NAME, refused_by_node_name(pod, facts)),
        (WHY_TAINT, refused_by_taints(pod, facts)),
        (WHY_NODE_AFFINITY, refused_by_node_affinity(pod, facts)),
        (WHY_VOLUME_NODE_AFFINITY, refused_by_volume_affinity(pod, facts, objects)),
        (WHY_VOLUME_BINDING, refused_by_volume_binding(pod, facts, objects)),
        (WHY_VOLUME_ZONE, refused_by_volume_zone(pod, facts, objects)),
    ):
        if refused is not None:
            why |= np.where(refused, np.uint64(bit), np.uint64(0))
    return why
