"""Pods that came after the admission of their workload, or in the place of lost ones: quota is no question for them.

`engine.decide` seats them before anything else is decided on; `decided` binds those whose workload stays.
"""

from __future__ import annotations

from typing import NamedTuple

from windlass.model.verdict import Verdict
from windlass.model.workload import Workload
from windlass.placement.decision_context import DecisionContext
from windlass.placement.pieces import admitted_choices
from windlass.placement.verdicts import make_verdict
from windlass.placement.workload_pieces import workload_key


class LatePods(NamedTuple):
    placed: list[tuple[Workload, tuple[str, ...]]]
    """Pieces whose pods have found places; with each, who has to be gone first."""
    refused: dict[str, Verdict]
    """Workload → why some of its pods have found none."""
    workloads: frozenset[str]
    """All that hold quota for pods which have no node."""


def place_late_pods(context: DecisionContext) -> LatePods:
    held = [piece for piece in context.pieces if piece.admission is not None and not piece.evicting]
    pods, nodes = context.snapshot.pods, context.snapshot.nodes.size
    pending = {pods.keys[row] for row in pods.pending().tolist()}
    late = [piece for piece in held if any(not pending.isdisjoint(part.pod_keys) for part in piece.pod_sets)]
    seated: list[tuple[Workload, tuple[str, ...]]] = []
    refused: dict[str, Verdict] = {}
    for piece in sorted(late, key=lambda one: (-one.priority, one.queued_at, one.key)):
        if piece.unreadable:
            refused[workload_key(piece.key)] = Verdict("INVALID_OBJECT", nodes, detail=piece.unreadable)
            continue
        found = context.placer.place(piece, admitted_choices(piece))
        if found.ok:
            seated.append((piece, found.after))
        else:
            refused[workload_key(piece.key)] = make_verdict(found.code, found.message, nodes)
    return LatePods(seated, refused, frozenset(workload_key(piece.key) for piece in late))
