"""Reconciles Workloads with their owners (Jobs and other queued kinds): creates, updates and finishes them.

`apply.admission` calls `reconcile` with every plan. Where Kueue is live, only queues that were taken over are touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Mapping

from windlass.apply import kueue
from windlass.apply.cluster_cache import ClusterCache
from windlass.apply.owner_reader import OwnerReader
from windlass.apply.owner_starts import OwnerStarter
from windlass.apply.owners import terminal_state
from windlass.apply.workload_writer import MAX_ENTRIES, RETRY_SECONDS, WorkloadWriter
from windlass.kube.errors import Conflict
from windlass.kube.resources import KUEUE_API_GROUP
from windlass.kube.write_requests import create_object, patch_object
from windlass.model.errors import ClusterUnreachable
from windlass.model.kueue import WorkloadObject, is_finished
from windlass.model.names.kueue import QUEUE_NAME_LABEL, STOPPING_ANNOTATION, WORKLOAD_PRIORITY_CLASS_LABEL
from windlass.model.owners import Owner, OwnerObject
from windlass.model.unstructured import Unstructured

log = logging.getLogger(__name__)

MAYBE = -RETRY_SECONDS
"""In place of the time of a creation that was sent and not answered."""
FIELDS_OF_OWNER = frozenset(
    {"podSets", "queueName", "priority", "priorityClassRef", "priorityClassName", "priorityClassSource"}
)
"""Fields of a Workload's spec that follow its owner while it waits."""
MAX_CREATIONS = 16
"""Workloads that are created at the same time: thousands of new Jobs must not keep back those that can start."""


