"""Elastic workloads in pieces: the minimum, which starts whole, and every member above it for itself.

`placement.admission` splits before it asks queueing and puts the names together again afterwards. A piece is a workload
like any other, so that quota, order and eviction need no rule of their own for it: extras queue behind everything of
their priority, and, being the newest, are the first to give way.
"""

from __future__ import annotations

import msgspec

from windlass.model.workload import Admission, PodSet, PodSetAssignment, Workload

MARK = "#"
MISSING = "missing"
"""The piece that a running gang lacks of its minimum, after a node was lost, say."""


def pieces_of(workload: Workload) -> list[Workload]:
    """The workload itself; or its minimum and each member above it; or what runs of it and what it lacks."""
    total = sum(pod_set.count for pod_set in workload.pod_sets)
    minimum = total if workload.minimum is None else min(workload.minimum, total)
    bound = _bound_counts(workload)
    kept = _kept_counts(workload, max(1, minimum))
    runs = [min(count, bound.get(one.name, 0)) for one, count in zip(workload.pod_sets, kept, strict=True)]
    if workload.admission is None or runs == kept:
        runs = kept
    if runs == [one.count for one in workload.pod_sets]:
        return [workload]
    held = dict(bound)
    pieces = [_piece(workload, workload.key, _cut(workload, [0] * len(kept), runs), held)]
    missing = _cut(workload, runs, kept)
    if missing:
        pieces.append(_piece(workload, missing_key(workload.key), missing, held))
    for pod_set, count in zip(workload.pod_sets, kept, strict=True):
        for i in range(count, pod_set.count):
            extra = msgspec.structs.replace(pod_set, count=1, pods=pod_set.pods[i : i + 1], min_count=None)
            number = len(pieces)
            pieces.append(_piece(workload, f"{workload.key}{MARK}{number}", (extra,), held, number))
    return [piece for piece in pieces if piece.pod_sets]


def _cut(workload: Workload, first: list[int], end: list[int]) -> tuple[PodSet, ...]:
    """Members `first` to `end` of each set, sets without any left out."""
    return tuple(
        msgspec.structs.replace(one, count=stop - start, pods=one.pods[start:stop])
        for one, start, stop in zip(workload.pod_sets, first, end, strict=True)
        if stop > start
    )


def whole_key(piece: str) -> str:
    """The workload that a piece belongs to."""
    return piece.partition(MARK)[0]


def is_extra(piece: str) -> bool:
    """Whether it is a member above the minimum."""
    return piece.partition(MARK)[2].isdigit()


def missing_key(workload: str) -> str:
    return f"{workload}{MARK}{MISSING}"


def pieces_before(piece: str) -> list[str]:
    """The pieces of the same workload that it can't do without."""
    whole = whole_key(piece)
    if is_extra(piece):
        return [whole, missing_key(whole)]
    return [whole] if piece == missing_key(whole) else []


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
