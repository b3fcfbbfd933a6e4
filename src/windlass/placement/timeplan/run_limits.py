"""How long workloads run at most, and when those that run will have ended.

Read by everything in this folder. A limit is a deadline that something enforces, a duration that the workload declares,
or what its queue's history says. A declared duration that nobody enforces never counts for less than the configured
history of the queue, so that declaring too little brings nothing. What was collected of earlier runs counts only where
nothing else does.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.model.run_time_history import RunTimes
from windlass.model.workload import Workload
from windlass.queueing.run_time_estimates import RunTimeEstimate, RunTimeEstimates

OVERDUE_SECONDS = 60
"""What is past its limit for no longer than this is taken to be ending now; after that, its end is not known."""


class PlannedStartSettings(msgspec.Struct, frozen=True):
    depth: int = 32
    """So many of those that wait get a planned start; 0: none."""
    reservation_lead: int = 86_400
    """So many seconds before a reservation begins, its room is closed to what would run into it."""
    history: dict[str, int] = msgspec.field(default_factory=dict)
    """LocalQueue (`namespace/name`) → seconds within which its workloads have ended so far, as configured."""
    percentile: int = 95
    """Of earlier runs, where no history is configured; 0: they say nothing."""
    run_estimates: RunTimeEstimates | None = None
    """What earlier runs say."""


def with_run_estimates(
    settings: PlannedStartSettings, run_times: Mapping[str, RunTimes], now: int
) -> PlannedStartSettings:
    """The settings with what earlier runs say now."""
    if not run_times or not settings.percentile:
        return settings
    return msgspec.structs.replace(
        settings, run_estimates=RunTimeEstimates(run_times, settings.percentile, now)
    )


MAX_LIMIT_SECONDS = 10**10
"""Seconds; a limit beyond it bounds nothing, and would not fit beside a date."""


def run_limit_of(workload: Workload, settings: PlannedStartSettings) -> int | None:
    """Seconds that it runs at most; None where nothing bounds it."""
    estimate = run_estimate_of(workload, settings)
    if estimate is not None:
        return estimate.seconds
    declared = workload.max_run_seconds
    known = (
        settings.history.get(f"{workload.namespace}/{workload.queue_name}") if workload.queue_name else None
    )
    if declared is None or (known is not None and not workload.run_limit_enforced):
        return min(max(known or 0, declared or 0), MAX_LIMIT_SECONDS) or None
    return min(max(1, declared), MAX_LIMIT_SECONDS)


def run_estimate_of(workload: Workload, settings: PlannedStartSettings) -> RunTimeEstimate | None:
    """What its limit rests on where only earlier runs of its queue say something; None where it has another or none."""
    if settings.run_estimates is None or workload.max_run_seconds is not None or not workload.queue_name:
        return None
    queue = f"{workload.namespace}/{workload.queue_name}"
    return None if queue in settings.history else settings.run_estimates.get(queue)


def expected_end(workload: Workload, settings: PlannedStartSettings, now: int) -> int | None:
    """When one that runs will have ended, always after now; None where that is not known."""
    limit = run_limit_of(workload, settings)
    started = workload.started_at or (workload.admission.reserved_at if workload.admission else 0)
    if limit is None or not started:
        return None
    end = max(started, 0) + limit
    if end > now:
        return end
    if workload.max_run_seconds is not None and not workload.run_limit_enforced:
        return now + 1  # what it declared is over, and it is stopped in this decision
    return now + 1 if now - end <= OVERDUE_SECONDS else None
