"""What an administrator sets for all queues at once.

Read from Kueue's `Configuration` or our `SchedulerConfiguration` by whoever loads files; every module of `queueing`
that has a choice to make reads it here.
"""

from __future__ import annotations

import msgspec

FINAL_SHARE = "LessThanOrEqualToFinalShare"
INITIAL_SHARE = "LessThanInitialShare"


class UsageHistoryConfig(msgspec.Struct, frozen=True):
    """Order inside a usage-based queue by what its local queues consumed so far (Kueue's admissionFairSharing)."""

    half_life_seconds: int = 0
    """After this long, past usage counts half; 0: only what runs now counts."""
    sampling_seconds: int = 300
    """An admission counts at once as this much run time, so that one queue can't take everything in one go."""
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
    """A workload that was preempted so many times preempts others only for what is within its queue's own quota."""
    min_run_seconds: int = 0
    """What runs for less than this is nobody's victim."""
    restart_seconds: int = 0
    """What starting again costs a victim, added to the run time that it loses."""
    lost_seconds_cap: int = 7 * 86400
    """More lost run time than this counts as this much, whatever a tenant declares."""
    lost_seconds_caps: dict[str, int] = msgspec.field(default_factory=dict)
    """The same for the work of single ClusterQueues."""
    budgets_yield_to: tuple[str, ...] = ()
    """`reclaim`, `fairShare`, `priority`: what may break a disruption budget where nothing else helps."""
    max_cycles: int = 1_000_000
    """A bound on the number of rounds; what is undecided then is held."""

    def seconds_lost(self, elapsed: int, declared_restart: int | None, queue: str = "") -> int:
        """What a victim loses, in run time: the work of so many seconds, and the start anew.

        What its owner declares of the start counts within the cap, so that nobody is out of reach by declaring much;
        what the administrator sets counts besides.
        """
        cap = self.lost_seconds_caps.get(queue, self.lost_seconds_cap)
        if declared_restart is not None:
            return min(max(0, elapsed) + declared_restart, cap)
        return min(max(0, elapsed), cap) + self.restart_seconds