class OwnerWorkloadReconciler:
    def __init__(self, cache: ClusterCache, writer: WorkloadWriter, starter: OwnerStarter, reader: OwnerReader) -> None:
        self._cache, self._writer, self._starter, self._reader = cache, writer, starter, reader
        self._creation_slots = asyncio.Semaphore(MAX_CREATIONS)
        self._unsettled: dict[tuple[str, str], None] = {}
        """Owners (kind and key) to look at with the next plan: they or their Workloads changed, or a write is open."""
        self._reconciled: dict[str, tuple[str, ...]] = {}
        """Workload → resourceVersions of itself and of its owner that were compared and agree."""
        self._contradicted_since: dict[str, float] = {}
        """Workload → since when its owner's `suspend` contradicts its admission (monotonic seconds)."""
        self._created_at: dict[str, float] = {}
        """Workload that the server has or may have, and the watch may not have shown yet → since when it certainly has
        it (monotonic seconds)."""

    def reconcile(self) -> None:
        """Creates missing Workloads, finishes those whose owner has ended, and reconciles the others."""
        self._drop_deleted()
        self._unsettled.update(dict.fromkeys(self._cache.owners.pop_changed()))
        for identity in [*self._unsettled]:
            with self._writer.guard.step(f"the Workload of {' '.join(identity)}"):
                obj = self._cache.owners.get(identity)
                if obj is None or self._reconcile_owner(obj):
                    del self._unsettled[identity]

    def _reconcile_owner(self, obj: OwnerObject) -> bool:
        """Whether nothing is left to do until the owner or its Workload changes."""
        metadata = obj.metadata
        if self._cache.owners.has_parent(obj):
            return False  # the parent's Workload covers it, for as long as there is a parent
        if not self._writer.manages_queue(metadata.namespace, metadata.labels.get(QUEUE_NAME_LABEL, "")):
            return True
        key = self._cache.owners.workload_key_of(obj) or _workload_key(obj)
        known, end = self._writer.workload(key), terminal_state(obj)
        if known is None:
            if not end and time.monotonic() > self._created_at.get(key, MAYBE) + RETRY_SECONDS:
                self._writer.start_once(key, functools.partial(self._create, key, obj))
            return bool(end)
        if is_finished(known):
            return True
        if end:
            status = kueue.finished_status(known, end, int(time.time()))
            self._writer.start_once(key, functools.partial(self._writer.patch_workload_status, key, status))
            return False
        return self._reconcile_existing(key, known, obj)

    def _drop_deleted(self) -> None:
        if len(self._reconciled) > 2 * self._cache.object_count + MAX_ENTRIES:
            exists = self._writer.workload
            self._reconciled = {key: pair for key, pair in self._reconciled.items() if exists(key)}
            self._contradicted_since = {key: at for key, at in self._contradicted_since.items() if exists(key)}
            self._created_at = {key: at for key, at in self._created_at.items() if not exists(key)}
            versions = self._writer.written_versions
            self._writer.written_versions = {key: version for key, version in versions.items() if exists(key)}

    def _reconcile_existing(self, key: str, known: WorkloadObject, obj: OwnerObject) -> bool:
        """Updates a pending Workload whose owner was changed; unsuspends an admitted owner and suspends an evicted one.
        Returns whether they agree.

        The last two repair what a leader has left that was killed between its two writes. Kueue, too, unsuspends an
        admitted Job that a user suspends: users stop a Job with `spec.active` of its Workload.
        """
        versions = (known.metadata.resource_version, *self._reader.versions(obj))
        if self._reconciled.get(key) == versions:
            return True
        owner = self._reader.observed(obj)
        if _contradicts(known, owner):
            if time.monotonic() > self._contradicted_since.setdefault(key, time.monotonic()) + RETRY_SECONDS:
                self._writer.start_once(
                    f"owner of {key}",
                    functools.partial(self._repair_suspend, key, known, obj),
                    rate_limited=True,
                )
            return False
        self._contradicted_since.pop(key, None)
        if not _is_outdated(known, owner) or self._writer.start_once(
            key, functools.partial(self._update_spec, key, known, obj)
        ):
            self._reconciled[key] = versions
            return True
        return False

    def awaits_update(self, known: WorkloadObject) -> bool:
        """Whether its owner is still being stopped, or says something else than the Workload does."""
        for reference in known.metadata.owner_references:
            obj = self._cache.owners.get((reference.kind, f"{known.metadata.namespace}/{reference.name}"))
            if reference.controller and obj is not None and obj.metadata.uid == reference.uid:
                owner = self._reader.observed(obj)
                return _contradicts(known, owner) or _is_outdated(known, owner)
        return False

    async def _update_spec(self, key: str, known: WorkloadObject, obj: OwnerObject) -> None:
        """Writes pod sets, queue and priority of the owner to its Workload."""
        owner = self._reader.observed(obj)
        try:
            read = await self._reader.read(obj)
            if read is None:
                return
            body, resource = self._build(obj, owner, *read), self._writer.workload_resource()
            followed = {field: value for field, value in body["spec"].items() if field in FIELDS_OF_OWNER}
            spec = {"priority": None, **followed}
            version = known.metadata.resource_version
            await self._writer.send(patch_object(resource, key, {"spec": spec}, version))
        except ClusterUnreachable:
            self._reconciled.pop(key, None)
            self._unsettled[obj.KIND, obj.key] = None  # the next decision tries again
            raise

    async def _repair_suspend(self, key: str, known: WorkloadObject, obj: OwnerObject) -> None:
        """Unsuspends an admitted owner or suspends an evicted one. Reads the Workload first, since the watch of one
        kind may be behind that of the other."""
        raw = await self._writer.get_raw("Workload", KUEUE_API_GROUP, key, known.metadata.uid)
        is_admitted = known.status.admission is not None
        if raw is None or self._writer.is_busy(key):
            return
        if bool((raw.get("status") or {}).get("admission")) != is_admitted:
            return
        state, action = ("admitted", "unsuspending") if is_admitted else ("evicted", "suspending")
        log.info("Workload %s is %s: %s its %s", key, state, action, obj.KIND)
        await (self._starter.start(known) if is_admitted else self._starter.stop(known))

    async def _create(self, key: str, obj: OwnerObject) -> None:
        async with self._creation_slots:
            await self._create_now(key, obj)

    async def _create_now(self, key: str, obj: OwnerObject) -> None:
        owner, read = self._reader.observed(obj), await self._reader.read(obj)
        if read is None or not owner.pod_sets or not self._cache.responsibility.covers_owner(owner):
            return  # the next decision tries again: its JobSet may not exist yet
        body = self._build(obj, owner, *read)
        resource = self._writer.workload_resource()
        # An earlier answer may have been lost, and the watch may be behind: then it is there.
        if key not in self._created_at or not await self._writer.exists("Workload", KUEUE_API_GROUP, key):
            self._created_at[key] = MAYBE
            with contextlib.suppress(Conflict):
                await self._writer.send(create_object(resource, obj.metadata.namespace, body))
        self._created_at[key] = time.monotonic()

    def _build(
        self, obj: OwnerObject, owner: Owner, raw: Unstructured, templates: Mapping[str, Unstructured]
    ) -> Unstructured:
        return kueue.build_workload(raw, owner, templates, self._queue_of(obj, owner))

    def _queue_of(self, obj: OwnerObject, owner: Owner) -> kueue.WorkloadQueue:
        labels, version = obj.metadata.labels, self._writer.workload_resource().version
        named = labels.get(WORKLOAD_PRIORITY_CLASS_LABEL, "")
        is_missing = bool(named) and self._cache.get("WorkloadPriorityClass", named, KUEUE_API_GROUP) is None
        priority = self._cache.priority_of(owner)
        return kueue.WorkloadQueue(labels[QUEUE_NAME_LABEL], priority, version, named if is_missing else "")


def _workload_key(obj: OwnerObject) -> str:
    """Key of the Workload that Windlass creates for the owner."""
    name = kueue.workload_name(obj.KIND, obj.metadata.name, obj.metadata.uid)
    return f"{obj.metadata.namespace}/{name}"


def _contradicts(known: WorkloadObject, owner: Owner) -> bool:
    """Whether an admitted Workload's owner is suspended, an evicted one's is not, or one was stopped only in part."""
    if STOPPING_ANNOTATION in owner.metadata.annotations:
        return True
    if known.status.admission is not None:
        return owner.suspended and known.spec.active
    return not owner.suspended and known.condition("Evicted") is not None


def _is_outdated(known: WorkloadObject, owner: Owner) -> bool:
    """Whether a pending Workload of ours differs from its owner."""
    if known.status.admission is not None or not owner.suspended or not owner.pod_sets:
        return False
    ours = kueue.is_written_by_windlass(known)
    return ours and not kueue.matches_owner(known, owner, owner.metadata.labels.get(QUEUE_NAME_LABEL, ""))
