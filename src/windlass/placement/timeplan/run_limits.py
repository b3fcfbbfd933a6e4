"""How long workloads run at most, and when running workloads end.

Used by all of `timeplan`. A limit is a deadline that Kubernetes enforces, a duration that the workload declares, or the
configured history of its queue. A declared duration that nothing enforces is never less than the configured history, so
that declaring too little gains nothing. Estimates from earlier runs are used only where there is nothing else; a run
that takes longer than its estimate is estimated again, by the earlier runs that took longer, too.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.model.run_time_history import RunTimes, run_shape
from windlass.model.workload import Workload
from windlass.queueing.run_time_estimates import RunTimeEstimate, RunTimeEstimates

OVERDUE_SECONDS = 60
"""A workload that exceeds its limit by no more than this is expected to end now; after that, its end is unknown."""


class PlannedStartSettings(msgspec.Struct, frozen=True):
    depth: int = 32
    """Number of waiting workloads that get a planned start; 0: none."""
    reservation_lead: int = 86_400
    """Seconds before a reservation begins from which on workloads must not run into it."""
    history: dict[str, int] = msgspec.field(default_factory=dict)
    """LocalQueue (`namespace/name`) → seconds within which its workloads end, as configured."""
    percentile: int = 95
    """Percentile of earlier runs that is used as an estimate where no history is configured; 0: no estimates."""
    run_estimates: RunTimeEstimates | None = None
    """Estimates from earlier runs."""


def with_run_estimates(
    settings: PlannedStartSettings, run_times: Mapping[str, RunTimes], now: int
) -> PlannedStartSettings:
    """The settings with estimates from earlier runs."""
    if not run_times or not settings.percentile:
        return settings
    estimates = RunTimeEstimates(run_times, settings.percentile, now)
    return msgspec.structs.replace(settings, run_estimates=estimates)


MAX_LIMIT_SECONDS = 10**10
"""Larger limits are cut to this, so that adding them to a date can't overflow."""


def run_limit_of(workload: Workload, settings: PlannedStartSettings) -> int | None:
    """Seconds that it runs at most; None where nothing limits it."""
    estimate = run_estimate_of(workload, settings)
    if estimate is not None:
        return estimate.seconds
    declared = workload.max_run_seconds
    queue = f"{workload.namespace}/{workload.queue_name}"
    known = settings.history.get(queue) if workload.queue_name else None
    if declared is None or (known is not None and not workload.run_limit_enforced):
        return min(max(known or 0, declared or 0), MAX_LIMIT_SECONDS) or None
    return min(max(1, declared), MAX_LIMIT_SECONDS)


def run_estimate_of(workload: Workload, settings: PlannedStartSettings) -> RunTimeEstimate | None:
    """The estimate from earlier runs of its queue, where its limit rests on nothing else; otherwise None."""
    if settings.run_estimates is None or workload.max_run_seconds is not None or not workload.queue_name:
        return None
    queue = f"{workload.namespace}/{workload.queue_name}"
    if queue in settings.history or not settings.run_estimates.has(queue):
        return None
    return settings.run_estimates.get(queue, run_shape(workload))


def expected_end(workload: Workload, settings: PlannedStartSettings, now: int, refused_until: int = 0) -> int | None:
    """When a running workload ends, always after now; None where that is not known. `refused_until`: the API server
    refuses to evict it before that."""
    limit = run_limit_of(workload, settings)
    started = workload.started_at or (workload.admission.reserved_at if workload.admission else 0)
    if limit is None or not started:
        return None
    end = max(started, 0) + limit
    if workload.max_run_seconds is not None and not workload.run_limit_enforced:
        return max(end, now + 1, refused_until)  # when its declared duration is over, a decision stops it
    if end > now:
        return end
    if now - end <= OVERDUE_SECONDS:
        return now + 1
    longer = _estimate_after(workload, settings, now - started)
    return None if longer is None else started + longer


def _estimate_after(workload: Workload, settings: PlannedStartSettings, elapsed: int) -> int | None:
    """The estimate for a run that has taken longer than its estimate: by those of its queue that took longer still."""
    if settings.run_estimates is None or run_estimate_of(workload, settings) is None:
        return None
    queue = f"{workload.namespace}/{workload.queue_name}"
    return settings.run_estimates.after(queue, run_shape(workload), elapsed)
