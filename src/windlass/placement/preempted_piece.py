"""Places a piece of a workload by evicting lower priorities.

`placement.decision_pass` calls it for gangs outside of queues and for queued workloads that have their quota,
`placement.late_pods` for members that come after their workload was admitted.
"""

from __future__ import annotations

from msgspec.structs import replace

from windlass.model.workload import Workload
from windlass.placement.decision_context import DecisionContext
from windlass.placement.preemption.gang import preempt_for_gang
from windlass.placement.preemption.victim_units import own_losses
from windlass.placement.workload_pieces import is_extra_member
from windlass.queueing.outcome import PRIORITY, Evicted
from windlass.queueing.placement_interface import PlacementResult, PodSetChoice


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
