"""The objects that stand in a pod's way on a node, by name: what holds the host port, which volume is in which zone,
which agent of the node fails.

Called by `unschedulable`, since the engine's reason says only that there is a conflict.
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.diagnose.evidence import Evidence
from windlass.diagnose.stack_components import container_failure
from windlass.diagnose.unstructured import nested_map, nested_maps, nested_string
from windlass.model.node import Node
from windlass.model.pod import Pod


def failing_agents(evidence: Evidence, node: Node) -> tuple[str, ...]:
    """Pods of DaemonSets on the node that fail: the network's or the storage's may be what the node waits for."""
    agents = [pod for pod in evidence.pods_on(node.name) if any(kind == "DaemonSet" for kind, _, _ in pod.owners)]
    said = [f"{pod.title} on node {node.name}: {failure}" for pod in agents if (failure := container_failure(pod))]
    return tuple(said[:MANY_AGENTS])


MANY_AGENTS = 2


def port_conflict(evidence: Evidence, node: Node, pod: Pod) -> str:
    """Which host port is taken on the node, and by which pod; empty if none is."""
    wanted = set(_host_ports(pod))
    for item in evidence.pods_on(node.name):
        other = item.decoded
        if isinstance(other, Pod) and not other.is_terminal:
            for port, protocol in sorted(wanted & set(_host_ports(other))):
                return f"host port {port}/{protocol} of node {node.name} is taken by {item.title}"
    return ""


def _host_ports(pod: Pod) -> Iterator[tuple[int, str]]:
    for container in pod.spec.containers:
        for port in container.ports:
            if port.host_port:
                yield port.host_port, port.protocol or "TCP"


def volume_conflict(evidence: Evidence, node: Node, pod: Pod) -> str:
    """Which claim is bound to a volume that the node can't reach, and where that is; empty if none is."""
    for claim, volume, key, values in _bound_places(evidence, pod):
        has = node.labels.get(key)
        if has not in values:
            return (
                f"claim {claim} is bound to volume {volume}, which is only in {key} "
                f"{' or '.join(values)}; node {node.name} {f'is in {has}' if has else f'has no label {key}'}"
            )
    return ""


def split_claims(evidence: Evidence, pod: Pod) -> str:
    """Two claims of the pod whose volumes no node can reach both; empty if there are none."""
    first: dict[str, tuple[str, list[str]]] = {}
    for claim, _, key, values in _bound_places(evidence, pod):
        other, places = first.setdefault(key, (claim, values))
        if other != claim and not set(places) & set(values):
            return (
                f"no node can reach all its volumes: that of claim {other} is only in {key} {' or '.join(places)}, "
                f"that of claim {claim} only in {' or '.join(values)}"
            )
    return ""


def unprovisioned_claim(evidence: Evidence, pod: Pod) -> tuple[str, str] | None:
    """(claim, what its provisioner says last) of a claim without a volume; None if none complains."""
    for name in _claims(pod):
        claim = evidence.get("PersistentVolumeClaim", pod.metadata.namespace or "default", name)
        if claim is None or nested_string(claim.data, "status", "phase") == "Bound":
            continue
        said = [event for event in evidence.events_of(claim) if event.warning]
        if said:
            return name, said[-1].message
    return None


SPLIT_REMEDY = "copy one of the volumes into the place of the other (by a snapshot), and name the new claim in the pod"


def _bound_places(evidence: Evidence, pod: Pod) -> Iterator[tuple[str, str, str, list[str]]]:
    """(claim, volume, label, values) of the nodes that can reach each volume that its claims are bound to."""
    for claim_name in _claims(pod):
        claim = evidence.get("PersistentVolumeClaim", pod.metadata.namespace or "default", claim_name)
        volume_name = nested_string(claim.data, "spec", "volumeName") if claim is not None else ""
        volume = evidence.get("PersistentVolume", "", volume_name) if volume_name else None
        for key, values in _places(volume.data) if volume is not None else ():
            yield claim_name, volume_name, key, values


def _claims(pod: Pod) -> list[str]:
    return [volume.persistent_volume_claim.claim_name for volume in pod.spec.volumes if volume.persistent_volume_claim]


def _places(volume: dict[str, object]) -> Iterator[tuple[str, list[str]]]:
    """(label, values) of the nodes that can reach the volume: its node affinity, or its zone label."""
    for term in nested_maps(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms"):
        for expression in nested_maps(term, "matchExpressions"):
            values = expression.get("values")
            if nested_string(expression, "operator") == "In" and isinstance(values, list):
                yield nested_string(expression, "key"), [str(value) for value in values]
    for key, value in nested_map(volume, "metadata", "labels").items():
        if key.endswith("/zone") and isinstance(value, str):
            yield key, value.split("__")
