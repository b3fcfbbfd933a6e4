"""Pods that came after the admission of their workload, or in the place of lost ones: quota is no question for them.

`engine.decide` seats them before anything else is decided on; `decided` binds those whose workload stays.
"""

from __future__ import annotations

from typing import NamedTuple

from windlass.model.verdict import Verdict
from windlass.model.workload import Workload
from windlass.placement.elastic import whole_key
from windlass.placement.pieces import held_choices
from windlass.placement.verdicts import verdict_of
from windlass.placement.work import Work


class LatePods(NamedTuple):
    seated: list[tuple[Workload, tuple[str, ...]]]
    """Pieces whose pods have found places; with each, who has to be gone first."""
    refused: dict[str, Verdict]
    """Workload → why some of its pods have found none."""
    workloads: frozenset[str]
    """All that hold quota for pods which have no node."""


def seat_late_pods(work: Work) -> LatePods:
    held = [piece for piece in work.pieces if piece.admission is not None and not piece.evicted]
    pods, nodes = work.snapshot.pods, work.snapshot.facts.size
    pending = {pods.keys[row] for row in pods.pending().tolist()}
    late = [piece for piece in held if any(not pending.isdisjoint(part.pods) for part in piece.pod_sets)]
    seated: list[tuple[Workload, tuple[str, ...]]] = []
    refused: dict[str, Verdict] = {}
    for piece in sorted(late, key=lambda one: (-one.priority, one.queued_at, one.key)):
        if piece.unreadable:
            refused[whole_key(piece.key)] = Verdict("INVALID_OBJECT", nodes, detail=piece.unreadable)
            continue
        found = work.site.place(piece, held_choices(piece))
        if found.ok:
            seated.append((piece, found.after))
        else:
            refused[whole_key(piece.key)] = verdict_of(found.code, found.message, nodes)
    return LatePods(seated, refused, frozenset(whole_key(piece.key) for piece in late))
