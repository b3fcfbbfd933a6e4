"""Evictions of this decision that would gain nothing, since work of higher priority takes the room at once.

A queued workload may evict one of higher priority, by its share or as the owner of lent quota. What waits in no queue,
with a priority between the two, could not evict the victim; but in the next decision it would evict the workload that
starts in its place, and the victim would evict it in turn. `placement.decision_pass` asks here once all are decided,
and decides again with the workloads found here evicting nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windlass.model.workload import Workload
from windlass.placement.decision_context import DecisionContext
from windlass.placement.member_holds import member_hold
from windlass.placement.preemption.context import NEVER
from windlass.placement.workload_pieces import eviction_priority, is_extra_member
from windlass.queueing.outcome import Admitted, Evicted, Held, Outcome
from windlass.queueing.placement_interface import PodSetChoice


def find_vain_evictors(context: DecisionContext, outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Queued workload that others are evicted for → what would evict it at once."""
    evictors = {outcome.preemptor for outcome in outcomes if isinstance(outcome, Evicted)}
    admitted = [
        context.piece_by_key[outcome.workload]
        for outcome in outcomes
        if isinstance(outcome, Admitted) and outcome.cluster_queue and outcome.workload in evictors
    ]
    # What may not be evicted itself keeps what it gains.
    admitted = [piece for piece in admitted if piece.evictable and not context.config.min_run_seconds]
    if not admitted:
        return {}
    lowest = min(map(eviction_priority, admitted))
    rivals = [rival for rival in _rivals(context, outcomes) if rival.priority > lowest]
    found = {piece.key: _rival_in_its_place(context, piece, rivals) for piece in admitted}
    return {key: rival for key, rival in found.items() if rival}


def _rivals(context: DecisionContext, outcomes: Sequence[Outcome]) -> Iterator[Workload]:
    """What waits in no queue for room, and may preempt."""
    held = {outcome.workload for outcome in outcomes if isinstance(outcome, Held)}
    pieces = (piece for piece in context.pieces if piece.key in held and not is_extra_member(piece))
    for piece in (*pieces, *context.refused_single_pods):
        may_preempt = not piece.queue_name and piece.preemption_policy != NEVER
        if may_preempt and not piece.hold and piece.active and member_hold(context, piece) is None:
            yield piece


def _rival_in_its_place(context: DecisionContext, piece: Workload, rivals: Sequence[Workload]) -> str:
    """The first that starts once the piece has been evicted; empty if none does."""
    placer = context.placer
    for rival in rivals:
        if rival.priority <= eviction_priority(piece):
            continue
        choices = tuple(PodSetChoice(pod_set.name, pod_set.count, {}) for pod_set in rival.pod_sets)
        if not placer.could_place(rival, choices, [piece]):
            continue
        before = placer.checkpoint()
        placer.remove(piece)
        starts = placer.place(rival, choices).ok
        placer.rollback(before)
        if starts:
            return rival.key
    return ""
