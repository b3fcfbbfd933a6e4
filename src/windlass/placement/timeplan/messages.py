"""The texts of holds about time: the planned start and what it rests on, or why there is none.

`guard` and `start_planner` put them into verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from windlass.model.names.windlass import DECLARED_DURATION_ANNOTATION
from windlass.model.queue_names import describe_cluster_queue
from windlass.model.times import format_timestamp
from windlass.placement.timeplan.occupancy import Occupancy
from windlass.placement.timeplan.planned_start import PlannedStart, describe_domain
from windlass.queueing.run_time_estimates import RunTimeEstimate

MAX_NAMED_WORKLOADS = 3
RESERVATION_PREFIX = "reservation/"


def delays_plan_message(planned_starts: Sequence[PlannedStart], occupancy: Occupancy) -> str:
    """For a workload that would fit now, but must not delay these planned starts and reservations."""
    first = min(planned_starts, key=lambda planned: (planned.start, planned.turn, planned.key))
    where = describe_domain([pod.node for pod in first.pods], occupancy.overlay.snapshot.nodes)
    start = format_timestamp(first.start)
    if first.reserved_for is not None:
        assert first.end is not None
        name, end = first.key.removeprefix(RESERVATION_PREFIX), format_timestamp(first.end)
        if first.start <= occupancy.now:
            return f"it would fit now, but Reservation {name} holds {where} until {end}"
        return (
            f"it would fit now, but Reservation {name} holds {where} from {start} until {end}; "
            f"set {DECLARED_DURATION_ANNOTATION} so that this workload ends before that"
        )
    others = sum(planned.reserved_for is None for planned in planned_starts) - 1
    more = f" (and {others} more planned start{'s' if others > 1 else ''})" if others else ""
    whose = f" of {describe_cluster_queue(first.queue)}" if first.queue else ""
    return f"it would fit now, but it would delay {first.key}{whose}, which is planned for {start} on {where}{more}"


class StartBasis(NamedTuple):
    """What a planned start rests on."""

    keys: Sequence[str]
    """The workloads and reservations that end before it."""
    estimates: Sequence[RunTimeEstimate]
    """Estimates for those of them whose end is known only from earlier runs of their queue."""


def planned_start_message(start: PlannedStart, basis: StartBasis, ahead: int, occupancy: Occupancy) -> str:
    where = describe_domain([pod.node for pod in start.pods], occupancy.overlay.snapshot.nodes)
    text = f"planned to start at {format_timestamp(start.start)} on {where}"
    if basis.keys:
        verb = "ends" if len(basis.keys) == 1 else "end"
        text += f", when {_names(basis.keys)} {verb} ({_known_from(basis)})"
    return text + workloads_ahead_message(ahead)


def _known_from(basis: StartBasis) -> str:
    """How the ends in the basis are known."""
    if all(key.startswith(RESERVATION_PREFIX) for key in basis.keys):
        return "by its schedule" if len(basis.keys) == 1 else "by their schedule"
    if not basis.estimates:
        return "by run-time limit"
    limits = "by run-time limit, or " if len(basis.estimates) < len(basis.keys) else ""
    texts = list(dict.fromkeys(estimate.text for estimate in basis.estimates))
    others = len(texts) - MAX_NAMED_WORKLOADS
    more = f" and {others} more estimates" if others > 0 else ""
    return f"{limits}{', '.join(texts[:MAX_NAMED_WORKLOADS])}{more}"


def no_planned_start_message(unbounded: Sequence[str], ahead: int) -> str:
    if unbounded:
        verb = "has" if len(unbounded) == 1 else "have"
        text = (
            f"no planned start: {_names(unbounded)} {verb} no run-time limit ({DECLARED_DURATION_ANNOTATION} sets one)"
        )
    else:
        after = " after the workloads ahead of it" if ahead else ""
        text = f"no planned start: no running workload with a known end frees enough for it{after}"
    return text + workloads_ahead_message(ahead)


def beyond_depth_message(depth: int, ahead: int) -> str:
    which = "waiting workload" if depth == 1 else f"{depth} waiting workloads"
    text = f"no planned start: starts are planned for the first {which} only (backfill.depth)"
    return text + workloads_ahead_message(ahead)


def workloads_ahead_message(ahead: int) -> str:
    if not ahead:
        return ""
    return f"; {ahead} workload waits ahead of it" if ahead == 1 else f"; {ahead} workloads wait ahead of it"


def _names(keys: Sequence[str]) -> str:
    named = [
        f"Reservation {key.removeprefix(RESERVATION_PREFIX)}" if key.startswith(RESERVATION_PREFIX) else key
        for key in keys[:MAX_NAMED_WORKLOADS]
    ]
    if len(keys) > MAX_NAMED_WORKLOADS:
        return f"{', '.join(named)} and {len(keys) - MAX_NAMED_WORKLOADS} more"
    return ", ".join(named[:-1]) + (" and " if len(named) > 1 else "") + named[-1]
