"""A gang, and those who have to go for it by priority.

`placement.decision_pass` asks where a gang that is in no queue found no room, or a workload that has its quota.
Member by member, the largest first, places are found on the overlay (`slots`), in each domain that the gang may be
in; that gives sets of victims. The cheapest is then tried for real: the victims off the site, the whole gang placed
by every rule. Whoever turns out not to be needed stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import Ints
from windlass.model.workload import Workload
from windlass.placement.preemption.candidates import Preemptor
from windlass.placement.preemption.context import Preemption
from windlass.placement.preemption.victim_selection import EvictionCost, eviction_cost
from windlass.placement.preemption.victim_units import VictimUnit
from windlass.placement.workload_placer import WorkloadPlacer
from windlass.queueing.placement_interface import PlacementResult, PodSetChoice

MAX_DOMAINS = 16
"""So many domains are compared, those first that have the most room already."""
MAX_REPRIEVED = 16
"""Up to so many victims, each is asked whether it could stay; of more, those who aren't where the gang goes."""


class GangPreemption(NamedTuple):
    """How a gang gets its room."""

    result: PlacementResult
    victims: tuple[VictimUnit, ...]


def preempt_for_gang(
    piece: Workload, choices: tuple[PodSetChoice, ...], placer: WorkloadPlacer, preemption: Preemption
) -> GangPreemption | None:
    """The gang is placed, its victims are off the site; None, and nothing changed, where there is no way.

    One that is in a queue takes nobody's place who is in one.
    """
    if not preemption.may_preempt(preemption.priority_of(piece), piece.preemption_policy):
        return None
    search = _Search(piece, choices, placer, preemption)
    for _ in preemption.budget_attempts():
        found = search.run()
        if found is not None:
            return found
    return None


class _Search:
    def __init__(
        self,
        piece: Workload,
        choices: tuple[PodSetChoice, ...],
        site: WorkloadPlacer,
        preemption: Preemption,
    ) -> None:
        self._piece, self._choices = piece, choices
        self._site, self._preemption = site, preemption
        self._overlay = preemption.overlay
        self._parts, self._tree, _ = site.pending_pod_sets(piece, choices)
        table, snapshot = self._overlay.table, self._overlay.snapshot
        self._rows = [table.row(part.shape, snapshot, part.pod) for part in self._parts]
        self._priority = preemption.priority_of(piece)

    def run(self) -> GangPreemption | None:
        units = self._preemption.freed_resources.units
        gone = self._preemption.victims
        self._site.placed_workloads.track_running(
            unit.workload for unit in units if unit.workload is not None and unit.key not in gone
        )
        seats = self._site.placed_workloads
        queued = bool(self._piece.queue_name)
        there = [
            unit.key not in self._preemption.victims and unit.key in seats and not (queued and unit.is_queued)
            for unit in units
        ]
        proposals: list[tuple[EvictionCost, int, list[VictimUnit]]] = []
        for mask in self._domains(there):
            self._preemption.begin_search(there)
            victims = self._propose(mask)
            if victims:
                proposals.append((eviction_cost(victims), len(proposals), victims))
        self._preemption.begin_search(there)
        for _, _, victims in sorted(proposals, key=lambda one: one[:2]):
            found = self._carry_out(victims)
            if found is not None:
                return found
        return None

    def _ask(self, number: int, member: int, mask: Bools | None) -> Preemptor:
        part = self._parts[number]
        remaining = part.count - member
        return Preemptor(part.pod_at(member), part.shape, self._rows[number], self._priority, remaining, mask)

    def _domains(self, there: Sequence[bool]) -> list[Bools | None]:
        """Sets of nodes that could take all of it if everybody went who may; None stands for all nodes."""
        self._preemption.begin_search(there)
        size = self._overlay.snapshot.nodes.size
        masks: list[Bools | None] = [None]
        wanted = [part.topology for part in self._parts if part.topology is not None]
        required = next((one.level for one in wanted if one.mode == "required"), "")
        if self._tree is not None and required:
            masks = [*self._tree.domains(required, size)]
        fields = [
            self._preemption.candidate_finder.potential_nodes(self._ask(number, 0, None))
            for number, part in enumerate(self._parts)
            if part.count
        ]
        counts = [part.count for part in self._parts if part.count]
        rooms = [np.where(field.feasible, field.fits, 0) for field in fields]
        kept = [
            mask
            for mask in masks
            if all(_within(room, mask) >= count for room, count in zip(rooms, counts, strict=True))
        ]
        if len(kept) > 1:
            now = np.all(fields[0].free >= fields[0].request.amounts, axis=1) & fields[0].feasible
            kept.sort(key=lambda mask: -_within(now.astype(np.int64), mask))
        return kept[:MAX_DOMAINS]

    def _propose(self, mask: Bools | None) -> list[VictimUnit] | None:
        """Who goes if the members find places one after the other; the overlay is left as it was."""
        overlay, preemption = self._overlay, self._preemption
        before = overlay.checkpoint()
        victims: list[VictimUnit] = []
        order = sorted(
            range(len(self._parts)), key=lambda number: (-self._parts[number].shape.gpu_milli, number)
        )
        steps = [(number, member) for number in order for member in range(self._parts[number].count)]
        complete = all(self._find_place(number, member, mask, victims) for number, member in steps)
        overlay.rollback(before)
        preemption.mark_restored(victims)
        return victims if complete else None

    def _find_place(self, number: int, member: int, mask: Bools | None, victims: list[VictimUnit]) -> bool:
        overlay, ask = self._overlay, self._ask(number, member, mask)
        turn = overlay.snapshot.decided_pods + overlay.checkpoint()
        return self._preemption.place_with_victims(ask, turn, victims) is not None

    # For real

    def _carry_out(self, victims: Sequence[VictimUnit]) -> GangPreemption | None:
        before = self._site.checkpoint()
        result = self._place_without(victims)
        if result is None:
            return None
        victims = self._needed(victims, result, before)
        self._site.rollback(before)
        final = self._place_without(victims)
        return None if final is None else GangPreemption(final, tuple(victims))

    def _needed(
        self, victims: Sequence[VictimUnit], result: PlacementResult, before: int
    ) -> list[VictimUnit]:
        """Without those who could as well have stayed, the dearest asked first."""
        kept = list(victims)
        used = {name for part in result.nodes for name in part}
        facts, nodes = self._overlay.snapshot.nodes, self._overlay.snapshot.pods.node
        for unit in sorted(victims, key=lambda one: one.eviction_order, reverse=True):
            elsewhere = used.isdisjoint(facts.names[int(nodes[row])] for row in unit.rows)
            if not elsewhere and len(victims) > MAX_REPRIEVED:
                continue
            rest = [one for one in kept if one is not unit and unit.key not in one.dependents]
            if len(rest) < len(kept) - 1:
                continue
            self._site.rollback(before)
            if self._place_without(rest) is not None:
                kept = rest
        return kept

    def _place_without(self, victims: Sequence[VictimUnit]) -> PlacementResult | None:
        """Placed once these are off the site; None, and nothing changed, where it still has no room."""
        before = self._site.checkpoint()
        for unit in victims:
            if unit.workload is not None:
                self._site.remove(unit.workload)
        result = self._site.place(self._piece, self._choices)
        if result.ok:
            return result
        self._site.rollback(before)
        return None


def _within(room: Ints, mask: Bools | None) -> int:
    return int(room.sum() if mask is None else room[mask].sum())
