"""Which pods are one unit: the group that a pod names, the Workload over it, or the owner that made it.

Feeds `build`, which makes a workload of each unit. A pod belongs to, in this order: the Kueue Workload that it, its
group or one of its owners has; the pod group that it names; the topmost owner whose pods start together; itself.
An owner of a kind that is not known is never guessed at: its pods stand alone, and a note says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import msgspec

from windlass.cluster.workloads.inputs import Inputs, is_submitted
from windlass.model.kueue import is_finished
from windlass.model.meta import ObjectMeta, OwnerReference
from windlass.model.owners import Owner
from windlass.model.owners.normalise import LWS_GROUP, QUEUE_NAME
from windlass.model.pod import Pod

KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
KUEUE_WORKLOAD = "kueue.x-k8s.io/workload"
PREBUILT_WORKLOAD = "kueue.x-k8s.io/prebuilt-workload-name"
VOLCANO_GROUP = "scheduling.k8s.io/group-name"
COSCHEDULING_GROUPS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
COSCHEDULING, VOLCANO, NATIVE = "scheduling.x-k8s.io", "scheduling.volcano.sh", "scheduling.k8s.io"

TRAINING_KINDS = frozenset(
    ("kubeflow.org", kind) for kind in ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")
) | {
    ("trainer.kubeflow.org", "TrainJob"),
    ("ray.io", "RayCluster"),
    ("ray.io", "RayJob"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
}
"""Their pods start together, whether or not the object itself is at hand."""
QUEUED_KINDS = frozenset({("batch", "Job"), ("jobset.x-k8s.io", "JobSet")})
"""Their pods start together where a queue label says that they are queued."""
SINGLE_KINDS = frozenset(
    ("apps", kind) for kind in ("ReplicaSet", "StatefulSet", "DaemonSet", "Deployment")
) | {
    ("", "Node"),
    ("", "ReplicationController"),
    ("", "Pod"),
}
"""Kinds whose pods have nothing to do with one another."""
MOST_NOTED = 3


class UnitKey(msgspec.Struct, frozen=True):
    source: str
    """`workload`, `pod`, `owner`, `kueue-group`, or the API group of a PodGroup."""
    key: str
    kind: str = ""
    index: int | None = None
    """Which gang of an owner that makes several."""


class Unit(msgspec.Struct):
    """Pods that are decided together, those that have ended apart."""

    key: UnitKey
    pods: list[Pod] = msgspec.field(default_factory=list)
    succeeded: int = 0


def find_units(inputs: Inputs) -> tuple[list[Unit], list[str]]:
    """All units, also those that have no pods yet, and what has to be said about the grouping."""
    finder = _Finder(inputs)
    units: dict[UnitKey, Unit] = {}
    for pod in inputs.pods:
        key = finder.unit_of(pod)
        unit = units.setdefault(key, Unit(key))
        if not pod.is_over:
            unit.pods.append(pod)
        elif pod.status.phase == "Succeeded":
            unit.succeeded += 1
    for key in finder.without_pods():
        units.setdefault(key, Unit(key))
    return list(units.values()), finder.notes()


class _Finder:
    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._owned_by: dict[tuple[str, str], str] = {}
        """Kind and key of an owner → the Workload that stands for it."""
        for key, workload in inputs.workloads.items():
            for reference in workload.metadata.owner_references:
                self._owned_by[reference.kind, _beside(workload.metadata, reference.name)] = key
        self._ungrouped: dict[tuple[str, str, str], list[str]] = {}

    def unit_of(self, pod: Pod) -> UnitKey:
        return (
            self._by_workload(pod)
            or self._by_group(pod)
            or self._by_owner(pod)
            or UnitKey("pod", pod.key, "Pod")
        )

    def _by_workload(self, pod: Pod) -> UnitKey | None:
        labels, annotations = pod.metadata.labels, pod.metadata.annotations
        named = annotations.get(KUEUE_WORKLOAD) or labels.get(PREBUILT_WORKLOAD)
        named = named or labels.get(KUEUE_GROUP) or annotations.get(KUEUE_GROUP)
        key = _beside(pod.metadata, named) if named else self._owned_by.get(("Pod", pod.key), "")
        return UnitKey("workload", key, "Workload") if key in self._inputs.workloads else None

    def _by_group(self, pod: Pod) -> UnitKey | None:
        labels, annotations = pod.metadata.labels, pod.metadata.annotations
        native = pod.spec.scheduling_group
        if native is not None and native.pod_group_name:
            return UnitKey(NATIVE, _beside(pod.metadata, native.pod_group_name), "PodGroup")
        for label in COSCHEDULING_GROUPS:
            if labels.get(label):
                return UnitKey(COSCHEDULING, _beside(pod.metadata, labels[label]), "PodGroup")
        if annotations.get(VOLCANO_GROUP):
            return UnitKey(VOLCANO, _beside(pod.metadata, annotations[VOLCANO_GROUP]), "PodGroup")
        kueue = labels.get(KUEUE_GROUP) or annotations.get(KUEUE_GROUP)
        return UnitKey("kueue-group", _beside(pod.metadata, kueue), "PodGroup") if kueue else None

    def _by_owner(self, pod: Pod) -> UnitKey | None:
        found: UnitKey | None = None
        for reference, owner in self._ancestors(pod.metadata):
            key = _beside(pod.metadata, reference.name)
            workload = self._owned_by.get((reference.kind, key))
            if workload is not None:
                return UnitKey("workload", workload, "Workload")
            if _starts_together(reference, owner, pod):
                found = UnitKey("owner", key, reference.kind, _gang_index(reference, pod))
            elif owner is None and not _is_known(reference):
                self._ungrouped.setdefault((reference.api_version, reference.kind, key), []).append(pod.key)
        return found

    def _ancestors(self, metadata: ObjectMeta) -> Iterator[tuple[OwnerReference, Owner | None]]:
        """The controllers above an object, the nearest first, as far as the objects are at hand."""
        seen: set[tuple[str, str]] = set()
        reference = _controller(metadata)
        while reference is not None and (reference.kind, reference.name) not in seen:
            seen.add((reference.kind, reference.name))
            known = not reference.api_version or _is_known(reference)
            key = (reference.kind, _beside(metadata, reference.name))
            owner = self._inputs.owners.get(key) if known else None
            yield reference, owner
            reference = _controller(owner.metadata) if owner is not None else None

    def without_pods(self) -> Iterator[UnitKey]:
        """Workloads and owners that may have no pod yet. Owners below another one are that one's business."""
        for key, workload in self._inputs.workloads.items():
            if not is_finished(workload):
                yield UnitKey("workload", key, "Workload")
        parents = set(chain.from_iterable(self._parents_of(owner) for owner in self._inputs.owners.values()))
        for (kind, key), owner in self._inputs.owners.items():
            if owner.finished or self._is_someone_elses(owner) or (kind, key) in self._owned_by:
                continue
            if not owner.together and (is_submitted(owner.metadata) or (kind, key) in parents):
                continue
            for index in range(owner.groups) if owner.kind == "LeaderWorkerSet" else (None,):
                yield UnitKey("owner", key, kind, index)

    def _parents_of(self, owner: Owner) -> Iterator[tuple[str, str]]:
        for reference, _ in self._ancestors(owner.metadata):
            yield reference.kind, _beside(owner.metadata, reference.name)

    def _is_someone_elses(self, owner: Owner) -> bool:
        """A known owner or a Workload stands over it; an unknown one above it changes nothing."""
        for reference, above in self._ancestors(owner.metadata):
            if (
                above is not None
                or (reference.kind, _beside(owner.metadata, reference.name)) in self._owned_by
            ):
                return True
        return False

    def notes(self) -> list[str]:
        said = []
        for (version, kind, key), pods in sorted(self._ungrouped.items()):
            if len(pods) > 1:
                more = ", …" if len(pods) > MOST_NOTED else ""
                said.append(
                    f"{kind} {key} ({version or 'no version'}) is of a kind that is not known and its {len(pods)} pods "
                    f"name no group, so each stands alone: {', '.join(sorted(pods)[:MOST_NOTED])}{more} "
                    f"(give them the label {KUEUE_GROUP} if they start together)"
                )
        return said


def _starts_together(reference: OwnerReference, owner: Owner | None, pod: Pod) -> bool:
    if owner is not None:
        return owner.together
    api = reference.api_version.rpartition("/")[0]
    if (api, reference.kind) in TRAINING_KINDS:
        return True
    return (api, reference.kind) in QUEUED_KINDS and QUEUE_NAME in pod.metadata.labels


def _is_known(reference: OwnerReference) -> bool:
    kind = (reference.api_version.rpartition("/")[0], reference.kind)
    return kind in TRAINING_KINDS or kind in QUEUED_KINDS or kind in SINGLE_KINDS


def _gang_index(reference: OwnerReference, pod: Pod) -> int | None:
    """LeaderWorkerSet numbers its gangs by a label."""
    index = pod.metadata.labels.get(LWS_GROUP, "")
    if reference.kind != "LeaderWorkerSet" or not (index.isascii() and index.isdigit() and len(index) < 9):
        return None
    return int(index)


def _controller(metadata: ObjectMeta) -> OwnerReference | None:
    return next((one for one in metadata.owner_references if one.controller), None)


def _beside(metadata: ObjectMeta, name: str) -> str:
    """The key of an object of that name in the same namespace."""
    return f"{metadata.namespace or 'default'}/{name}"
