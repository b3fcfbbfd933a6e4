"""A pod with `spec.nodeName` fits on that node only. Called by `static_reasons`."""

from __future__ import annotations

from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.model.pod import Pod


def refused_by_node_name(pod: Pod, nodes: NodeColumns) -> Bools | None:
    return ~nodes.mask_of_names([pod.spec.node_name]) if pod.spec.node_name else None
