"""What `admit` says about each workload; the engine turns these into decisions of a plan."""

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
PRIORITY = "Priority"
"""Outside queues: a higher PriorityClass."""

BUDGET_OVERRIDE_BY_REASON = {
    IN_COHORT_RECLAMATION: "reclaim",
    IN_COHORT_RECLAIM_WHILE_BORROWING: "reclaim",
    IN_COHORT_FAIR_SHARING: "fairShare",
    IN_CLUSTER_QUEUE: "priority",
    PRIORITY: "priority",
}
"""Reason of an eviction → the word by which an administrator lets disruption budgets yield to it."""

QUEUE_EVICTION_REASONS = frozenset(
    {
        IN_CLUSTER_QUEUE,
        IN_COHORT_RECLAMATION,
        IN_COHORT_RECLAIM_WHILE_BORROWING,
        IN_COHORT_FAIR_SHARING,
        CLUSTER_QUEUE_STOPPED,
        LOCAL_QUEUE_STOPPED,
        DEACTIVATED,
    }
)
"""Reasons that are for whoever decides on the queue to act on."""

QUOTA_INSUFFICIENT = "KUEUE_QUOTA_INSUFFICIENT"
QUOTA_MISCONFIGURED = "KUEUE_QUOTA_MISCONFIGURED"
QUEUE_MISSING = "KUEUE_QUEUE_MISSING"
FLAVOR_MISMATCH = "KUEUE_FLAVOR_MISMATCH"
TOPOLOGY_NOFIT = "KUEUE_TOPOLOGY_NOFIT"
BEHIND_HEAD = "QUEUE_BEHIND_HEAD"


class Admitted(msgspec.Struct, frozen=True):
    """It gets quota and a place, whole, once what stands in `after` is gone."""

    workload: str
    cluster_queue: str
    """ClusterQueue."""
    choices: tuple[PodSetChoice, ...]
    nodes: tuple[dict[str, int], ...] = ()
    """Per pod set, in the order of the choices."""
    after: tuple[str, ...] = ()
    decided_in_cycle: int = 0
    """The round in which it was first decided; see `Held.turn`."""


class Evicted(msgspec.Struct, frozen=True):
    """A running workload has to go."""

    workload: str
    preemptor: str
    """The workload that needs the room; empty where its queue was stopped."""
    reason: str
    message: str = ""


class Held(msgspec.Struct, frozen=True):
    """It waits."""

    workload: str
    code: str
    message: HoldMessage
    decided_in_cycle: int = 0
    """The round in which it was first decided: what is further back in its queue comes in a later one."""


Outcome = Admitted | Evicted | Held
