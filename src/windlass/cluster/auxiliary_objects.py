"""All objects other than nodes and pods: those that filters look up, and those that define workloads and queues.

Only the store uses it: it puts and deletes objects, and asks for the workloads when it makes a snapshot.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.cluster.change_detection import is_unchanged
from windlass.cluster.delta import ClusterObject, Deleted
from windlass.cluster.listers import Listers
from windlass.cluster.workload_sync import GroupingSource, ObjectId, WorkloadSync
from windlass.cluster.workloads import Grouping, declares_attributes, declares_membership
from windlass.model.codec import object_id
from windlass.model.disruption import PodDisruptionBudget
from windlass.model.kueue import WorkloadObject
from windlass.model.namespace_limits import ResourceQuota
from windlass.model.owners import OwnerObject
from windlass.model.pod import Pod
from windlass.model.queue import QueueSystem
from windlass.model.reservation import Reservation, ReservationObject, reservation_from_object
from windlass.model.run_time_history import FinishedRun, RunTimeHistoryObject, RunTimes, run_times_from_object

_LISTER_FIELDS = {
    "PersistentVolume": "volumes",
    "PersistentVolumeClaim": "claims",
    "StorageClass": "storage_classes",
    "Namespace": "namespaces",
    "CSINode": "csi_nodes",
    "VolumeAttachment": "attachments",
}
"""Kind → field of `Listers`."""
RUN_TIME_HISTORY = "RunTimeHistory"


class AuxiliaryObjects:
    def __init__(self) -> None:
        self._listers = Listers()
        self._fields: dict[str, dict[str, Any]] = {field: {} for field in _LISTER_FIELDS.values()}
        self._changed_fields: set[str] = set()
        """Fields of `Listers` that have changed since `listers` was read."""
        self._objects: dict[ObjectId, Any] = {}
        """Queues, pod groups, owners, reservations: all objects that are not in `Listers`."""
        self._ids_by_name: dict[tuple[str, str], list[ObjectId]] = {}
        """Kind and key → ids of the objects of that name, one per API group."""
        self._changed: dict[ObjectId, None] = {}
        self._workloads = WorkloadSync()
        self._declaring_pods: set[str] = set()
        """Pods that declare a queue, a group or a run limit."""
        self._declaring_objects: set[ObjectId] = set()
        """Workloads and owners, whose pods may declare nothing or not exist yet; and reservations, which restrict
        single pods, too."""
        self._resource_quotas: set[ObjectId] = set()
        self._unsubmitted_pods: set[str] = set()
        """Pods that the API server has not seen, so that no ResourceQuota was checked for them."""
        self._reservations: tuple[Reservation, ...] | None = None
        self._budgets: tuple[PodDisruptionBudget, ...] | None = None
        self.run_times: dict[str, RunTimes] = {}
        """LocalQueue → its run time history. Replaced on every change, since snapshots share it."""

    def put(self, obj: ClusterObject) -> None:
        if isinstance(obj, RunTimeHistoryObject):
            self.run_times = {**self.run_times, obj.key: run_times_from_object(obj)}
            return
        identity = object_id(obj)
        _, kind, key = identity
        field = _LISTER_FIELDS.get(kind)
        known = self._objects.get(identity) if field is None else self._fields[field].get(key)
        if known is not None and is_unchanged(known, obj):
            return
        if field is not None:
            self._fields[field][key] = obj
            self._changed_fields.add(field)
            return
        if identity not in self._objects:
            self._ids_by_name.setdefault((kind, key), []).append(identity)
        self._objects[identity] = obj
        if isinstance(obj, WorkloadObject | OwnerObject | ReservationObject):
            self._declaring_objects.add(identity)
        elif isinstance(obj, ResourceQuota):
            self._resource_quotas.add(identity)
        self._change(identity)

    def delete(self, deleted: Deleted) -> None:
        if deleted.kind == RUN_TIME_HISTORY:
            self.run_times = {key: times for key, times in self.run_times.items() if key != deleted.key}
            return
        field = _LISTER_FIELDS.get(deleted.kind)
        if field is not None:
            if self._fields[field].pop(deleted.key, None) is not None:
                self._changed_fields.add(field)
            return
        ids = self._ids_by_name.get((deleted.kind, deleted.key), [])
        for identity in [identity for identity in ids if deleted.group in ("", identity[0])]:
            ids.remove(identity)
            del self._objects[identity]
            self._declaring_objects.discard(identity)
            self._resource_quotas.discard(identity)
            self._change(identity)
        if not ids:
            self._ids_by_name.pop((deleted.kind, deleted.key), None)

    def _change(self, identity: ObjectId) -> None:
        self._changed[identity] = None
        self._reservations = self._budgets = None

    @property
    def listers(self) -> Listers:
        """What filters look up; the same object until something in it changes."""
        if self._changed_fields:
            changed_fields = {field: dict(self._fields[field]) for field in self._changed_fields}
            self._listers = msgspec.structs.replace(self._listers, **changed_fields)
            self._changed_fields = set()
        return self._listers

    def pod_changed(self, key: str) -> None:
        self._workloads.pod_changed(key)

    def pod_added(self, key: str, pod: Pod) -> None:
        self.pod_changed(key)
        if declares_membership(pod) or declares_attributes(pod):
            self._declaring_pods.add(key)
        if not pod.metadata.uid:
            self._unsubmitted_pods.add(key)

    def pod_removed(self, key: str) -> None:
        self.pod_changed(key)
        self._declaring_pods.discard(key)
        self._unsubmitted_pods.discard(key)

    def node_changed(self, name: str) -> None:
        self._workloads.node_changed(name)

    def group_workloads(self, cluster: GroupingSource, now: int) -> tuple[QueueSystem, Grouping]:
        """Queues and workloads. Where no object or pod declares a workload, all pods are single pods, and no
        workloads are made for them."""
        changed, self._changed = self._changed, {}
        namespaces = self.listers.namespaces
        needs_workloads = (
            self._declaring_pods or self._declaring_objects or (self._resource_quotas and self._unsubmitted_pods)
        )
        return self._workloads.sync(cluster, self._objects, changed, namespaces, now, bool(needs_workloads))

    def problems(self) -> dict[str, str]:
        """`Kind.group namespace/name` → why it counts as absent."""
        return {f"{kind}.{group} {key}": text for (group, kind, key), text in self._workloads.broken.items()}

    def pop_finished_runs(self) -> list[FinishedRun]:
        return self._workloads.pop_finished_runs()

    def reservations(self) -> tuple[Reservation, ...]:
        if self._reservations is None:
            objects = self._objects.values()
            found = [reservation_from_object(obj) for obj in objects if isinstance(obj, ReservationObject)]
            self._reservations = tuple(sorted(found, key=lambda reservation: reservation.name))
        return self._reservations

    def budgets(self) -> tuple[PodDisruptionBudget, ...]:
        if self._budgets is None:
            found = [obj for obj in self._objects.values() if isinstance(obj, PodDisruptionBudget)]
            self._budgets = tuple(sorted(found, key=lambda pdb: (pdb.namespace, pdb.metadata.name)))
        return self._budgets
