"""Whether the owner of an admitted Workload still runs as many pods as it holds quota for.

Called by `build_workload`. People change `parallelism` while a Job runs, and pods of a Job with `completions` end for
good. `placement.resized_workloads` decides what the Workload should hold then, `placement.stop_conditions` stops what
has outgrown its admission, and the pods above the admission of an elastic Job wait for quota of their own
(`workload_pieces`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.cluster.workloads.pod_sets import members_by_set
from windlass.model.kueue import WorkloadObject
from windlass.model.owners import Owner
from windlass.model.pod import Pod
from windlass.model.workload import Admission, OwnerSize, PodSet, PodSetSize, Workload


def owner_sizes(wire: WorkloadObject, workload: Workload, owner: Owner | None, pods: Sequence[Pod]) -> list[OwnerSize]:
    """The pod sets of which the owner runs another number of `pods` than the Workload's admission has."""
    if owner is None or workload.admission is None or owner.suspended or owner.finished:
        return []
    names = [pod_set.name for pod_set in owner.pod_sets]
    if names != [pod_set.name for pod_set in workload.pod_sets]:
        return []
    on_nodes = members_by_set(names, owner.pod_set_label, [pod for pod in pods if pod.is_bound])
    held = pod_set_sizes(wire)
    sizes = [
        OwnerSize(
            pod_set.name,
            pod_set.count,
            pod_set.ended,
            len(on_nodes[pod_set.name]),
            pod_set.min_count is not None,
            held[pod_set.name],
        )
        for pod_set in owner.pod_sets
    ]
    return [size for size in sizes if size.wanted != size.now.held]


def pod_set_sizes(wire: WorkloadObject) -> dict[str, PodSetSize]:
    """Pod set → what it asks for and holds."""
    admission = wire.status.admission
    counts = {part.name: part.count for part in admission.pod_set_assignments} if admission is not None else {}
    found = {}
    for spec in wire.spec.pod_sets:
        gone = sum(part.count for part in wire.status.reclaimable_pods if part.name == spec.name)
        admitted = counts.get(spec.name, 0)
        found[spec.name] = PodSetSize(spec.count, gone, spec.count if admitted is None else admitted)
    return found


def held_counts(admission: Admission) -> dict[str, int]:
    """Pod set → pods that it holds quota for."""
    held: dict[str, int] = {}
    for assignment in admission.assignments:
        held[assignment.name] = held.get(assignment.name, 0) + assignment.count
    return held


def with_room_to_grow(workload: Workload) -> Workload:
    """An elastic workload whose owner asks for more pods than it was admitted with: it runs with those that it has, and
    each further pod is admitted on its own, in the same flavors."""
    admission = workload.admission
    if admission is None or not workload.is_elastic:
        return workload
    held = held_counts(admission)
    asked = {size.pod_set: size.count for size in workload.owner_sizes}
    larger = tuple(
        msgspec.structs.replace(pod_set, count=max(pod_set.count, asked.get(pod_set.name, 0)))
        for pod_set in workload.pod_sets
    )
    workload = msgspec.structs.replace(workload, pod_sets=larger)
    if all(pod_set.count <= held.get(pod_set.name, 0) for pod_set in workload.pod_sets):
        return workload
    flavors = {
        pod_set.name: frozenset(
            flavor
            for assignment in admission.assignments
            if assignment.name == pod_set.name
            for flavor in assignment.flavors.values()
        )
        for pod_set in workload.pod_sets
    }
    sets: tuple[PodSet, ...] = tuple(
        msgspec.structs.replace(pod_set, flavors=flavors[pod_set.name]) for pod_set in workload.pod_sets
    )
    return msgspec.structs.replace(workload, pod_sets=sets, min_pods=sum(held.values()))
