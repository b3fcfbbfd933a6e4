"""Objects beside nodes and pods: what filters look up, and what says which pods belong together and who may go.

The store's own; it puts and drops objects here, and asks for the workloads when it makes a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from windlass.cluster.delta import ClusterObject, Gone
from windlass.cluster.objects import ClusterObjects
from windlass.cluster.workloads import Grouping, group, inputs_of
from windlass.model.disruption import PodDisruptionBudget
from windlass.model.objects import name_of
from windlass.model.queue import QueueSystem
from windlass.model.reservation import Reservation, ReservationObject, reservation_of

_LOOKED_UP = {
    "PersistentVolume": "volumes",
    "PersistentVolumeClaim": "claims",
    "StorageClass": "storage_classes",
    "Namespace": "namespaces",
}
"""Kind → where `ClusterObjects` keeps it."""
_NO_QUEUES = QueueSystem()
_NO_WORKLOADS = Grouping(())


class OtherObjects:
    def __init__(self) -> None:
        self.looked_up = ClusterObjects()
        self._extras: dict[tuple[str, str, str], Any] = {}
        """API group, kind and key → queues, pod groups, owners, reservations."""

    def put(self, obj: ClusterObject) -> None:
        api, kind, key = name_of(obj)
        field = _LOOKED_UP.get(kind)
        if field is None:
            self._extras[api, kind, key] = obj
        else:
            self._replace(field, {**getattr(self.looked_up, field), key: obj})

    def drop(self, gone: Gone) -> None:
        field = _LOOKED_UP.get(gone.kind)
        if field is not None:
            entries = getattr(self.looked_up, field)
            self._replace(field, {key: obj for key, obj in entries.items() if key != gone.key})
            return
        for name in [name for name in self._extras if name[1:] == (gone.kind, gone.key)]:
            if gone.group in ("", name[0]):
                del self._extras[name]

    def _replace(self, field: str, entries: dict[str, Any]) -> None:
        self.looked_up = msgspec.structs.replace(self.looked_up, **{field: entries})

    def group(self, nodes_and_pods: Iterable[object], now: int) -> tuple[QueueSystem, Grouping]:
        """Queues and workloads, where any object says that there are some."""
        if not self._extras:
            return _NO_QUEUES, _NO_WORKLOADS
        objects = [*self.looked_up.namespaces.values(), *nodes_and_pods, *self._extras.values()]
        inputs = inputs_of(objects, now)
        return inputs.system, group(inputs)

    def reservations(self) -> tuple[Reservation, ...]:
        found = (
            reservation_of(thing) for thing in self._extras.values() if isinstance(thing, ReservationObject)
        )
        return tuple(sorted(found, key=lambda one: one.name))

    def budgets(self) -> tuple[PodDisruptionBudget, ...]:
        found = [thing for thing in self._extras.values() if isinstance(thing, PodDisruptionBudget)]
        return tuple(sorted(found, key=lambda one: (one.namespace, one.metadata.name)))
