"""The moves in an order in which they can be carried out, tried on an overlay of its own.

`search` and `exact` say who goes where in the end; here each pod is taken off its node and put on the next, one after
another, and only where there is room when its turn comes. Pods that stand in each other's way get out of it by a stop
on a third node, where one has room. What comes out is what is printed, with the devices that were found on the way.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.placement.defrag.device_choice import assume_on_device, usable_devices
from windlass.placement.defrag.types import (
    ANY_DEVICE,
    LOSS_WEIGHT,
    POD_WEIGHT,
    MovablePod,
    MovablePods,
    Relocation,
)
from windlass.placement.overlay import AssumedPod, Overlay


class MoveStep(msgspec.Struct, frozen=True):
    """One move."""

    pod_number: int
    from_node: int
    assumed: AssumedPod
    loss: int
    """Milli-GPU-seconds that this move loses."""


class MoveSequencer:
    def __init__(self, overlay: Overlay, movable_pods: MovablePods) -> None:
        self.overlay, self._park = overlay, movable_pods
        self._seats: dict[int, AssumedPod] = {}

    def execute(self, relocations: Sequence[Relocation]) -> list[MoveStep] | None:
        """The moves in order, made on the overlay; None, and nothing made, where there is no such order."""
        before = self.overlay.checkpoint()
        self._seats = {}
        steps: list[MoveStep] = []
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

    def _move(self, goal: Relocation, steps: list[MoveStep], charged: set[int]) -> bool:
        one = self._park.pods[goal.pod_number]
        before = self.overlay.checkpoint()
        self._take_off(one)
        row = self.overlay.table.row(one.shape, self.overlay.snapshot)
        if self.overlay.reasons(one.pod, row)[goal.node] != 0 or not self._has_room(one, row, goal):
            self.overlay.rollback(before)
            return False
        self._put(one, row, goal, steps, charged)
        return True

    def _has_room(self, one: MovablePod, row: int, goal: Relocation) -> bool:
        """On the very device that it is meant for, if any."""
        if goal.device == ANY_DEVICE:
            return True
        usable = usable_devices(self.overlay, one.shape, row, goal.node)
        return any(index == goal.device and milli <= free for index, milli, free in usable)

    def _step_aside(self, left: Sequence[Relocation], steps: list[MoveStep], charged: set[int]) -> bool:
        """One of those that block each other waits on a node that has room for it; the cheapest to move again."""
        waiting = [self._park.pods[goal.pod_number] for goal in left if goal.pod_number not in self._seats]
        for one in sorted(waiting, key=lambda one: (one.restart_loss, one.number)):
            before = self.overlay.checkpoint()
            self._take_off(one)
            row = self.overlay.table.row(one.shape, self.overlay.snapshot)
            why = self.overlay.reasons(one.pod, row)
            why[one.node] = 1
            node = self.overlay.select_node(one.pod, row, why, 0, one.allowed)
            if node >= 0:
                self._put(one, row, Relocation(one.number, node), steps, charged)
                return True
            self.overlay.rollback(before)
        return False

    def _take_off(self, one: MovablePod) -> None:
        seat = self._seats.get(one.number)
        if seat is None:
            self.overlay.remove_running(one.pod_row)
        else:
            self.overlay.forget(seat)

    def _put(
        self, one: MovablePod, row: int, goal: Relocation, steps: list[MoveStep], charged: set[int]
    ) -> None:
        seat = self._seats.get(one.number)
        placing = assume_on_device(self.overlay, one.pod, row, goal.node, goal.device)
        self._seats[one.number] = placing
        if seat is not None:
            loss = one.restart_loss
        elif one.gang_loss >= 0 and one.gang_loss not in charged:
            charged.add(one.gang_loss)
            loss = self._park.gang_losses[one.gang_loss].loss
        else:
            loss = one.loss
        steps.append(MoveStep(one.number, one.node if seat is None else seat.node, placing, loss))


def steps_weight(steps: Sequence[MoveStep]) -> int:
    return sum(step.loss * LOSS_WEIGHT + POD_WEIGHT for step in steps)
