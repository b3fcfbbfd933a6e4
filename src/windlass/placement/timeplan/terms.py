"""How long workloads run at most, and when those that run will have ended.

Read by everything in this folder. A limit is a deadline that something enforces, a duration that the workload declares,
or what its queue's history says. A declared duration that nobody enforces never counts for less than the configured
history of the queue, so that declaring too little brings nothing. What was collected of earlier runs counts only where
nothing else does.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.model.run_times import RunTimes
from windlass.model.workload import Workload
from windlass.queueing.run_times import Estimate, Estimates

OVERDUE_SECONDS = 60
"""What is past its limit for no longer than this is taken to be ending now; after that, its end is not known."""


class TimeSettings(msgspec.Struct, frozen=True):
    depth: int = 32
    """So many of those that wait get a planned start; 0: none."""
    reservation_lead: int = 86_400
    """So many seconds before a reservation begins, its room is closed to what would run into it."""
    history: dict[str, int] = msgspec.field(default_factory=dict)
    """LocalQueue (`namespace/name`) → seconds within which its workloads have ended so far, as configured."""
    percentile: int = 95
    """Of earlier runs, where no history is configured; 0: they say nothing."""
    collected: Estimates | None = None
    """What earlier runs say."""


def with_collected(settings: TimeSettings, run_times: Mapping[str, RunTimes], now: int) -> TimeSettings:
    """The settings with what earlier runs say now."""
    if not run_times or not settings.percentile:
        return settings
    return msgspec.structs.replace(settings, collected=Estimates(run_times, settings.percentile, now))


LONGEST = 10**10
"""Seconds; a limit beyond it bounds nothing, and would not fit beside a date."""


def limit_of(workload: Workload, settings: TimeSettings) -> int | None:
    """Seconds that it runs at most; None where nothing bounds it."""
    estimate = estimate_of(workload, settings)
    if estimate is not None:
        return estimate.seconds
    declared = workload.max_run_seconds
    known = settings.history.get(f"{workload.namespace}/{workload.queue}") if workload.queue else None
    if declared is None or (known is not None and not workload.limit_enforced):
        return min(max(known or 0, declared or 0), LONGEST) or None
    return min(max(1, declared), LONGEST)


def estimate_of(workload: Workload, settings: TimeSettings) -> Estimate | None:
    """What its limit rests on where only earlier runs of its queue say something; None where it has another or none."""
    if settings.collected is None or workload.max_run_seconds is not None or not workload.queue:
        return None
    queue = f"{workload.namespace}/{workload.queue}"
    return None if queue in settings.history else settings.collected.get(queue)


def end_of(workload: Workload, settings: TimeSettings, now: int) -> int | None:
    """When one that runs will have ended, always after now; None where that is not known."""
    limit = limit_of(workload, settings)
    started = workload.started_at or (workload.admission.reserved_at if workload.admission else 0)
    if limit is None or not started:
        return None
    end = max(started, 0) + limit
    if end > now:
        return end
    if workload.max_run_seconds is not None and not workload.limit_enforced:
        return now + 1  # what it declared is over, and it is stopped in this decision
    return now + 1 if now - end <= OVERDUE_SECONDS else None
