"""Where a pod's volumes can be reached, or could be made.

A bound volume says by node affinity where it can be mounted. A claim that waits for its first pod needs a
node where an available volume fits it, or where its class can provision one. Storage capacity objects are not
read. How many volumes a node can have attached is a matter of its other pods: `neighbours.attachments`.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.model.errors import InputError
from windlass.model.labels import matches_selector
from windlass.model.pod import NodeSelectorTerm, Pod, RawQuantity
from windlass.model.quantity import parse_quantity
from windlass.model.volume import PersistentVolume, PersistentVolumeClaim
from windlass.placement.filters.volume_claims import (
    bound_volumes,
    storage_class_of_claim,
    storage_class_of_volume,
    wait_for_consumer_claims,
)

_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_UNREADABLE = Fraction(-1)


def refused_by_volume_affinity(pod: Pod, facts: NodeColumns, objects: Listers) -> Bools | None:
    """Nodes from which a bound volume can't be mounted."""
    if not pod.spec.volumes:
        return None
    reachable = np.ones(facts.size, dtype=np.bool_)
    for volume in bound_volumes(pod, objects):
        reachable &= _reachable(volume, facts)
    return ~reachable


def refused_by_volume_binding(pod: Pod, facts: NodeColumns, objects: Listers) -> Bools | None:
    """Nodes where a claim that waits for its first pod would find no volume."""
    waiting = wait_for_consumer_claims(pod, objects) if pod.spec.volumes else []
    return ~_bindable(waiting, facts, objects) if waiting else None


def volumes_to_bind(pod: Pod, node: str, facts: NodeColumns, objects: Listers) -> dict[str, str]:
    """Claim → the volume that is there for it on that node, of the claims that wait for their first pod. Those that
    are missing here have theirs made."""
    chosen: dict[str, str] = {}
    row = facts.index[node]
    for claim in sorted(
        wait_for_consumer_claims(pod, objects), key=lambda claim: storage_size(claim.spec.resources.requests)
    ):
        if _SELECTED_NODE in claim.metadata.annotations:
            continue
        for volume in _candidates(claim, objects):
            if volume.metadata.name not in chosen.values() and _reachable(volume, facts)[row]:
                key = f"{claim.metadata.namespace or 'default'}/{claim.metadata.name}"
                chosen[key] = volume.metadata.name
                break
    return chosen


def _reachable(volume: PersistentVolume, facts: NodeColumns) -> Bools:
    """Nodes whose labels the volume's affinity matches. Labels alone, as Kubernetes has it for volumes: it passes
    over fields, and a term that has nothing else matches every node."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return np.ones(facts.size, dtype=np.bool_)
    mask = np.zeros(facts.size, dtype=np.bool_)
    for term in affinity.required.node_selector_terms:
        if term.match_expressions:
            mask |= facts.matching_term(NodeSelectorTerm(match_expressions=term.match_expressions))
        elif term.match_fields:
            mask[:] = True
    return mask


def _bindable(claims: list[PersistentVolumeClaim], facts: NodeColumns, objects: Listers) -> Bools:
    """Nodes where every claim finds a volume or can have one made. The smallest claim chooses first, the
    smallest volume that will do, and a volume goes to one claim only."""
    bindable = np.ones(facts.size, dtype=np.bool_)
    taken: dict[str, Bools] = {}
    for claim in sorted(claims, key=lambda claim: storage_size(claim.spec.resources.requests)):
        found = np.zeros(facts.size, dtype=np.bool_)
        selected = claim.metadata.annotations.get(_SELECTED_NODE)
        if selected is not None:
            bindable &= facts.mask_of_names([selected])
        else:
            for volume in _candidates(claim, objects):
                already = taken.setdefault(volume.metadata.name, np.zeros(facts.size, dtype=np.bool_))
                here = _reachable(volume, facts) & ~found & ~already
                already |= here
                found |= here
        bindable &= found | _provisionable(claim, facts, objects)
    return bindable


def _candidates(claim: PersistentVolumeClaim, objects: Listers) -> list[PersistentVolume]:
    """Volumes that the claim could be bound to, best first; if one is kept for it, only that."""
    fitting = [volume for volume in objects.volumes.values() if _fits(volume, claim)]
    fitting.sort(key=lambda volume: (storage_size(volume.spec.capacity), volume.metadata.name))
    kept = [volume for volume in fitting if volume.spec.claim_ref is not None]
    if kept:
        return kept[:1]
    name = storage_class_of_claim(claim, objects)
    return [volume for volume in fitting if _is_free_for(volume, claim, name)]


def _fits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return (
        _is_kept_for_nobody_else(volume, claim)
        and storage_size(volume.spec.capacity)
        >= max(storage_size(claim.spec.resources.requests), Fraction(0))
        and volume.spec.volume_mode == claim.spec.volume_mode
        and volume.spec.volume_attributes_class_name == claim.spec.volume_attributes_class_name
        and not volume.metadata.deletion_timestamp
    )


def _is_kept_for_nobody_else(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    kept = volume.spec.claim_ref
    if kept is None:
        return True
    same = kept.name == claim.metadata.name and kept.namespace == (claim.metadata.namespace or "default")
    return same and kept.uid in ("", claim.metadata.uid)


def _is_free_for(volume: PersistentVolume, claim: PersistentVolumeClaim, name: str) -> bool:
    return (
        volume.status.phase == "Available"
        and (claim.spec.selector is None or matches_selector(claim.spec.selector, volume.metadata.labels))
        and storage_class_of_volume(volume) == name
        and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
    )


def _provisionable(claim: PersistentVolumeClaim, facts: NodeColumns, objects: Listers) -> Bools:
    """Nodes for which the claim's class can make a volume."""
    storage_class = objects.storage_classes[storage_class_of_claim(claim, objects)]
    mask = np.zeros(facts.size, dtype=np.bool_)
    if storage_class.provisioner in ("", _NO_PROVISIONER):
        return mask
    if not storage_class.allowed_topologies:
        return ~mask
    for term in storage_class.allowed_topologies:
        if term.match_label_expressions:
            inside = ~np.zeros(facts.size, dtype=np.bool_)
            for expression in term.match_label_expressions:
                inside &= facts.label(expression.key).satisfying("In", expression.values)
            mask |= inside
    return mask


def storage_size(amounts: dict[str, RawQuantity]) -> Fraction:
    """Bytes of storage in a claim's requests or a volume's capacity, 0 if it says nothing. What can't be read
    is less than anything: such a volume is offered to nobody."""
    try:
        return parse_quantity(amounts.get("storage", 0))
    except InputError:
        return _UNREADABLE
