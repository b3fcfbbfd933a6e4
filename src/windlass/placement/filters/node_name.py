"""A pod that names its node goes there or nowhere."""

from __future__ import annotations

from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.model.pod import Pod


def refused_by_node_name(pod: Pod, facts: NodeColumns) -> Bools | None:
    return ~facts.mask_of_names([pod.spec.node_name]) if pod.spec.node_name else None
