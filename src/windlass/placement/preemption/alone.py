"""Lone pods in order, of which a refused one may take the place of others.

`engine.decide` hands over the queue. Runs of it go through the same fast loop as without preemption. At the first unit
that is refused and could have a place if others went, everything behind it is undone, it gets its place, and the loop
goes on behind it, in short runs at first: so a pod of lower rank never takes what one before it needs.
"""

from __future__ import annotations

import numpy as np

from windlass.cluster.pods import UNREADABLE
from windlass.model.reasons import Reason
from windlass.placement.overlay import Overlay
from windlass.placement.place import Placed, Placer, table_rows
from windlass.placement.preemption.context import Preemption, preemption_policy
from windlass.placement.preemption.slots import Ask
from windlass.placement.preemption.units import Unit
from windlass.placement.verdicts import Refusal
from windlass.queueing.order import Queue

SHORT_RUN = 16
"""Units after one that has preempted; doubled for every run without another."""


def place_alone(overlay: Overlay, queue: Queue, preemption: Preemption) -> Placed:
    """What became of the queue; victims are off the overlay and settled with `preemption`."""
    pods = overlay.snapshot.pods
    if not len(queue.rows) or not preemption.possible(int(pods.priority[queue.rows].max()), ""):
        return Placer(overlay, queue).run()
    return _Preempting(overlay, queue, preemption).run()


class _Preempting:
    def __init__(self, overlay: Overlay, queue: Queue, preemption: Preemption) -> None:
        self._overlay, self._queue, self._preemption = overlay, queue, preemption
        self._pods = overlay.snapshot.pods
        entries = len(queue.rows)
        self._node = np.full(entries, -1, dtype=np.int64)
        self._grant = np.zeros(entries, dtype=np.uint64)
        self._refusal = np.full(entries, -1, dtype=np.int64)
        self._refusals: list[Refusal] = []
        self._rows = table_rows(overlay, queue)
        self._held: dict[int, Reason] = {}
        self._hopeless: set[tuple[int, int]] = set()
        """(table row, priority) for which nobody who could go would help; room only gets less."""

    def run(self) -> Placed:
        first, end = 0, len(self._queue.units) - 1
        length = end
        while first < end:
            stop = min(end, first + length)
            before = self._overlay.checkpoint()
            part = Placer(self._overlay, self._slice(first, stop)).run()
            turned = self._first_that_may(first, part)
            if turned is None:
                self._keep(first, stop, part)
                first, length = stop, 2 * length
                continue
            placed = part.node[: self._at(turned) - self._at(first)] >= 0
            self._overlay.rollback(before + int(np.count_nonzero(placed)))
            self._keep(first, turned + 1, part)
            first, length = turned + 1, SHORT_RUN
            found = self._preempt(turned)
            # What is like it would be refused as well: no need to ask all nodes first.
            while found and first < end and self._is_like(first, turned):
                found = self._preempt(first)
                first += int(found)
        return Placed(self._node, self._grant, self._refusal, self._refusals, self._held)

    def _at(self, unit: int) -> int:
        return int(self._queue.units[unit])

    def _slice(self, first: int, stop: int) -> Queue:
        units = self._queue.units[first : stop + 1]
        return Queue(self._queue.rows[units[0] : units[-1]], units - units[0], ())

    def _keep(self, first: int, stop: int, part: Placed) -> None:
        """What became of these units in a run that began with the first of them."""
        start, end = self._at(first), self._at(stop)
        count, known = end - start, len(self._refusals)
        self._node[start:end] = part.node[:count]
        self._grant[start:end] = part.grant[:count]
        refused = part.refusal[:count]
        self._refusal[start:end] = np.where(refused >= 0, refused + known, -1)
        self._refusals += part.refusals
        self._held.update({start + at: held for at, held in part.held.items() if at < count})

    def _first_that_may(self, first: int, part: Placed) -> int | None:
        """The first unit that was refused by all nodes, and may preempt, and to which it could help."""
        start = self._at(first)
        refused = np.flatnonzero((part.node < 0) & (part.refusal >= 0)) + start
        units = np.unique(np.searchsorted(self._queue.units, refused, side="right") - 1)
        return next((unit for unit in units.tolist() if self._may(unit)), None)

    def _may(self, unit: int) -> bool:
        asks = self._asks(unit)
        if asks is None:
            return False
        kinds = {(ask.row, ask.priority) for ask in asks}
        return kinds.isdisjoint(self._hopeless)

    def _asks(self, unit: int) -> list[Ask] | None:
        """None where somebody of the unit may not preempt, or can't be read."""
        rows = self._queue.rows[self._at(unit) : self._at(unit + 1)].tolist()
        never = self._overlay.snapshot.system.non_preempting
        asks = []
        for at, row in enumerate(rows, start=self._at(unit)):
            pod, number = self._pods.objects[row], int(self._pods.shape[row])
            priority = int(self._pods.priority[row])
            if number == UNREADABLE or not self._preemption.possible(priority, preemption_policy(pod, never)):
                return None
            asks.append(Ask(pod, self._overlay.snapshot.shapes[number], int(self._rows[at]), priority))
        return asks

    def _is_like(self, unit: int, other: int) -> bool:
        """Two lone pods of one shape and priority, both of which may preempt."""
        alone = all(self._at(one + 1) - self._at(one) == 1 for one in (unit, other))
        mine, theirs = (self._asks(unit), self._asks(other)) if alone else (None, None)
        if not mine or not theirs:
            return False
        return (mine[0].row, mine[0].priority) == (theirs[0].row, theirs[0].priority)

    def _preempt(self, unit: int) -> bool:
        """A place for every pod of the unit, or none."""
        asks = self._asks(unit) or []
        for _ in self._preemption.attempts():
            before = self._overlay.checkpoint()
            units: list[Unit] = []
            if all(self._place(ask, self._at(unit) + i, units) for i, ask in enumerate(asks)):
                self._preemption.settle(units, self._name(unit))
                return True
            self._overlay.rollback(before)
            self._preemption.comes_back(units)
            self._node[self._at(unit) : self._at(unit + 1)] = -1
        if len(asks) == 1:
            self._hopeless.add((asks[0].row, asks[0].priority))
        return False

    def _place(self, ask: Ask, at: int, units: list[Unit]) -> bool:
        placing = self._preemption.take_place(ask, self._overlay.snapshot.decisions + at, units)
        if placing is None:
            return False
        self._node[at], self._grant[at] = placing.node, placing.grant
        return True

    def _name(self, unit: int) -> str:
        row = int(self._queue.rows[self._at(unit)])
        group = int(self._pods.group[row])
        return self._overlay.snapshot.gangs[group].key if group >= 0 else self._pods.objects[row].key
