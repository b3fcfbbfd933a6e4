"""One pass over everything that waits: quota, placement and preemption, in order, each workload whole or not at all.

`engine.decide` runs it, and runs it again around the planned starts of workloads that still wait. Queued workloads go
through `queueing.admit`, cycle by cycle; gangs and single pods in no queue are placed by priority and age before and
after them. A workload that finds no capacity may withdraw admissions of the same pass (`withdrawn_admissions`) or
preempt running workloads of lower priority (`preemption`).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from windlass.model.disruption import DisruptionTracker
from windlass.model.reasons import Reason
from windlass.model.verdict import join_sentences
from windlass.model.workload import Workload
from windlass.placement.decision_context import DecisionContext
from windlass.placement.member_holds import member_hold
from windlass.placement.preempted_piece import preempt_by_priority
from windlass.placement.preemption.unqueued_candidates import UnqueuedCandidateFinder
from windlass.placement.vain_evictions import find_vain_evictors
from windlass.placement.withdrawn_admissions import withdraw_admissions
from windlass.placement.workload_pieces import (
    is_above_minimum,
    is_extra_member,
    unqueued_sort_key,
    workload_key,
)
from windlass.placement.workload_placer import PlacementGuard
from windlass.queueing.admit import admit
from windlass.queueing.outcome import Admitted, Evicted, Held, Outcome
from windlass.queueing.placement_interface import PodSetChoice, hold_message_text
from windlass.queueing.quota_node import queue_order_timestamp

MAX_BARRED = 8
"""So many workloads are kept from evicting in vain: a decision has to end."""


def run_pass(context: DecisionContext, guard: PlacementGuard | None) -> list[Outcome]:
    """An outcome for every piece; `guard` keeps later pieces off the capacity of planned starts before them."""
    context.placer.guard = guard
    before = context.occupancy.checkpoint()
    outcomes = _decide(context, {})
    barred: dict[str, str] = {}
    while len(barred) < MAX_BARRED and (in_vain := find_vain_evictors(context, outcomes)):
        barred |= in_vain
        context.occupancy.rollback(before)
        if guard is not None:
            guard.on_workload_removed()
        outcomes = _decide(context, barred)
    context.placer.guard = None
    return [_with_rival(outcome, barred) for outcome in outcomes] if barred else outcomes


def _with_rival(outcome: Outcome, barred: Mapping[str, str]) -> Outcome:
    if not isinstance(outcome, Held) or outcome.workload not in barred:
        return outcome
    instead = f"what it could preempt would make room for {barred[outcome.workload]} of higher priority"
    return replace(outcome, message=join_sentences([hold_message_text(outcome.message), instead]))


def _decide(context: DecisionContext, barred: Mapping[str, str]) -> list[Outcome]:
    """Unqueued pieces that come before all queued ones, then the queued ones, then the other unqueued ones."""
    before, after = _split_unqueued(context)
    disruptions = context.preemption.begin_pass(_extra_pods(context))
    outcomes: list[Outcome] = []
    for turn, piece in enumerate(before):
        outcomes = _place_unqueued(context, piece, turn, outcomes)
    # Running pieces are among them: they hold quota, and may be victims.
    queued = [piece for piece in context.pieces if piece.queue_name]
    waiting = [piece for piece in queued if piece.admission is None]
    holds = {piece.key: hold for piece in waiting if (hold := _queued_hold(context, piece)) is not None}
    outcomes += [_held_for(hold, key, len(before)) for key, hold in holds.items()]
    queued = [piece for piece in queued if piece.key not in holds] if holds else queued
    outcomes += _admit_queued(context, queued, disruptions, len(before), barred)
    for turn, piece in enumerate(after, start=len(before) + len(queued)):
        outcomes = _place_unqueued(context, piece, turn, outcomes)
    return _with_turns_by_age(context, outcomes, {piece.key for piece in after}) if after and queued else outcomes


def _with_turns_by_age(context: DecisionContext, outcomes: list[Outcome], unqueued: set[str]) -> list[Outcome]:
    """Numbers the unqueued pieces that were decided after all queued ones from where they belong by priority and age.

    Otherwise every queued workload, however new, would be before them, and could delay their planned starts for ever.
    """
    decided = [outcome for outcome in outcomes if not isinstance(outcome, Evicted)]
    in_turn = sorted(decided, key=lambda outcome: (outcome.decided_in_cycle, outcome.workload))
    keys = {outcome.workload: unqueued_sort_key(context.piece_by_key[outcome.workload])[:-1] for outcome in in_turn}
    others = [outcome.workload for outcome in in_turn if outcome.workload not in unqueued]
    # The best key of what is still to come: a piece goes before the first from which on nothing is better than it.
    order: list[str] = []
    late = [outcome.workload for outcome in in_turn if outcome.workload in unqueued]
    best_after = [keys[workload] for workload in others]
    for index in range(len(others) - 2, -1, -1):
        best_after[index] = min(best_after[index], best_after[index + 1])
    for workload, best in zip(others, best_after, strict=True):
        while late and keys[late[0]] <= best:
            order.append(late.pop(0))
        order.append(workload)
    turns = {workload: turn for turn, workload in enumerate((*order, *late))}
    return [
        outcome if isinstance(outcome, Evicted) else replace(outcome, decided_in_cycle=turns[outcome.workload])
        for outcome in outcomes
    ]


def _admit_queued(
    context: DecisionContext,
    queued: list[Workload],
    disruptions: DisruptionTracker | None,
    first_turn: int,
    barred: Mapping[str, str],
) -> list[Outcome]:
    """Evictions first, then the other outcomes by cycle, numbered from `first_turn`."""
    found = admit(
        context.system,
        queued,
        context.config,
        context.now,
        context.placer,
        disruptions,
        context.overlay.cache.counted,
        UnqueuedCandidateFinder(context.placer, context.preemption),
        barred.keys(),
    )
    evicted = [outcome for outcome in found if isinstance(outcome, Evicted)]
    decided = sorted(
        (outcome for outcome in found if not isinstance(outcome, Evicted)),
        key=lambda outcome: _turn_key(outcome, context.piece_by_key[outcome.workload]),
    )
    numbered = (replace(outcome, decided_in_cycle=turn) for turn, outcome in enumerate(decided, start=first_turn))
    return [*evicted, *numbered]


def _turn_key(outcome: Admitted | Held, piece: Workload) -> tuple[object, ...]:
    """By cycle, which keeps the order of each queue, then by priority and age."""
    age = (not piece.gang_running, queue_order_timestamp(piece))
    return (
        outcome.decided_in_cycle,
        not piece.nominated,
        -piece.priority,
        age,
        piece.uid or piece.key,
        piece.key,
    )


def _split_unqueued(context: DecisionContext) -> tuple[list[Workload], list[Workload]]:
    """Gangs and single pods in order: those before the first queued piece, and the rest."""
    waiting = [piece for piece in context.pieces if piece.admission is None]
    ordered = sorted((piece for piece in waiting if not piece.queue_name), key=unqueued_sort_key)
    # Without the name, and `<=` below: of equals the unqueued piece goes first, whatever it is called.
    head = min((unqueued_sort_key(piece)[:-1] for piece in waiting if piece.queue_name), default=None)
    before = len(ordered) if head is None else sum(unqueued_sort_key(piece)[:-1] <= head for piece in ordered)
    # All queued pieces are decided in one go, so a nominated piece goes before those of its own priority: otherwise
    # they could take the capacity that victims have freed for it. From lower ones it gets that back
    # (`withdrawn_admissions`).
    highest = max((piece.priority for piece in waiting if piece.queue_name and not piece.hold), default=None)
    nominated = (
        piece.nominated and not is_above_minimum(piece.key) and (highest is None or piece.priority >= highest)
        for piece in ordered
    )
    ends = [position for position, is_nominated in enumerate(nominated, start=1) if is_nominated]
    before = max([before, *ends])
    return ordered[:before], ordered[before:]


def _extra_pods(context: DecisionContext) -> dict[str, tuple[str, ...]]:
    """Gang → its pods above the minimum, which are evicted with the minimum and count as disruptions with it."""
    if not context.preemption.budgets:
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for piece in context.pieces:
        if is_above_minimum(piece.key):
            keys = tuple(key for pod_set in piece.pod_sets for key in pod_set.pod_keys)
            found[workload_key(piece.key)] = (*found.get(workload_key(piece.key), ()), *keys)
    return found


def _place_unqueued(context: DecisionContext, piece: Workload, turn: int, outcomes: list[Outcome]) -> list[Outcome]:
    """`outcomes` with that of the piece, and with those of admissions that were withdrawn for it."""
    if piece.hold or not piece.active:
        code, message = piece.hold_code or "JOB_SUSPENDED", piece.hold or "the workload is not active"
        return [*outcomes, Held(piece.key, code, message, turn)]
    hold = member_hold(context, piece)
    if hold is not None:
        return [*outcomes, _held_for(hold, piece.key, turn)]
    choices = tuple(PodSetChoice(pod_set.name, pod_set.count, {}) for pod_set in piece.pod_sets)
    found = context.placer.place(piece, choices)
    if not found.ok and found.feasible and not is_extra_member(piece):
        # Withdrawing an admission of this pass costs nothing; evicting what runs does.
        withdrawn = withdraw_admissions(piece, choices, outcomes, context.piece_by_key, context.placer)
        if withdrawn is not None:
            found, outcomes = withdrawn
        else:
            evicted: list[Evicted] = []
            found = preempt_by_priority(context, evicted, piece, choices) or found
            outcomes = [*outcomes, *evicted]
    if not found.ok:
        return [*outcomes, Held(piece.key, found.code, found.message, turn)]
    return [*outcomes, Admitted(piece.key, "", choices, found.nodes, found.after, turn)]


def _held_for(reason: Reason, key: str, turn: int) -> Held:
    return Held(key, reason.code, reason.kube_words, turn, reason.remedy)


def _queued_hold(context: DecisionContext, piece: Workload) -> Reason | None:
    """What keeps its pods from starting wherever they were placed; it gets no quota until then."""
    if piece.hold or not piece.active:
        return None
    return member_hold(context, piece)
