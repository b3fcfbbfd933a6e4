"""What an admitted workload uses, what its eviction costs, and whether it may be evicted.

`quota_cache` makes an `AdmittedWorkload` of every workload with an admission; `preemption_common` sorts and filters
them as candidates.
"""

from __future__ import annotations

from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.workload import Workload
from windlass.queueing.config import QueueConfig
from windlass.queueing.quota_node import AdmittedWorkload, QuotaNode, Usage

_MILLIONTHS = 1_000_000


class EvictionCosts:
    """Costs of evictions at one moment, computed when first asked for."""

    __slots__ = ("_cost_of", "config", "now")

    def __init__(self, config: QueueConfig, now: int) -> None:
        self.reset(config, now)

    def reset(self, config: QueueConfig, now: int) -> None:
        self.config, self.now = config, now
        self._cost_of: dict[AdmittedWorkload, tuple[int, int]] = {}

    def of(self, running: AdmittedWorkload) -> tuple[int, int]:
        known = self._cost_of.get(running)
        if known is None:
            known = self._cost_of[running] = _eviction_cost(running, self.config, self.now)
        return known


def make_admitted_workload(workload: Workload, node: QuotaNode, costs: EvictionCosts) -> AdmittedWorkload:
    assert workload.admission is not None, "only a workload that holds quota runs"
    usage: Usage = {}
    for part in workload.admission.assignments:
        amounts = part.usage
        for resource, flavor in part.flavors.items():
            cell = (flavor, resource)
            usage[cell] = usage.get(cell, 0) + amounts.get(resource, 0)
    running = AdmittedWorkload(workload, node, usage, workload.admission.reserved_at)
    running.eviction_costs = costs
    return running


def _eviction_cost(running: AdmittedWorkload, config: QueueConfig, now: int) -> tuple[int, int]:
    """(milli-GPU seconds, 0) for a workload with GPUs, (0, dominant share x seconds) for one without.

    Seconds count from the last checkpoint or the start, plus the restart. The dominant share is the largest part of the
    tree's quota of a resource, in millionths. Tuples compare so that a workload without GPUs always costs less.
    """
    workload = running.workload
    if not running.pod_count:
        return 0, 0  # it has no pods yet
    since = workload.checkpoint_at or workload.started_at or running.reserved_at
    # What is asked stays the victim, whatever becomes cheaper meanwhile: an ask costs a checkpoint.
    elapsed = 0 if workload.is_asked else now - since
    seconds = config.seconds_lost(elapsed, workload.restart_seconds, running.node.name)
    gpus = sum(amount for (_, resource), amount in running.usage.items() if resource == GPU_RESOURCE)
    if gpus:
        return gpus * seconds, 0
    quota = running.node.root.subtree_quota
    # A flavor may have lost all its quota since the workload was admitted.
    shares = [amount * _MILLIONTHS // max(1, quota.get(cell, 0)) for cell, amount in running.usage.items()]
    return 0, max(shares, default=0) * seconds


def may_be_evicted(running: AdmittedWorkload, preemptor: QuotaNode, config: QueueConfig, now: int) -> bool:
    if running.workload.is_stuck(now):
        return False  # its pods don't end, so its quota does not come free
    # Going already, or not started yet: nothing is lost.
    if running.is_evicting or running.is_assumed:
        return True
    if not running.workload.evictable:
        return False
    if running.node is not preemptor and running.node.queue is not None and not running.node.queue.reclaimable:
        return False
    started = running.workload.started_at or running.reserved_at
    minimum = min_run_seconds(running.node, preemptor, config)
    return not minimum or now - started >= minimum


def min_run_seconds(node: QuotaNode, preemptor: QuotaNode, config: QueueConfig) -> int:
    """How long work of a queue runs at least before that of `preemptor` may evict it: as KAI has it, the value of the
    queue, or between queues that of the subtree below their lowest common cohort; else of the next one above."""
    if node.queue is None:
        return config.min_run_seconds
    if node is preemptor:
        own = node.queue.preempt_min_run_seconds
        return config.min_run_seconds if own is None else own
    if not node.queue.reclaim_min_run_seconds:
        return config.min_run_seconds
    others = {preemptor.name, *(above.name for above in preemptor.ancestors())}
    path = [node.name, *(above.name for above in node.ancestors())]
    below = next((place for place, name in enumerate(path) if name in others), len(path)) - 1
    minimums = dict(node.queue.reclaim_min_run_seconds)
    return next((minimums[name] for name in path[below:] if name in minimums), config.min_run_seconds)
