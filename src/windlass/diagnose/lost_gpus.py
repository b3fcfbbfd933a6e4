"""GPUs that a machine has and its node does not offer, not even as unhealthy: those that the driver can't start.

A plugin counts what the driver lists when it starts. The kernel's log names the others by their PCI addresses; how many
the machine should have, other machines of its type say. `root_causes` asks it for nodes that offer too few.
"""

from __future__ import annotations

import re
from collections import Counter

from windlass.diagnose import nodes
from windlass.diagnose.evidence import Evidence, once_per_evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.nodes import GPU_INSTANCE_TYPES, INSTANCE_TYPE_LABELS
from windlass.model.names.nvidia import GPU_REPLICAS_LABEL, GPU_RESOURCE
from windlass.model.node import Node

GONE = re.compile(
    r"rm_?init_?adapter failed|fallen off the bus|gpu is lost|unable to determine the device handle", re.I
)
"""The driver no longer lists a GPU of which the kernel says this; one with memory errors it lists."""
ADDRESS = re.compile(r"\b(?:[0-9a-f]{4,8}:)([0-9a-f]{2}:[0-9a-f]{2})\b", re.I)
USUAL_COUNTS = (1, 2, 4, 8, 10, 16)
"""How many GPUs machines have."""


def lost_gpus(evidence: Evidence, node: Node) -> int:
    """How many GPUs the host's logs name as gone beyond those that the node offers."""
    addresses = {
        found[1].lower()
        for log in evidence.host_logs(node.name)
        for line in log.lines
        if GONE.search(line) and (found := ADDRESS.search(line)) is not None
    }
    offered = _offered(node) if addresses else 0
    if not offered:
        return 0
    usual, _ = of_its_type(evidence, node)
    if usual > offered:
        return min(len(addresses), usual - offered)
    total = offered + len(addresses)
    return len(addresses) if total in USUAL_COUNTS and offered not in USUAL_COUNTS else 0


def of_its_type(evidence: Evidence, node: Node) -> tuple[int, str]:
    """(number of GPUs that every other machine of its type offers, the type); (0, "") if they differ or are unknown."""
    kind = _type_of(node)
    counts = Counter(_counts_by_type(evidence).get(kind, {}))
    counts[_offered(node)] -= 1
    others = [count for count, machines in counts.items() if machines > 0 and count]
    return (others[0], kind) if len(others) == 1 else (0, "")


@once_per_evidence
def _counts_by_type(evidence: Evidence) -> dict[str, Counter[int]]:
    """Machine type → number of GPUs → how many machines offer that many."""
    found: dict[str, Counter[int]] = {}
    for node in evidence.nodes.values():
        if kind := _type_of(node):
            found.setdefault(kind, Counter())[_offered(node)] += 1
    return found


def _type_of(node: Node) -> str:
    """The machine type, where it decides the number of GPUs; empty elsewhere."""
    kind = next((node.labels[key] for key in INSTANCE_TYPE_LABELS if key in node.labels), "")
    return kind if GPU_INSTANCE_TYPES.match(kind) else ""


def fewer_than_its_type(evidence: Evidence, node: Node) -> Finding | None:
    """It offers fewer GPUs than every other machine of its type; what became of them, nothing says."""
    offered, (usual, kind) = _offered(node), of_its_type(evidence, node)
    if not 0 < offered < usual:
        return None
    message = f"node {node.name} offers {offered} {GPU_RESOURCE}, every other machine of its type ({kind}) {usual}"
    remedy = f"look for the missing GPU in its kernel log (windlass doctor node {node.name}), then reset or replace it"
    return Finding("DEVICE_UNHEALTHY", message, remedy=remedy)


def _offered(node: Node) -> int:
    """Whole GPUs in its capacity; 0 where MIG or sharing gives them other numbers."""
    found = nodes.gpu_resources(node)
    is_shared = node.labels.get(GPU_REPLICAS_LABEL, "1") not in ("", "1")
    return 0 if is_shared or set(found) != {GPU_RESOURCE} else found[GPU_RESOURCE]
