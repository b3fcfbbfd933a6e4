"""Writes the size of a running owner to its Workload: what it doesn't need any more is given back to its queue.

`apply.admission` calls `reconcile` with every snapshot. As in Kueue, pods of a Job that have ended for good are
`status.reclaimablePods`; where fewer pods are asked for, the counts of pod sets and admission shrink; an elastic Job
that asks for more gets a larger count in its spec, and the next decisions admit the pods above its admission.

What a Workload holds is min(admitted, spec.count - reclaimable). Only an admission may raise it: before a write that
would, the admission is cut to what it holds. Both objects are read again first, the Workload before its owner, and the
write fails if the Workload has changed: the watch of one kind may be behind that of the other.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Mapping

import msgspec

from windlass.apply import kueue
from windlass.apply.workload_writer import WorkloadWriter
from windlass.kube.resources import KUEUE_API_GROUP
from windlass.kube.write_requests import patch_object
from windlass.model.codec import decode_object
from windlass.model.kueue import WorkloadObject, is_finished
from windlass.model.owners import Owner, OwnerObject, OwnerPodSet, owner_from_object
from windlass.model.quota import format_quota, parse_quota
from windlass.model.unstructured import Unstructured
from windlass.model.workload import Workload

log = logging.getLogger(__name__)


class HeldPods(msgspec.Struct):
    """What a pod set of a Workload asks for and holds, in pods."""

    declared: int
    reclaimable: int
    admitted: int

    @property
    def held(self) -> int:
        return max(0, min(self.admitted, self.declared - self.reclaimable))


class WorkloadSizeWriter:
    def __init__(self, writer: WorkloadWriter) -> None:
        self._writer = writer

    def reconcile(self, workloads: Iterable[Workload]) -> None:
        for workload in workloads:
            with self._writer.guard.step(f"the size of {workload.key}"):
                if workload.owner_sizes and self._may_write(workload):
                    self._writer.start_once(workload.key, functools.partial(self._resize, workload))

    def _may_write(self, workload: Workload) -> bool:
        known = self._writer.workload(workload.key)
        if known is None or not _holds_quota(known) or not kueue.is_written_by_windlass(known):
            return False
        return self._writer.manages_workload(workload.key) and not self._writer.is_behind(known)

    async def _resize(self, workload: Workload) -> None:
        raw = await self._writer.get_raw("Workload", KUEUE_API_GROUP, workload.key, workload.uid)
        known = decode_object(raw) if raw is not None else None
        owner = await self.get_owner(known) if isinstance(known, WorkloadObject) and _holds_quota(known) else None
        if owner is None or not isinstance(known, WorkloadObject) or owner.suspended or owner.finished:
            return
        before = held_pods(known)
        after = {
            pod_set.name: resized(before[pod_set.name], pod_set, workload.owner_sizes.get(pod_set.name), owner)
            for pod_set in owner.pod_sets
            if pod_set.name in before
        }
        status = _status_changes(raw, known, before, after)
        version = known.metadata.resource_version
        if status:
            log.info("Workload %s: its owner runs %s", workload.key, _describe(after))
            version = await self._writer.patch_workload_status(workload.key, status, version)
        counts = {name: held.declared for name, held in after.items() if held.declared != before[name].declared}
        if counts:
            pod_sets = [{**tree, "count": counts.get(tree["name"], tree["count"])} for tree in raw["spec"]["podSets"]]
            resource = self._writer.workload_resource()
            await self._writer.send(patch_object(resource, workload.key, {"spec": {"podSets": pod_sets}}, version))

    async def has_outgrown(self, known: WorkloadObject) -> bool:
        """Whether the owner runs more pods than were admitted, as the server has it."""
        owner, held = await self.get_owner(known), held_pods(known)
        if owner is None or owner.suspended or owner.finished:
            return False
        return any(pod_set.count > held[pod_set.name].held for pod_set in owner.pod_sets if pod_set.name in held)

    async def get_owner(self, known: WorkloadObject) -> Owner | None:
        """The owner as the server has it; None if there is none."""
        for reference in known.metadata.owner_references:
            if reference.controller:
                group, key = reference.api_version.rpartition("/")[0], f"{known.metadata.namespace}/{reference.name}"
                raw = await self._writer.get_raw(reference.kind, group, key, reference.uid)
                found = decode_object(raw) if raw is not None else None
                return owner_from_object(found) if isinstance(found, OwnerObject) else None
        return None


def held_pods(known: WorkloadObject) -> dict[str, HeldPods]:
    """By pod set."""
    admission = known.status.admission
    counts = {part.name: part.count for part in admission.pod_set_assignments} if admission is not None else {}
    found = {}
    for spec in known.spec.pod_sets:
        gone = sum(part.count for part in known.status.reclaimable_pods if part.name == spec.name)
        admitted = counts.get(spec.name, 0)
        found[spec.name] = HeldPods(spec.count, gone, spec.count if admitted is None else admitted)
    return found


def resized(held: HeldPods, pod_set: OwnerPodSet, size: int | None, owner: Owner) -> HeldPods:
    """What the pod set should ask for. `size`: pods that the last snapshot counted, at least those on nodes."""
    if pod_set.count > held.held:
        if not owner.is_elastic:
            return held  # it is stopped, and queued again
        return HeldPods(pod_set.count + held.reclaimable, held.reclaimable, held.held)
    wanted = max(pod_set.count, size if size is not None else held.held)
    if wanted >= held.held:
        return held
    declared = min(held.declared, max(pod_set.count + pod_set.ended, wanted))
    # With partial admission the spec keeps the size that is restored when the Job is stopped.
    if declared == held.declared or pod_set.min_count is not None:
        return HeldPods(held.declared, held.declared - wanted, held.admitted)
    return HeldPods(declared, declared - wanted, wanted)


def _holds_quota(known: WorkloadObject) -> bool:
    return known.status.admission is not None and known.condition("Evicted") is None and not is_finished(known)


def _status_changes(
    raw: Unstructured, known: WorkloadObject, before: Mapping[str, HeldPods], after: Mapping[str, HeldPods]
) -> Unstructured:
    """The part of the status that changes; empty where none does."""
    status: Unstructured = {}
    if any(held.reclaimable != before[name].reclaimable for name, held in after.items()):
        status["reclaimablePods"] = [
            {"name": name, "count": held.reclaimable} for name, held in after.items() if held.reclaimable
        ]
    if any(held.admitted != before[name].admitted for name, held in after.items()):
        admission = raw["status"]["admission"]
        parts = [_with_count(part, before, after) for part in admission["podSetAssignments"]]
        status["admission"] = {**admission, "podSetAssignments": parts}
    return status


def _with_count(part: Unstructured, before: Mapping[str, HeldPods], after: Mapping[str, HeldPods]) -> Unstructured:
    """The assignment of a pod set with its new count. The nodes of a topology assignment are those of the pods."""
    name = part["name"]
    if name not in after or after[name].admitted == before[name].admitted:
        return part
    count, old = after[name].admitted, before[name].admitted
    usage = {
        resource: format_quota(resource, parse_quota(resource, amount) * count // old)
        for resource, amount in (part.get("resourceUsage") or {}).items()
    }
    kept = {field: value for field, value in part.items() if field != "topologyAssignment"}
    return {**kept, "count": count, "resourceUsage": usage}


def _describe(sizes: Mapping[str, HeldPods]) -> str:
    return ", ".join(f"{held.held} pods of {name}" for name, held in sizes.items())
