"""Work that a queue has admitted, as far as drains read it: Kueue's Workloads, and the owners between them and pods.

Where a queue admits, a drain stops the Workload instead of evicting its pods: the Job controller would make evicted
pods again, count them as failures, and never give the quota back. `operator.cache` keeps these, `decide.drain` asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from windlass.model.meta import KubeStruct, ObjectMeta, OwnerReference
from windlass.model.names.windlass import STOPPED_FOR_ANNOTATION

MAX_OWNERS = 8
"""So many owners are looked through above a pod: a TrainJob has a JobSet, which has Jobs, which have pods."""


class _Condition(KubeStruct, frozen=True):
    type: str = ""
    status: str = ""


class _WorkloadSpec(KubeStruct, frozen=True):
    active: bool = True


class _WorkloadStatus(KubeStruct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class WorkloadWire(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _WorkloadSpec = _WorkloadSpec()
    status: _WorkloadStatus = _WorkloadStatus()


class OwnerWire(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class QueuedWork(msgspec.Struct, frozen=True, kw_only=True):
    """A Workload."""

    key: str
    uid: str = ""
    version: str = ""
    api_version: str = ""
    """In which the server has its kind."""
    owners: frozenset[str] = frozenset()
    """The uids of what it stands for."""
    is_of_pods: bool = False
    """It stands for pods without an owner that could be stopped: these are evicted."""
    is_active: bool = True
    is_admitted: bool = False
    stopped_for: str = ""
    """The drain for which the operator has stopped it: `change r590`."""


class OwnerLink(msgspec.Struct, frozen=True):
    """An object between a pod and the one that its Workload stands for."""

    kind: str
    key: str
    uid: str
    owner: str
    """The uid of its controller; empty: it has none."""


def queued_work(wire: WorkloadWire, api_version: str) -> QueuedWork:
    metadata = wire.metadata
    return QueuedWork(
        key=f"{metadata.namespace}/{metadata.name}",
        uid=metadata.uid,
        version=metadata.resource_version,
        api_version=api_version,
        owners=frozenset(owner.uid for owner in metadata.owner_references),
        is_of_pods=all(owner.kind == "Pod" for owner in metadata.owner_references),
        is_active=wire.spec.active,
        is_admitted=any((known.type, known.status) == ("QuotaReserved", "True") for known in wire.status.conditions),
        stopped_for=metadata.annotations.get(STOPPED_FOR_ANNOTATION, ""),
    )


def owner_link(wire: OwnerWire, kind: str) -> OwnerLink:
    metadata = wire.metadata
    owner = controller(metadata.owner_references)
    return OwnerLink(kind, f"{metadata.namespace}/{metadata.name}", metadata.uid, owner.uid if owner else "")


def controller(references: Iterable[OwnerReference]) -> OwnerReference | None:
    return next((reference for reference in references if reference.controller), None)


class QueuedWorks(msgspec.Struct, frozen=True):
    """All Workloads, and the way to them."""

    by_key: Mapping[str, QueuedWork] = {}
    by_owner: Mapping[str, QueuedWork] = {}
    """By the uid of what they stand for."""
    owners: Mapping[str, str] = {}
    """The uid of an object → that of its controller."""

    def find(self, named: str, uids: Iterable[str]) -> QueuedWork | None:
        """The Workload that a pod names, or else that of the pod or of one of the owners above it."""
        found = self.by_key.get(named)
        if found is not None:
            return found
        for uid in uids:
            for _ in range(MAX_OWNERS):
                if not uid or uid in self.by_owner:
                    break
                uid = self.owners.get(uid, "")
            if uid in self.by_owner:
                return self.by_owner[uid]
        return None


def queued_works(works: Mapping[str, QueuedWork], links: Mapping[Any, OwnerLink]) -> QueuedWorks:
    by_owner = {uid: work for work in works.values() for uid in work.owners}
    return QueuedWorks(dict(works), by_owner, {link.uid: link.owner for link in links.values()})
