"""Cordoned nodes take no new pods, except those that tolerate the taint that cordoning stands for."""

from __future__ import annotations

from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.model.node import Taint
from windlass.model.pod import Pod
from windlass.model.taints import tolerates

_CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def refused_as_unschedulable(pod: Pod, facts: NodeColumns) -> Bools | None:
    return None if tolerates(pod.spec.tolerations, _CORDONED) else facts.unschedulable
