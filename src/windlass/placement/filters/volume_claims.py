"""A pod's volume claims, and what state each is in. Read by the two volume filters and by `holds`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from windlass.cluster.listers import Listers
from windlass.model.pod import Pod
from windlass.model.volume import PersistentVolume, PersistentVolumeClaim

_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_IS_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


class PodVolumeClaim(NamedTuple):
    name: str
    ephemeral: bool
    """The claim of a generic ephemeral volume, made for this pod alone."""
    claim: PersistentVolumeClaim | None


def volume_claims_of(pod: Pod, objects: Listers) -> Iterator[PodVolumeClaim]:
    """The claims that the pod's volumes name, in order, whether they exist or not."""
    namespace = pod.metadata.namespace or "default"
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            name = volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            name = f"{pod.metadata.name}-{volume.name}"
        else:
            continue
        ephemeral = volume.persistent_volume_claim is None
        yield PodVolumeClaim(name, ephemeral, objects.claims.get(f"{namespace}/{name}"))


def bound_volumes(pod: Pod, objects: Listers) -> list[PersistentVolume]:
    """The volumes behind the pod's bound claims."""
    names = (
        c.claim.spec.volume_name for c in volume_claims_of(pod, objects) if c.claim and is_bound(c.claim)
    )
    return [objects.volumes[name] for name in names if name in objects.volumes]


def wait_for_consumer_claims(pod: Pod, objects: Listers) -> list[PersistentVolumeClaim]:
    """Claims that get their volume once the pod has a node."""
    return [
        c.claim for c in volume_claims_of(pod, objects) if c.claim and waits_for_consumer(c.claim, objects)
    ]


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Bound for good. A claim that names a volume but was not confirmed is not."""
    done = _BIND_COMPLETED in claim.metadata.annotations or claim.status.phase == "Bound"
    return bool(claim.spec.volume_name) and done


def waits_for_consumer(claim: PersistentVolumeClaim, objects: Listers) -> bool:
    """Unbound, and of a class that binds only when the first pod that uses the claim has a node."""
    storage_class = objects.storage_classes.get(storage_class_of_claim(claim, objects))
    delayed = storage_class is not None and storage_class.volume_binding_mode == "WaitForFirstConsumer"
    return delayed and not claim.spec.volume_name


def storage_class_of_claim(claim: PersistentVolumeClaim, objects: Listers) -> str:
    """The claim's storage class; the cluster's default one if the claim leaves it open, as admission fills it
    in."""
    if _CLASS_ANNOTATION in claim.metadata.annotations:
        return claim.metadata.annotations[_CLASS_ANNOTATION]
    if claim.spec.storage_class_name is not None:
        return claim.spec.storage_class_name
    defaults = [
        (c.metadata.creation_timestamp, c.metadata.name)
        for c in objects.storage_classes.values()
        if c.metadata.annotations.get(_IS_DEFAULT_CLASS) == "true"
    ]
    return max(defaults)[1] if defaults else ""


def storage_class_of_volume(volume: PersistentVolume) -> str:
    return volume.metadata.annotations.get(_CLASS_ANNOTATION, volume.spec.storage_class_name)
