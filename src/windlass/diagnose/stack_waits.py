"""Components of a node's GPU stack that wait in an init container, and for which layer.

`gpu_stack` asks it where no GPU is advertised: a component that waits does not fail, and says only that it waits.
"""

from __future__ import annotations

import re

from windlass.diagnose.contradictions import is_ready
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding, MissingEvidence
from windlass.diagnose.gang import waiting_init_container
from windlass.diagnose.log_patterns import LONG_LINE
from windlass.diagnose.stack_components import FAILURE_CODES, stack_pods
from windlass.diagnose.unstructured import nested_maps, nested_string
from windlass.model.times import format_duration, parse_timestamp

WAITS_FOR = {
    "driver": re.compile(r"driver"),
    "toolkit": re.compile(r"toolkit|container-runtime"),
    "fabric manager": re.compile(r"fabric|imex"),
}
"""Layer → names of init containers that wait for it; any other waits for what its own component needs."""
PATIENCE = 600
"""Seconds within which the layers of a new node come up one after the other."""


def waiting_components(evidence: Evidence, node: str, now: int) -> list[Finding]:
    """One finding for each layer that is waited for and has no ready pod on the node."""
    found: dict[str, Finding] = {}
    there = stack_pods(evidence, node)
    ready = {component for component, pod in there if is_ready(pod)}
    for component, pod in there:
        container = waiting_init_container(pod)
        since = _running_since(pod, container)
        layer = next((layer for layer, names in WAITS_FOR.items() if names.search(container)), component)
        if container and since and now - since >= PATIENCE and layer in FAILURE_CODES and layer not in ready:
            found.setdefault(layer, _finding(evidence, node, component, pod, container, layer, now - since))
    return list(found.values())


def _finding(
    evidence: Evidence, node: str, component: str, pod: ClusterObject, container: str, layer: str, waited: int
) -> Finding:
    what = "" if layer == component else f" for the {layer}"
    message = (
        f"the {component} ({pod.name}) on node {node} has waited{what} for {format_duration(waited)}, in {container}"
    )
    lines = [f"{log.origin}: {log.lines[-1][:LONG_LINE]}" for log in evidence.logs_of(pod) if log.lines]
    command = f"kubectl logs -n {pod.namespace} {pod.name} -c {container}"
    return Finding(
        FAILURE_CODES[layer], message, tuple(lines[-1:]), missing=(MissingEvidence("what it waits for", command),)
    )


def _running_since(pod: ClusterObject, container: str) -> int:
    for status in nested_maps(pod.data, "status", "initContainerStatuses"):
        if nested_string(status, "name") == container:
            return parse_timestamp(nested_string(status, "state", "running", "startedAt"))
    return 0
