"""Moves of running pods that would make room for a workload that waits, as an offer in its verdict.

`advisor` asks for them where GPUs are free in pieces. The search is that of `windlass plan defrag`, with a small
budget; what it finds is an offer: nothing is carried out (see `placement.defrag.proactive` for the policy that does).
"""

from __future__ import annotations

from windlass.model.verdict import MoveOffer
from windlass.placement.defrag.movable import MoveCosts, find_movable_pods
from windlass.placement.defrag.move_finder import MoveFinder
from windlass.placement.defrag.types import MovablePods, SearchLimits
from windlass.placement.explain.held_workload import HeldWorkload
from windlass.placement.explain.post_decision import PostDecisionState

SEARCH_LIMITS = SearchLimits(max_moves=4, steps=400, nodes=12, subsets=4)
MAX_PODS = 64
"""For larger gangs nothing is offered here: `windlass plan defrag` takes its time."""


MAX_SEARCHES = 8
"""Different requests of one plan that moves are looked for."""


class MoveOffers:
    """The pods that may be moved are looked up once for all holds of a plan."""

    def __init__(self, state: PostDecisionState) -> None:
        self._after = state
        self._made: tuple[MovablePods, MoveFinder] | None = None
        self._searches = 0

    def moves(self, case: HeldWorkload) -> tuple[MoveOffer, ...]:
        if case.choices is None or sum(part.count for part in case.pod_sets) > MAX_PODS:
            return ()
        self._searches += 1
        if self._searches > MAX_SEARCHES:
            return ()
        (park, search), overlay = self._tools(), self._after.overlay
        found = search.find(case.piece, case.choices)
        if found is None:
            return ()
        names = overlay.snapshot.nodes.names
        return tuple(
            MoveOffer(
                park.pods[step.pod_number].pod.key,
                names[step.from_node],
                names[step.assumed.node],
                step.loss,
            )
            for step in found.steps
        )

    def _tools(self) -> tuple[MovablePods, MoveFinder]:
        if self._made is None:
            overlay = self._after.overlay
            snapshot, costs = overlay.snapshot, MoveCosts(self._after.now, self._after.queues)
            leaving = self._after.evicted_pods()
            park = find_movable_pods(snapshot, snapshot.workloads, snapshot.budgets, costs, leaving)
            self._made = park, MoveFinder(overlay, self._after.placer, park, SEARCH_LIMITS)
        return self._made
