"""A pod that names its node goes there or nowhere."""

from __future__ import annotations

from windlass.cluster.facts import Bools, NodeFacts
from windlass.model.pod import Pod


def refused_by_node_name(pod: Pod, facts: NodeFacts) -> Bools | None:
    return ~facts.rows_named([pod.spec.node_name]) if pod.spec.node_name else None
