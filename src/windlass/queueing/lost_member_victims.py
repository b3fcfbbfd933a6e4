"""Victims for members that come in place of lost ones, by the preemption rules of their queue.

`placement.late_pods` calls it. Such a workload holds its quota already, and lacks only nodes. For the search it is off
the quota tree, so that it may evict exactly what it could evict if all of it were stopped and queued again.
"""

from __future__ import annotations

from windlass.model.workload import Workload
from windlass.queueing import classical_preemption, fair_sharing_preemption
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.placement_interface import PlacementInterface, PodSetChoice
from windlass.queueing.preemption_common import PlacementTrial, PreemptionContext, PreemptionRequest, Target
from windlass.queueing.quota_tree import QuotaTree


def find_victims_of_members(
    workload: Workload,
    choices: tuple[PodSetChoice, ...],
    tree: QuotaTree,
    context: PreemptionContext,
    placement: PlacementInterface,
) -> list[Target]:
    """Empty where nothing may be evicted for them, or it wouldn't help. The tree and the overlay are left as they were.

    `tree`: with the usage of all admitted workloads, this one among them.
    """
    node = tree.queues.get(workload.admission.cluster_queue) if workload.admission is not None else None
    own = node.admitted.get(workload.key) if node is not None else None
    if node is None or own is None:
        return []  # its queue is gone, and with it the rules
    own.remove_from_tree()
    pending = PendingWorkload(workload, node, placement)
    trial = PlacementTrial(placement, pending, choices)
    request = PreemptionRequest(pending, own.usage, frozenset(own.usage), context, trial)
    is_fair = context.config.fair_sharing
    find_victims = fair_sharing_preemption.find_victims if is_fair else classical_preemption.find_victims
    targets = find_victims(request)
    if not targets and context.unqueued_candidates is not None:
        request.unqueued = context.unqueued_candidates(workload)
        trial.reset_throttle()
        targets = find_victims(request) if request.unqueued else []
    trial.close()
    own.add_to_tree()
    return targets
