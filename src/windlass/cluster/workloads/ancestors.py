"""The controllers above an object: who made it, who made that, as far as the objects are known.

`units` finds by them which pods belong together, `workload_attributes` the queue that an owner names for its pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from windlass.model.group_membership import KNOWN_OWNER_KINDS
from windlass.model.meta import ObjectMeta, OwnerReference
from windlass.model.names.kubernetes import APPS_API_VERSION, POD_TEMPLATE_HASH_LABEL
from windlass.model.names.others import LEADER_WORKER_SET_API_VERSION
from windlass.model.names.volcano import VOLCANO_JOB_API_VERSION, VOLCANO_JOB_KIND
from windlass.model.owners import Owner
from windlass.model.owners.normalise import LWS_NAME
from windlass.model.pod import Pod

OwnerKey = tuple[str, str]
"""Kind and key of an owner."""


def ancestors(metadata: ObjectMeta, owners: Mapping[OwnerKey, Owner]) -> Iterator[tuple[OwnerReference, Owner | None]]:
    """The controllers above an object, the nearest first. An owner that is not known is the last one."""
    seen: set[OwnerKey] = set()
    reference = controller_of(metadata)
    while reference is not None and (owner_kind(reference), reference.name) not in seen:
        seen.add((owner_kind(reference), reference.name))
        key = (owner_kind(reference), sibling_key(metadata, reference.name))
        owner = owners.get(key) if not reference.api_version or is_known_kind(reference) else None
        yield reference, owner
        reference = controller_of(owner.metadata) if owner is not None else deployment_of(reference, metadata)


def metadata_of_owners(pods: Iterable[Pod], owners: Mapping[OwnerKey, Owner]) -> list[ObjectMeta]:
    """Metadata of the owners above the pods, for annotations that count for every pod of theirs.

    Not of ReplicaSets: the live scheduler doesn't watch them, and a dump that has them must not be decided differently.
    """
    found: dict[OwnerKey, ObjectMeta] = {}
    for pod in pods:
        for _, owner in ancestors(pod.metadata, owners):
            if owner is not None and owner.kind != "ReplicaSet":
                found[owner.kind, owner.key] = owner.metadata
    return list(found.values())


def is_known_kind(reference: OwnerReference) -> bool:
    return (reference.api_version.rpartition("/")[0], reference.kind) in KNOWN_OWNER_KINDS


def owner_kind(reference: OwnerReference) -> str:
    """The kind as `Owner.kind` has it: Volcano's Job is told apart from Kubernetes' own."""
    api_group = reference.api_version.rpartition("/")[0]
    is_volcano_job = reference.kind == "Job" and api_group == VOLCANO_JOB_API_VERSION.rpartition("/")[0]
    return VOLCANO_JOB_KIND if is_volcano_job else reference.kind


def controller_of(metadata: ObjectMeta) -> OwnerReference | None:
    """The controller of an object. The StatefulSets between a LeaderWorkerSet and its pods are skipped: they say
    nothing about the gang, and so need not be watched."""
    reference = None
    for candidate in metadata.owner_references:  # a loop: this is asked of every pod, and most have one owner or none
        if candidate.controller:
            reference = candidate
            break
    name = metadata.labels.get(LWS_NAME, "")
    if name and (reference is None or reference.kind == "StatefulSet"):
        return OwnerReference(kind="LeaderWorkerSet", name=name, api_version=LEADER_WORKER_SET_API_VERSION)
    return reference


def deployment_of(reference: OwnerReference, metadata: ObjectMeta) -> OwnerReference | None:
    """The Deployment above a ReplicaSet that is not known: ReplicaSets need not be watched, since their names end with
    the hash that their pods have as a label."""
    suffix = f"-{metadata.labels.get(POD_TEMPLATE_HASH_LABEL, '')}"
    if reference.kind != "ReplicaSet" or len(suffix) < 2 or not reference.name.endswith(suffix):
        return None
    name = reference.name.removesuffix(suffix)
    return OwnerReference(kind="Deployment", name=name, api_version=APPS_API_VERSION, controller=True)


def sibling_key(metadata: ObjectMeta, name: str) -> str:
    """The key of an object of that name in the same namespace."""
    return f"{metadata.namespace or 'default'}/{name}"
