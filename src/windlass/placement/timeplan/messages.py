"""What a hold says about time: the planned start and what it rests on, or why there is none.

`guard` and `passes` fill these into verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from windlass.model.times import format_timestamp
from windlass.placement.timeplan.occupancy import Occupancy
from windlass.placement.timeplan.planned_start import PlannedStart, describe_domain
from windlass.queueing.run_time_estimates import RunTimeEstimate

MAX_NAMED_WORKLOADS = 3
RESERVATION_PREFIX = "reservation/"


def delays_plan_message(planned_starts: Sequence[PlannedStart], occupancy: Occupancy) -> str:
    """Of a workload that would fit now."""
    plans = [wall for wall in planned_starts if wall.reserved_for is None]
    first = min(planned_starts, key=lambda wall: (wall.start, wall.turn, wall.key))
    where = describe_domain([seat.node for seat in first.pods], occupancy.overlay.snapshot.nodes)
    begins = format_timestamp(first.start)
    if first.reserved_for is not None:
        assert first.end is not None
        name = first.key.removeprefix(RESERVATION_PREFIX)
        return (
            f"there is room, but Reservation {name} keeps {where} from {begins} until {format_timestamp(first.end)} "
            "and it has no limit that ends before"
            if first.start > occupancy.now
            else f"there is room, but Reservation {name} keeps {where} until {format_timestamp(first.end)}"
        )
    more = f" (and {len(plans) - 1} more planned starts)" if len(plans) > 1 else ""
    return (
        f"there is room now, but it would delay {first.key}, which is to start at {begins} on {where}{more}"
    )


class StartBasis(NamedTuple):
    """What a planned start rests on."""

    keys: Sequence[str]
    """Those who will have ended."""
    estimates: Sequence[RunTimeEstimate]
    """Of those among them whose end is known from earlier runs only."""


def planned_start_message(start: PlannedStart, basis: StartBasis, ahead: int, occupancy: Occupancy) -> str:
    where = describe_domain([seat.node for seat in start.pods], occupancy.overlay.snapshot.nodes)
    text = f"planned to start at {format_timestamp(start.start)} on {where}"
    if basis.keys:
        verb = "has" if len(basis.keys) == 1 else "have"
        text += f", when {_names(basis.keys)} {verb} ended {_known_by(basis)}"
    return text + workloads_ahead_message(ahead)


def _known_by(basis: StartBasis) -> str:
    if all(key.startswith(RESERVATION_PREFIX) for key in basis.keys):
        return "by the calendar"
    if not basis.estimates:
        return "by the run-time limit"
    limits = "by the run-time limit or " if len(basis.estimates) < len(basis.keys) else ""
    said = list(dict.fromkeys(one.text for one in basis.estimates))
    more = f" and so on for {len(said) - MAX_NAMED_WORKLOADS} more" if len(said) > MAX_NAMED_WORKLOADS else ""
    return f"{limits}as usual ({', '.join(said[:MAX_NAMED_WORKLOADS])}{more})"


def no_planned_start_message(unbounded: Sequence[str], strict: bool, ahead: int) -> str:
    text = "no planned start: "
    if unbounded:
        text += f"{_names(unbounded)} {'runs' if len(unbounded) == 1 else 'run'} without a known limit"
    else:
        beside = " beside those ahead of it" if ahead else ""
        text += f"no known end of running work makes room for it{beside}"
    rule = "nothing behind it in its queue starts" if strict else "smaller work behind it may start"
    name = "StrictFIFO" if strict else "BestEffortFIFO"
    return f"{text}, so {rule} ({name}){workloads_ahead_message(ahead)}"


def beyond_depth_message(depth: int, ahead: int) -> str:
    return f"no planned start: only the first {depth} that wait get one{workloads_ahead_message(ahead)}"


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
