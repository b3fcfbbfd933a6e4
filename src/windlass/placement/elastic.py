"""Elastic workloads in pieces: the minimum, which starts whole, and every member above it for itself.

`placement.admission` splits before it asks queueing and puts the names together again afterwards. A piece is a workload
like any other, so that quota, order and eviction need no rule of their own for it: extras queue behind everything of
their priority, and, being the newest, are the first to give way.
"""

from __future__ import annotations

import msgspec

from windlass.model.workload import Admission, PodSet, PodSetAssignment, Workload

MARK = "#"


def pieces_of(workload: Workload) -> list[Workload]:
    """The workload itself, or its minimum and one piece for each member above it."""
    total = sum(pod_set.count for pod_set in workload.pod_sets)
    minimum = workload.minimum
    if minimum is None or not 0 < minimum < total:
        return [workload]
    kept = _kept_counts(workload, minimum)
    base_sets, extras = [], []
    for pod_set, count in zip(workload.pod_sets, kept, strict=True):
        if count:
            base_sets.append(msgspec.structs.replace(pod_set, count=count, pods=pod_set.pods[:count]))
        for i in range(count, pod_set.count):
            pods = pod_set.pods[i : i + 1]
            extras.append(msgspec.structs.replace(pod_set, count=1, pods=pods, min_count=None))
    bound = _bound_counts(workload)
    base = _piece(workload, workload.key, tuple(base_sets), bound)
    pieces = [base]
    for number, pod_set in enumerate(extras):
        pieces.append(_piece(workload, f"{workload.key}{MARK}{number}", (pod_set,), bound, number + 1))
    return pieces


def whole_key(piece: str) -> str:
    """The workload that a piece belongs to."""
    return piece.partition(MARK)[0]


def is_extra(piece: str) -> bool:
    return MARK in piece


def _kept_counts(workload: Workload, minimum: int) -> list[int]:
    """How many of each set belong to the minimum: those that run first, then in order."""
    kept, left = [], minimum
    for pod_set in workload.pod_sets:
        kept.append(min(left, pod_set.count))
        left -= kept[-1]
    return kept


def _bound_counts(workload: Workload) -> dict[str, int]:
    """Members of each set that hold quota."""
    counts: dict[str, int] = {}
    for assignment in workload.admission.assignments if workload.admission else ():
        counts[assignment.name] = counts.get(assignment.name, 0) + assignment.count
    return counts


def _piece(
    workload: Workload, key: str, sets: tuple[PodSet, ...], bound: dict[str, int], later: int = 0
) -> Workload:
    """A part of the workload with its part of what is held; `bound` counts down what is still to be given out."""
    admission = None
    if workload.admission is not None:
        parts = []
        for pod_set in sets:
            held = min(pod_set.count, bound.get(pod_set.name, 0))
            bound[pod_set.name] = bound.get(pod_set.name, 0) - held
            if held:
                parts.append(_share(workload.admission, pod_set.name, held))
        if parts:
            reserved = workload.admission.reserved_at + later
            admission = Admission(workload.admission.queue, tuple(parts), reserved)
    return msgspec.structs.replace(
        workload,
        key=key,
        uid=f"{workload.uid}{key.removeprefix(workload.key)}",
        pod_sets=sets,
        minimum=None,
        admission=admission,
        created=workload.created,
        queued_at=workload.queued_at + later,
    )


def _share(admission: Admission, name: str, count: int) -> PodSetAssignment:
    """So many members' part of what a set holds; equal pods hold equal parts."""
    held = next(one for one in admission.assignments if one.name == name)
    usage = {resource: amount * count // held.count for resource, amount in held.usage.items()}
    return PodSetAssignment(name, count, held.flavors, usage)
