"""The record of an admission or eviction that was carried out: by which plan, why, and for whom.

`apply.executor` and `apply.admission` make them and hand them to the `Auditor` of the scheduler; `scheduler.audit_log`
keeps them, `cli.audit` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from windlass.model.decision import Admit, AdmittedPodSet, Evict
from windlass.model.workload import Workload

ADMITTED, EVICTED = "admitted", "evicted"
DONE = "done"


class PlanId(msgspec.Struct, frozen=True, rename="camel"):
    """Which decision of which replica: by the generation of the snapshot that it was made on, which is the same again
    where `windlass simulate` replays what `scheduler --record` wrote."""

    replica: str = ""
    generation: int = 0


class AuditRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, tag="Audit", tag_field="kind"):
    """One line of the audit log."""

    action: str
    workload: str
    plan: PlanId
    time: str = ""
    """When it was carried out; set by the log."""
    queue: str = ""
    """The ClusterQueue that gives the quota; empty for work outside queues."""
    reason: str = ""
    message: str = ""
    gainer: str = ""
    """The workload that gets the room; empty if it was stopped on its own account."""
    pods: tuple[str, ...] = ()
    pod_sets: tuple[AdmittedPodSet, ...] = ()
    victims: tuple[str, ...] = ()
    """What had to go first."""
    lost_gpu_seconds: int = 0
    result: str = DONE
    """`done`; else the error, and a part of it may have been done."""


class Auditor:
    """Hands records to the audit log, each with the plan that it is part of."""

    def __init__(self, replica: str = "", write: Callable[[AuditRecord], None] = lambda record: None) -> None:
        self.plan = PlanId(replica)
        self.write = write

    def begin_plan(self, generation: int) -> None:
        """What is carried out from now on is of the plan that was made on that snapshot."""
        self.plan = PlanId(self.plan.replica, generation)


def admission_record(admit: Admit, plan: PlanId, pods: Sequence[str] = ()) -> AuditRecord:
    reason = "Preempted" if admit.after else "QuotaReserved"
    return AuditRecord(
        ADMITTED,
        admit.workload,
        plan,
        queue=admit.queue,
        reason=reason,
        gainer=admit.workload,
        pods=tuple(pods),
        pod_sets=admit.pod_sets,
        victims=admit.after,
    )


def eviction_record(evict: Evict, plan: PlanId, pods: Sequence[str], workload: Workload | None) -> AuditRecord:
    return AuditRecord(
        EVICTED,
        evict.workload,
        plan,
        queue=workload.admission.cluster_queue if workload is not None and workload.admission is not None else "",
        reason=evict.reason,
        message=evict.message,
        gainer=evict.for_workload if evict.for_workload != evict.workload else "",
        pods=tuple(pods),
        lost_gpu_seconds=evict.lost_gpu_seconds,
    )
