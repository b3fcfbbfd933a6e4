"""Places a piece of a workload by evicting others.

`placement.decision_pass` calls it for gangs outside of queues and for queued workloads that have their quota,
`placement.late_pods` for members that come after their workload was admitted: these may also evict what their
workload could evict by the rules of its queue.
"""

from __future__ import annotations

from msgspec.structs import replace

from windlass.model.workload import Workload
from windlass.placement.decision_context import DecisionContext
from windlass.placement.preemption.gang import preempt_for_gang
from windlass.placement.preemption.unqueued_candidates import UnqueuedCandidateFinder
from windlass.placement.preemption.victim_units import own_losses
from windlass.placement.workload_pieces import is_extra_member
from windlass.queueing.admission_state import evicted_for
from windlass.queueing.lost_member_victims import find_victims_of_members
from windlass.queueing.outcome import PRIORITY, Evicted
from windlass.queueing.placement_interface import PlacementResult, PodSetChoice
from windlass.queueing.preemption_common import PreemptionContext


def preempt_by_priority(
    context: DecisionContext, evicted: list[Evicted], piece: Workload, choices: tuple[PodSetChoice, ...]
) -> PlacementResult | None:
    """Place the piece by evicting lower priorities, which are appended to `evicted`; None where that doesn't help."""
    if is_extra_member(piece):
        return None
    found = preempt_for_gang(piece, choices, context.placer, context.preemption)
    if found is None:
        return None
    context.preemption.count_disruptions(found.victims)
    lost = own_losses(found.victims)
    evicted += [
        Evicted(unit.key, piece.key, PRIORITY, lost=lost[unit.key], least_lost=found.least_lost)
        for unit in found.victims
        if not unit.is_terminating
    ]
    after = {*found.result.after, *(unit.key for unit in found.victims)}
    return replace(found.result, after=tuple(sorted(after)))


def preempt_by_queue_rules(
    context: DecisionContext, evicted: list[Evicted], piece: Workload, choices: tuple[PodSetChoice, ...]
) -> PlacementResult | None:
    """The same for a piece that holds its quota, by the preemption rules of its queue."""
    if not piece.queue_name or piece.admission is None or is_extra_member(piece):
        return None
    running = [other for other in context.pieces if other.queue_name and other.admission is not None]
    tree = context.overlay.cache.counted.tree_with_usage(context.system, context.config, context.now, running)
    disruptions = context.preemption.disruptions if context.preemption.budgets else None
    unqueued = UnqueuedCandidateFinder(context.placer, context.preemption)
    rules = PreemptionContext(context.config, context.now, disruptions=disruptions, unqueued_candidates=unqueued)
    targets = find_victims_of_members(piece, choices, tree, rules, context.placer)
    if not targets:
        return None
    before = context.placer.checkpoint()
    for target in targets:
        context.placer.remove(target.victim.workload)
    found = context.placer.place(piece, choices)
    if not found.ok:
        context.placer.rollback(before)
        return None
    going = [target for target in targets if not target.victim.is_evicting]
    if disruptions is not None:
        disruptions.record(disruptions.count_by_budget(*(target.victim.workload for target in going)))
    queue = tree.queues[piece.admission.cluster_queue]
    evicted += [evicted_for(piece, queue, target) for target in going]
    context.mark_evicting({target.victim.key for target in going})
    after = {*found.after, *(target.victim.key for target in targets)}
    return replace(found, after=tuple(sorted(after)))
