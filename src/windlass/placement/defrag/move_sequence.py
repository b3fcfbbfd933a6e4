"""Puts moves into an order in which they can be executed, by executing them on an overlay.

`move_search` and `exact_solver` say which pod ends on which node. Here the pods move one after another, each only
when its node has capacity. Pods that block each other are resolved by an intermediate stop on a third node. The steps
are what `plan defrag` prints, with the devices that the pods get.
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
    pod_number: int
    from_node: int
    assumed: AssumedPod
    loss: int
    """Milli-GPU-seconds that this move loses."""


class MoveSequencer:
    def __init__(self, overlay: Overlay, movable_pods: MovablePods) -> None:
        self.overlay, self._movable = overlay, movable_pods
        self._assumed: dict[int, AssumedPod] = {}

    def execute(self, relocations: Sequence[Relocation]) -> list[MoveStep] | None:
        """The moves in order, executed on the overlay; None, and the overlay unchanged, where there is no order."""
        checkpoint = self.overlay.checkpoint()
        self._assumed = {}
        steps: list[MoveStep] = []
        charged: set[int] = set()
        left = list(relocations)
        while left:
            ready = next((relocation for relocation in left if self._move(relocation, steps, charged)), None)
            if ready is not None:
                left.remove(ready)
            elif not self._move_aside(left, steps, charged):
                self.overlay.rollback(checkpoint)
                return None
        return steps

    def _move(self, relocation: Relocation, steps: list[MoveStep], charged: set[int]) -> bool:
        movable = self._movable.pods[relocation.pod_number]
        checkpoint = self.overlay.checkpoint()
        self._remove(movable)
        row = self.overlay.table.row(movable.shape, self.overlay.snapshot)
        if self.overlay.reasons(movable.pod, row)[relocation.node] != 0 or not self._has_room(movable, row, relocation):
            self.overlay.rollback(checkpoint)
            return False
        self._place(movable, row, relocation, steps, charged)
        return True

    def _has_room(self, movable: MovablePod, row: int, relocation: Relocation) -> bool:
        """Whether the device of the relocation, if it names one, has enough free."""
        if relocation.device == ANY_DEVICE:
            return True
        usable = usable_devices(self.overlay, movable.shape, row, relocation.node)
        return any(index == relocation.device and milli <= free for index, milli, free in usable)

    def _move_aside(self, left: Sequence[Relocation], steps: list[MoveStep], charged: set[int]) -> bool:
        """Move one of the blocked pods to any other node with capacity, the cheapest to restart first."""
        waiting = [
            self._movable.pods[relocation.pod_number]
            for relocation in left
            if relocation.pod_number not in self._assumed
        ]
        for movable in sorted(waiting, key=lambda movable: (movable.restart_loss, movable.number)):
            checkpoint = self.overlay.checkpoint()
            self._remove(movable)
            row = self.overlay.table.row(movable.shape, self.overlay.snapshot)
            reasons = self.overlay.reasons(movable.pod, row)
            reasons[movable.node] = 1
            node = self.overlay.select_node(movable.pod, row, reasons, 0, movable.allowed)
            if node >= 0:
                self._place(movable, row, Relocation(movable.number, node), steps, charged)
                return True
            self.overlay.rollback(checkpoint)
        return False

    def _remove(self, movable: MovablePod) -> None:
        assumed = self._assumed.get(movable.number)
        if assumed is None:
            self.overlay.remove_running(movable.pod_row)
        else:
            self.overlay.forget(assumed)

    def _place(
        self, movable: MovablePod, row: int, relocation: Relocation, steps: list[MoveStep], charged: set[int]
    ) -> None:
        earlier = self._assumed.get(movable.number)
        assumed = assume_on_device(self.overlay, movable.pod, row, relocation.node, relocation.device)
        self._assumed[movable.number] = assumed
        if earlier is not None:
            loss = movable.restart_loss
        elif movable.gang_loss >= 0 and movable.gang_loss not in charged:
            charged.add(movable.gang_loss)
            loss = self._movable.gang_losses[movable.gang_loss].loss
        else:
            loss = movable.loss
        from_node = movable.node if earlier is None else earlier.node
        steps.append(MoveStep(movable.number, from_node, assumed, loss))


def steps_weight(steps: Sequence[MoveStep]) -> int:
    return sum(step.loss * LOSS_WEIGHT + POD_WEIGHT for step in steps)
