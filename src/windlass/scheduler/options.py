"""Options of the live scheduler. `cli.scheduler` makes them from the command line and the configuration file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from windlass.kube.request_budget import RequestRate
from windlass.model.configuration import Settings
from windlass.scheduler.audit_log import AuditLogOptions


class SchedulerOptions(msgspec.Struct, frozen=True):
    settings: Settings = Settings()
    """Configuration of the engine, scheduler names and node selector; published in the cluster."""
    shadow: bool = False
    """Decide and log, but write nothing."""
    record: Path | None = None
    """Folder for `scheduler.decision_record`."""
    leader_elect: bool = True
    lease_namespace: str = "windlass-system"
    lease_name: str = "windlass-scheduler"
    lease_seconds: float = 15.0
    identity: str = ""
    api_rate: RequestRate = RequestRate()
    """The most that this replica asks of the API server."""
    listen: tuple[str, int] | None = None
    """Address of /healthz, /readyz and /metrics."""
    take_over: frozenset[str] = frozenset()
    """LocalQueues (`namespace/name`) or ClusterQueues that Windlass decides on although Kueue is live."""
    audit: AuditLogOptions = AuditLogOptions()
    """Where admissions and evictions are put on record."""
    history: Path | None = None
    """Folder for the history of the ledger (`scheduler.ledger_recorder`)."""
    prometheus: str = ""
    """URL of the Prometheus that has measured the GPUs."""
    batch_seconds: float = 0.001
    """Seconds between the first change and the decision on it, so that simultaneous changes are one batch."""
    warm_up: bool = True
    """Compile the kernels before the first decision. Interpreted kernels give the same results, more slowly."""
