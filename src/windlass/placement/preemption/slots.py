"""A place for one pod, with those who have to go for it: vectors propose, the overlay decides.

`alone` and `together` ask for one pod at a time. Nodes are looked at in the order of their estimated cost; on each the
cheapest units that free enough are taken off, and the pod has to fit then, by every rule. Where vectors don't know all
(shares, instances, rules between pods), units go in order until it fits, and whoever isn't needed comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from windlass.cluster.facts import Bools
from windlass.cluster.shape import Shape
from windlass.cluster.state import BLOCKED, Ints
from windlass.model.pod import Pod
from windlass.placement.overlay import Overlay
from windlass.placement.preemption.choice import cheapest, cost_of
from windlass.placement.preemption.ground import Ground, Need
from windlass.placement.preemption.units import Unit

COMPARED = 12
"""So many nodes, those that look cheapest, are compared by what really has to go there."""
MOST_TRIED = 256
"""So many nodes are tried on the overlay before the search gives up."""

Permits = Callable[[Sequence[Unit]], bool]
"""Whether disruption budgets let these go together, beside all who go already."""


def anybody(units: Sequence[Unit]) -> bool:
    """There are no budgets."""
    return True


class Ask(NamedTuple):
    """One pod, or the next of several equal ones."""

    pod: Pod
    shape: Shape
    row: int
    """Of the table."""
    priority: int
    remaining: int = 1
    """So many like it are to be placed: a node that takes several of them at once may be the cheaper one."""
    among: Bools | None = None


class Slot(msgspec.Struct, frozen=True):
    node: int
    victims: tuple[Unit, ...]
    pods: int = 1
    """So many of the pods have room there then."""

    @property
    def price(self) -> tuple[object, ...]:
        """What one of the pods costs there."""
        each = [
            (priority, tuple(amount / self.pods for amount in amounts))
            for priority, amounts in cost_of(self.victims)
        ]
        return each, sorted((-unit.since, unit.uid) for unit in self.victims), self.node


class Field(NamedTuple):
    """The nodes as an ask sees them."""

    need: Need
    free: Ints
    usable: Bools
    """Entries of the ground."""
    feasible: Bools
    fits: Ints
    """[node] so many of the pods would fit if everybody went."""


class Slots:
    """Makes places: what is found has its victims off the overlay; otherwise that is left as it was."""

    def __init__(self, overlay: Overlay, ground: Ground, permits: Permits) -> None:
        self._overlay, self._ground, self._permits = overlay, ground, permits
        self._by_key = {unit.key: unit for unit in ground.units}

    def field(self, ask: Ask) -> Field:
        overlay, ground = self._overlay, self._ground
        need = ground.need(ask.shape)
        usable = ground.usable(ask.priority)
        if self._permits is not anybody and usable.any():
            asked = np.unique(ground.unit[usable]).tolist()
            kept = [number for number in asked if not self._permits([ground.units[number]])]
            usable &= ~np.isin(ground.unit, kept)
        free = ground.free(overlay.state, need)
        most = free + ground.all_freed(need, usable, len(free))
        fits = np.full(len(free), ask.remaining, dtype=np.int64)
        for column, amount in enumerate(need.amounts.tolist()):
            fits = np.minimum(fits, most[:, column] // amount if amount > 0 else fits)
        feasible = (
            (fits > 0) & (overlay.table.cells.static[ask.row] == 0) & (overlay.state.node[:, BLOCKED] == 0)
        )
        if ask.among is not None:
            feasible &= ask.among
        return Field(need, free, usable, feasible, np.maximum(fits, 0))

    def could(self, ask: Ask) -> bool:
        """Whether any node would have enough if everybody of lower priority went."""
        return bool(self.field(ask).feasible.any())

    def make(self, ask: Ask) -> Slot | None:
        field = self.field(ask)
        if not field.feasible.any():
            return None
        found: list[Slot] = []
        unsure: list[int] = []
        for pods, nodes in self._proposals(ask, field):
            for node in nodes[:COMPARED]:
                slot = self._by_vectors(field, node, int(pods[node]))
                if slot is not None:
                    found.append(slot)
                elif node not in unsure:
                    unsure.append(node)
            unsure += [node for node in nodes[COMPARED:MOST_TRIED] if node not in unsure]
        for slot in sorted(found, key=lambda one: one.price):
            if self._makes_room(ask, slot.node, slot.victims, slot.pods):
                return slot
        tried = (self._by_trying(ask, field, node) for node in unsure[:MOST_TRIED])
        last = next((slot for slot in tried if slot is not None), None)
        if last is not None:
            self.take_off(last.victims)
        return last

    def _proposals(self, ask: Ask, field: Field) -> Iterator[tuple[Ints, list[int]]]:
        """How many pods a node is to take, and the nodes in order: for one pod, and for as many as each can take."""
        ones = np.ones_like(field.fits)
        for pods in (ones, field.fits) if ask.remaining > 1 else (ones,):
            wanted = field.need.amounts * np.maximum(pods, 1)[:, None]
            order = self._ground.estimates(field.free, wanted, field.need, field.usable, field.feasible)
            yield pods, order.tolist()

    def _by_vectors(self, field: Field, node: int, pods: int) -> Slot | None:
        """None where vectors see no lack on the node, or budgets forbid what they propose."""
        units, freed = self._ground.on(node, field.usable, field.need)
        lacking = field.need.amounts * pods - field.free[node]
        if np.all(lacking <= 0):
            return None
        chosen = cheapest(units, freed, lacking)
        victims = [units[position] for position in chosen] if chosen is not None else []
        if not victims or not self._permits(victims):
            return None
        return Slot(node, tuple(victims), pods)

    def _by_trying(self, ask: Ask, field: Field, node: int) -> Slot | None:
        """Units go in order, ever more of them, until it fits; then those come back that needn't have gone."""
        units, _ = self._ground.on(node, field.usable, field.need)
        units = self._within_budgets(units)
        count = next((n for n in _doubling(len(units)) if self._fits(ask, node, units[:n], 1)), 0)
        if not count:
            return None
        victims = units[:count]
        for unit in reversed(units[: count - 1]):
            rest = [one for one in victims if one is not unit]
            if self._fits(ask, node, rest, 1):
                victims = rest
        return Slot(node, tuple(victims))

    def _within_budgets(self, units: Sequence[Unit]) -> list[Unit]:
        kept: list[Unit] = []
        for unit in units:
            if self._permits([*kept, unit]):
                kept.append(unit)
        return kept

    def _fits(self, ask: Ask, node: int, victims: Sequence[Unit], pods: int) -> bool:
        before = self._overlay.checkpoint()
        fits = self._makes_room(ask, node, victims, pods)
        self._overlay.rollback(before)
        return fits

    def _makes_room(self, ask: Ask, node: int, victims: Sequence[Unit], pods: int) -> bool:
        """Whether so many pods fit once the victims are gone; then they are."""
        overlay = self._overlay
        before = overlay.checkpoint()
        self.take_off(victims)
        gone = overlay.checkpoint()
        there = 0
        while there < pods and not self._overlay.reasons(ask.pod, ask.row)[node]:
            there += 1
            if there < pods:
                overlay.take(ask.pod, ask.row, node)
        overlay.rollback(gone if there == pods else before)
        return there == pods

    def best(self, ask: Ask, turn: int) -> int:
        """The node to choose if nobody goes; -1 if there is none."""
        why = self._overlay.reasons(ask.pod, ask.row)
        feasible = why == 0 if ask.among is None else (why == 0) & ask.among
        return self._overlay.best(ask.pod, ask.row, why, turn, ask.among) if feasible.any() else -1

    def take_off(self, victims: Sequence[Unit]) -> None:
        """On the overlay, with those whom they drag along."""
        for unit in self.all_of(victims):
            for row in unit.rows:
                self._overlay.remove(row)

    def all_of(self, victims: Sequence[Unit]) -> list[Unit]:
        """The victims and whom they drag along, each once, as far as they are there."""
        names = dict.fromkeys(key for unit in victims for key in (unit.key, *unit.drags))
        units = [self._by_key[name] for name in names if name in self._by_key]
        return [unit for unit in units if self._ground.there[unit.number]]


def _doubling(most: int) -> Iterator[int]:
    """1, 2, 4 … and the most."""
    count = 1
    while count < most:
        yield count
        count *= 2
    if most:
        yield most
