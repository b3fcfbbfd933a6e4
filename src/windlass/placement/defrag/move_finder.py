"""Finds moves for one waiting workload within a decision: on its overlay, with a small budget.

`explain.move_offers` suggests them in a verdict, `defrag.proactive` executes them. An answer counts only if the moves
can be executed one after another and the workload then fits. That is checked on a copy of the overlay, since the
search has changed its own overlay when it reaches an answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.model.workload import Workload
from windlass.placement.defrag.demand import Demand, demand_of
from windlass.placement.defrag.move_search import NO_CEILING, MoveSearch
from windlass.placement.defrag.move_sequence import MoveSequencer, MoveStep, steps_weight
from windlass.placement.defrag.types import (
    MovablePods,
    MoveSearchResult,
    PodToPlace,
    Relocation,
    SearchLimits,
)
from windlass.placement.defrag.weight_bound import UNPLACEABLE, lower_bound
from windlass.placement.overlay import Overlay
from windlass.placement.workload_placer import WorkloadPlacer
from windlass.queueing.placement_interface import PodSetChoice

MAX_DOMAINS = 64


class FoundMoves(msgspec.Struct, frozen=True):
    """Moves that let a workload start."""

    steps: tuple[MoveStep, ...]
    """In an order in which they can be executed."""
    relocations: tuple[Relocation, ...]
    weight: int


class MoveFinder:
    """Searches on the overlay of a decision, and restores it."""

    def __init__(
        self, overlay: Overlay, placer: WorkloadPlacer, movable_pods: MovablePods, limits: SearchLimits
    ) -> None:
        self._overlay, self._placer, self._movable, self._limits = overlay, placer, movable_pods, limits
        self._trial_overlay = overlay.fork()
        self._trial_placer = placer.copy_onto(self._trial_overlay)

    def find(self, piece: Workload, choices: tuple[PodSetChoice, ...]) -> FoundMoves | None:
        """The lightest moves that were found after which the piece starts with these flavors."""
        demand = demand_of(piece, choices, self._placer, self._overlay)
        best: FoundMoves | None = None
        steps = 0
        for domain in demand.domains[:MAX_DOMAINS]:
            pods = demand.pods_in(domain)
            bound = lower_bound(self._overlay, self._movable, pods)
            if bound >= UNPLACEABLE or steps >= self._limits.steps or (best is not None and best.weight <= bound):
                continue
            ceiling = best.weight if best is not None else NO_CEILING
            result, used = self._search(demand, pods, bound, ceiling, self._limits.steps - steps)
            steps += used
            if result is not None:
                best = FoundMoves(self._sequence(result.relocations), result.relocations, result.weight)
        return best

    def _search(
        self, demand: Demand, pods: Sequence[PodToPlace], bound: int, ceiling: int, steps: int
    ) -> tuple[MoveSearchResult | None, int]:
        limits = msgspec.structs.replace(self._limits, steps=steps)

        def accept(relocations: tuple[Relocation, ...]) -> int | None:
            return self._weigh(demand, relocations)

        search = MoveSearch(self._overlay, self._movable, limits, accept, ceiling)
        search.run(pods, bound)
        return search.found(bound), search.steps

    def _weigh(self, demand: Demand, relocations: tuple[Relocation, ...]) -> int | None:
        overlay, placer = self._trial_overlay, self._trial_placer
        checkpoint, placer_checkpoint = overlay.checkpoint(), placer.checkpoint()
        steps = MoveSequencer(overlay, self._movable).execute(relocations)
        weight = None
        if steps is not None and len(steps) <= self._limits.max_moves:
            weight = steps_weight(steps) if placer.place(demand.piece, demand.choices).ok else None
        placer.rollback(placer_checkpoint)
        overlay.rollback(checkpoint)
        return weight

    def _sequence(self, relocations: tuple[Relocation, ...]) -> tuple[MoveStep, ...]:
        checkpoint = self._trial_overlay.checkpoint()
        steps = MoveSequencer(self._trial_overlay, self._movable).execute(relocations)
        self._trial_overlay.rollback(checkpoint)
        assert steps is not None, "the search has accepted these moves"
        return tuple(steps)
