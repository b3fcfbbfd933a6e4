"""Owners with a queue name whose pods are ours (Jobs and their kin), and the Workload of each.

`scheduler.cache` keeps it up to date; `apply.owner_workloads` creates and updates Workloads from it.
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.model.kueue import WorkloadObject
from windlass.model.owners import OwnerObject

OwnerId = tuple[str, str]
"""Kind and `namespace/name` of an owner."""


class QueuedOwners:
    def __init__(self) -> None:
        self._owners: dict[OwnerId, OwnerObject] = {}
        self._changed: dict[OwnerId, None] = {}
        """Owners that changed, or whose Workload did, since they were last asked for."""
        self._workload_by_owner: dict[str, str] = {}
        """Uid of an owner → key of its Workload, whether Kueue or we created that."""

    def without_parents(self) -> list[OwnerObject]:
        """All of them but those that another one controls."""
        return [owner for owner in self._owners.values() if not self.has_parent(owner)]

    def get(self, owner: OwnerId) -> OwnerObject | None:
        return self._owners.get(owner)

    def has_parent(self, owner: OwnerObject) -> bool:
        parents = (reference for reference in owner.metadata.owner_references if reference.controller)
        namespace = owner.metadata.namespace or "default"
        return any((parent.kind, f"{namespace}/{parent.name}") in self._owners for parent in parents)

    def pop_changed(self) -> Iterable[OwnerId]:
        """Owners that may be queued and changed since the last call, or whose Workload or responsibility did."""
        changed, self._changed = self._changed, {}
        return changed

    def workload_key_of(self, owner: OwnerObject) -> str:
        """Key of the owner's Workload; empty if it has none."""
        return self._workload_by_owner.get(owner.metadata.uid, "")

    def put(self, owner_id: OwnerId, owner: OwnerObject) -> None:
        self._owners[owner_id] = owner
        self._changed[owner_id] = None

    def remove(self, owner_id: OwnerId) -> None:
        self._owners.pop(owner_id, None)

    def mark_parents_changed(self, owner: OwnerObject) -> None:
        """The pod templates of a TrainJob are in the JobSet below it."""
        self._changed.update(dict.fromkeys(_controller_ids(owner)))

    def mark_all_changed(self) -> None:
        self._changed.update(dict.fromkeys(self._owners))

    def workload_observed(self, key: str, workload: WorkloadObject) -> None:
        self._workload_by_owner.update((uid, key) for uid in _controller_uids(workload))
        self._changed.update(dict.fromkeys(_controller_ids(workload)))

    def workload_deleted(self, key: str, workload: WorkloadObject) -> None:
        self._changed.update(dict.fromkeys(_controller_ids(workload)))
        for uid in _controller_uids(workload):
            if self._workload_by_owner.get(uid) == key:
                del self._workload_by_owner[uid]


def _controller_uids(workload: WorkloadObject) -> list[str]:
    return [reference.uid for reference in workload.metadata.owner_references if reference.controller]


def _controller_ids(obj: WorkloadObject | OwnerObject) -> list[OwnerId]:
    namespace = obj.metadata.namespace or "default"
    references = (reference for reference in obj.metadata.owner_references if reference.controller)
    return [(reference.kind, f"{namespace}/{reference.name}") for reference in references]
