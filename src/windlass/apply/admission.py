"""Admission carried out where no Kueue does it: Jobs and their like are let go when admitted and stopped when evicted;
pods that a gate holds back are let through.

`apply.executor` hands over what was decided. The Workload's status is the record of what a Job holds, so that the next
leader knows it; the Job is unsuspended only after it is written, and suspended only after it is taken back. Both are
assumed in the cache from when they are sent until the watch shows them. Where Kueue is live, only queues that were
taken over are touched.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from windlass.apply import kueue
from windlass.apply.assumed_status import AssumedStatus, parse_resource_version, with_status
from windlass.apply.cluster_cache import ClusterCache
from windlass.apply.evictor import AsyncAction
from windlass.apply.messages import condition_message
from windlass.apply.owner_workloads import OwnerWorkloadReconciler
from windlass.apply.owners import annotate
from windlass.apply.workload_writer import WorkloadWriter
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.workloads.pod_sets import KUEUE_GATES
from windlass.cluster.workloads.workload_attributes import EVICTIONS, REQUEUED_AT
from windlass.kube.backoff import Backoff
from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, Conflict, ServerUnavailable
from windlass.kube.resources import KUEUE_API_GROUP, WATCHED_KINDS, Resource
from windlass.kube.write_requests import remove_scheduling_gates
from windlass.model.codec import decode_object
from windlass.model.decision import Admit, Evict, Hold
from windlass.model.kueue import WorkloadObject, is_finished
from windlass.model.kueue.workload_wire import Condition, WorkloadStatus
from windlass.model.owners.normalise import QUEUE_NAME
from windlass.model.pod import Pod
from windlass.model.times import format_timestamp
from windlass.model.topology import HOSTNAME
from windlass.model.workload import Workload
from windlass.placement.stop_conditions import DURATION_EXCEEDED
from windlass.queueing.outcome import QUEUE_EVICTION_REASONS

log = logging.getLogger(__name__)

StatusOf = Callable[[WorkloadObject], dict[str, Any]]
"""The status that is to be written, with the conditions that the object has."""


class AdmissionWriter:
    def __init__(
        self,
        client: KubeClient,
        cache: ClusterCache,
        may_write: Callable[[], bool],
        resource_for: Callable[[str, str], Resource | None],
    ) -> None:
        """`served` says in which version the server has a kind of an API group, if it has it."""
        self._cache = cache
        self._writer = WorkloadWriter(client, cache, may_write, resource_for)
        self._owners = OwnerWorkloadReconciler(cache, self._writer)

    def execute(self, admits: Sequence[Admit], snapshot: Snapshot) -> None:
        """Starts what was admitted and waits for nothing, and brings Workloads in step with their owners."""
        if self._writer.resource_for("Workload", KUEUE_API_GROUP) is None:
            return
        self._cache.drain_inbox()
        self._owners.reconcile()
        now = [admit for admit in admits if admit.kind == "Workload"]
        workloads = {one.key: one for one in snapshot.workloads} if now else {}
        hosts = self._hostnames() if now else {}
        for admit in now:
            if self._writer.manages_workload(admit.workload):
                self._begin_admission(admit, workloads[admit.workload], hosts)

    def remove_gates(self, pod: Pod) -> None:
        """The pod was admitted: without Kueue's gates it can be bound at the next decision."""
        kept = [gate.name for gate in pod.spec.scheduling_gates if gate.name not in KUEUE_GATES]
        queue = pod.metadata.labels.get(QUEUE_NAME, "")
        if len(kept) < len(pod.spec.scheduling_gates) and self._writer.manages_queue(
            pod.metadata.namespace, queue
        ):
            request = remove_scheduling_gates(pod.key, pod.metadata.uid, kept)
            self._writer.start_once(f"gates of {pod.key}", functools.partial(self._writer.send, request))

    def stop_action(self, evict: Evict) -> AsyncAction | None:
        """How a queued workload is stopped; None where its pods are simply evicted."""
        wire = self._writer.workload(evict.workload)
        if wire is None or not self._writer.manages_workload(evict.workload):
            return None
        return functools.partial(self._send_back, evict)

    def is_left_to_kueue(self, evict: Evict) -> bool:
        """Whether a live Kueue will stop it by itself: it sees the same queues."""
        known = self._writer.workload(evict.workload) is not None
        return (
            known
            and evict.reason in QUEUE_EVICTION_REASONS
            and not self._writer.manages_workload(evict.workload)
        )

    async def drain(self) -> None:
        await self._writer.drain()

    def eviction_record_action(self, evict: Evict, workload: Workload | None) -> AsyncAction | None:
        """How it is written down that a workload had to go which no Workload object stands for; None where nothing
        stands for it but its pods."""
        found = self._object_of(workload) if workload is not None else None
        if workload is None or found is None or self._writer.workload(evict.workload) is not None:
            return None
        resource, key = found
        note = {EVICTIONS: str(workload.evictions + 1)}
        if evict.reason == DURATION_EXCEEDED:
            note = {REQUEUED_AT: format_timestamp(int(time.time()))}
        return functools.partial(self._writer.write, annotate(resource, key, workload.uid, note))

    def _object_of(self, workload: Workload) -> tuple[Resource, str] | None:
        """The group or owner that stands for a workload."""
        key = workload.key.removesuffix(f".{workload.kind.lower()}")  # where two kinds have one name
        keys = (key, key.rpartition("-")[0])  # a LeaderWorkerSet makes several, by number
        for kind in (one for one in WATCHED_KINDS if one.kind == workload.kind):
            resource = self._writer.resource_for(kind.kind, kind.group)
            for key in keys if resource is not None else ():
                thing = self._cache.get(kind.kind, key, kind.group)
                if thing is not None and thing.metadata.uid == workload.uid:
                    assert resource is not None
                    return resource, key
        return None

    def report_pending(self, hold: Hold) -> None:
        """The Workload's own condition says why it waits."""
        wire = self._writer.workload(hold.workload)
        if (
            wire is None
            or not self._writer.manages_workload(hold.workload)
            or wire.status.admission is not None
            or is_finished(wire)
        ):
            return
        message = condition_message(hold.verdict)
        if kueue.has_condition(wire, "QuotaReserved", "False", "Pending", message):
            return
        status = kueue.pending_status(wire, "Pending", message, int(time.time()))
        # Only if nothing happened to it meanwhile: what it is told must not undo what it was given.
        write = functools.partial(
            self._writer.patch_workload_status, hold.workload, status, wire.metadata.resource_version
        )
        self._writer.start_once(hold.workload, write, rate_limited=True)

    def _hostnames(self) -> dict[str, str]:
        nodes: Iterable[Any] = (self._cache.get("Node", name) for name in self._cache.nodes)
        return {node.name: node.labels.get(HOSTNAME, node.name) for node in nodes if node is not None}

    # Admission and eviction of a Workload

    def _begin_admission(self, admit: Admit, workload: Workload, hosts: dict[str, str]) -> None:
        known = self._writer.workload(admit.workload)
        if known is None or not _may_be_admitted(known) or not self._writer.may_start(admit.workload):
            return  # the world moved on since the decision, or the last try has just failed
        version, now = self._writer.workload_resource().version, int(time.time())

        def status_of(wire: WorkloadObject) -> dict[str, Any]:
            return kueue.admission_status(wire, admit, workload, hosts, version, now)

        status = msgspec.convert(status_of(known), WorkloadStatus)
        shown = with_status(known, status.admission, status.conditions)
        sent = self._cache.assume_status(known, shown, is_admission=True)
        work = functools.partial(self._admit, known, sent, status_of)
        self._writer.start_after_previous(
            admit.workload, functools.partial(self._writer.run_with_backoff, admit.workload, work)
        )

    async def _admit(self, known: WorkloadObject, sent: AssumedStatus, status_of: StatusOf) -> None:
        try:
            self._cache.finish_status(sent, await self._write_admission(known, status_of))
        except BaseException:
            self._cache.forget_status(sent)
            raise
        await self._writer.suspend_owner(known, False)

    async def _write_admission(self, known: WorkloadObject, status_of: StatusOf) -> str:
        """Until the server has said yes or no: what may have happened is neither given up nor done twice. Returns the
        version of the Workload that has it."""
        backoff, pause = Backoff(most=5.0), 0.0
        version = max(
            known.metadata.resource_version,
            self._writer.written_versions.get(known.key, ""),
            key=parse_resource_version,
        )
        while True:
            try:
                return await self._writer.patch_workload_status(known.key, status_of(known), version)
            except Conflict as error:
                refusal: ApiError | ServerUnavailable = error
            except (ServerUnavailable, ApiError) as error:
                if isinstance(error, ApiError) and error.code < 500:
                    raise
                refusal = error
                await asyncio.sleep(pause)
                pause = backoff.next()
            found = await self._found(known, backoff)
            if found is not None and found.status.admission is not None:
                return found.metadata.resource_version
            if found is None or not _may_be_admitted(found) or found.spec != known.spec:
                raise refusal
            known, version = found, found.metadata.resource_version

    async def _found(self, known: WorkloadObject, backoff: Backoff) -> WorkloadObject | None:
        """The Workload as the server has it; None where it is gone, or can't be read."""
        while True:
            try:
                raw = await self._writer.get_raw("Workload", KUEUE_API_GROUP, known.key, known.metadata.uid)
                break
            except (ServerUnavailable, ApiError) as error:
                if isinstance(error, ApiError) and error.is_permanent:
                    raise
                await asyncio.sleep(backoff.next())
        found = decode_object(raw) if raw is not None else None
        return found if isinstance(found, WorkloadObject) else None

    async def _send_back(self, evict: Evict) -> None:
        """After what is being written to it: an admission that is under way comes first."""
        await self._writer.start_after_previous(evict.workload, functools.partial(self._evict, evict))

    async def _evict(self, evict: Evict) -> None:
        known = self._writer.workload(evict.workload)
        if known is None:
            return
        status = kueue.eviction_status(known, evict.reason, int(time.time()))
        # It holds its quota until the watch says that it has none, and nobody else is evicted in its stead.
        evicted = [one for one in _conditions(status) if one.type == "Evicted"]
        kept = [one for one in known.status.conditions if one.type != "Evicted"]
        shown = with_status(known, known.status.admission, (*kept, *evicted))
        sent = self._cache.assume_status(known, shown, is_admission=False)
        try:
            self._cache.finish_status(sent, await self._write_eviction(sent, status))
        except BaseException:
            self._cache.forget_status(sent)
            raise
        await self._writer.suspend_owner(known, True)

    async def _write_eviction(self, sent: AssumedStatus, status: dict[str, Any]) -> str:
        backoff, pause = Backoff(most=5.0), 0.0
        key = sent.observed.key
        while True:
            try:
                return await self._writer.patch_workload_status(key, status)
            except (ServerUnavailable, ApiError) as error:
                if isinstance(error, ApiError) and error.code < 500:
                    raise
                log.warning("eviction of %s: %s; asking again", key, error)
                await asyncio.sleep(pause)
                pause = backoff.next()
            if not self._cache.is_unconfirmed(sent):
                return ""  # it happened; and what was written since must not be undone


def _conditions(status: dict[str, Any]) -> tuple[Condition, ...]:
    return msgspec.convert(status, WorkloadStatus).conditions


def _may_be_admitted(wire: WorkloadObject) -> bool:
    return wire.status.admission is None and wire.spec.active and not is_finished(wire)
