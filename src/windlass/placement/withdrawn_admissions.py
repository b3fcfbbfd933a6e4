"""Withdraws admissions of this decision for an unqueued workload that ranks above them and comes after them.

All queued workloads are decided in one go, in the order of their queues, so a queued workload of low priority may be
admitted before an unqueued gang of higher priority is tried. Starting it would mean evicting it in the next decision.
`placement.decision_pass` asks here where such a gang finds no capacity: admissions of lower priority are withdrawn, the
lowest and latest first, members above a minimum before their gang, until the gang fits. Withdrawn workloads that fit
next to it still start. Admissions for which others are evicted are never withdrawn. A workload for which others were
evicted before (it is nominated) ranks above those of its own priority, too: what was freed for it is its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from windlass.model.verdict import join_sentences
from windlass.model.workload import Workload
from windlass.placement.workload_pieces import eviction_priority, is_above_minimum
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
    """The earlier outcomes, with withdrawn workloads placed elsewhere or held."""


def withdraw_admissions(
    piece: Workload,
    choices: tuple[PodSetChoice, ...],
    outcomes: Sequence[Outcome],
    pieces: Mapping[str, Workload],
    placer: PlacementInterface,
) -> WithdrawnAdmissions | None:
    """Place the piece; None, with nothing changed, where withdrawing doesn't help."""
    candidates = _withdrawable(piece, outcomes, pieces)
    if not candidates or not placer.could_place(piece, choices, [pieces[admitted.workload] for admitted in candidates]):
        return None
    before = placer.checkpoint()
    withdrawn: list[Admitted] = []
    result = PlacementResult(ok=False)
    for admitted in candidates:
        placer.remove(pieces[admitted.workload])
        withdrawn.append(admitted)
        result = placer.place(piece, choices)
        if result.ok:
            break
    if not result.ok:
        placer.rollback(before)
        return None
    return WithdrawnAdmissions(result, _place_again(piece, outcomes, withdrawn, pieces, placer))


def _withdrawable(piece: Workload, outcomes: Sequence[Outcome], pieces: Mapping[str, Workload]) -> list[Admitted]:
    """The admissions that may be withdrawn, in order."""
    found = [
        outcome
        for outcome in outcomes
        if isinstance(outcome, Admitted)
        and outcome.cluster_queue
        # Something is evicted for it, which would then be in vain.
        and not outcome.after
        and not pieces[outcome.workload].nominated
        and eviction_priority(pieces[outcome.workload]) < piece.priority + piece.nominated
    ]
    return sorted(
        found,
        key=lambda admitted: (
            eviction_priority(pieces[admitted.workload]),
            not is_above_minimum(admitted.workload),
            # The latest first: what was admitted earlier has the better claim.
            -admitted.decided_in_cycle,
            admitted.workload,
        ),
    )


def _place_again(
    piece: Workload,
    outcomes: Sequence[Outcome],
    withdrawn: Sequence[Admitted],
    pieces: Mapping[str, Workload],
    placer: PlacementInterface,
) -> list[Outcome]:
    """The outcomes with the withdrawn workloads placed again, where they still fit, or held."""
    keys = {admitted.workload for admitted in withdrawn}
    changed: list[Outcome] = []
    for outcome in outcomes:
        if not isinstance(outcome, Admitted) or outcome.workload not in keys:
            changed.append(outcome)
            continue
        result = placer.place(pieces[outcome.workload], outcome.choices)
        if result.ok:
            changed.append(replace(outcome, nodes=result.nodes, after=result.after))
        else:
            rank = "for which others were evicted" if piece.nominated else "of higher priority"
            instead = f"{piece.key} {rank} starts in its place"
            why = join_sentences([hold_message_text(result.message), instead])
            changed.append(Held(outcome.workload, result.code, why, outcome.decided_in_cycle))
    return changed
