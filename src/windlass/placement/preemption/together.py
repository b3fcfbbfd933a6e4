"""A gang, and those who have to go for it by priority.

`placement.rounds` asks where a gang that is in no queue found no room, or a workload that has its quota. Member by
member, the largest first, places are found on the overlay (`slots`), in each domain that the gang may be in; that gives
sets of victims. The cheapest is then tried for real: the victims off the site, the whole gang placed by every rule.
Whoever turns out not to be needed stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from windlass.cluster.facts import Bools
from windlass.cluster.state import Ints
from windlass.model.workload import Workload
from windlass.placement.preemption.choice import Cost, cost_of
from windlass.placement.preemption.context import Preemption
from windlass.placement.preemption.slots import Ask
from windlass.placement.preemption.units import Unit
from windlass.placement.site import OverlaySite
from windlass.queueing.site import PlaceResult, PodSetChoice

MOST_DOMAINS = 16
"""So many domains are compared, those first that have the most room already."""
MOST_WEIGHED = 16
"""Up to so many victims, each is asked whether it could stay; of more, those who aren't where the gang goes."""


class Way(NamedTuple):
    """How a gang gets its room."""

    result: PlaceResult
    victims: tuple[Unit, ...]


def preempt_together(
    piece: Workload, choices: tuple[PodSetChoice, ...], site: OverlaySite, preemption: Preemption
) -> Way | None:
    """The gang is placed, its victims are off the site; None, and nothing changed, where there is no way.

    One that is in a queue takes nobody's place who is in one.
    """
    if not preemption.possible(preemption.priority_of(piece), piece.preemption_policy):
        return None
    search = _Search(piece, choices, site, preemption)
    for _ in preemption.attempts():
        found = search.run()
        if found is not None:
            return found
    return None


class _Search:
    def __init__(
        self,
        piece: Workload,
        choices: tuple[PodSetChoice, ...],
        site: OverlaySite,
        preemption: Preemption,
    ) -> None:
        self._piece, self._choices = piece, choices
        self._site, self._preemption = site, preemption
        self._overlay = preemption.overlay
        self._parts, self._tree, _ = site.parts(piece, choices)
        table, snapshot = self._overlay.table, self._overlay.snapshot
        self._rows = [table.row(part.shape, snapshot, part.pod) for part in self._parts]
        self._priority = preemption.priority_of(piece)

    def run(self) -> Way | None:
        units = self._preemption.ground.units
        gone = self._preemption.gone
        self._site.seats.watch(
            unit.workload for unit in units if unit.workload is not None and unit.key not in gone
        )
        seats = self._site.seats
        queued = bool(self._piece.queue)
        there = [
            unit.key not in self._preemption.gone and unit.key in seats and not (queued and unit.is_queued)
            for unit in units
        ]
        proposals: list[tuple[Cost, int, list[Unit]]] = []
        for mask in self._domains(there):
            self._preemption.begin(there)
            victims = self._propose(mask)
            if victims:
                proposals.append((cost_of(victims), len(proposals), victims))
        self._preemption.begin(there)
        for _, _, victims in sorted(proposals, key=lambda one: one[:2]):
            found = self._carry_out(victims)
            if found is not None:
                return found
        return None

    def _ask(self, number: int, member: int, mask: Bools | None) -> Ask:
        part = self._parts[number]
        remaining = part.count - member
        return Ask(part.member(member), part.shape, self._rows[number], self._priority, remaining, mask)

    def _domains(self, there: Sequence[bool]) -> list[Bools | None]:
        """Sets of nodes that could take all of it if everybody went who may; None stands for all nodes."""
        self._preemption.begin(there)
        size = self._overlay.snapshot.facts.size
        masks: list[Bools | None] = [None]
        wanted = [part.topology for part in self._parts if part.topology is not None]
        required = next((one.level for one in wanted if one.mode == "required"), "")
        if self._tree is not None and required:
            masks = [*self._tree.domains(required, size)]
        fields = [
            self._preemption.slots.field(self._ask(number, 0, None))
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
            now = np.all(fields[0].free >= fields[0].need.amounts, axis=1) & fields[0].feasible
            kept.sort(key=lambda mask: -_within(now.astype(np.int64), mask))
        return kept[:MOST_DOMAINS]

    def _propose(self, mask: Bools | None) -> list[Unit] | None:
        """Who goes if the members find places one after the other; the overlay is left as it was."""
        overlay, preemption = self._overlay, self._preemption
        before = overlay.checkpoint()
        victims: list[Unit] = []
        order = sorted(
            range(len(self._parts)), key=lambda number: (-self._parts[number].shape.gpu_milli, number)
        )
        steps = [(number, member) for number in order for member in range(self._parts[number].count)]
        complete = all(self._find_place(number, member, mask, victims) for number, member in steps)
        overlay.rollback(before)
        preemption.comes_back(victims)
        return victims if complete else None

    def _find_place(self, number: int, member: int, mask: Bools | None, victims: list[Unit]) -> bool:
        overlay, ask = self._overlay, self._ask(number, member, mask)
        turn = overlay.snapshot.decisions + overlay.checkpoint()
        return self._preemption.take_place(ask, turn, victims) is not None

    # For real

    def _carry_out(self, victims: Sequence[Unit]) -> Way | None:
        before = self._site.checkpoint()
        result = self._place_without(victims)
        if result is None:
            return None
        victims = self._needed(victims, result, before)
        self._site.rollback(before)
        final = self._place_without(victims)
        return None if final is None else Way(final, tuple(victims))

    def _needed(self, victims: Sequence[Unit], result: PlaceResult, before: int) -> list[Unit]:
        """Without those who could as well have stayed, the dearest asked first."""
        kept = list(victims)
        used = {name for part in result.nodes for name in part}
        facts, nodes = self._overlay.snapshot.facts, self._overlay.snapshot.pods.node
        for unit in sorted(victims, key=lambda one: one.rank, reverse=True):
            elsewhere = used.isdisjoint(facts.names[int(nodes[row])] for row in unit.rows)
            if not elsewhere and len(victims) > MOST_WEIGHED:
                continue
            rest = [one for one in kept if one is not unit and unit.key not in one.drags]
            if len(rest) < len(kept) - 1:
                continue
            self._site.rollback(before)
            if self._place_without(rest) is not None:
                kept = rest
        return kept

    def _place_without(self, victims: Sequence[Unit]) -> PlaceResult | None:
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
