"""What `admit` returns about each workload; `placement.decisions` turns these into decisions of a plan."""

from __future__ import annotations

import msgspec

from windlass.queueing.placement_interface import HoldMessage, PodSetChoice

IN_CLUSTER_QUEUE = "InClusterQueue"
IN_COHORT_RECLAMATION = "InCohortReclamation"
IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped"
LOCAL_QUEUE_STOPPED = "LocalQueueStopped"
DEACTIVATED = "Deactivated"
NO_MATCHING_WORKLOAD = "NoMatchingWorkload"
"""The owner runs more pods than the workload was admitted with."""
MAXIMUM_EXECUTION_TIME_EXCEEDED = "MaximumExecutionTimeExceeded"
PODS_READY_TIMEOUT = "PodsReadyTimeout"
REQUEUING_LIMIT_EXCEEDED = "RequeuingLimitExceeded"
DEACTIVATING_REASONS = frozenset({MAXIMUM_EXECUTION_TIME_EXCEEDED, REQUEUING_LIMIT_EXCEEDED})
"""Evictions after which the workload is deactivated: it does not start again by itself."""
PRIORITY = "Priority"
"""Preemption outside queues, by PriorityClass."""
LEAVE_NOTICE = "LeaveNotice"
"""Its node goes, or it was told to leave; it has no preemptor."""

BUDGET_OVERRIDE_BY_REASON = {
    IN_COHORT_RECLAMATION: "reclaim",
    IN_COHORT_RECLAIM_WHILE_BORROWING: "reclaim",
    IN_COHORT_FAIR_SHARING: "fairShare",
    IN_CLUSTER_QUEUE: "priority",
    PRIORITY: "priority",
}
"""Reason of an eviction → the value of `budgets_yield_to` that lets it break disruption budgets."""

QUEUE_EVICTION_REASONS = frozenset(
    {
        IN_CLUSTER_QUEUE,
        IN_COHORT_RECLAMATION,
        IN_COHORT_RECLAIM_WHILE_BORROWING,
        IN_COHORT_FAIR_SHARING,
        CLUSTER_QUEUE_STOPPED,
        LOCAL_QUEUE_STOPPED,
        DEACTIVATED,
        NO_MATCHING_WORKLOAD,
        PODS_READY_TIMEOUT,
        *DEACTIVATING_REASONS,
    }
)
"""Evictions that a live Kueue executes by itself where it manages the workload."""

QUOTA_INSUFFICIENT = "KUEUE_QUOTA_INSUFFICIENT"
QUOTA_MISCONFIGURED = "KUEUE_QUOTA_MISCONFIGURED"
QUEUE_MISSING = "KUEUE_QUEUE_MISSING"
SUSPENDED = "JOB_SUSPENDED"
FLAVOR_MISMATCH = "KUEUE_FLAVOR_MISMATCH"
TOPOLOGY_NOFIT = "KUEUE_TOPOLOGY_NOFIT"
BEHIND_HEAD = "QUEUE_BEHIND_HEAD"
LIMIT_REACHED = "QUEUE_LIMIT_REACHED"
"""A limit of its queue for one job or one user."""
ADMISSION_DEFERRED = "ADMISSION_DEFERRED"
"""Not considered in this decision; quota and room were not looked at."""


class Admitted(msgspec.Struct, frozen=True):
    """It gets quota and nodes, as a whole, once the workloads in `after` have ended."""

    workload: str
    cluster_queue: str
    choices: tuple[PodSetChoice, ...]
    nodes: tuple[dict[str, int], ...] = ()
    """Per pod set, in the order of the choices: node → pods."""
    after: tuple[str, ...] = ()
    decided_in_cycle: int = 0
    """The cycle in which it was first decided; see `Held`."""


class Evicted(msgspec.Struct, frozen=True):
    """An admitted workload has to end."""

    workload: str
    preemptor: str
    """The workload that it is evicted for; empty where its queue was stopped."""
    reason: str
    message: str = ""
    """Of a preemption, Kueue's sentence; otherwise the object and the setting that end it."""
    lost: int = 0
    """Milli-GPU-seconds that this eviction loses."""
    least_lost: int = 0
    """Milli-GPU-seconds that any victims for the same preemptor lose together; 0: nothing is known."""


class Held(msgspec.Struct, frozen=True):
    workload: str
    code: str
    message: HoldMessage
    decided_in_cycle: int = 0
    """The cycle in which it was first decided; workloads further back in its queue have a later one."""
    remedy: str = ""
    """What to do, where the reason of the hold says it."""


Outcome = Admitted | Evicted | Held
