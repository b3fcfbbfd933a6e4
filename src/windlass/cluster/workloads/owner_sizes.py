"""Whether the owner of an admitted Workload still runs as many pods as it holds quota for.

Called by `build_workload`. People change `parallelism` while a Job runs, and pods of a Job with `completions` end for
good. `apply.workload_sizes` writes smaller sizes to the Workload; `placement.stop_conditions` stops what has outgrown
its admission, and the pods above the admission of an elastic Job wait for quota of their own (`workload_pieces`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.cluster.workloads.pod_sets import members_by_set
from windlass.model.owners import Owner
from windlass.model.pod import Pod
from windlass.model.workload import Admission, PodSet, Workload


def owner_sizes(workload: Workload, owner: Owner | None, pods: Sequence[Pod]) -> dict[str, int]:
    """Pod set → pods that the owner runs now, where the workload's admission has another number.

    A smaller size counts every pod in `pods` that is on a node, also those that are being deleted: quota is free when
    they have terminated.
    """
    if owner is None or workload.admission is None or owner.suspended or owner.finished:
        return {}
    held = held_counts(workload.admission)
    if [pod_set.name for pod_set in owner.pod_sets] != [pod_set.name for pod_set in workload.pod_sets]:
        return {}
    bound = [pod for pod in pods if pod.is_bound]
    on_nodes = members_by_set([pod_set.name for pod_set in owner.pod_sets], owner.pod_set_label, bound)
    sizes = {}
    for pod_set in owner.pod_sets:
        admitted = held.get(pod_set.name, 0)
        size = max(pod_set.count, min(len(on_nodes[pod_set.name]), admitted))
        if size != admitted:
            sizes[pod_set.name] = size
    return sizes


def held_counts(admission: Admission) -> dict[str, int]:
    """Pod set → pods that it holds quota for."""
    held: dict[str, int] = {}
    for assignment in admission.assignments:
        held[assignment.name] = held.get(assignment.name, 0) + assignment.count
    return held


def with_room_to_grow(workload: Workload) -> Workload:
    """An elastic workload whose spec asks for more pods than it was admitted with: it runs with those that it has, and
    each further pod is admitted on its own, in the same flavors."""
    if workload.admission is None or not workload.is_elastic:
        return workload
    held = held_counts(workload.admission)
    if all(pod_set.count <= held.get(pod_set.name, 0) for pod_set in workload.pod_sets):
        return workload
    flavors = {
        pod_set.name: frozenset(
            flavor
            for assignment in workload.admission.assignments
            if assignment.name == pod_set.name
            for flavor in assignment.flavors.values()
        )
        for pod_set in workload.pod_sets
    }
    sets: tuple[PodSet, ...] = tuple(
        msgspec.structs.replace(pod_set, flavors=flavors[pod_set.name]) for pod_set in workload.pod_sets
    )
    return msgspec.structs.replace(workload, pod_sets=sets, min_pods=sum(held.values()))
