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
from windlass.placement.elastic import is_extra, whole_key
from windlass.placement.filters import pod_holds
from windlass.placement.giving_way import give_way
from windlass.placement.pieces import turn_of
from windlass.placement.preemption.together import preempt_together
from windlass.placement.site import Guard
from windlass.placement.work import Work
from windlass.queueing.admit import admit
from windlass.queueing.node import queue_time
from windlass.queueing.outcome import PRIORITY, Admitted, Evicted, Held, Outcome
from windlass.queueing.site import PlaceResult, PodSetChoice


def decide_once(work: Work, guard: Guard | None) -> list[Outcome]:
    """What becomes of every piece; `guard` keeps those behind out of the room of planned starts before them."""
    work.site.guard = guard
    outcomes = _decide(work)
    work.site.guard = None
    return outcomes


def _decide(work: Work) -> list[Outcome]:
    """What is in no queue and comes before all that is queued, then what is queued, then the rest."""
    before, behind = _unqueued(work)
    disruptions = work.preemption.begin_pass(_dragged(work))
    outcomes: list[Outcome] = []
    for turn, piece in enumerate(before):
        outcomes = _place_unqueued(work, piece, turn, outcomes)
    queued = [piece for piece in work.pieces if piece.queue]
    gated = [piece.key for piece in queued if _is_gated(work, piece)]
    outcomes += [Held(key, SCHEDULING_GATED.code, SCHEDULING_GATED.kube, len(before)) for key in gated]
    queued = [piece for piece in queued if piece.key not in gated] if gated else queued
    gone: list[Outcome] = []
    found = admit(
        work.system,
        queued,
        work.config,
        work.now,
        work.site,
        disruptions,
        work.overlay.recall.counted,
        partial(_place_by_priority, work, gone),
    )
    outcomes += gone
    outcomes += [one for one in found if isinstance(one, Evicted)]
    decided = sorted(
        (one for one in found if not isinstance(one, Evicted)),
        key=lambda one: _rank(one, work.by_key[one.workload]),
    )
    outcomes += [
        msgspec.structs.replace(one, turn=turn) for turn, one in enumerate(decided, start=len(before))
    ]
    for turn, piece in enumerate(behind, start=len(before) + len(queued)):
        outcomes = _place_unqueued(work, piece, turn, outcomes)
    return outcomes


def _rank(outcome: Admitted | Held, piece: Workload) -> tuple[object, ...]:
    """Who comes before whom: by the round, which keeps each queue's own order, then by priority and age."""
    age = (not piece.begun, queue_time(piece))
    return (outcome.turn, not piece.promised, -piece.priority, age, piece.uid or piece.key, piece.key)


def _unqueued(work: Work) -> tuple[list[Workload], list[Workload]]:
    """Gangs and lone pods: those that come before the first that is queued, and the rest, extra members last."""
    waiting = [piece for piece in work.pieces if piece.admission is None]
    ordered = sorted((piece for piece in waiting if not piece.queue), key=turn_of)
    head = min((turn_of(piece)[:-1] for piece in waiting if piece.queue), default=None)
    before = len(ordered) if head is None else sum(turn_of(piece)[:-1] <= head for piece in ordered)
    # Room that others have left for somebody is not taken by what is queued, which has its turn all at once.
    named = (piece.promised and not is_extra(piece.key) for piece in ordered)
    promised = [place for place, is_named in enumerate(named, start=1) if is_named]
    before = max([before, *promised])
    return ordered[:before], ordered[before:]


def _dragged(work: Work) -> dict[str, tuple[str, ...]]:
    """Gang → the pods of its extra members, which don't stay without its minimum."""
    if not work.preemption.budgets:
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for piece in work.pieces:
        if is_extra(piece.key):
            names = tuple(name for one in piece.pod_sets for name in one.pods)
            found[whole_key(piece.key)] = (*found.get(whole_key(piece.key), ()), *names)
    return found


def _place_unqueued(work: Work, piece: Workload, turn: int, outcomes: list[Outcome]) -> list[Outcome]:
    """`outcomes` with its own, and with what changes for those that were admitted before it."""
    if piece.hold or not piece.active:
        code, message = piece.hold_code or "JOB_SUSPENDED", piece.hold or "it is not active"
        return [*outcomes, Held(piece.key, code, message, turn)]
    held = _member_hold(work, piece)
    if held is not None:
        return [*outcomes, Held(piece.key, held.code, held.kube, turn)]
    choices = tuple(PodSetChoice(one.name, one.count, {}) for one in piece.pod_sets)
    found = work.site.place(piece, choices)
    if not found.ok and found.feasible and not is_extra(piece.key):
        way = give_way(piece, choices, outcomes, work.by_key, work.site)
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
    work: Work, gone: list[Outcome], piece: Workload, choices: tuple[PodSetChoice, ...]
) -> PlaceResult | None:
    """At the cost of lower priorities, which are written down in `gone`; None where that doesn't help."""
    if is_extra(piece.key):
        return None
    way = preempt_together(piece, choices, work.site, work.preemption)
    if way is None:
        return None
    work.preemption.note(way.victims)
    gone += [Evicted(unit.key, piece.key, PRIORITY) for unit in way.victims if not unit.leaving]
    after = {*way.result.after, *(unit.key for unit in way.victims)}
    return msgspec.structs.replace(way.result, after=tuple(sorted(after)))


def _is_gated(work: Work, piece: Workload) -> bool:
    """Whether a member of queued work that waits has somebody else's gate: admission lifts none but Kueue's."""
    if not work.gated or piece.admission is not None or piece.hold:
        return False
    return any(not work.gated.isdisjoint(pod_set.pods) for pod_set in piece.pod_sets)


def _member_hold(work: Work, piece: Workload) -> Reason | None:
    """One member that is held, by a gate or a claim that isn't ready, holds all of them."""
    objects = work.snapshot.pods.objects
    members = (objects[work.pod_row[key]] for part in work.waiting_pods(piece) for key in part)
    found = (pod_holds(pod, work.snapshot.objects) for pod in members)
    return next((held for held in found if held is not None), None)
