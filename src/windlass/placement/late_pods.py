"""Pods that were created after the admission of their workload, or that replace lost ones. They have quota already.
What they lack is a place: where there is none, lower priorities in no queue make room, or else what their workload may
evict by the rules of its queue.

`engine.decide` places them before anything else; `placement.decisions` binds those whose workload is not evicted.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from windlass.cluster.workloads.owner_sizes import held_counts
from windlass.model.verdict import Verdict
from windlass.model.workload import Workload
from windlass.placement.decision_context import DecisionContext
from windlass.placement.member_holds import member_hold
from windlass.placement.preempted_piece import preempt_by_priority, preempt_by_queue_rules
from windlass.placement.unhealthy_gpus import find_unhealthy_gpus
from windlass.placement.verdicts import make_verdict
from windlass.placement.workload_pieces import admitted_choices, workload_key
from windlass.queueing.outcome import Evicted


class LatePods(NamedTuple):
    placed: list[tuple[Workload, tuple[str, ...]]]
    """Placed pieces, each with the victims that have to terminate first."""
    refused: dict[str, Verdict]
    """Workload → why some of its pods found no node."""
    evicted: list[Evicted]
    """What makes room for them."""
    workloads: frozenset[str]
    """All workloads that hold quota for pods without a node."""


def _pieces_without_nodes(context: DecisionContext) -> list[Workload]:
    pods = context.snapshot.pods
    pending = {pods.keys[row] for row in pods.pending().tolist()}
    for piece in context.pieces:
        if piece.admission is None:
            for pod_set in piece.pod_sets:
                pending.difference_update(pod_set.pod_keys)
    if not pending:  # the usual case: whatever waits has not been admitted
        return []
    admitted = [piece for piece in context.pieces if piece.admission is not None and not piece.evicting]
    return [piece for piece in admitted if _lacks_nodes(piece, pending)]


def _lacks_nodes(piece: Workload, pending: set[str]) -> bool:
    """Whether pods without a node are among those that it holds quota for. Its owner may have created more."""
    for pod_set in piece.pod_sets:
        if pending.isdisjoint(pod_set.pod_keys):
            continue  # true of nearly all, so what is held is not even read
        waiting = sum(key in pending for key in pod_set.pod_keys)
        held = held_counts(piece.admission) if piece.admission is not None else {}
        if piece.kind != "Workload" or len(pod_set.pod_keys) - waiting < held.get(pod_set.name, 0):
            return True
    return False


def place_late_pods(context: DecisionContext) -> LatePods:
    nodes = context.snapshot.nodes.size
    late = _pieces_without_nodes(context)
    placed: list[tuple[Workload, tuple[str, ...]]] = []
    refused: dict[str, Verdict] = {}
    evicted: list[Evicted] = []
    # They have quota already, so that only places are contested: by priority, then age.
    for piece in sorted(late, key=lambda piece: (-piece.priority, piece.queued_at, piece.key)):
        if not {piece.key, workload_key(piece.key)}.isdisjoint(victim.workload for victim in evicted):
            continue  # for one before it
        if piece.unreadable:
            refused[workload_key(piece.key)] = Verdict("INVALID_OBJECT", nodes, detail=piece.unreadable)
            continue
        hold = member_hold(context, piece)
        if hold is not None:
            refused[workload_key(piece.key)] = make_verdict(hold.code, hold.kube_words, nodes, hold.remedy)
            continue
        choices = admitted_choices(piece)
        # First where its admission has said: other decisions have counted on that.
        found = context.placer.place_as_admitted(piece, choices) or context.placer.place(piece, choices)
        if not found.ok and found.feasible:
            found = (
                preempt_by_priority(context, evicted, piece, choices)
                or preempt_by_queue_rules(context, evicted, piece, choices)
                or found
            )
        if found.ok:
            placed.append((piece, found.after))
        else:
            pod_sets, _, _ = context.placer.pending_pod_sets(piece, choices)
            verdict = make_verdict(found.code, found.message, nodes)
            unhealthy = find_unhealthy_gpus(context.overlay, pod_sets)
            refused[workload_key(piece.key)] = replace(verdict, obstacles=unhealthy)
    return LatePods(placed, refused, evicted, frozenset(workload_key(piece.key) for piece in late))
