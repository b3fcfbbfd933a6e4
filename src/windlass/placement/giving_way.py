"""Who was admitted in this very decision and gives way to a higher priority that comes after it.

Queued work has its turn all at once, in the order of its queues, so that something of low priority may be admitted
before a gang in no queue of a priority in between is looked at. To let it start would only mean to evict it in the next
decision. `placement.admission` asks here first where such a gang finds no room: what was admitted of lower priority is
taken back, the lowest and latest first, members above a minimum before their gang, and only as much as it takes.
Whoever others are evicted for keeps its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from windlass.model.workload import Workload
from windlass.placement.elastic import is_extra, pieces_before
from windlass.queueing.outcome import Admitted, Held, Outcome
from windlass.queueing.site import PlaceResult, PodSetChoice, Site

MOST_ASKED = 32
"""So many of those who could give way are asked whether they could as well have stayed."""


class GaveWay(NamedTuple):
    result: PlaceResult
    outcomes: list[Outcome]
    """As they were, with those who gave way placed elsewhere or held."""


def give_way(
    piece: Workload,
    choices: tuple[PodSetChoice, ...],
    outcomes: Sequence[Outcome],
    pieces: Mapping[str, Workload],
    site: Site,
) -> GaveWay | None:
    """The piece is placed; None, and nothing changed, where taking back doesn't help."""
    fresh = _who_may(piece, outcomes, pieces)
    if not fresh or not site.could_place(piece, choices, [pieces[one.workload] for one in fresh]):
        return None
    before = site.checkpoint()
    withdrawn: list[Admitted] = []
    result = PlaceResult(ok=False)
    for one in fresh:
        site.remove(pieces[one.workload])
        withdrawn.append(one)
        result = site.place(piece, choices)
        if result.ok:
            break
    if not result.ok:
        site.rollback(before)
        return None
    needed = _needed(piece, choices, withdrawn, pieces, site, before)
    site.rollback(before)
    result = _without(piece, choices, needed, pieces, site)
    return GaveWay(result, _again(piece, outcomes, needed, pieces, site))


def _who_may(piece: Workload, outcomes: Sequence[Outcome], pieces: Mapping[str, Workload]) -> list[Admitted]:
    """In the order in which they would go."""
    found = [
        one
        for one in outcomes
        if isinstance(one, Admitted)
        and one.queue
        and not one.after
        and not pieces[one.workload].promised
        and _priority(pieces[one.workload]) < piece.priority
    ]
    return sorted(
        found,
        key=lambda one: (
            _priority(pieces[one.workload]),
            not is_extra(one.workload),
            -one.turn,
            one.workload,
        ),
    )


def _priority(piece: Workload) -> int:
    return max(piece.priority, *(one.pod.spec.priority for one in piece.pod_sets))


def _without(
    piece: Workload,
    choices: tuple[PodSetChoice, ...],
    gone: Sequence[Admitted],
    pieces: Mapping[str, Workload],
    site: Site,
) -> PlaceResult:
    for one in gone:
        site.remove(pieces[one.workload])
    return site.place(piece, choices)


def _needed(
    piece: Workload,
    choices: tuple[PodSetChoice, ...],
    withdrawn: Sequence[Admitted],
    pieces: Mapping[str, Workload],
    site: Site,
    before: int,
) -> list[Admitted]:
    """Without those who could as well have stayed, the last asked first."""
    kept = list(withdrawn)
    for one in list(reversed(withdrawn))[:MOST_ASKED]:
        rest = [other for other in kept if other is not one]
        if any(base in {other.workload for other in rest} for base in pieces_before(one.workload)):
            continue  # it is nothing without its minimum, which goes
        site.rollback(before)
        if _without(piece, choices, rest, pieces, site).ok:
            kept = rest
    return kept


def _again(
    piece: Workload,
    outcomes: Sequence[Outcome],
    gone: Sequence[Admitted],
    pieces: Mapping[str, Workload],
    site: Site,
) -> list[Outcome]:
    """Those who gave way may find another place."""
    keys = {one.workload for one in gone}
    found: list[Outcome] = []
    for one in outcomes:
        if not isinstance(one, Admitted) or one.workload not in keys:
            found.append(one)
            continue
        other = site.place(pieces[one.workload], one.choices)
        if other.ok:
            found.append(Admitted(one.workload, one.queue, one.choices, other.nodes, other.after, one.turn))
        else:
            why = f"{other.message}; {piece.key}, of higher priority, has the place that it could have had"
            found.append(Held(one.workload, other.code, why, one.turn))
    return found
