"""Moves of running pods that would make room for a held workload, as suggestions in its verdict.

`advisor` calls it where free GPUs are fragmented. The search is that of `windlass plan defrag` with a small budget.
Nothing is executed here; `placement.defrag.proactive` is the policy that does execute moves.
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
"""No moves are suggested for larger gangs: use `windlass plan defrag`, which has a larger budget."""
MAX_SEARCHES = 8
"""Different requests of one plan for which moves are searched."""


class MoveOffers:
    """Finds the movable pods once for all holds of a plan."""

    def __init__(self, state: PostDecisionState) -> None:
        self._state = state
        self._search: tuple[MovablePods, MoveFinder] | None = None
        self._searches = 0

    def moves(self, case: HeldWorkload) -> tuple[MoveOffer, ...]:
        if case.choices is None or sum(pod_set.count for pod_set in case.pod_sets) > MAX_PODS:
            return ()
        self._searches += 1
        if self._searches > MAX_SEARCHES:
            return ()
        (movable, search), overlay = self._make_search(), self._state.overlay
        found = search.find(case.piece, case.choices)
        if found is None:
            return ()
        names = overlay.snapshot.nodes.names
        return tuple(
            MoveOffer(
                movable.pods[step.pod_number].pod.key,
                names[step.from_node],
                names[step.assumed.node],
                step.loss,
            )
            for step in found.steps
        )

    def _make_search(self) -> tuple[MovablePods, MoveFinder]:
        if self._search is None:
            overlay = self._state.overlay
            snapshot, costs = overlay.snapshot, MoveCosts(self._state.now, self._state.queues)
            leaving = self._state.evicted_pods()
            movable = find_movable_pods(snapshot, snapshot.workloads, snapshot.budgets, costs, leaving)
            self._search = movable, MoveFinder(overlay, self._state.placer, movable, SEARCH_LIMITS)
        return self._search
