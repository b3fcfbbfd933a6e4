"""Writes admissions and evictions of Workloads where Kueue doesn't: unsuspends and suspends Jobs, removes pod gates.

`apply.executor` calls it with each plan. The Workload's status records what a Job holds, for the next leader. Hence the
order: the Job is unsuspended only after the admission is written, and suspended only after it is withdrawn. Status
writes are assumed in the cache from when they are sent until the watch shows them. Where Kueue is live, only queues
that were taken over are touched.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Sequence, Set
from typing import Any

import msgspec

from windlass.apply import kueue
from windlass.apply.assumed_status import AssumedStatus, parse_resource_version, with_status
from windlass.apply.audit import Auditor, AuditRecord, admission_record
from windlass.apply.cluster_cache import ClusterCache
from windlass.apply.evictor import AsyncAction
from windlass.apply.messages import code_of_message, condition_message
from windlass.apply.owner_reader import OwnerReader
from windlass.apply.owner_starts import OwnerStarter
from windlass.apply.owner_templates import pod_changes
from windlass.apply.owner_workloads import OwnerWorkloadReconciler
from windlass.apply.owners import SUSPEND_FIELDS, annotate
from windlass.apply.readiness import ReadinessReporter
from windlass.apply.topology_assignment import TopologyAssigner
from windlass.apply.workload_sizes import WorkloadSizeWriter
from windlass.apply.workload_writer import WorkloadWriter
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.workloads.owner_sizes import held_counts, pod_set_sizes
from windlass.cluster.workloads.pod_sets import KUEUE_GATES
from windlass.cluster.workloads.workload_attributes import EVICTIONS, REQUEUED_AT
from windlass.kube.backoff import Backoff
from windlass.kube.errors import ApiError, Conflict, ServerUnavailable
from windlass.kube.resources import KUEUE_API_GROUP, WATCHED_KINDS, Resource
from windlass.kube.write_requests import patch_by_uid, remove_scheduling_gates
from windlass.model.codec import decode_object
from windlass.model.decision import Admit, AdmittedPodSet, Bind, Evict, Hold, Resize
from windlass.model.kueue import WorkloadObject, is_finished
from windlass.model.kueue.workload_wire import Condition, WorkloadStatus
from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.model.names.windlass import STOPPED_AT_DURATION_ANNOTATION
from windlass.model.pod import Pod
from windlass.model.times import format_timestamp
from windlass.model.workload import Workload
from windlass.placement.stop_conditions import DURATION_EXCEEDED
from windlass.queueing.outcome import DEACTIVATING_REASONS, NO_MATCHING_WORKLOAD, QUEUE_EVICTION_REASONS

log = logging.getLogger(__name__)

StatusOf = Callable[[WorkloadObject], dict[str, Any]]
"""The status to write, given the Workload with its present conditions."""


class AdmissionWriter:
    def __init__(self, cache: ClusterCache, writer: WorkloadWriter, auditor: Auditor | None = None) -> None:
        self._cache, self._writer, self._auditor = cache, writer, auditor or Auditor()
        self._starter = OwnerStarter(cache, writer)
        reader = OwnerReader(cache, writer)
        self._owners = OwnerWorkloadReconciler(cache, writer, self._starter, reader)
        self._sizes = WorkloadSizeWriter(writer, reader)
        self._topologies = TopologyAssigner(cache)
        self._left_out: set[str] = set()
        """Workloads with pods that were not bound since their admission was not on record yet."""
        self._readiness = ReadinessReporter(cache, writer)

    def execute(self, admits: Sequence[Admit], snapshot: Snapshot) -> None:
        """Starts the admissions, which wait for no victims, and reconciles Workloads with their owners."""
        if self._writer.resource_for("Workload", KUEUE_API_GROUP) is None:
            return
        self._cache.drain_inbox()
        self._owners.reconcile()
        self._readiness.report(snapshot)
        admits = [admit for admit in admits if admit.kind == "Workload"]
        admits += self._unrecorded_admissions(snapshot)
        workloads = {workload.key: workload for workload in snapshot.workloads} if admits else {}
        for admit in admits:
            with self._writer.guard.step(f"the admission of {admit.workload}"):
                if self._writer.manages_workload(admit.workload):
                    self._begin_admission(admit, workloads[admit.workload])

    def resize(self, resizes: Sequence[Resize]) -> None:
        """Writes changed sizes to their Workloads."""
        if resizes and self._writer.resource_for("Workload", KUEUE_API_GROUP) is not None:
            self._sizes.execute(resizes)

    def _unrecorded_admissions(self, snapshot: Snapshot) -> list[Admit]:
        """Of Workloads whose pods run although their status holds no quota: their Job was not suspended, and something
        else bound its pods. With partial admission, as many as its minimum are enough."""
        found = []
        for workload in snapshot.workloads:
            if workload.kind != "Workload" or workload.admission is None or workload.evicting:
                continue
            known, admission = self._writer.workload(workload.key), workload.admission
            if known is None or known.status.admission is not None or known.condition("Evicted") is not None:
                continue
            running = held_counts(admission)
            if admission.cluster_queue and all(
                running.get(pod_set.name, 0) >= (pod_set.min_count or pod_set.count) for pod_set in workload.pod_sets
            ):
                sets = tuple(
                    AdmittedPodSet(assignment.name, assignment.count, assignment.flavors, assignment.nodes)
                    for assignment in admission.assignments
                )
                found.append(Admit(workload.key, "Workload", admission.cluster_queue, sets))
        return found

    def pods_above_admission(self, pods: Set[str], snapshot: Snapshot) -> set[str]:
        """Those of the pods for which the status of their Workload has no quota, as far as the server has answered."""
        found: set[str] = set()
        for workload in snapshot.workloads if pods else ():
            if self._awaits_workload(workload):
                found.update(key for pod_set in workload.pod_sets for key in pod_set.pod_keys if key in pods)
            if workload.kind != "Workload" or not self._writer.manages_workload(workload.key):
                continue
            known = self._cache.recorded_workload(workload.key)
            held = pod_set_sizes(known) if known is not None else {}
            for pod_set in workload.pod_sets:
                to_bind = [key for key in pod_set.pod_keys if key in pods]
                if to_bind and pod_set.name in held:
                    on_nodes = sum(self._is_on_node(key) for key in pod_set.pod_keys)
                    above = to_bind[max(0, held[pod_set.name].held - on_nodes) :]
                    found.update(above)
                    self._left_out.update([workload.key] if above else ())
        return found

    def _awaits_workload(self, workload: Workload) -> bool:
        """Whether it is an owner that was not suspended, for which a Workload is being created."""
        if not workload.queue_name or workload.kind not in SUSPEND_FIELDS:
            return False
        if self._writer.resource_for("Workload", KUEUE_API_GROUP) is None:
            return False
        found = self._owner_of(workload)
        owner = self._cache.owners.get((workload.kind, found[1])) if found is not None else None
        label = owner.metadata.labels.get(QUEUE_NAME_LABEL, "") if owner is not None else ""
        return bool(label) and self._writer.manages_queue(workload.namespace, label)

    def _is_on_node(self, key: str) -> bool:
        return key in self._cache.assumed or (key in self._cache.pods and self._cache.pods[key].is_bound)

    def flavors_of_pods(
        self, admits: Sequence[Admit], binds: Sequence[Bind], snapshot: Snapshot
    ) -> dict[str, Sequence[str]]:
        """Pod → the flavors that it was admitted with. Pods of a Workload have those from the template of its owner."""
        queued = {admit.workload: admit for admit in admits if admit.kind != "Workload" and admit.queue}
        node_of = {bind.pod: bind.node for bind in binds}
        found: dict[str, Sequence[str]] = {}
        for workload in snapshot.workloads if queued else ():
            for pod_set in workload.pod_sets if workload.key in queued else ():
                parts = [part for part in queued[workload.key].pod_sets if part.name == pod_set.name]
                for key in pod_set.pod_keys:
                    flavors = (part.flavors.values() for part in parts if node_of.get(key) in part.nodes)
                    found[key] = tuple(next(flavors, ()))
        return found

    def remove_gates(self, pod: Pod, flavors: Sequence[str] = ()) -> None:
        """The pod was admitted: removes Kueue's gates, so that the next decision can bind it, and adds the node labels
        and tolerations of its flavors."""
        kept = [gate.name for gate in pod.spec.scheduling_gates if gate.name not in KUEUE_GATES]
        queue = pod.metadata.labels.get(QUEUE_NAME_LABEL, "")
        has_kueue_gate = len(kept) < len(pod.spec.scheduling_gates)
        if has_kueue_gate and self._writer.manages_queue(pod.metadata.namespace, queue):
            changes = pod_changes(pod.spec, self._starter.flavor_specs(flavors))
            request = remove_scheduling_gates(pod.key, pod.metadata.uid, kept, changes)
            self._writer.start_once(f"gates of {pod.key}", functools.partial(self._writer.send, request))

    def stop_action(self, evict: Evict, workload: Workload | None = None) -> AsyncAction | None:
        """Stops a queued workload by its Workload object; None if its pods have to be evicted instead."""
        if not self._writer.manages_workload(evict.workload):
            return None
        return functools.partial(self._evict_after_previous, evict, workload)

    def is_left_to_kueue(self, evict: Evict) -> bool:
        """Whether a live Kueue will stop it by itself: the reason is one that Kueue sees in its queues, too."""
        if self._writer.workload(evict.workload) is None or evict.reason not in QUEUE_EVICTION_REASONS:
            return False
        return not self._writer.manages_workload(evict.workload)

    async def drain(self) -> None:
        await self._writer.drain()

    def eviction_record_action(self, evict: Evict, workload: Workload | None) -> AsyncAction | None:
        """Counts the eviction in an annotation of the PodGroup or owner of a workload without a Workload object; None
        if there is no such object."""
        found = self._owner_of(workload) if workload is not None else None
        if workload is None or found is None or self._writer.workload(evict.workload) is not None:
            return None
        resource, key = found
        annotations = {EVICTIONS: str(workload.evictions + 1)}
        if evict.reason == DURATION_EXCEEDED:
            annotations = {REQUEUED_AT: format_timestamp(int(time.time())), **_stopped_annotation(workload)}
        return functools.partial(self._writer.write, annotate(resource, key, workload.uid, annotations))

    def owner_target(self, workload: Workload) -> tuple[Resource, str, str] | None:
        """Resource, key and uid of the object that people know the workload by: the Job of a Workload."""
        kind, _, key = workload.owner.partition(" ")
        if not kind:
            found = self._owner_of(workload)
            return (*found, workload.uid) if found is not None else None
        for watched in (watched for watched in WATCHED_KINDS if watched.kind == kind):
            resource, owner = self._writer.resource_for(kind, watched.group), self._cache.get(kind, key, watched.group)
            if resource is not None and owner is not None:
                return resource, key, owner.metadata.uid
        return None

    def _owner_of(self, workload: Workload) -> tuple[Resource, str] | None:
        """The PodGroup or owner of a workload, and its key."""
        # Workloads of one name are told apart by their kind behind it, those of one kind by its API group, too.
        full, kind_suffix = workload.key, f".{workload.kind.lower()}"
        names = (full, full.removesuffix(kind_suffix), full.rpartition(f"{kind_suffix}.")[0])
        # A LeaderWorkerSet has several workloads, with the number of the group after its name.
        keys = dict.fromkeys(key for name in names for key in (name, name.rpartition("-")[0]))
        for kind in (watched for watched in WATCHED_KINDS if watched.kind == workload.kind):
            resource = self._writer.resource_for(kind.kind, kind.group)
            for key in keys if resource is not None else ():
                owner = self._cache.get(kind.kind, key, kind.group)
                if owner is not None and owner.metadata.uid == workload.uid:
                    assert resource is not None
                    return resource, key
        return None

    def report_pending(self, hold: Hold) -> None:
        """Writes why the workload waits to the condition QuotaReserved of its Workload."""
        obj = self._writer.workload(hold.workload)
        if (
            obj is None
            or not self._writer.manages_workload(hold.workload)
            or obj.status.admission is not None
            or is_finished(obj)
            or self._writer.is_behind(obj)
        ):
            return
        message = condition_message(hold.verdict)
        if kueue.has_condition(obj, "QuotaReserved", "False", "Pending", message):
            return
        status = kueue.pending_status(obj, "Pending", message, int(time.time()))
        # With the version: a message must not overwrite an admission that was written meanwhile.
        write = functools.partial(
            self._writer.patch_workload_status, hold.workload, status, obj.metadata.resource_version
        )
        told = [condition.message for condition in obj.status.conditions if condition.type == "QuotaReserved"]
        same_cause = any(code_of_message(message) == hold.verdict.code for message in told)
        self._writer.start_message(hold.workload, write, same_cause=same_cause)

    # Admission and eviction of a Workload

    def _begin_admission(self, admit: Admit, workload: Workload) -> None:
        known = self._writer.workload(admit.workload)
        is_growth = known is not None and _may_grow(known, workload)
        if known is None or not (is_growth or _may_be_admitted(known)) or not self._writer.may_start(admit.workload):
            return  # the Workload has changed since the decision, or the last attempt has just failed
        if is_growth:
            admit = _with_running_pods(admit, workload)
            if not _has_room_for(known, admit):
                return  # its pod sets are made larger first
        elif self._owners.awaits_update(known):
            return  # else it would be admitted with the size that its owner had before
        now = int(time.time())
        topologies = self._topologies.assignments(admit.pod_sets, self._writer.workload_resource().version)

        def status_of(obj: WorkloadObject) -> dict[str, Any]:
            return kueue.admission_status(obj, admit, workload, topologies, now)

        status = msgspec.convert(status_of(known), WorkloadStatus)
        assumed = with_status(known, status.admission, status.conditions)
        sent = self._cache.assume_status(known, assumed, is_admission=True)
        record = admission_record(admit, self._auditor.plan)
        write = functools.partial(self._grow if is_growth else self._admit, known, sent, status_of, record)
        self._writer.start_after_previous(
            admit.workload, functools.partial(self._writer.run_with_backoff, admit.workload, write)
        )

    async def _admit(
        self, known: WorkloadObject, sent: AssumedStatus, status_of: StatusOf, record: AuditRecord
    ) -> None:
        try:
            self._finish_admission(sent, await self._write_admission(known, status_of))
        except BaseException:
            self._cache.forget_status(sent)
            raise
        self._auditor.write(record)
        await self._starter.start(sent.assumed)

    def _finish_admission(self, sent: AssumedStatus, version: str) -> None:
        self._cache.finish_status(sent, version)
        if sent.observed.key in self._left_out:
            self._left_out.discard(sent.observed.key)
            self._cache.request_decision()

    async def _grow(self, known: WorkloadObject, sent: AssumedStatus, status_of: StatusOf, record: AuditRecord) -> None:
        """More pods of an elastic workload; a later decision binds them. One attempt: the next decision tries again."""
        try:
            status, version = status_of(known), known.metadata.resource_version
            self._finish_admission(sent, await self._writer.patch_workload_status(known.key, status, version))
        except BaseException:
            self._cache.forget_status(sent)
            raise
        self._auditor.write(record)

    async def _write_admission(self, known: WorkloadObject, status_of: StatusOf) -> str:
        """Retries until the server has accepted or refused it. After an attempt without an answer it reads the
        Workload, so that an admission is neither lost nor written twice. Returns the resourceVersion."""
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
            current = await self._get_current(known, backoff)
            if current is not None and current.status.admission is not None:
                return current.metadata.resource_version
            if current is None or not _may_be_admitted(current) or current.spec != known.spec:
                raise refusal
            known, version = current, current.metadata.resource_version

    async def _get_current(self, known: WorkloadObject, backoff: Backoff) -> WorkloadObject | None:
        """The Workload as the server has it; None if it was deleted or can't be decoded."""
        while True:
            try:
                raw = await self._writer.get_raw("Workload", KUEUE_API_GROUP, known.key, known.metadata.uid)
                break
            except (ServerUnavailable, ApiError) as error:
                if isinstance(error, ApiError) and error.is_permanent:
                    raise
                await asyncio.sleep(backoff.next())
        obj = decode_object(raw) if raw is not None else None
        return obj if isinstance(obj, WorkloadObject) else None

    async def _evict_after_previous(self, evict: Evict, workload: Workload | None) -> None:
        """Waits for an admission of the same Workload that is under way."""
        await self._writer.start_after_previous(evict.workload, functools.partial(self._evict, evict, workload))

    async def _evict(self, evict: Evict, workload: Workload | None) -> None:
        known = self._writer.workload(evict.workload)
        if known is None:
            return
        if evict.reason == NO_MATCHING_WORKLOAD and not await self._sizes.has_outgrown(known):
            return  # the watch of the owner was behind
        await self._prevent_restart(evict, known, workload)
        status = kueue.eviction_status(known, evict.reason, int(time.time()), evict.message, self._cache.settings)
        # Assumed as evicted but still admitted: it uses its quota until the watch shows otherwise, and decisions
        # count on that quota instead of choosing another victim.
        evicted = [condition for condition in _conditions(status) if condition.type == "Evicted"]
        kept = [condition for condition in known.status.conditions if condition.type != "Evicted"]
        assumed = with_status(known, known.status.admission, (*kept, *evicted))
        sent = self._cache.assume_status(known, assumed, is_admission=False)
        try:
            self._cache.finish_status(sent, await self._write_eviction(sent, status))
        except BaseException:
            self._cache.forget_status(sent)
            raise
        await self._starter.stop(known)

    async def _prevent_restart(self, evict: Evict, known: WorkloadObject, workload: Workload | None) -> None:
        """Writes what keeps it from starting again, before it is stopped: a leader that is killed in between leaves a
        workload that the next one stops for the same reason."""
        resource, uid = self._writer.workload_resource(), known.metadata.uid
        if evict.reason in DEACTIVATING_REASONS:
            await self._writer.send(patch_by_uid(resource, known.key, uid, {"spec": {"active": False}}))
        elif evict.reason == DURATION_EXCEEDED and workload is not None:
            await self._writer.send(annotate(resource, known.key, uid, _stopped_annotation(workload)))

    async def _write_eviction(self, sent: AssumedStatus, status: dict[str, Any]) -> str:
        backoff, pause = Backoff(most=5.0), 0.0
        key = sent.observed.key
        while True:
            try:
                return await self._writer.patch_workload_status(key, status)
            except (ServerUnavailable, ApiError) as error:
                if isinstance(error, ApiError) and error.code < 500:
                    raise
                log.warning("eviction of Workload %s: %s; trying again", key, error)
                await asyncio.sleep(pause)
                pause = backoff.next()
            if not self._cache.is_unconfirmed(sent):
                return ""  # the watch shows this write or a newer one, which a repetition would overwrite


