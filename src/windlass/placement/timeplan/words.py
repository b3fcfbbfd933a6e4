"""What a hold says about time: the planned start and what it rests on, or why there is none.

`guard` and `passes` fill these into verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from windlass.model.times import timestamp_of
from windlass.placement.timeplan.room import Room
from windlass.placement.timeplan.walls import Wall, domain_of
from windlass.queueing.run_times import Estimate

MOST_NAMED = 3
RESERVATION = "reservation/"


def in_the_way(walls: Sequence[Wall], room: Room) -> str:
    """Of a workload that would fit now."""
    plans = [wall for wall in walls if wall.who is None]
    first = min(walls, key=lambda wall: (wall.start, wall.turn, wall.key))
    where = domain_of([seat.node for seat in first.seats], room.overlay.snapshot.facts)
    begins = timestamp_of(first.start)
    if first.who is not None:
        assert first.end is not None
        name = first.key.removeprefix(RESERVATION)
        return (
            f"there is room, but Reservation {name} keeps {where} from {begins} until {timestamp_of(first.end)} "
            "and it has no limit that ends before"
            if first.start > room.now
            else f"there is room, but Reservation {name} keeps {where} until {timestamp_of(first.end)}"
        )
    more = f" (and {len(plans) - 1} more planned starts)" if len(plans) > 1 else ""
    return (
        f"there is room now, but it would delay {first.key}, which is to start at {begins} on {where}{more}"
    )


class Basis(NamedTuple):
    """What a planned start rests on."""

    keys: Sequence[str]
    """Those who will have ended."""
    estimates: Sequence[Estimate]
    """Of those among them whose end is known from earlier runs only."""


def planned(wall: Wall, basis: Basis, ahead: int, room: Room) -> str:
    where = domain_of([seat.node for seat in wall.seats], room.overlay.snapshot.facts)
    text = f"planned to start at {timestamp_of(wall.start)} on {where}"
    if basis.keys:
        verb = "has" if len(basis.keys) == 1 else "have"
        text += f", when {_names(basis.keys)} {verb} ended {_known_by(basis)}"
    return text + ahead_of_it(ahead)


def _known_by(basis: Basis) -> str:
    if all(key.startswith(RESERVATION) for key in basis.keys):
        return "by the calendar"
    if not basis.estimates:
        return "by the run-time limit"
    limits = "by the run-time limit or " if len(basis.estimates) < len(basis.keys) else ""
    said = list(dict.fromkeys(one.text for one in basis.estimates))
    more = f" and so on for {len(said) - MOST_NAMED} more" if len(said) > MOST_NAMED else ""
    return f"{limits}as usual ({', '.join(said[:MOST_NAMED])}{more})"


def not_planned(unbounded: Sequence[str], strict: bool, ahead: int) -> str:
    text = "no planned start: "
    if unbounded:
        text += f"{_names(unbounded)} {'runs' if len(unbounded) == 1 else 'run'} without a known limit"
    else:
        beside = " beside those ahead of it" if ahead else ""
        text += f"no known end of running work makes room for it{beside}"
    rule = "nothing behind it in its queue starts" if strict else "smaller work behind it may start"
    name = "StrictFIFO" if strict else "BestEffortFIFO"
    return f"{text}, so {rule} ({name}){ahead_of_it(ahead)}"


def beyond_depth(depth: int, ahead: int) -> str:
    return f"no planned start: only the first {depth} that wait get one{ahead_of_it(ahead)}"


def ahead_of_it(ahead: int) -> str:
    if not ahead:
        return ""
    return f"; {ahead} workload waits ahead of it" if ahead == 1 else f"; {ahead} workloads wait ahead of it"


def _names(keys: Sequence[str]) -> str:
    named = [
        f"Reservation {key.removeprefix(RESERVATION)}" if key.startswith(RESERVATION) else key
        for key in keys[:MOST_NAMED]
    ]
    if len(keys) > MOST_NAMED:
        return f"{', '.join(named)} and {len(keys) - MOST_NAMED} more"
    return ", ".join(named[:-1]) + (" and " if len(named) > 1 else "") + named[-1]
