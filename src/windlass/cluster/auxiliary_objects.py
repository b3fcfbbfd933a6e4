"""Objects beside nodes and pods: what filters look up, and what says which pods belong together and who may go.

The store's own; it puts and drops objects here, and asks for the workloads when it makes a snapshot.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.cluster.change_detection import is_unchanged
from windlass.cluster.delta import ClusterObject, Deleted
from windlass.cluster.listers import Listers
from windlass.cluster.resource_columns import ResourceColumns
from windlass.cluster.workload_sync import GroupingSource, ObjectId, WorkloadSync
from windlass.cluster.workloads import Grouping, declares_membership, declares_run_limit
from windlass.model.codec import object_id
from windlass.model.disruption import PodDisruptionBudget
from windlass.model.errors import InputError
from windlass.model.kueue import WorkloadObject
from windlass.model.namespace_limits import ResourceQuota
from windlass.model.owners import OwnerObject
from windlass.model.pod import Pod
from windlass.model.queue import QueueSystem
from windlass.model.requests import pod_requests
from windlass.model.reservation import Reservation, ReservationObject, reservation_from_object
from windlass.model.run_time_history import FinishedRun, RunTimeHistoryObject, RunTimes, run_times_from_object

_LOOKED_UP = {
    "PersistentVolume": "volumes",
    "PersistentVolumeClaim": "claims",
    "StorageClass": "storage_classes",
    "Namespace": "namespaces",
    "CSINode": "csi_nodes",
    "VolumeAttachment": "attachments",
}
"""Kind → where `Listers` keeps it."""
RUN_TIME_HISTORY = "RunTimeHistory"


class AuxiliaryObjects:
    def __init__(self) -> None:
        self._looked_up = Listers()
        self._fields: dict[str, dict[str, Any]] = {field: {} for field in _LOOKED_UP.values()}
        self._stale: set[str] = set()
        """Fields of `Listers` that have changed since somebody looked."""
        self._extras: dict[ObjectId, Any] = {}
        """API group, kind and key → queues, pod groups, owners, reservations."""
        self._by_kind: dict[tuple[str, str], list[ObjectId]] = {}
        """Kind and key → the extras of that name, one an API group."""
        self._changed: dict[ObjectId, None] = {}
        self._workloads = WorkloadSync()
        self._telling: set[str] = set()
        """Pods that say where they belong, or for how long they run."""
        self._standing: set[ObjectId] = set()
        """Workloads and owners, which stand for pods that say nothing or don't exist yet; and reservations, which lone
        pods have to mind."""
        self._quotas: set[ObjectId] = set()
        self._unsubmitted: set[str] = set()
        """Pods that the API server has not seen: what their namespace's ResourceQuota says of them is not known."""
        self._reservations: tuple[Reservation, ...] | None = None
        self._budgets: tuple[PodDisruptionBudget, ...] | None = None
        self.run_times: dict[str, RunTimes] = {}
        """LocalQueue → how long its work has run; never changed in place, since snapshots share it."""

    def put(self, obj: ClusterObject) -> None:
        if isinstance(obj, RunTimeHistoryObject):
            self.run_times = {**self.run_times, obj.key: run_times_from_object(obj)}
            return
        name = object_id(obj)
        _, kind, key = name
        field = _LOOKED_UP.get(kind)
        known = self._extras.get(name) if field is None else self._fields[field].get(key)
        if known is not None and is_unchanged(known, obj):
            return
        if field is not None:
            self._fields[field][key] = obj
            self._stale.add(field)
            return
        if name not in self._extras:
            self._by_kind.setdefault((kind, key), []).append(name)
        self._extras[name] = obj
        if isinstance(obj, WorkloadObject | OwnerObject | ReservationObject):
            self._standing.add(name)
        elif isinstance(obj, ResourceQuota):
            self._quotas.add(name)
        self._change(name)

    def delete(self, gone: Deleted) -> None:
        if gone.kind == RUN_TIME_HISTORY:
            self.run_times = {key: one for key, one in self.run_times.items() if key != gone.key}
            return
        field = _LOOKED_UP.get(gone.kind)
        if field is not None:
            if self._fields[field].pop(gone.key, None) is not None:
                self._stale.add(field)
            return
        named = self._by_kind.get((gone.kind, gone.key), [])
        for name in [name for name in named if gone.group in ("", name[0])]:
            named.remove(name)
            del self._extras[name]
            self._standing.discard(name)
            self._quotas.discard(name)
            self._change(name)

    def _change(self, name: ObjectId) -> None:
        self._changed[name] = None
        self._reservations = self._budgets = None

    @property
    def listers(self) -> Listers:
        """What filters look up; the very same object until something in it changes."""
        if self._stale:
            fresh = {field: dict(self._fields[field]) for field in self._stale}
            self._looked_up = msgspec.structs.replace(self._looked_up, **fresh)
            self._stale = set()
        return self._looked_up

    def pod_changed(self, key: str) -> None:
        self._workloads.pod_changed(key)

    def pod_added(self, key: str, pod: Pod) -> None:
        self.pod_changed(key)
        if declares_membership(pod) or declares_run_limit(pod):
            self._telling.add(key)
        if not pod.metadata.uid:
            self._unsubmitted.add(key)

    def pod_removed(self, key: str) -> None:
        self.pod_changed(key)
        self._telling.discard(key)
        self._unsubmitted.discard(key)

    def node_changed(self, name: str) -> None:
        self._workloads.node_changed(name)

    def group_workloads(self, cluster: GroupingSource, now: int) -> tuple[QueueSystem, Grouping]:
        """Queues and workloads. Where nothing says that any pods belong together or wait for a reason of their own,
        every pod is a workload by itself, and none is spelled out."""
        changed, self._changed = self._changed, {}
        namespaces = self.listers.namespaces
        spelled_out = self._telling or self._standing or (self._quotas and self._unsubmitted)
        return self._workloads.sync(cluster, self._extras, changed, namespaces, now, bool(spelled_out))

    def pop_finished_runs(self) -> list[FinishedRun]:
        return self._workloads.pop_finished_runs()

    def register_template_resources(self, resources: ResourceColumns) -> None:
        """Resources that only pods ask for which don't exist yet, or that are only reserved, have columns, too."""
        reserved = (one.template for one in self.reservations())
        for pod in (*self._workloads.pop_new_templates(), *reserved):
            try:
                for name in pod_requests(pod):
                    resources.column(name)
            except InputError:
                continue  # the workload is held, and says why

    def reservations(self) -> tuple[Reservation, ...]:
        if self._reservations is None:
            things = self._extras.values()
            found = [
                reservation_from_object(thing) for thing in things if isinstance(thing, ReservationObject)
            ]
            self._reservations = tuple(sorted(found, key=lambda one: one.name))
        return self._reservations

    def budgets(self) -> tuple[PodDisruptionBudget, ...]:
        if self._budgets is None:
            found = [thing for thing in self._extras.values() if isinstance(thing, PodDisruptionBudget)]
            self._budgets = tuple(sorted(found, key=lambda one: (one.namespace, one.metadata.name)))
        return self._budgets
