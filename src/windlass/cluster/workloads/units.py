"""Which pods form a unit: by their Kueue Workload, their pod group, or their owner.

`workload_index` asks for the unit of every pod; `build_workload` builds a workload of each unit. A pod belongs to the
first of these that exists: the Kueue Workload of the pod, its group or one of its owners; the pod group that it names;
the topmost owner that is a gang; itself. Pods of an owner of unknown kind are single pods, and a note says so.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from typing import Literal

import msgspec

from windlass.cluster.workloads.ancestors import (
    OwnerKey,
    ancestors,
    controller_of,
    is_known_kind,
    owner_kind,
    sibling_key,
)
from windlass.cluster.workloads.grouping_inputs import GroupingInputs, is_submitted
from windlass.model.group_membership import (
    GANG_IF_QUEUED_KINDS,
    GANG_KINDS,
    GROUP_ANNOTATIONS,
    GROUP_LABELS,
    INDEPENDENT_POD_KINDS,
    POD_GROUP_SOURCES,
    GroupSource,
    group_of_pod,
    workload_name,
)
from windlass.model.kueue import WorkloadObject, is_finished
from windlass.model.meta import OwnerReference
from windlass.model.names.kueue import (
    KUEUE_POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    PREBUILT_WORKLOAD_LABEL,
    QUEUE_NAME_LABEL,
    WORKLOAD_ANNOTATION,
)
from windlass.model.owners import Owner
from windlass.model.owners.normalise import LWS_GROUP
from windlass.model.pod import Pod
from windlass.model.queue_names import QUEUE_ANNOTATIONS, QUEUE_LABELS

MAX_NOTED_PODS = 3
_MEMBERSHIP_LABELS = GROUP_LABELS | QUEUE_LABELS | {PREBUILT_WORKLOAD_LABEL}
_MEMBERSHIP_ANNOTATIONS = GROUP_ANNOTATIONS | QUEUE_ANNOTATIONS | {WORKLOAD_ANNOTATION}

UnitSource = Literal["workload", "owner", "pod"] | GroupSource


class UnitKey(msgspec.Struct, frozen=True):
    source: UnitSource
    key: str
    kind: str = ""
    index: int | None = None
    """Number of the gang, for owners with several."""


class Unit(msgspec.Struct):
    """Pods that are decided together; pods that have succeeded are only counted."""

    key: UnitKey
    pods: list[Pod] = msgspec.field(default_factory=list)
    succeeded: int = 0


UnknownOwner = tuple[str, str, str]
"""API version, kind and key of an owner of unknown kind."""


class UnitFinder:
    """Finds the unit of a pod, and the units of a Workload or an owner without pods."""

    def __init__(
        self,
        inputs: GroupingInputs,
        owned_by: Mapping[OwnerKey, str],
        pods_owned_by: Mapping[str, str],
        parents: Container[OwnerKey],
    ) -> None:
        """`owned_by`: owner → its Workload; `pods_owned_by`: the same for pods. `parents`: owners of other owners."""
        self._inputs, self._owned_by, self._pods_owned_by = inputs, owned_by, pods_owned_by
        self._parents = parents
        self.unknown_owners: list[UnknownOwner] = []
        """Owners of unknown kind of the pod that `unit_of` was called with last."""

    def set_inputs(self, inputs: GroupingInputs) -> None:
        self._inputs = inputs

    def unit_of(self, pod: Pod) -> UnitKey:
        self.unknown_owners = []
        return (
            self._workload_unit(pod) or self._group_unit(pod) or self._owner_unit(pod) or UnitKey("pod", pod.key, "Pod")
        )

    def _workload_unit(self, pod: Pod) -> UnitKey | None:
        name = workload_name(pod.metadata.labels, pod.metadata.annotations)
        key = sibling_key(pod.metadata, name) if name else self._pods_owned_by.get(pod.key, "")
        return UnitKey("workload", key, "Workload") if key and key in self._inputs.workloads else None

    def _group_unit(self, pod: Pod) -> UnitKey | None:
        group = group_of_pod(pod)
        return UnitKey(group.source, sibling_key(pod.metadata, group.name), "PodGroup") if group else None

    def _owner_unit(self, pod: Pod) -> UnitKey | None:
        found: UnitKey | None = None
        for reference, owner in ancestors(pod.metadata, self._inputs.owners):
            key, kind = sibling_key(pod.metadata, reference.name), owner_kind(reference)
            workload = self._owned_by.get((kind, key))
            if workload is not None:
                return UnitKey("workload", workload, "Workload")
            if _starts_together(reference, owner, pod):
                found = UnitKey("owner", key, kind, _gang_index(reference, pod))
            elif owner is None and not is_known_kind(reference):
                self.unknown_owners.append((reference.api_version, reference.kind, key))
        return found

    def units_of_workload(self, key: str, workload: WorkloadObject) -> tuple[UnitKey, ...]:
        return () if is_finished(workload) else (UnitKey("workload", key, "Workload"),)

    def units_of_owner(self, owner_key: OwnerKey, owner: Owner) -> tuple[UnitKey, ...]:
        """Units of an owner, which may have no pods yet; none where its parent, Workload or PodGroup covers them."""
        if owner.finished or owner.is_template or self._has_known_parent(owner) or owner_key in self._owned_by:
            return ()
        if owner.makes_owners and (is_submitted(owner.metadata) or owner_key in self._parents):
            return ()
        if not owner.is_gang and (is_submitted(owner.metadata) or owner_key in self._parents):
            return ()
        if not owner.suspended and self._has_pod_group(owner_key[1], owner.metadata.uid):
            return ()
        indices = range(owner.gang_count) if owner.kind == "LeaderWorkerSet" else (None,)
        return tuple(UnitKey("owner", owner_key[1], owner_key[0], index) for index in indices)

    def _has_pod_group(self, key: str, uid: str) -> bool:
        """Whether its controller has created a PodGroup of the same name, which then defines the unit. Volcano and KAI
        add the uid, and KAI begins with `pg-`."""
        namespace, _, name = key.partition("/")
        names = (key, f"{key}-{uid}", f"{namespace}/pg-{name}-{uid}")
        return any((source, known) in self._inputs.pod_groups for source in POD_GROUP_SOURCES for known in names)

    def parents_of(self, owner: Owner) -> tuple[OwnerKey, ...]:
        return tuple(
            (owner_kind(reference), sibling_key(owner.metadata, reference.name))
            for reference, _ in ancestors(owner.metadata, self._inputs.owners)
        )

    def _has_known_parent(self, owner: Owner) -> bool:
        """Whether a known owner or one with a Workload is above it; unknown owners are ignored."""
        for reference, parent in ancestors(owner.metadata, self._inputs.owners):
            key = (owner_kind(reference), sibling_key(owner.metadata, reference.name))
            if (parent is not None and not parent.makes_owners) or key in self._owned_by:
                return True
        return False


def unknown_owner_notes(pods_by_owner: Mapping[UnknownOwner, Collection[str]]) -> list[str]:
    """Notes about owners of unknown kind that have several pods."""
    notes = []
    for (version, kind, key), pods in sorted(pods_by_owner.items()):
        if len(pods) > 1:
            more = ", …" if len(pods) > MAX_NOTED_PODS else ""
            notes.append(
                f"{kind} {key} ({version or 'no version'}) is of an unknown kind and its {len(pods)} pods name no "
                f"group, so each is scheduled on its own: {', '.join(sorted(pods)[:MAX_NOTED_PODS])}{more} "
                f"(to start them together, give them the label {KUEUE_POD_GROUP_NAME} and the annotation "
                f"{POD_GROUP_TOTAL_COUNT_ANNOTATION})"
            )
    return notes


def declares_membership(pod: Pod) -> bool:
    """Whether the pod itself declares a queue, a group, or an owner that may be a gang."""
    if (
        pod.spec.scheduling_group is not None
        or pod.spec.workload_ref is not None
        or not _MEMBERSHIP_LABELS.isdisjoint(pod.metadata.labels)
    ):
        return True
    if not _MEMBERSHIP_ANNOTATIONS.isdisjoint(pod.metadata.annotations):
        return True
    owner = controller_of(pod.metadata)
    if owner is None:
        return False
    kind = _kind_of(owner)
    return kind not in INDEPENDENT_POD_KINDS and kind not in GANG_IF_QUEUED_KINDS


def _starts_together(reference: OwnerReference, owner: Owner | None, pod: Pod) -> bool:
    if owner is not None:
        return owner.is_gang and not owner.makes_owners
    api = reference.api_version.rpartition("/")[0]
    if (api, reference.kind) in GANG_KINDS:
        return True
    return _kind_of(reference) in GANG_IF_QUEUED_KINDS and QUEUE_NAME_LABEL in pod.metadata.labels


def _kind_of(reference: OwnerReference) -> tuple[str, str]:
    """API group and kind."""
    return reference.api_version.rpartition("/")[0], reference.kind


def _gang_index(reference: OwnerReference, pod: Pod) -> int | None:
    """The number of the gang in its LeaderWorkerSet, from a label."""
    index = pod.metadata.labels.get(LWS_GROUP, "")
    if reference.kind != "LeaderWorkerSet" or not (index.isascii() and index.isdigit() and len(index) < 9):
        return None
    return int(index)
