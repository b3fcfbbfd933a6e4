"""Workloads of Jobs and their like: made for owners that wait in a queue, kept in step with them, finished with them.

`apply.admission` calls it with every plan. Where Kueue is live, only queues that were taken over are touched.
"""

from __future__ import annotations

import functools
import logging
import time

import msgspec

from windlass.apply import kueue
from windlass.apply.cluster_cache import ClusterCache
from windlass.apply.owners import pod_templates_of, terminal_state
from windlass.apply.workload_writer import MOST_REMEMBERED, RETRY_SECONDS, WorkloadWriter
from windlass.kube.resources import KUEUE_API_GROUP
from windlass.kube.write_requests import create_object, patch_object
from windlass.model.codec import object_id
from windlass.model.errors import ClusterUnreachable
from windlass.model.kueue import WorkloadObject, is_finished
from windlass.model.owners import Owner, OwnerObject, owner_from_object
from windlass.model.owners.normalise import QUEUE_NAME

log = logging.getLogger(__name__)

JOBSET = "jobset.x-k8s.io"


class OwnerWorkloadReconciler:
    def __init__(self, cache: ClusterCache, writer: WorkloadWriter) -> None:
        self._cache, self._writer = cache, writer
        self._in_step: dict[str, tuple[str, str]] = {}
        """Workload → the versions of its owner and of itself that were compared and need nothing more."""
        self._stalled: dict[str, float] = {}
        """Workload → since when its owner is suspended or not, and should be the other."""

    def reconcile(self) -> None:
        """Owners that have no Workload yet get one; Workloads whose owner has ended are finished."""
        self._forget_what_is_gone()
        for wire in self._cache.queued_owners():
            metadata = wire.metadata
            if not self._writer.manages_queue(metadata.namespace, metadata.labels.get(QUEUE_NAME, "")):
                continue
            name = kueue.workload_name(wire.KIND, metadata.name, metadata.uid)
            key = self._cache.workload_key_of(wire) or f"{metadata.namespace}/{name}"
            known = self._writer.workload(key)
            end = terminal_state(wire)
            if known is None and not end:
                self._writer.start_once(key, functools.partial(self._create, wire))
            elif known is not None and end and not is_finished(known):
                status = kueue.finished_status(known, end, int(time.time()))
                self._writer.start_once(
                    key, functools.partial(self._writer.patch_workload_status, key, status)
                )
            elif known is not None and not end and not is_finished(known):
                self._keep_in_step(key, known, wire)

    def _forget_what_is_gone(self) -> None:
        if len(self._in_step) > 2 * self._cache.object_count + MOST_REMEMBERED:
            self._in_step = {
                key: one for key, one in self._in_step.items() if self._writer.workload(key) is not None
            }
            self._stalled = {
                key: at for key, at in self._stalled.items() if self._writer.workload(key) is not None
            }
            self._writer.written_versions = {
                key: one
                for key, one in self._writer.written_versions.items()
                if self._writer.workload(key) is not None
            }

    def _keep_in_step(self, key: str, known: WorkloadObject, wire: OwnerObject) -> None:
        """What waits is described anew when its owner was changed; what was admitted and is stopped is let go, and what
        was evicted and goes on is stopped.

        The second and third mend what a leader that was killed between its two writes has left behind. The second is
        also what Kueue does where somebody stops an admitted Job: to hold one back there is the Workload's
        `spec.active`.
        """
        versions = (wire.metadata.resource_version, known.metadata.resource_version)
        if self._in_step.get(key) == versions:
            return
        owner = owner_from_object(wire)
        if _contradicts(known, owner):
            if time.monotonic() > self._stalled.setdefault(key, time.monotonic()) + RETRY_SECONDS:
                self._writer.start_once(
                    f"owner of {key}", functools.partial(self._mend, key, known, wire), rate_limited=True
                )
            return
        self._stalled.pop(key, None)
        if not _is_outdated(known, owner) or self._writer.start_once(
            key, functools.partial(self._fit, key, known, wire)
        ):
            self._in_step[key] = versions

    async def _fit(self, key: str, known: WorkloadObject, wire: OwnerObject) -> None:
        """Write the Workload's pod sets and queue as its owner has them now."""
        try:
            group, kind, named = object_id(wire)
            raw = await self._writer.get_raw(kind, group, named, wire.metadata.uid)
            if raw is None:
                return
            owner = owner_from_object(wire)
            queue = kueue.WorkloadQueue(
                wire.metadata.labels[QUEUE_NAME],
                self._cache.priority_of(owner),
                self._writer.workload_resource().version,
            )
            made = kueue.build_workload(raw, owner, pod_templates_of(raw), queue)
            spec = {field: made["spec"][field] for field in ("podSets", "queueName", "priority")}
            await self._writer.send(
                patch_object(
                    self._writer.workload_resource(), key, {"spec": spec}, known.metadata.resource_version
                )
            )
        except ClusterUnreachable:
            self._in_step.pop(key, None)  # the next decision tries again
            raise

    async def _mend(self, key: str, known: WorkloadObject, wire: OwnerObject) -> None:
        """Let an owner go that was admitted, or stop one that was evicted; if that is still so, since one watch may be
        behind the other."""
        raw = await self._writer.get_raw("Workload", KUEUE_API_GROUP, key, known.metadata.uid)
        is_admitted = known.status.admission is not None
        if (
            raw is None
            or bool((raw.get("status") or {}).get("admission")) != is_admitted
            or self._writer.is_busy(key)
        ):
            return
        said, done = ("admitted", "starting") if is_admitted else ("evicted", "stopping")
        log.info("%s was %s and its %s says otherwise: %s it", key, said, wire.KIND, done)
        await self._writer.suspend_owner(known, not is_admitted)

    async def _create(self, wire: OwnerObject) -> None:
        resource = self._writer.workload_resource()
        group, kind, key = object_id(wire)
        raw = await self._writer.get_raw(kind, group, key, wire.metadata.uid)
        if raw is None:
            return
        owner, source = owner_from_object(wire), raw
        if (
            not owner.pod_sets
        ):  # a TrainJob's templates stand in the JobSet that is made of it, under the same name
            below: OwnerObject | None = self._cache.get("JobSet", wire.key, JOBSET)
            found = (
                await self._writer.get_raw("JobSet", JOBSET, wire.key, below.metadata.uid) if below else None
            )
            if (
                below is None
                or found is None
                or not self._cache.is_responsible_for_owner(owner_from_object(below))
            ):
                return  # when it is there, that is news, and this is asked again
            owner, source = msgspec.structs.replace(owner, pod_sets=owner_from_object(below).pod_sets), found
        queue = kueue.WorkloadQueue(
            wire.metadata.labels[QUEUE_NAME], self._cache.priority_of(owner), resource.version
        )
        body = kueue.build_workload(raw, owner, pod_templates_of(source), queue)
        await self._writer.send(create_object(resource, wire.metadata.namespace, body))


def _contradicts(known: WorkloadObject, owner: Owner) -> bool:
    """Whether an admitted Workload's owner is stopped, or an evicted one's goes on."""
    if known.status.admission is not None:
        return owner.suspended and known.spec.active
    return not owner.suspended and known.condition("Evicted") is not None


def _is_outdated(known: WorkloadObject, owner: Owner) -> bool:
    """Whether a Workload of ours that waits says something else than its owner."""
    if known.status.admission is not None or not owner.suspended or not owner.pod_sets:
        return False
    ours = kueue.is_written_by_windlass(known)
    return ours and not kueue.matches_owner(known, owner, owner.metadata.labels.get(QUEUE_NAME, ""))
