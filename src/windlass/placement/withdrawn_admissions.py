"""Who was admitted in this very decision and gives way to a higher priority that comes after it.

Queued work has its turn all at once, in the order of its queues, so that something of low priority may be admitted
before a gang in no queue of a priority in between is looked at. To let it start would only mean to evict it in the
next decision. `placement.decision_pass` asks here first where such a gang finds no room: what was admitted of lower
priority is taken back, the lowest and latest first, members above a minimum before their gang, until there is room;
whoever finds a place beside it then still starts. Whoever others are evicted for keeps its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from windlass.model.workload import Workload
from windlass.placement.workload_pieces import is_above_minimum
from windlass.queueing.outcome import Admitted, Held, Outcome
from windlass.queueing.placement_interface import (
    PlacementInterface,
    PlacementResult,
    PodSetChoice,
    hold_message_text,
)


class WithdrawnAdmissions(NamedTuple):
    result: PlacementResult
    outcomes: list[Outcome]
    """As they were, with those who gave way placed elsewhere or held."""


def withdraw_admissions(
    piece: Workload,
    choices: tuple[PodSetChoice, ...],
    outcomes: Sequence[Outcome],
    pieces: Mapping[str, Workload],
    placer: PlacementInterface,
) -> WithdrawnAdmissions | None:
    """The piece is placed; None, and nothing changed, where taking back doesn't help."""
    fresh = _who_may(piece, outcomes, pieces)
    if not fresh or not placer.could_place(piece, choices, [pieces[one.workload] for one in fresh]):
        return None
    before = placer.checkpoint()
    withdrawn: list[Admitted] = []
    result = PlacementResult(ok=False)
    for one in fresh:
        placer.remove(pieces[one.workload])
        withdrawn.append(one)
        result = placer.place(piece, choices)
        if result.ok:
            break
    if not result.ok:
        placer.rollback(before)
        return None
    return WithdrawnAdmissions(result, _again(piece, outcomes, withdrawn, pieces, placer))


def _who_may(piece: Workload, outcomes: Sequence[Outcome], pieces: Mapping[str, Workload]) -> list[Admitted]:
    """In the order in which they would go."""
    found = [
        one
        for one in outcomes
        if isinstance(one, Admitted)
        and one.cluster_queue
        and not one.after
        and not pieces[one.workload].nominated
        and _priority(pieces[one.workload]) < piece.priority
    ]
    return sorted(
        found,
        key=lambda one: (
            _priority(pieces[one.workload]),
            not is_above_minimum(one.workload),
            -one.decided_in_cycle,
            one.workload,
        ),
    )


def _priority(piece: Workload) -> int:
    return max(piece.priority, *(one.template.spec.priority for one in piece.pod_sets))


def _again(
    piece: Workload,
    outcomes: Sequence[Outcome],
    gone: Sequence[Admitted],
    pieces: Mapping[str, Workload],
    site: PlacementInterface,
) -> list[Outcome]:
    """Those who gave way may find another place, or their own, if they were not in the way."""
    keys = {one.workload for one in gone}
    found: list[Outcome] = []
    for one in outcomes:
        if not isinstance(one, Admitted) or one.workload not in keys:
            found.append(one)
            continue
        other = site.place(pieces[one.workload], one.choices)
        if other.ok:
            found.append(
                Admitted(
                    one.workload,
                    one.cluster_queue,
                    one.choices,
                    other.nodes,
                    other.after,
                    one.decided_in_cycle,
                )
            )
        else:
            why = hold_message_text(other.message)
            why = f"{why}; {piece.key}, of higher priority, has the place that it could have had"
            found.append(Held(one.workload, other.code, why, one.decided_in_cycle))
    return found
