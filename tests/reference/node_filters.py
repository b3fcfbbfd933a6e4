"""Reasons that depend on one pod, one node and volumes, as a set of reason names."""

from __future__ import annotations

from reference.matching import (
    has_untolerated_hard_taint,
    is_tolerated,
    label_requirement_holds,
    pod_accepts_node_labels,
    selector_matches,
)
from windlass.model.node import Taint

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE, OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
UNITS = {"": 1, "Mi": 2**20, "Gi": 2**30}


def node_filter_reasons(pod, node, cluster):
    why = set()
    cordon = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
    if node.spec.unschedulable and not is_tolerated(cordon, pod.spec.tolerations):
        why.add("UNSCHEDULABLE")
    if pod.spec.node_name and pod.spec.node_name != node.metadata.name:
        why.add("NODE_NAME")
    if has_untolerated_hard_taint(pod, node):
        why.add("TAINT")
    if not pod_accepts_node_labels(pod, node):
        why.add("NODE_AFFINITY")
    bound, waiting = _claims(pod, cluster)
    for claim in bound:
        volume = cluster.volumes[claim.spec.volume_name]
        if not _volume_reaches(volume, node):
            why.add("VOLUME_NODE_AFFINITY")
        if not _in_volume_zone(volume, node):
            why.add("VOLUME_ZONE")
    if not _all_can_bind(waiting, node, cluster):
        why.add("VOLUME_BINDING")
    return why


def _claims(pod, cluster):
    bound, waiting = [], []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim:
            name = volume.persistent_volume_claim.claim_name
            claim = cluster.claims[f"{pod.metadata.namespace}/{name}"]
            if claim.spec.volume_name:
                bound.append(claim)
            else:
                waiting.append(claim)
    return bound, waiting


def _volume_reaches(volume, node):
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    # Kubernetes matches a volume's terms with labels only and ignores fields.
    terms = [term for term in affinity.required.node_selector_terms if term.match_expressions or term.match_fields]
    labels = node.metadata.labels
    return any(
        all(label_requirement_holds(need.key, need.operator, need.values, labels) for need in term.match_expressions)
        for term in terms
    )


def _in_volume_zone(volume, node):
    labels = node.metadata.labels
    if not any(key in labels for key in (ZONE, REGION, OLD_ZONE, OLD_REGION)):
        return True
    for key, newer in ((ZONE, ZONE), (REGION, REGION), (OLD_ZONE, ZONE), (OLD_REGION, REGION)):
        if key in volume.metadata.labels:
            allowed = volume.metadata.labels[key].split("__")
            if labels.get(key, labels.get(newer)) not in allowed:
                return False
    return True


def _all_can_bind(claims, node, cluster):
    chosen = set()
    for claim in sorted(claims, key=lambda claim: size(claim.spec.resources.requests["storage"])):
        selected = claim.metadata.annotations.get("volume.kubernetes.io/selected-node")
        if selected is not None and selected != node.metadata.name:
            return False
        volume = None if selected is not None else _volume_for(claim, node, cluster, chosen)
        if volume is not None:
            chosen.add(volume.metadata.name)
        elif not _can_provision(claim, node, cluster):
            return False
    return True


def _volume_for(claim, node, cluster, chosen):
    best = None
    for name in sorted(cluster.volumes):
        volume = cluster.volumes[name]
        capacity = size(volume.spec.capacity["storage"])
        reserved = volume.spec.claim_ref
        if name in chosen or capacity < size(claim.spec.resources.requests["storage"]):
            continue
        if reserved is not None:
            if (reserved.namespace, reserved.name) == (claim.metadata.namespace, claim.metadata.name):
                return volume if _volume_reaches(volume, node) else None
            continue
        if (
            volume.status.phase == "Available"
            and volume.spec.storage_class_name == claim.spec.storage_class_name
            and (claim.spec.selector is None or selector_matches(claim.spec.selector, volume.metadata.labels))
            and all(mode in volume.spec.access_modes for mode in claim.spec.access_modes)
            and _volume_reaches(volume, node)
            and (best is None or capacity < size(best.spec.capacity["storage"]))
        ):
            best = volume
    return best


def _can_provision(claim, node, cluster):
    storage_class = cluster.storage_classes[claim.spec.storage_class_name]
    if storage_class.provisioner == "kubernetes.io/no-provisioner":
        return False
    if not storage_class.allowed_topologies:
        return True
    for term in storage_class.allowed_topologies:
        parts = term.match_label_expressions
        holds = [label_requirement_holds(p.key, "In", p.values, node.metadata.labels) for p in parts]
        if parts and all(holds):
            return True
    return False


def size(text):
    digits = text.rstrip("GMi")
    return int(digits) * UNITS[text[len(digits) :]]
