"""Cordoned nodes refuse pods, except those that tolerate the taint of a cordon. Called by `static_reasons`."""

from __future__ import annotations

from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.model.node import Taint
from windlass.model.pod import Pod
from windlass.model.taints import tolerates

_CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def refused_as_unschedulable(pod: Pod, nodes: NodeColumns) -> Bools | None:
    return None if tolerates(pod.spec.tolerations, _CORDONED) else nodes.unschedulable
