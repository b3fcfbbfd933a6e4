"""Taints with effect NoSchedule or NoExecute refuse pods that don't tolerate them.

Called by `static_reasons` and `placement.preferences`. Evaluated once per distinct set of taints, of which a cluster
has only a few.
"""

from __future__ import annotations

import numpy as np

from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.model.pod import Pod
from windlass.model.taints import HARD_EFFECTS, find_untolerated_taint


def refused_by_taints(pod: Pod, nodes: NodeColumns) -> Bools | None:
    refused = np.array(
        [
            find_untolerated_taint(taints, pod.spec.tolerations, HARD_EFFECTS) is not None
            for taints in nodes.taint_sets
        ],
        dtype=np.bool_,
    )
    if not refused.any():
        return None
    mask: Bools = refused[nodes.taint_set_codes]
    return mask
