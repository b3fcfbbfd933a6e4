"""`nodeSelector` and required node affinity: both have to match. Called by `static_reasons` and `preferences`."""

from __future__ import annotations

from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.model.pod import Pod


def refused_by_node_affinity(pod: Pod, nodes: NodeColumns) -> Bools | None:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None and not pod.spec.node_selector:
        return None
    matching = nodes.matching_labels(pod.spec.node_selector)
    if required is not None:
        matching &= nodes.matching(required)
    return ~matching
