"""Questions about things that make no pods: nodes, quotas, queues.

`why` asks here before it looks for pods. A person who asks why a quota does nothing means the quota.
"""

from __future__ import annotations

from windlass.diagnose import queue, stack
from windlass.diagnose.evidence import Evidence, Item
from windlass.diagnose.finding import Finding
from windlass.diagnose.parts import gpu_nodes
from windlass.diagnose.quota import key_finding
from windlass.model.node import Node


def thing_finding(evidence: Evidence, item: Item, now: int) -> Finding | None:
    """What is wrong with it, or that nothing is; None for everything that has to do with pods."""
    found: Finding | None = None
    if item.kind == "ResourceQuota":
        found = key_finding(item)
    elif item.kind in ("LocalQueue", "ClusterQueue"):
        found = queue.stopped(item)
    elif isinstance(item.value, Node):
        found = _of_node(evidence, item.value, now)
    else:
        return None
    return found or Finding("NONE", f"nothing is wrong: {item.title} is as it should be")


def _of_node(evidence: Evidence, node: Node, now: int) -> Finding | None:
    if node not in gpu_nodes(evidence):
        return None
    found = stack.node_findings(evidence, node, now, "")
    return found[0] if found else None
