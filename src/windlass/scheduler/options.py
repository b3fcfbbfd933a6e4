"""What the live scheduler is told: by its command line, and by its configuration file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from windlass.model.configuration import Settings


class SchedulerOptions(msgspec.Struct, frozen=True):
    settings: Settings = Settings()
    """What the engine is configured with, and which pods and nodes are ours; published in the cluster."""
    shadow: bool = False
    record: Path | None = None
    leader_elect: bool = True
    lease_namespace: str = "windlass-system"
    lease_name: str = "windlass-scheduler"
    lease_seconds: float = 15.0
    identity: str = ""
    listen: tuple[str, int] | None = None
    """Address of /healthz, /readyz and /metrics."""
    take_over: frozenset[str] = frozenset()
    """LocalQueues (`namespace/name`) or ClusterQueues that are ours although Kueue is live."""
    batch_seconds: float = 0.001
    """Seconds between the first change and the decision on it, so that changes that come together are one batch."""
    warm_up: bool = True
    """Compile before the first decision. Without, plain functions decide on small inputs, with equal results."""
