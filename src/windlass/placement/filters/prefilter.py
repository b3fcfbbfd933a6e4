"""Why a pod is held before any node is looked at: its own gates, or claims that are not ready.

What Windlass does not implement holds a pod too, with that reason: it is never placed as if it had not asked.
"""

from __future__ import annotations

import msgspec

from windlass.cluster.listers import Listers
from windlass.model.pod import Pod
from windlass.model.reasons import (
    CLAIM_MISSING,
    INVALID_OBJECT,
    RESOURCE_CLAIMS_NOT_IMPLEMENTED,
    SCHEDULING_GATED,
    UNBOUND_CLAIM,
    Reason,
)
from windlass.model.volume import PersistentVolumeClaim
from windlass.placement.filters.volume_binding import storage_size
from windlass.placement.filters.volume_claims import (
    PodVolumeClaim,
    is_bound,
    storage_class_of_claim,
    volume_claims_of,
    waits_for_consumer,
)


def prefilter_pod(pod: Pod, objects: Listers) -> Reason | None:
    """The first thing that holds the pod, with the names in its words; None if nodes can be looked at."""
    gates = [gate.name for gate in pod.spec.scheduling_gates]
    if gates:
        return _said(
            SCHEDULING_GATED,
            f"waiting for scheduling gates: [{' '.join(gates)}]",
            f"the pod waits for its scheduling gates to be lifted: {', '.join(gates)}",
        )
    if pod.spec.volumes:
        claims = list(volume_claims_of(pod, objects))
        for check in (_not_ready, _not_bound):
            for named in claims:
                held = check(named, pod, objects)
                if held is not None:
                    return held
    if pod.spec.resource_claims:
        names = ", ".join(claim.name for claim in pod.spec.resource_claims)
        message = f"{RESOURCE_CLAIMS_NOT_IMPLEMENTED.message}: {names}"
        words = f"{RESOURCE_CLAIMS_NOT_IMPLEMENTED.kube}: {message}"
        return _said(RESOURCE_CLAIMS_NOT_IMPLEMENTED, words, message)
    return None


def _not_ready(named: PodVolumeClaim, pod: Pod, objects: Listers) -> Reason | None:
    """The claim itself is missing or broken."""
    name, claim = named.name, named.claim
    if claim is None:
        if named.ephemeral:
            words = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            return _said(CLAIM_MISSING, words, f"the claim {name} of an ephemeral volume doesn't exist yet")
        words = f'persistentvolumeclaim "{name}" not found'
        return _said(CLAIM_MISSING, words, f"the claim {name} doesn't exist")
    if claim.status.phase == "Lost":
        return _no_volume(claim)
    if claim.metadata.deletion_timestamp:
        words = f'persistentvolumeclaim "{name}" is being deleted'
        return _said(CLAIM_MISSING, words, f"the claim {name} is being deleted")
    if named.ephemeral and not _belongs_to(claim, pod):
        words = f"PVC {claim.metadata.namespace}/{name} was not created for pod {pod.key} (pod is not owner)"
        return _said(CLAIM_MISSING, words, f"the claim {name} exists, but was not made for this pod")
    if storage_size(claim.spec.resources.requests) < 0:
        message = (
            f"the claim {name} asks for a storage size that can't be read: spec.resources.requests.storage"
        )
        return _said(INVALID_OBJECT, INVALID_OBJECT.kube, message)
    return None


def _not_bound(named: PodVolumeClaim, pod: Pod, objects: Listers) -> Reason | None:
    """The claim is there, but has no volume and doesn't wait for the pod to get one."""
    claim = named.claim
    if claim is None or waits_for_consumer(claim, objects):
        return None
    if not is_bound(claim):
        wanted = storage_class_of_claim(claim, objects)
        missing = (
            f"; its storage class {wanted} doesn't exist"
            if wanted not in (*objects.storage_classes, "")
            else ""
        )
        return _said(
            UNBOUND_CLAIM, UNBOUND_CLAIM.kube, f"the claim {named.name} is not bound to a volume{missing}"
        )
    return None if claim.spec.volume_name in objects.volumes else _no_volume(claim)


def _no_volume(claim: PersistentVolumeClaim) -> Reason:
    name, volume = claim.metadata.name, claim.spec.volume_name
    words = f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
    return _said(
        CLAIM_MISSING, words, f"the claim {name} is bound to the volume {volume}, which doesn't exist"
    )


def _belongs_to(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    return any(
        owner.controller and owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references
    )


def _said(reason: Reason, kube: str, message: str) -> Reason:
    return msgspec.structs.replace(reason, kube=kube, message=message)
