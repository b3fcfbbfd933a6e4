"""ComputeDomains (multi-node NVLink): the IMEX daemon behind a node that is not ready in its domain.

`pod_startup` calls it for a pod whose claim can't be prepared: the kubelet says only that the domain is not ready.
"""

from __future__ import annotations

import re

import msgspec

from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import Finding, MissingEvidence
from windlass.diagnose.log_patterns import LONG_LINE
from windlass.diagnose.reports import COMPLAINS
from windlass.diagnose.stack_components import container_failure
from windlass.diagnose.subject import node_of
from windlass.diagnose.unstructured import nested_maps, nested_string

DOMAIN = re.compile(r"compute-?domain|\bimex", re.I)
DAEMON = re.compile(r"compute-?domain-daemon|\bimex", re.I)


def with_daemon(evidence: Evidence, found: Finding, pod: ClusterObject) -> Finding:
    """The finding with the failing IMEX daemon, that of the pod's node first, and what it complains of last."""
    said = any(DOMAIN.search(event.message) for event in evidence.events_of(pod))
    if found.code != "FABRIC_NOT_READY" or not said:
        return found
    node = node_of(pod)
    daemons = [item for item in evidence.of_kind("Pod") if _is_daemon(item)]
    failing = [item for item in daemons if container_failure(item)]
    if not failing:
        command = "kubectl get pods -A -o wide | grep -i computedomain"
        missing = () if daemons else (MissingEvidence("the daemons of the ComputeDomain", command),)
        return msgspec.structs.replace(found, missing=missing)
    daemon = min(failing, key=lambda item: node_of(item) != node)
    failure = container_failure(daemon)
    message = f"the ComputeDomain of node {node} is not ready: {daemon.title}: {failure}"
    lines = [f"{log.origin}: {line[:LONG_LINE]}" for log in evidence.logs_of(daemon) for line in log.lines]
    complaints = [line for line in lines if COMPLAINS.search(line)]
    proof = (*found.evidence, *complaints[-2:])
    return Finding("FABRIC_NOT_READY", message, proof, found.contributing, found.remedy)


def _is_daemon(pod: ClusterObject) -> bool:
    containers = [nested_string(container, "name") for container in nested_maps(pod.data, "spec", "containers")]
    return any(DAEMON.search(name) for name in (pod.name, *containers))
