"""The order of the moves for CP-SAT: whoever arrives finds room, with those gone that went before, and no others.

Added to the model of `exact` once an answer turns out to need two pods to change places. Every pod that moves has a
turn. Room at a turn counts who has left by then (at most those who really did) and who has arrived (at least those
who really did), so that auxiliary variables need a bound on one side only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.cluster.node_state import FREE_MILLI
from windlass.cluster.shape import Shape
from windlass.placement.defrag.device_choice import usable_devices
from windlass.placement.defrag.types import MovablePods
from windlass.placement.overlay import Overlay

Linear = Any
"""A variable or a sum of variables of the solver's."""


class PodVariables(msgspec.Struct):
    """A pod that may be put on nodes: a waiting one, or one that may be moved."""

    shape: Shape
    row: int
    node_vars: dict[int, Linear]
    """Node → whether it goes there."""
    device_vars: dict[int, dict[int, Linear]] = msgspec.field(default_factory=dict)
    """Node → device → whether it takes (a part of) that one."""

    def request(self, name: str) -> int:
        return dict(self.shape.requests).get(name, 0)


def add_order_constraints(
    model: Any,
    overlay: Overlay,
    movable_pods: MovablePods,
    stays: Mapping[int, Linear],
    movers: Mapping[int, PodVariables],
) -> None:
    """Every pod that moves does so at a turn of its own, and finds room then."""
    turns = _Turns(model, overlay, movable_pods, stays, movers)
    for number, guest in movers.items():
        for node, here in guest.node_vars.items():
            turns.room_on_node(number, node, here)
            turns.room_on_devices(number, node)


class _Turns:
    def __init__(
        self,
        model: Any,
        overlay: Overlay,
        park: MovablePods,
        stays: Mapping[int, Linear],
        movers: Mapping[int, PodVariables],
    ) -> None:
        self._model, self._overlay, self._park, self._stays, self._movers = (
            model,
            overlay,
            park,
            stays,
            movers,
        )
        turn = {number: model.new_int_var(0, len(movers), "") for number in movers}
        self._before: dict[tuple[int, int], Linear] = {}
        for one in movers:
            for other in movers:
                if one < other:
                    first = model.new_bool_var("")
                    model.add(turn[one] + 1 <= turn[other]).only_enforce_if(first)
                    model.add(turn[other] + 1 <= turn[one]).only_enforce_if(~first)
                    self._before[one, other], self._before[other, one] = first, ~first

    def _left(self, other: int, number: int) -> Linear:
        """Whether the other one has left its node when it is this one's turn; its own place is free then."""
        if other == number:
            return 1
        gone = self._model.new_bool_var("")
        self._model.add_implication(gone, self._before[other, number])
        self._model.add_implication(gone, ~self._stays[other])
        return gone

    def _arrived(self, there: Linear, other: int, number: int) -> Linear:
        """Whether the other one, if it goes `there`, is there by this one's turn."""
        came = self._model.new_bool_var("")
        self._model.add_bool_or([~there, ~self._before[other, number], came])
        return came

    def _others(self, number: int, node: int) -> list[tuple[int, PodVariables]]:
        return [(n, guest) for n, guest in self._movers.items() if n != number and node in guest.node_vars]

    def room_on_node(self, number: int, node: int, here: Linear) -> None:
        guest = self._movers[number]
        free = self._overlay.state.free[node]
        leaving = [n for n in self._park.on_node.get(node, ()) if n in self._movers]
        left = {n: self._left(n, number) for n in leaving}
        came = {n: self._arrived(other.node_vars[node], n, number) for n, other in self._others(number, node)}
        for name, amount in guest.shape.requests:
            given = sum(self._movers[n].request(name) * gone for n, gone in left.items())
            taken = sum(self._movers[n].request(name) * there for n, there in came.items())
            room = int(free[self._overlay.snapshot.resources.column(name)])
            self._model.add(amount + taken <= room + given).only_enforce_if(here)

    def room_on_devices(self, number: int, node: int) -> None:
        guest, state = self._movers[number], self._overlay.state
        devices = state.devices(node)
        for index, milli, _ in usable_devices(self._overlay, guest.shape, guest.row, node):
            if index not in guest.device_vars.get(node, {}):
                continue
            given: Linear = 0
            for other in self._park.on_node.get(node, ()):
                for grant in self._park.pods[other].grants if other in self._movers else ():
                    if grant.index == index:
                        given += grant.milli * self._left(other, number)
            taken: Linear = 0
            for n, other_guest in self._others(number, node):
                there = other_guest.device_vars.get(node, {}).get(index)
                if there is not None:
                    taken += self._takes(other_guest, node)[index] * self._arrived(there, n, number)
            room = int(state.device_occupancy[devices[index], FREE_MILLI])
            self._model.add(milli + taken <= room + given).only_enforce_if(guest.device_vars[node][index])

    def _takes(self, guest: PodVariables, node: int) -> dict[int, int]:
        """Device → milli-GPU that the pod would take of it."""
        usable = usable_devices(self._overlay, guest.shape, guest.row, node)
        return {index: milli for index, milli, _ in usable}
