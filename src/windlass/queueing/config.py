"""Settings for all queues at once.

`planner.engine_config` fills them from Kueue's `Configuration` or Windlass's `SchedulerConfiguration`; the modules of
`queueing` and `placement.preemption` read them.
"""

from __future__ import annotations

import msgspec

FINAL_SHARE = "LessThanOrEqualToFinalShare"
INITIAL_SHARE = "LessThanInitialShare"


class UsageHistoryConfig(msgspec.Struct, frozen=True):
    """Orders a usage-based queue by what its LocalQueues have consumed (Kueue's admissionFairSharing)."""

    half_life_seconds: int = 0
    """After this long, past usage counts half; 0: only what runs now counts."""
    sampling_seconds: int = 300
    """An admission counts at once as this much run time, so that one LocalQueue can't take everything at once."""
    resource_weights_milli: dict[str, int] = msgspec.field(default_factory=dict)
    """Weight of a resource in thousandths; 1 where it isn't named."""


class QueueConfig(msgspec.Struct, frozen=True):
    fair_sharing: bool = False
    """Order and preempt by dominant resource share instead of by nominal quota and priority."""
    preemption_strategies: tuple[str, ...] = (FINAL_SHARE, INITIAL_SHARE)
    """Fair sharing only: which comparisons of shares allow a preemption, tried in this order."""
    history: UsageHistoryConfig | None = None
    """None: queues are ordered by priority and age alone."""
    partial_admission: bool = True
    ignore_undeclared: bool = False
    """A resource that no group of the queue covers is not counted instead of being refused."""
    max_preemptions_while_borrowing: int = 3
    """A workload preempted this often preempts others only if its queue stays within its own quota."""
    min_run_seconds: int = 0
    """Workloads that run for less than this are not preempted."""
    restart_seconds: int = 0
    """Restart cost of a victim, added to the run time that it loses."""
    lost_seconds_cap: int = 7 * 86400
    """More lost run time than this counts as this much, whatever a tenant declares."""
    lost_seconds_caps: dict[str, int] = msgspec.field(default_factory=dict)
    """ClusterQueue → its own cap instead of `lost_seconds_cap`."""
    budgets_yield_to: tuple[str, ...] = ()
    """`reclaim`, `fairShare`, `priority`: preemptions that may break a disruption budget where nothing else helps."""
    requeues_at_creation: bool = False
    """A workload whose pods were not ready in time is queued again by its creation, not by its eviction."""
    blocks_admission: bool = False
    """One workload is admitted at a time, and none while the pods of an admitted one are not ready."""
    max_cycles: int = 1_000_000
    """Limit of admission cycles in one decision; workloads undecided then are held."""

    def seconds_lost(self, elapsed: int, declared_restart: int | None, queue: str = "") -> int:
        """Run time that an eviction loses: work of `elapsed` seconds, and the restart.

        A restart cost that the owner declares counts within the cap, so that nobody can escape preemption by declaring
        much; the one that the administrator sets is added to it.
        """
        cap = self.lost_seconds_caps.get(queue, self.lost_seconds_cap)
        if declared_restart is not None:
            return min(max(0, elapsed) + declared_restart, cap)
        return min(max(0, elapsed), cap) + self.restart_seconds
