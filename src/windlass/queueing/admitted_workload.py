"""What a running workload uses, what evicting it would lose, and whether it may be evicted.

`admit` makes a `AdmittedWorkload` of every workload with an admission here; `victims` orders and chooses among them.
"""

from __future__ import annotations

from windlass.model.workload import Workload
from windlass.queueing.config import QueueConfig
from windlass.queueing.quota_node import AdmittedWorkload, FlavorResource, QuotaNode, Usage

GPU = "nvidia.com/gpu"
_PARTS = 1_000_000


class EvictionCosts:
    """What evictions would lose at one moment; worked out for whoever is asked about."""

    __slots__ = ("_known", "config", "now")

    def __init__(self, config: QueueConfig, now: int) -> None:
        self.reset(config, now)

    def reset(self, config: QueueConfig, now: int) -> None:
        """Another moment."""
        self.config, self.now = config, now
        self._known: dict[AdmittedWorkload, tuple[int, int]] = {}

    def of(self, running: AdmittedWorkload) -> tuple[int, int]:
        known = self._known.get(running)
        if known is None:
            known = self._known[running] = _loss(running, self.config, self.now)
        return known


def make_admitted_workload(workload: Workload, node: QuotaNode, losses: EvictionCosts) -> AdmittedWorkload:
    """With what its eviction would lose."""
    assert workload.admission is not None, "only a workload that holds quota runs"
    usage: Usage = {}
    for part in workload.admission.assignments:
        amounts = part.usage
        for resource, flavor in part.flavors.items():
            cell = (flavor, resource)
            usage[cell] = usage.get(cell, 0) + amounts.get(resource, 0)
    running = AdmittedWorkload(workload, node, usage, workload.admission.reserved_at)
    running.eviction_costs = losses
    return running


def _loss(running: AdmittedWorkload, config: QueueConfig, now: int) -> tuple[int, int]:
    """GPU time since the last checkpoint or the start, plus the restart; without GPUs, of its dominant resource.

    The second part is the share of the tree's quota (in millionths) that the largest resource has, times seconds, so
    that work without GPUs is compared among its like and always counts less than work with GPUs.
    """
    workload = running.workload
    if not running.pod_count:
        return 0, 0  # nothing of it exists yet
    since = workload.checkpoint_at or workload.started_at or running.reserved_at
    seconds = config.seconds_lost(now - since, workload.restart_seconds, running.node.name)
    gpus = sum(amount for (_, resource), amount in running.usage.items() if resource == GPU)
    if gpus:
        return gpus * seconds, 0
    whole = running.node.root.subtree_quota
    parts = [amount * _PARTS // max(1, whole.get(cell, 0)) for cell, amount in running.usage.items()]
    return 0, max(parts, default=0) * seconds


def may_be_evicted(running: AdmittedWorkload, config: QueueConfig, now: int) -> bool:
    if running.is_evicting or running.is_assumed:
        return True
    if not running.workload.evictable:
        return False
    started = running.workload.started_at or running.reserved_at
    return not config.min_run_seconds or now - started >= config.min_run_seconds


def uses_any(running: AdmittedWorkload, cells: frozenset[FlavorResource]) -> bool:
    return any(cell in running.usage for cell in cells)
