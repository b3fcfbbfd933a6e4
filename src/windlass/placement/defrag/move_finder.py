"""Moves for one waiting workload, found within a decision: on its overlay, with a small budget.

`explain.offers` names them in a verdict, and `defrag.proactive` has them made. A set of moves counts only if they can
be carried out one after another and the workload then has its place; that is tried on a copy of the overlay, since the
search's own is in the middle of something whenever it comes to an answer.
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
    """Moves that make room."""

    steps: tuple[MoveStep, ...]
    """In an order in which they can be carried out."""
    relocations: tuple[Relocation, ...]
    weight: int


class MoveFinder:
    """Searches on the overlay of a decision, and leaves it as it was."""

    def __init__(
        self, overlay: Overlay, placer: WorkloadPlacer, movable_pods: MovablePods, limits: SearchLimits
    ) -> None:
        self._overlay, self._site, self._park, self._limits = overlay, placer, movable_pods, limits
        self._stage_overlay = overlay.fork()
        self._stage_site = placer.copy_onto(self._stage_overlay)

    def find(self, piece: Workload, choices: tuple[PodSetChoice, ...]) -> FoundMoves | None:
        """The cheapest moves that were found after which the piece, so chosen, starts."""
        demand = demand_of(piece, choices, self._site, self._overlay)
        best: FoundMoves | None = None
        steps = 0
        for domain in demand.domains[:MAX_DOMAINS]:
            items = demand.pods_in(domain)
            bound = lower_bound(self._overlay, self._park, items)
            if (
                bound >= UNPLACEABLE
                or steps >= self._limits.steps
                or (best is not None and best.weight <= bound)
            ):
                continue
            ceiling = best.weight if best is not None else NO_CEILING
            found, used = self._search(demand, items, bound, ceiling, self._limits.steps - steps)
            steps += used
            if found is not None:
                best = FoundMoves(self._staged(found.relocations), found.relocations, found.weight)
        return best

    def _search(
        self, demand: Demand, items: Sequence[PodToPlace], bound: int, ceiling: int, steps: int
    ) -> tuple[MoveSearchResult | None, int]:
        limits = msgspec.structs.replace(self._limits, steps=steps)

        def accept(relocations: tuple[Relocation, ...]) -> int | None:
            return self._weigh(demand, relocations)

        search = MoveSearch(self._overlay, self._park, limits, accept, ceiling)
        search.run(items, bound)
        return search.found(bound), search.steps

    def _weigh(self, demand: Demand, relocations: tuple[Relocation, ...]) -> int | None:
        overlay, site = self._stage_overlay, self._stage_site
        before, site_before = overlay.checkpoint(), site.checkpoint()
        steps = MoveSequencer(overlay, self._park).execute(relocations)
        weight = None
        if steps is not None and len(steps) <= self._limits.max_moves:
            weight = steps_weight(steps) if site.place(demand.piece, demand.choices).ok else None
        site.rollback(site_before)
        overlay.rollback(before)
        return weight

    def _staged(self, relocations: tuple[Relocation, ...]) -> tuple[MoveStep, ...]:
        before = self._stage_overlay.checkpoint()
        steps = MoveSequencer(self._stage_overlay, self._park).execute(relocations)
        self._stage_overlay.rollback(before)
        assert steps is not None, "it was tried"
        return tuple(steps)
