"""Why a node is not ready, in the words of its kubelet, its container runtime and its failing agents.

`gpu_stack`, `unschedulable` and `why` ask it wherever a node takes no pods: its taint says only that, and
its words say why.
"""

from __future__ import annotations

import re

from windlass.diagnose.conflict_names import failing_agents
from windlass.diagnose.evidence import Evidence, LogLines
from windlass.diagnose.log_patterns import LONG_LINE
from windlass.diagnose.nodes import not_ready_reason
from windlass.diagnose.reports import COMPLAINS
from windlass.diagnose.unstructured import find_condition, nested_string
from windlass.model.node import Node

SERVICES = ("kubelet", "containerd", "crio", "cri-o", "docker")
"""Host logs of the services that a node needs to be ready."""
SAYS_NOTHING = re.compile(r"^(kubelet is posting ready status|Kubelet stopped posting node status)\.?$", re.I)
MOST_WORDS = 3


def down_words(evidence: Evidence, node: Node) -> tuple[str, ...]:
    """What the node's own parts say about why it is not ready; empty for one that is."""
    if not not_ready_reason(node):
        return failing_agents(evidence, node)
    ready = [f"{log.origin}: {line}" for log in ready_condition(evidence, node.name) for line in log.lines]
    return (*ready, *_last_complaints(evidence, node.name), *failing_agents(evidence, node))[:MOST_WORDS]


def ready_condition(evidence: Evidence, node: str) -> list[LogLines]:
    """The message of its condition Ready, while that is not True and says more than that."""
    item = evidence.get("Node", "", node)
    ready = find_condition(item.data, "Ready") if item is not None else {}
    message = nested_string(ready, "message")
    if nested_string(ready, "status") == "True" or not message or SAYS_NOTHING.match(message):
        return []
    return [LogLines(f"condition Ready of node {node}", [message])]


def _last_complaints(evidence: Evidence, node: str) -> list[str]:
    """The last line of each service's log that complains."""
    found = []
    for log in evidence.host_logs(node):
        lines = [line.strip() for line in log.lines if COMPLAINS.search(line)]
        if lines and log.origin.rpartition(" ")[2].startswith(SERVICES):
            found.append(f"{log.origin}: {lines[-1][:LONG_LINE]}")
    return found
