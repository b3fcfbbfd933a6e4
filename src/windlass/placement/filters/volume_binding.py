"""Nodes on which a pod's volumes can be mounted, bound or provisioned.

`static_reasons` calls the two filters; `apply` calls `volumes_to_bind` when a pod is bound. A bound volume says by
node affinity where it can be mounted. A claim with WaitForFirstConsumer needs a node where an available volume fits,
or where its class can provision one. CSIStorageCapacity objects are not read. How many volumes a node can have
attached depends on its other pods: `inter_pod.volume_limits`.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.model.errors import InputError
from windlass.model.labels import matches_selector
from windlass.model.names.kubernetes import SELECTED_NODE_ANNOTATION
from windlass.model.pod import NodeSelectorTerm, Pod, RawQuantity
from windlass.model.quantity import parse_quantity
from windlass.model.volume import PersistentVolume, PersistentVolumeClaim
from windlass.placement.filters.volume_claims import (
    bound_volumes,
    storage_class_of_claim,
    storage_class_of_volume,
    wait_for_consumer_claims,
)

_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_UNREADABLE = Fraction(-1)


def refused_by_volume_affinity(pod: Pod, nodes: NodeColumns, listers: Listers) -> Bools | None:
    """Nodes from which a bound volume can't be mounted."""
    if not pod.spec.volumes:
        return None
    reachable = np.ones(nodes.size, dtype=np.bool_)
    for volume in bound_volumes(pod, listers):
        reachable &= _reachable(volume, nodes)
    return ~reachable


def refused_by_volume_binding(pod: Pod, nodes: NodeColumns, listers: Listers) -> Bools | None:
    """Nodes where a WaitForFirstConsumer claim would find no volume."""
    waiting = wait_for_consumer_claims(pod, listers) if pod.spec.volumes else []
    return ~_bindable(waiting, nodes, listers) if waiting else None


def volumes_to_bind(pod: Pod, node: str, nodes: NodeColumns, listers: Listers) -> dict[str, str]:
    """WaitForFirstConsumer claim → the existing volume to bind on that node; other claims need provisioning."""
    chosen: dict[str, str] = {}
    row = nodes.index[node]
    for claim in sorted(
        wait_for_consumer_claims(pod, listers), key=lambda claim: storage_size(claim.spec.resources.requests)
    ):
        if SELECTED_NODE_ANNOTATION in claim.metadata.annotations:
            continue
        for volume in _candidates(claim, listers):
            if volume.metadata.name not in chosen.values() and _reachable(volume, nodes)[row]:
                key = f"{claim.metadata.namespace or 'default'}/{claim.metadata.name}"
                chosen[key] = volume.metadata.name
                break
    return chosen


def _reachable(volume: PersistentVolume, nodes: NodeColumns) -> Bools:
    """Nodes whose labels the volume's affinity matches. As in Kubernetes, matchFields of volumes are ignored, and a
    term with nothing else matches every node."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return np.ones(nodes.size, dtype=np.bool_)
    mask = np.zeros(nodes.size, dtype=np.bool_)
    for term in affinity.required.node_selector_terms:
        if term.match_expressions:
            mask |= nodes.matching_term(NodeSelectorTerm(match_expressions=term.match_expressions))
        elif term.match_fields:
            mask[:] = True
    return mask


def _bindable(claims: list[PersistentVolumeClaim], nodes: NodeColumns, listers: Listers) -> Bools:
    """Nodes where every claim finds a volume or can have one provisioned. As in Kubernetes, the smallest claim chooses
    first, takes the smallest volume that fits, and a volume goes to one claim only."""
    bindable = np.ones(nodes.size, dtype=np.bool_)
    taken: dict[str, Bools] = {}
    for claim in sorted(claims, key=lambda claim: storage_size(claim.spec.resources.requests)):
        found = np.zeros(nodes.size, dtype=np.bool_)
        selected = claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION)
        if selected is not None:
            bindable &= nodes.mask_of_names([selected])
        else:
            for volume in _candidates(claim, listers):
                already = taken.setdefault(volume.metadata.name, np.zeros(nodes.size, dtype=np.bool_))
                here = _reachable(volume, nodes) & ~found & ~already
                already |= here
                found |= here
        bindable &= found | _provisionable(claim, nodes, listers)
    return bindable


def _candidates(claim: PersistentVolumeClaim, listers: Listers) -> list[PersistentVolume]:
    """Volumes that the claim could be bound to, best first; only the one whose claimRef names it, if there is one."""
    fitting = [volume for volume in listers.volumes.values() if _fits(volume, claim)]
    fitting.sort(key=lambda volume: (storage_size(volume.spec.capacity), volume.metadata.name))
    prebound = [volume for volume in fitting if volume.spec.claim_ref is not None]
    if prebound:
        return prebound[:1]
    storage_class = storage_class_of_claim(claim, listers)
    return [volume for volume in fitting if _is_available_for(volume, claim, storage_class)]


def _fits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return (
        not _is_claimed_by_another(volume, claim)
        and storage_size(volume.spec.capacity) >= max(storage_size(claim.spec.resources.requests), Fraction(0))
        and volume.spec.volume_mode == claim.spec.volume_mode
        and volume.spec.volume_attributes_class_name == claim.spec.volume_attributes_class_name
        and not volume.metadata.deletion_timestamp
    )


def _is_claimed_by_another(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    ref = volume.spec.claim_ref
    if ref is None:
        return False
    same = ref.name == claim.metadata.name and ref.namespace == (claim.metadata.namespace or "default")
    return not same or ref.uid not in ("", claim.metadata.uid)


def _is_available_for(volume: PersistentVolume, claim: PersistentVolumeClaim, storage_class: str) -> bool:
    return (
        volume.status.phase == "Available"
        and (claim.spec.selector is None or matches_selector(claim.spec.selector, volume.metadata.labels))
        and storage_class_of_volume(volume) == storage_class
        and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
    )


def _provisionable(claim: PersistentVolumeClaim, nodes: NodeColumns, listers: Listers) -> Bools:
    """Nodes for which the claim's class can provision a volume."""
    storage_class = listers.storage_classes[storage_class_of_claim(claim, listers)]
    mask = np.zeros(nodes.size, dtype=np.bool_)
    if storage_class.provisioner in ("", _NO_PROVISIONER):
        return mask
    if not storage_class.allowed_topologies:
        return ~mask
    for term in storage_class.allowed_topologies:
        if term.match_label_expressions:
            inside = ~np.zeros(nodes.size, dtype=np.bool_)
            for expression in term.match_label_expressions:
                inside &= nodes.label(expression.key).satisfying("In", expression.values)
            mask |= inside
    return mask


def storage_size(amounts: dict[str, RawQuantity]) -> Fraction:
    """Bytes of storage in a claim's requests or a volume's capacity, 0 if absent. An unreadable amount is -1, so that
    such a volume fits no claim."""
    try:
        return parse_quantity(amounts.get("storage", 0))
    except InputError:
        return _UNREADABLE