def _stopped_annotation(workload: Workload) -> dict[str, str]:
    return {STOPPED_AT_DURATION_ANNOTATION: str(workload.max_run_seconds or 0)}


def _conditions(status: dict[str, Any]) -> tuple[Condition, ...]:
    return msgspec.convert(status, WorkloadStatus).conditions


def _may_grow(obj: WorkloadObject, workload: Workload) -> bool:
    """Whether an admission adds pods to those that the elastic workload holds quota for."""
    has_quota = obj.status.admission is not None and workload.admission is not None
    return has_quota and workload.is_elastic and obj.condition("Evicted") is None and not is_finished(obj)


def _has_room_for(obj: WorkloadObject, admit: Admit) -> bool:
    """Whether the pod sets of the Workload's spec are as large as the admission."""
    sizes = pod_set_sizes(obj)
    return all(part.count <= sizes[part.name].declared - sizes[part.name].reclaimable for part in admit.pod_sets)


def _with_running_pods(admit: Admit, workload: Workload) -> Admit:
    """The admission of further pods together with what the workload holds."""
    running = workload.admission.assignments if workload.admission is not None else ()
    further = {pod_set.name: pod_set for pod_set in admit.pod_sets}
    pod_sets = []
    for part in running:
        more = further.get(part.name, AdmittedPodSet(part.name, 0, part.flavors, {}))
        nodes = {name: part.nodes.get(name, 0) + more.nodes.get(name, 0) for name in {**part.nodes, **more.nodes}}
        pod_sets.append(AdmittedPodSet(part.name, part.count + more.count, part.flavors, nodes))
    return msgspec.structs.replace(admit, pod_sets=tuple(pod_sets))


def _may_be_admitted(obj: WorkloadObject) -> bool:
    return obj.status.admission is None and obj.spec.active and not is_finished(obj)
