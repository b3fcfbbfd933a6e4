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


MOST_SEARCHES = 8
"""Different requests of one plan that moves are looked for."""


class Offers:
    """The pods that may be moved are looked up once for all holds of a plan."""

    def __init__(self, after: Aftermath) -> None:
        self._after = after
        self._made: tuple[Park, QuickMoves] | None = None
        self._searches = 0

    def moves(self, case: Case) -> tuple[MoveOffer, ...]:
        if case.choices is None or sum(part.count for part in case.parts) > MOST_PODS:
            return ()
        self._searches += 1
        if self._searches > MOST_SEARCHES:
            return ()
        (park, search), overlay = self._tools(), self._after.overlay
        found = search.find(case.piece, case.choices)
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

    def _tools(self) -> tuple[Park, QuickMoves]:
        if self._made is None:
            overlay = self._after.overlay
            snapshot, costs = overlay.snapshot, Costs(self._after.now, self._after.queues)
            leaving = self._after.pods_leaving()
            park = find_movable(snapshot, snapshot.workloads, snapshot.budgets, costs, leaving)
            self._made = park, QuickMoves(overlay, self._after.site, park, LIMITS)
        return self._made
