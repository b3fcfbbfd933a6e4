"""A pod's volume claims and their state. Used by the volume filters, `prefilter` and `inter_pod.volume_limits`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from windlass.cluster.listers import Listers
from windlass.model.names.kubernetes import (
    BIND_COMPLETED_ANNOTATION,
    DEFAULT_STORAGE_CLASS_ANNOTATION,
    STORAGE_CLASS_ANNOTATION,
)
from windlass.model.pod import Pod
from windlass.model.volume import PersistentVolume, PersistentVolumeClaim


class PodVolumeClaim(NamedTuple):
    name: str
    ephemeral: bool
    """The claim of a generic ephemeral volume, made for this pod alone."""
    claim: PersistentVolumeClaim | None


def volume_claims_of(pod: Pod, listers: Listers) -> Iterator[PodVolumeClaim]:
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
        yield PodVolumeClaim(name, ephemeral, listers.claims.get(f"{namespace}/{name}"))


def bound_volumes(pod: Pod, listers: Listers) -> list[PersistentVolume]:
    """The volumes behind the pod's bound claims."""
    claims = (named.claim for named in volume_claims_of(pod, listers))
    names = (claim.spec.volume_name for claim in claims if claim and is_bound(claim))
    return [listers.volumes[name] for name in names if name in listers.volumes]


def wait_for_consumer_claims(pod: Pod, listers: Listers) -> list[PersistentVolumeClaim]:
    """Claims that get their volume once the pod has a node."""
    claims = (named.claim for named in volume_claims_of(pod, listers))
    return [claim for claim in claims if claim and waits_for_consumer(claim, listers)]


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """A claim that names a volume is bound only once the volume controller has confirmed it."""
    confirmed = BIND_COMPLETED_ANNOTATION in claim.metadata.annotations or claim.status.phase == "Bound"
    return bool(claim.spec.volume_name) and confirmed


def waits_for_consumer(claim: PersistentVolumeClaim, listers: Listers) -> bool:
    """Unbound, and of a class with volumeBindingMode WaitForFirstConsumer."""
    storage_class = listers.storage_classes.get(storage_class_of_claim(claim, listers))
    delayed = storage_class is not None and storage_class.volume_binding_mode == "WaitForFirstConsumer"
    return delayed and not claim.spec.volume_name


def storage_class_of_claim(claim: PersistentVolumeClaim, listers: Listers) -> str:
    """The claim's storage class; without one the newest default class, as the admission plugin sets it."""
    if STORAGE_CLASS_ANNOTATION in claim.metadata.annotations:
        return claim.metadata.annotations[STORAGE_CLASS_ANNOTATION]
    if claim.spec.storage_class_name is not None:
        return claim.spec.storage_class_name
    defaults = [
        (storage_class.metadata.creation_timestamp, storage_class.metadata.name)
        for storage_class in listers.storage_classes.values()
        if storage_class.metadata.annotations.get(DEFAULT_STORAGE_CLASS_ANNOTATION) == "true"
    ]
    return max(defaults)[1] if defaults else ""


def storage_class_of_volume(volume: PersistentVolume) -> str:
    return volume.metadata.annotations.get(STORAGE_CLASS_ANNOTATION, volume.spec.storage_class_name)
