"""Why a pod is held before any node is checked: its scheduling gates, or volume claims that are not ready.

`placement.single_pod_placer` and `placement.member_holds` ask before they place a pod, but only for pods of which
`cluster.shape.is_node_local` is false: whatever holds a pod here must make that false. `diagnose.fit` asks too. A
request that Windlass does not implement (ResourceClaims) holds the pod too: it is never placed as if it had not asked.
`kube_words` of the returned `Reason` are kube-scheduler's text, with the names of the objects appended where it has
none; they become the detail of the hold's verdict, and `remedy` its remedy.
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


def prefilter_pod(pod: Pod, listers: Listers) -> Reason | None:
    """The first reason that holds the pod, with the names of the objects; None if nodes can be checked."""
    gates = [gate.name for gate in pod.spec.scheduling_gates]
    if gates:
        return _with_text(SCHEDULING_GATED, f"waiting for scheduling gates: [{' '.join(gates)}]")
    if pod.spec.volumes:
        claims = list(volume_claims_of(pod, listers))
        for check in (_not_ready, _not_bound):
            for named in claims:
                held = check(named, pod, listers)
                if held is not None:
                    return held
    if pod.spec.resource_claims:
        names = ", ".join(claim.name for claim in pod.spec.resource_claims)
        kube = f"{RESOURCE_CLAIMS_NOT_IMPLEMENTED.kube_words}: {RESOURCE_CLAIMS_NOT_IMPLEMENTED.message}: {names}"
        return _with_text(RESOURCE_CLAIMS_NOT_IMPLEMENTED, kube)
    return None


def prefilter_template(template: Pod, listers: Listers) -> Reason | None:
    """As `prefilter_pod`, of pods that don't exist yet. Their gates and ephemeral claims are made with them."""
    spec = template.spec
    if not spec.volumes and not spec.resource_claims:
        return None  # most templates
    volumes = tuple(volume for volume in spec.volumes if volume.ephemeral is None)
    spec = msgspec.structs.replace(spec, volumes=volumes, scheduling_gates=())
    return prefilter_pod(msgspec.structs.replace(template, spec=spec), listers)


def _not_ready(named: PodVolumeClaim, pod: Pod, listers: Listers) -> Reason | None:
    """The claim is missing or unusable."""
    name, claim = named.name, named.claim
    if claim is None:
        if named.ephemeral:
            kube = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            return _with_text(CLAIM_MISSING, kube)
        return _with_text(CLAIM_MISSING, f'persistentvolumeclaim "{name}" not found')
    if claim.status.phase == "Lost":
        return _no_volume(claim)
    if claim.metadata.deletion_timestamp:
        kube = f'persistentvolumeclaim "{name}" is being deleted'
        return _with_text(CLAIM_MISSING, kube, "create the claim again once it is gone")
    if named.ephemeral and not _is_owned_by(claim, pod):
        kube = f"PVC {claim.metadata.namespace}/{name} was not created for pod {pod.key} (pod is not owner)"
        return _with_text(CLAIM_MISSING, kube, "delete that claim, or rename the pod's volume")
    if storage_size(claim.spec.resources.requests) < 0:
        field = f"claim {name} has an unreadable spec.resources.requests.storage"
        return _with_text(INVALID_OBJECT, f"{INVALID_OBJECT.kube_words}: {field}")
    return None


def _not_bound(named: PodVolumeClaim, pod: Pod, listers: Listers) -> Reason | None:
    """The claim exists, has no volume, and its class is not WaitForFirstConsumer."""
    claim = named.claim
    if claim is None or waits_for_consumer(claim, listers):
        return None
    if not is_bound(claim):
        wanted = storage_class_of_claim(claim, listers)
        missing = f"; its storage class {wanted} doesn't exist" if wanted not in (*listers.storage_classes, "") else ""
        return _with_text(UNBOUND_CLAIM, f"{UNBOUND_CLAIM.kube_words}: {named.name}{missing}")
    return None if claim.spec.volume_name in listers.volumes else _no_volume(claim)


def _no_volume(claim: PersistentVolumeClaim) -> Reason:
    name, volume = claim.metadata.name, claim.spec.volume_name
    kube = f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
    return _with_text(CLAIM_MISSING, kube, "delete the claim and create it again: its volume is gone")


def _is_owned_by(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    return any(owner.controller and owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references)


def _with_text(reason: Reason, kube: str, remedy: str = "") -> Reason:
    return msgspec.structs.replace(reason, kube_words=kube, remedy=remedy or reason.remedy)
