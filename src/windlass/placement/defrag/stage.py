"""The moves in an order in which they can be carried out, tried on an overlay of its own.

`search` and `exact` say who goes where in the end; here each pod is taken off its node and put on the next, one after
another, and only where there is room when its turn comes. Pods that stand in each other's way get out of it by a stop
on a third node, where one has room. What comes out is what is printed, with the devices that were found on the way.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.placement.defrag.shares import put, usable_devices
from windlass.placement.defrag.terms import ANY, LOSS, POD, Movable, Park, Relocation
from windlass.placement.overlay import Overlay, Placing


class Step(msgspec.Struct, frozen=True):
    """One move."""

    movable: int
    from_node: int
    placing: Placing
    loss: int
    """Milli-GPU-seconds that this move loses."""


class Stage:
    def __init__(self, overlay: Overlay, park: Park) -> None:
        self.overlay, self._park = overlay, park
        self._seats: dict[int, Placing] = {}

    def carry_out(self, relocations: Sequence[Relocation]) -> list[Step] | None:
        """The moves in order, made on the overlay; None, and nothing made, where there is no such order."""
        before = self.overlay.checkpoint()
        self._seats = {}
        steps: list[Step] = []
        charged: set[int] = set()
        left = list(relocations)
        while left:
            ready = next((one for one in left if self._move(one, steps, charged)), None)
            if ready is not None:
                left.remove(ready)
            elif not self._step_aside(left, steps, charged):
                self.overlay.rollback(before)
                return None
        return steps

    def _move(self, goal: Relocation, steps: list[Step], charged: set[int]) -> bool:
        one = self._park.movables[goal.movable]
        before = self.overlay.checkpoint()
        self._take_off(one)
        row = self.overlay.table.row(one.shape, self.overlay.snapshot)
        if self.overlay.reasons(one.pod, row)[goal.node] != 0 or not self._has_room(one, row, goal):
            self.overlay.rollback(before)
            return False
        self._put(one, row, goal, steps, charged)
        return True

    def _has_room(self, one: Movable, row: int, goal: Relocation) -> bool:
        """On the very device that it is meant for, if any."""
        if goal.device == ANY:
            return True
        usable = usable_devices(self.overlay, one.shape, row, goal.node)
        return any(index == goal.device and milli <= free for index, milli, free in usable)

    def _step_aside(self, left: Sequence[Relocation], steps: list[Step], charged: set[int]) -> bool:
        """One of those that block each other waits on a node that has room for it; the cheapest to move again."""
        waiting = [self._park.movables[goal.movable] for goal in left if goal.movable not in self._seats]
        for one in sorted(waiting, key=lambda one: (one.restart, one.number)):
            before = self.overlay.checkpoint()
            self._take_off(one)
            row = self.overlay.table.row(one.shape, self.overlay.snapshot)
            why = self.overlay.reasons(one.pod, row)
            why[one.node] = 1
            node = self.overlay.best(one.pod, row, why, 0, one.allowed)
            if node >= 0:
                self._put(one, row, Relocation(one.number, node), steps, charged)
                return True
            self.overlay.rollback(before)
        return False

    def _take_off(self, one: Movable) -> None:
        seat = self._seats.get(one.number)
        if seat is None:
            self.overlay.remove(one.pod_row)
        else:
            self.overlay.unseat(seat)

    def _put(self, one: Movable, row: int, goal: Relocation, steps: list[Step], charged: set[int]) -> None:
        seat = self._seats.get(one.number)
        placing = put(self.overlay, one.pod, row, goal.node, goal.device)
        self._seats[one.number] = placing
        if seat is not None:
            loss = one.restart
        elif one.charge >= 0 and one.charge not in charged:
            charged.add(one.charge)
            loss = self._park.charges[one.charge].loss
        else:
            loss = one.loss
        steps.append(Step(one.number, one.node if seat is None else seat.node, placing, loss))


def weight_of(steps: Sequence[Step]) -> int:
    return sum(step.loss * LOSS + POD for step in steps)
