"""Stops repairs while too much is ill at once: that has one cause, and draining more nodes would not mend it.

Asked by `decide.repair` before anything is drained, reset or rebooted. It looks at what is true now, so it closes by
itself, and it never holds back what returns to service.
"""

from __future__ import annotations

from windlass.model.names.windlass import RACK_LABEL
from windlass.model.times import parse_timestamp
from windlass.operator.decide.pool import Pool

MIN_ILL_NODES = 3
"""Fewer are no pattern, however small the stack."""
RACK_NODES, RACK_SECONDS = 3, 600
RACK_LABELS = (RACK_LABEL, "topology.kubernetes.io/rack")


def why_open(pool: Pool) -> str:
    """Empty while repairs may go on."""
    ill = sorted(name for name, node in pool.nodes.items() if any(fault.action for fault in node.faults))
    share = pool.stack.spec.repair.breaker_percent
    if len(ill) >= MIN_ILL_NODES and len(ill) * 100 >= share * len(pool.nodes):
        return f"{len(ill)} of {len(pool.nodes)} nodes are ill, {share} % stop repairs"
    racks: dict[tuple[str, str], set[str]] = {}
    for repair in pool.repairs:
        node = pool.nodes.get(repair.spec.node)
        if node is None or not repair.is_open or pool.now - parse_timestamp(repair.status.opened) > RACK_SECONDS:
            continue
        rack = next((node.labels[label] for label in RACK_LABELS if label in node.labels), "")
        if rack and repair.spec.fault and not repair.spec.requested_by:
            racks.setdefault((rack, repair.spec.fault), set()).add(node.name)
            pool.wake(parse_timestamp(repair.status.opened) + RACK_SECONDS + 1)
    for (rack, fault), names in sorted(racks.items()):
        if len(names) >= RACK_NODES:
            return f"{fault} on {len(names)} nodes of rack {rack} within {RACK_SECONDS // 60} minutes"
    return ""
