"""Elastic workloads in pieces: the minimum, which starts whole, and every member above it for itself.

`placement.decision_context` splits before it asks queueing and puts the names together again afterwards. A piece is a
workload like any other, so that quota, order and eviction need no rule of their own for it: extras queue behind
everything of their priority, and, being the newest, are the first to give way.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.model.workload import Admission, PodSet, PodSetAssignment, Workload

PIECE_SEPARATOR = "#"
MISSING_PIECE = "missing"
"""The piece that a running gang lacks of its minimum, after a node was lost, say."""


def split_workload(workload: Workload) -> list[Workload]:
    """The workload itself; or its minimum and each member above it; or what runs of it and what it lacks."""
    if _is_one_pod(workload):
        return [workload]
    total = sum(pod_set.count for pod_set in workload.pod_sets)
    minimum = total if workload.min_pods is None else min(workload.min_pods, total)
    held = _Held(workload.admission)
    bound = {one.name: held.count(one.name) for one in workload.pod_sets}
    kept = _kept_counts(workload, max(1, minimum), bound)
    runs = [min(count, bound.get(one.name, 0)) for one, count in zip(workload.pod_sets, kept, strict=True)]
    if workload.admission is None or runs == kept:
        runs = kept
    # Without a minimum nothing is elastic: who was admitted with fewer pods runs with those.
    if runs == [one.count for one in workload.pod_sets] or (workload.min_pods is None and runs == kept):
        return [workload]
    pieces = [_piece(workload, workload.key, _cut(workload, [0] * len(kept), runs), held)]
    missing = _cut(workload, runs, kept)
    if missing:
        lacks = _piece(workload, missing_piece_key(workload.key), missing, held)
        pieces.append(msgspec.structs.replace(lacks, gang_running=True))
    for pod_set, count in zip(workload.pod_sets, kept, strict=True):
        for i in range(count, pod_set.count):
            extra = msgspec.structs.replace(
                pod_set, count=1, pod_keys=pod_set.pod_keys[i : i + 1], min_count=None
            )
            number = len(pieces)
            pieces.append(
                _piece(workload, f"{workload.key}{PIECE_SEPARATOR}{number}", (extra,), held, number)
            )
    return [piece for piece in pieces if piece.pod_sets]


def _is_one_pod(workload: Workload) -> bool:
    """There is nothing to cut: it is one pod, which waits or holds its quota. Most workloads are such."""
    first = workload.pod_sets[0] if len(workload.pod_sets) == 1 else None
    if first is None or first.count != 1 or first.min_count is not None:
        return False
    held = workload.admission.assignments if workload.admission is not None else None
    return held is None or (len(held) == 1 and held[0].name == first.name and held[0].count == 1)


def _cut(workload: Workload, first: list[int], end: list[int]) -> tuple[PodSet, ...]:
    """Members `first` to `end` of each set, sets without any left out."""
    return tuple(
        msgspec.structs.replace(one, count=stop - start, pod_keys=one.pod_keys[start:stop])
        for one, start, stop in zip(workload.pod_sets, first, end, strict=True)
        if stop > start
    )


def workload_key(piece: str) -> str:
    """The workload that a piece belongs to."""
    return piece.partition(PIECE_SEPARATOR)[0]


def is_above_minimum(piece: str) -> bool:
    """Whether it is a member above the minimum."""
    return piece.partition(PIECE_SEPARATOR)[2].isdigit()


def missing_piece_key(workload: str) -> str:
    return f"{workload}{PIECE_SEPARATOR}{MISSING_PIECE}"


def prerequisite_pieces(piece: str) -> list[str]:
    """The pieces of the same workload that it can't do without."""
    whole = workload_key(piece)
    if is_above_minimum(piece):
        return [whole, missing_piece_key(whole)]
    return [whole] if piece == missing_piece_key(whole) else []


def _kept_counts(workload: Workload, minimum: int, bound: Mapping[str, int]) -> list[int]:
    """How many of each set belong to the minimum: those that run first, then in order."""
    kept, left = [], minimum
    for pod_set in workload.pod_sets:
        kept.append(min(left, pod_set.count))
        left -= kept[-1]
        # Who was admitted with fewer pods, and may run with them, lacks none.
        if pod_set.min_count is not None and bound[pod_set.name] >= pod_set.min_count:
            kept[-1] = min(kept[-1], bound[pod_set.name])
    return kept


class _Held:
    """What an admission holds, given out member by member; the pods of a set may be on several flavors."""

    def __init__(self, admission: Admission | None) -> None:
        self._held = admission.assignments if admission is not None else ()
        self._left = [one.count for one in self._held]

    def count(self, name: str) -> int:
        """Members of the set that hold quota, and whose part was not given out yet."""
        return sum(left for one, left in zip(self._held, self._left, strict=True) if one.name == name)

    def take(self, name: str, count: int) -> list[PodSetAssignment]:
        """So many members' part of what a set holds; equal pods hold equal parts."""
        parts = []
        for index, one in enumerate(self._held):
            taken = min(self._left[index], count) if one.name == name else 0
            if taken:
                usage = {resource: amount * taken // one.count for resource, amount in one.usage.items()}
                # Which of the nodes is whose is not known here: each may be on any of them.
                parts.append(PodSetAssignment(name, taken, one.flavors, usage, one.nodes))
                self._left[index] -= taken
                count -= taken
        return parts


def _piece(workload: Workload, key: str, sets: tuple[PodSet, ...], held: _Held, later: int = 0) -> Workload:
    """A part of the workload with its part of what is held."""
    admission = None
    if workload.admission is not None:
        parts = [part for pod_set in sets for part in held.take(pod_set.name, pod_set.count)]
        if parts:
            reserved = workload.admission.reserved_at + later
            admission = Admission(workload.admission.cluster_queue, tuple(parts), reserved)
    held_back = admission is None and bool(workload.unreadable)
    return msgspec.structs.replace(
        workload,
        key=key,
        hold=workload.unreadable if held_back else workload.hold,
        hold_code="INVALID_OBJECT" if held_back else workload.hold_code,
        uid=f"{workload.uid}{key.removeprefix(workload.key)}",
        pod_sets=sets,
        min_pods=None,
        admission=admission,
        created=workload.created,
        queued_at=workload.queued_at + later,
    )
