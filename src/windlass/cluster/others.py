"""Objects beside nodes and pods: what filters look up, and what says which pods belong together and who may go.

The store's own; it puts and drops objects here, and asks for the workloads when it makes a snapshot.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.cluster.delta import ClusterObject, Gone
from windlass.cluster.grouped import Cluster, GroupedWorkloads, Name
from windlass.cluster.likeness import is_same
from windlass.cluster.objects import ClusterObjects
from windlass.cluster.resources import ResourceBook
from windlass.cluster.workloads import Grouping, says_its_limit, says_where_it_belongs
from windlass.model.disruption import PodDisruptionBudget
from windlass.model.errors import InputError
from windlass.model.kueue import WorkloadObject
from windlass.model.namespace_rules import ResourceQuota
from windlass.model.objects import name_of
from windlass.model.owners import OwnerObject
from windlass.model.pod import Pod
from windlass.model.queue import QueueSystem
from windlass.model.requests import pod_requests
from windlass.model.reservation import Reservation, ReservationObject, reservation_of
from windlass.model.run_times import Run, RunTimeHistoryObject, RunTimes, run_times_of

_LOOKED_UP = {
    "PersistentVolume": "volumes",
    "PersistentVolumeClaim": "claims",
    "StorageClass": "storage_classes",
    "Namespace": "namespaces",
    "CSINode": "csi_nodes",
    "VolumeAttachment": "attachments",
}
"""Kind → where `ClusterObjects` keeps it."""
HISTORY = "RunTimeHistory"


class OtherObjects:
    def __init__(self) -> None:
        self._looked_up = ClusterObjects()
        self._fields: dict[str, dict[str, Any]] = {field: {} for field in _LOOKED_UP.values()}
        self._stale: set[str] = set()
        """Fields of `ClusterObjects` that have changed since somebody looked."""
        self._extras: dict[Name, Any] = {}
        """API group, kind and key → queues, pod groups, owners, reservations."""
        self._by_kind: dict[tuple[str, str], list[Name]] = {}
        """Kind and key → the extras of that name, one an API group."""
        self._changed: dict[Name, None] = {}
        self._workloads = GroupedWorkloads()
        self._telling: set[str] = set()
        """Pods that say where they belong, or for how long they run."""
        self._standing: set[Name] = set()
        """Workloads and owners, which stand for pods that say nothing or don't exist yet; and reservations, which lone
        pods have to mind."""
        self._quotas: set[Name] = set()
        self._unsubmitted: set[str] = set()
        """Pods that the API server has not seen: what their namespace's ResourceQuota says of them is not known."""
        self._reservations: tuple[Reservation, ...] | None = None
        self._budgets: tuple[PodDisruptionBudget, ...] | None = None
        self.run_times: dict[str, RunTimes] = {}
        """LocalQueue → how long its work has run; never changed in place, since snapshots share it."""

    def put(self, obj: ClusterObject) -> None:
        if isinstance(obj, RunTimeHistoryObject):
            self.run_times = {**self.run_times, obj.key: run_times_of(obj)}
            return
        name = name_of(obj)
        _, kind, key = name
        field = _LOOKED_UP.get(kind)
        known = self._extras.get(name) if field is None else self._fields[field].get(key)
        if known is not None and is_same(known, obj):
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

    def drop(self, gone: Gone) -> None:
        if gone.kind == HISTORY:
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

    def _change(self, name: Name) -> None:
        self._changed[name] = None
        self._reservations = self._budgets = None

    @property
    def looked_up(self) -> ClusterObjects:
        """What filters look up; the very same object until something in it changes."""
        if self._stale:
            fresh = {field: dict(self._fields[field]) for field in self._stale}
            self._looked_up = msgspec.structs.replace(self._looked_up, **fresh)
            self._stale = set()
        return self._looked_up

    def pod_changed(self, key: str) -> None:
        self._workloads.pod_changed(key)

    def pod_came(self, key: str, pod: Pod) -> None:
        self.pod_changed(key)
        if says_where_it_belongs(pod) or says_its_limit(pod):
            self._telling.add(key)
        if not pod.metadata.uid:
            self._unsubmitted.add(key)

    def pod_left(self, key: str) -> None:
        self.pod_changed(key)
        self._telling.discard(key)
        self._unsubmitted.discard(key)

    def node_changed(self, name: str) -> None:
        self._workloads.node_changed(name)

    def group(self, cluster: Cluster, now: int) -> tuple[QueueSystem, Grouping]:
        """Queues and workloads. Where nothing says that any pods belong together or wait for a reason of their own,
        every pod is a workload by itself, and none is spelled out."""
        changed, self._changed = self._changed, {}
        namespaces = self.looked_up.namespaces
        spelled_out = self._telling or self._standing or (self._quotas and self._unsubmitted)
        return self._workloads.group(cluster, self._extras, changed, namespaces, now, bool(spelled_out))

    def take_runs(self) -> list[Run]:
        return self._workloads.take_runs()

    def meet_templates(self, resources: ResourceBook) -> None:
        """Resources that only pods ask for which don't exist yet, or that are only reserved, have columns, too."""
        reserved = (one.pod for one in self.reservations())
        for pod in (*self._workloads.new_templates(), *reserved):
            try:
                for name in pod_requests(pod):
                    resources.column(name)
            except InputError:
                continue  # the workload is held, and says why

    def reservations(self) -> tuple[Reservation, ...]:
        if self._reservations is None:
            things = self._extras.values()
            found = [reservation_of(thing) for thing in things if isinstance(thing, ReservationObject)]
            self._reservations = tuple(sorted(found, key=lambda one: one.name))
        return self._reservations

    def budgets(self) -> tuple[PodDisruptionBudget, ...]:
        if self._budgets is None:
            found = [thing for thing in self._extras.values() if isinstance(thing, PodDisruptionBudget)]
            self._budgets = tuple(sorted(found, key=lambda one: (one.namespace, one.metadata.name)))
        return self._budgets
