"""Moves of running pods that would make room for a workload that waits, as an offer in its verdict.

`advisor` asks for them where GPUs are free in pieces. The search is that of `windlass plan defrag`, with a small
budget; what it finds is an offer: nothing is carried out (see `placement.defrag.proactive` for the policy that does).
"""

from __future__ import annotations

from windlass.model.verdict import MoveOffer
from windlass.placement.defrag.movable import Costs, find_movable
from windlass.placement.defrag.quick import QuickMoves
from windlass.placement.defrag.terms import Limits, Park
from windlass.placement.explain.aftermath import Aftermath
from windlass.placement.explain.case import Case

LIMITS = Limits(max_moves=4, steps=400, nodes=12, subsets=4)
MOST_PODS = 64
"""For larger gangs nothing is offered here: `windlass plan defrag` takes its time."""


class Offers:
    """The pods that may be moved are looked up once for all holds of a plan."""

    def __init__(self, after: Aftermath) -> None:
        self._after = after
        self._park: Park | None = None

    def moves(self, case: Case) -> tuple[MoveOffer, ...]:
        if case.choices is None or sum(part.count for part in case.parts) > MOST_PODS:
            return ()
        park, overlay = self._movable(), self._after.overlay
        found = QuickMoves(overlay, self._after.site, park, LIMITS).find(case.piece, case.choices)
        if found is None:
            return ()
        names = overlay.snapshot.facts.names
        return tuple(
            MoveOffer(
                park.movables[step.movable].pod.key,
                names[step.from_node],
                names[step.placing.node],
                step.loss,
            )
            for step in found.steps
        )

    def _movable(self) -> Park:
        if self._park is None:
            snapshot = self._after.overlay.snapshot
            costs = Costs.of(self._after.queues, self._after.now)
            self._park = find_movable(
                snapshot, snapshot.workloads, snapshot.budgets, costs, self._after.pods_leaving()
            )
        return self._park
