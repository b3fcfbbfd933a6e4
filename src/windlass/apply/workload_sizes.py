"""Executes changed sizes: writes to a Workload what its pod sets ask for and hold now that its owner runs other pods.

`apply.admission` calls `execute` with the decisions of each plan (`placement.resized_workloads` makes them). Both
objects are read again first, the Workload before its owner, since the watch of one kind may be behind that of the
other: where either says something else than what was decided on, nothing is written, and the next decision counts
again. The write fails if the Workload has changed since it was read.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence

from windlass.apply import kueue
from windlass.apply.owner_reader import OwnerReader
from windlass.apply.workload_writer import WorkloadWriter
from windlass.cluster.workloads.owner_sizes import pod_set_sizes
from windlass.kube.resources import KUEUE_API_GROUP
from windlass.kube.write_requests import patch_object
from windlass.model.codec import decode_object
from windlass.model.decision import PodSetResize, Resize
from windlass.model.kueue import WorkloadObject, is_finished
from windlass.model.owners import Owner
from windlass.model.quota import format_quota, parse_quota
from windlass.model.unstructured import Unstructured
from windlass.model.workload import PodSetSize

log = logging.getLogger(__name__)


class WorkloadSizeWriter:
    def __init__(self, writer: WorkloadWriter, reader: OwnerReader) -> None:
        self._writer, self._reader = writer, reader

    def execute(self, resizes: Sequence[Resize]) -> None:
        for resize in resizes:
            with self._writer.guard.step(f"the size of {resize.workload}"):
                known = self._writer.workload(resize.workload)
                if known is not None and self._may_write(known):
                    action = functools.partial(self._resize, resize, known.metadata.uid)
                    self._writer.start_once(resize.workload, action)

    def _may_write(self, known: WorkloadObject) -> bool:
        if not _holds_quota(known) or not kueue.is_written_by_windlass(known):
            return False
        return self._writer.manages_workload(known.key) and not self._writer.is_behind(known)

    async def _resize(self, resize: Resize, uid: str) -> None:
        raw = await self._writer.get_raw("Workload", KUEUE_API_GROUP, resize.workload, uid)
        known = decode_object(raw) if raw is not None else None
        if not isinstance(known, WorkloadObject) or not _holds_quota(known):
            return
        owner = await self._reader.owner_of(known)
        if owner is None or owner.suspended or owner.finished or not _is_current(resize, known, owner):
            return
        before = pod_set_sizes(known)
        after = {**before, **{part.name: part.after for part in resize.pod_sets}}
        status = _status_changes(raw, before, after)
        version = known.metadata.resource_version
        if status:
            log.info("Workload %s: its owner runs %s", resize.workload, _describe(resize.pod_sets))
            version = await self._writer.patch_workload_status(resize.workload, status, version)
        counts = {name: size.declared for name, size in after.items() if size.declared != before[name].declared}
        if counts:
            pod_sets = [{**tree, "count": counts.get(tree["name"], tree["count"])} for tree in raw["spec"]["podSets"]]
            resource = self._writer.workload_resource()
            await self._writer.send(patch_object(resource, resize.workload, {"spec": {"podSets": pod_sets}}, version))

    async def has_outgrown(self, known: WorkloadObject) -> bool:
        """Whether the owner runs more pods than were admitted, as the server has it."""
        owner, held = await self._reader.owner_of(known), pod_set_sizes(known)
        if owner is None or owner.suspended or owner.finished:
            return False
        return any(pod_set.count > held[pod_set.name].held for pod_set in owner.pod_sets if pod_set.name in held)


def _is_current(resize: Resize, known: WorkloadObject, owner: Owner) -> bool:
    """Whether Workload and owner have the numbers that were decided on."""
    sizes, counts = pod_set_sizes(known), {pod_set.name: pod_set.count for pod_set in owner.pod_sets}
    return all(
        sizes.get(part.name) == part.before and counts.get(part.name) == part.owner_count for part in resize.pod_sets
    )


def _holds_quota(known: WorkloadObject) -> bool:
    return known.status.admission is not None and known.condition("Evicted") is None and not is_finished(known)


def _status_changes(
    raw: Unstructured, before: Mapping[str, PodSetSize], after: Mapping[str, PodSetSize]
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


def _with_count(part: Unstructured, before: Mapping[str, PodSetSize], after: Mapping[str, PodSetSize]) -> Unstructured:
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


def _describe(pod_sets: Sequence[PodSetResize]) -> str:
    return ", ".join(f"{part.after.held} pods of {part.name}" for part in pod_sets)
