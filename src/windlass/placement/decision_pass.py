"""One pass over everything that waits: quota, place and preemption, in order, each workload whole or not at all.

`engine.decide` runs it, and once more around the planned starts of those who wait. Queued work goes through
`queueing.admit`, round by round, with the overlay as its site; gangs that are in no queue, and lone pods between them,
are placed by priority and age before and behind it. What finds no room may take that of what was admitted a moment ago
(`giving_way`) or of what runs at a lower priority (`preemption`).
"""

from __future__ import annotations

from functools import partial

import msgspec

from windlass.model.reasons import SCHEDULING_GATED, Reason
from windlass.model.workload import Workload
from windlass.placement.decision_context import DecisionContext
from windlass.placement.filters import prefilter_pod
from windlass.placement.pieces import unqueued_sort_key
from windlass.placement.preemption.gang import preempt_for_gang
from windlass.placement.withdrawn_admissions import withdraw_admissions
from windlass.placement.workload_pieces import is_above_minimum, workload_key
from windlass.placement.workload_placer import PlacementGuard
from windlass.queueing.admit import admit
from windlass.queueing.outcome import PRIORITY, Admitted, Evicted, Held, Outcome
from windlass.queueing.placement_interface import PlacementResult, PodSetChoice
from windlass.queueing.quota_node import queue_order_timestamp


def run_pass(context: DecisionContext, guard: PlacementGuard | None) -> list[Outcome]:
    """What becomes of every piece; `guard` keeps those behind out of the room of planned starts before them."""
    context.placer.guard = guard
    outcomes = _decide(context)
    context.placer.guard = None
    return outcomes


def _decide(work: DecisionContext) -> list[Outcome]:
    """What is in no queue and comes before all that is queued, then what is queued, then the rest."""
    before, behind = _unqueued(work)
    disruptions = work.preemption.begin_pass(_dragged(work))
    outcomes: list[Outcome] = []
    for turn, piece in enumerate(before):
        outcomes = _place_unqueued(work, piece, turn, outcomes)
    queued = [piece for piece in work.pieces if piece.queue_name]
    gated = [piece.key for piece in queued if _is_gated(work, piece)]
    outcomes += [Held(key, SCHEDULING_GATED.code, SCHEDULING_GATED.kube, len(before)) for key in gated]
    queued = [piece for piece in queued if piece.key not in gated] if gated else queued
    gone: list[Outcome] = []
    found = admit(
        work.system,
        queued,
        work.config,
        work.now,
        work.placer,
        disruptions,
        work.overlay.cache.counted,
        partial(_place_by_priority, work, gone),
    )
    outcomes += gone
    outcomes += [one for one in found if isinstance(one, Evicted)]
    decided = sorted(
        (one for one in found if not isinstance(one, Evicted)),
        key=lambda one: _rank(one, work.piece_by_key[one.workload]),
    )
    outcomes += [
        msgspec.structs.replace(one, decided_in_cycle=turn)
        for turn, one in enumerate(decided, start=len(before))
    ]
    for turn, piece in enumerate(behind, start=len(before) + len(queued)):
        outcomes = _place_unqueued(work, piece, turn, outcomes)
    return outcomes


def _rank(outcome: Admitted | Held, piece: Workload) -> tuple[object, ...]:
    """Who comes before whom: by the round, which keeps each queue's own order, then by priority and age."""
    age = (not piece.gang_running, queue_order_timestamp(piece))
    return (
        outcome.decided_in_cycle,
        not piece.nominated,
        -piece.priority,
        age,
        piece.uid or piece.key,
        piece.key,
    )


def _unqueued(work: DecisionContext) -> tuple[list[Workload], list[Workload]]:
    """Gangs and lone pods: those that come before the first that is queued, and the rest, extra members last."""
    waiting = [piece for piece in work.pieces if piece.admission is None]
    ordered = sorted((piece for piece in waiting if not piece.queue_name), key=unqueued_sort_key)
    head = min((unqueued_sort_key(piece)[:-1] for piece in waiting if piece.queue_name), default=None)
    before = len(ordered) if head is None else sum(unqueued_sort_key(piece)[:-1] <= head for piece in ordered)
    # Room that others have left for somebody is not taken by what is queued, which has its turn all at once.
    named = (piece.nominated and not is_above_minimum(piece.key) for piece in ordered)
    promised = [place for place, is_named in enumerate(named, start=1) if is_named]
    before = max([before, *promised])
    return ordered[:before], ordered[before:]


def _dragged(work: DecisionContext) -> dict[str, tuple[str, ...]]:
    """Gang → the pods of its extra members, which don't stay without its minimum."""
    if not work.preemption.budgets:
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for piece in work.pieces:
        if is_above_minimum(piece.key):
            names = tuple(name for one in piece.pod_sets for name in one.pod_keys)
            found[workload_key(piece.key)] = (*found.get(workload_key(piece.key), ()), *names)
    return found


def _place_unqueued(
    work: DecisionContext, piece: Workload, turn: int, outcomes: list[Outcome]
) -> list[Outcome]:
    """`outcomes` with its own, and with what changes for those that were admitted before it."""
    if piece.hold or not piece.active:
        code, message = piece.hold_code or "JOB_SUSPENDED", piece.hold or "it is not active"
        return [*outcomes, Held(piece.key, code, message, turn)]
    held = _member_hold(work, piece)
    if held is not None:
        return [*outcomes, Held(piece.key, held.code, held.kube, turn)]
    choices = tuple(PodSetChoice(one.name, one.count, {}) for one in piece.pod_sets)
    found = work.placer.place(piece, choices)
    if not found.ok and found.feasible and not is_above_minimum(piece.key):
        way = withdraw_admissions(piece, choices, outcomes, work.piece_by_key, work.placer)
        if way is not None:
            found, outcomes = way
        else:
            gone: list[Outcome] = []
            found = _place_by_priority(work, gone, piece, choices) or found
            outcomes = [*outcomes, *gone]
    if not found.ok:
        return [*outcomes, Held(piece.key, found.code, found.message, turn)]
    return [*outcomes, Admitted(piece.key, "", choices, found.nodes, found.after, turn)]


def _place_by_priority(
    work: DecisionContext, gone: list[Outcome], piece: Workload, choices: tuple[PodSetChoice, ...]
) -> PlacementResult | None:
    """At the cost of lower priorities, which are written down in `gone`; None where that doesn't help."""
    if is_above_minimum(piece.key):
        return None
    way = preempt_for_gang(piece, choices, work.placer, work.preemption)
    if way is None:
        return None
    work.preemption.count_disruptions(way.victims)
    gone += [Evicted(unit.key, piece.key, PRIORITY) for unit in way.victims if not unit.is_terminating]
    after = {*way.result.after, *(unit.key for unit in way.victims)}
    return msgspec.structs.replace(way.result, after=tuple(sorted(after)))


def _is_gated(work: DecisionContext, piece: Workload) -> bool:
    """Whether a member of queued work that waits has somebody else's gate: admission lifts none but Kueue's."""
    if not work.gated_pods or piece.admission is not None or piece.hold:
        return False
    return any(not work.gated_pods.isdisjoint(pod_set.pod_keys) for pod_set in piece.pod_sets)


def _member_hold(work: DecisionContext, piece: Workload) -> Reason | None:
    """One member that is held, by a gate or a claim that isn't ready, holds all of them."""
    objects = work.snapshot.pods.objects
    members = (objects[work.pod_row[key]] for part in work.waiting_pods(piece) for key in part)
    found = (prefilter_pod(pod, work.snapshot.listers) for pod in members)
    return next((held for held in found if held is not None), None)
