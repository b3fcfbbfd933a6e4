"""Constraints of CP-SAT on the order of the moves: a pod that arrives fits beside the pods that are there by then.

`exact_solver` adds them to its model when an answer turns out to need two pods to change places. Every pod that moves
has a turn. The capacity at a turn counts pods that have left by then (at most those that really have) and pods that
have arrived (at least those that really have), so auxiliary variables need a bound on one side only.
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
"""A variable of the solver, or a sum of variables."""


class PodVariables(msgspec.Struct):
    """The variables of a pod that waits or may be moved."""

    shape: Shape
    row: int
    node_vars: dict[int, Linear]
    """Node → whether the pod goes there."""
    device_vars: dict[int, dict[int, Linear]] = msgspec.field(default_factory=dict)
    """Node → device → whether the pod takes (a share of) it."""

    def request(self, name: str) -> int:
        return dict(self.shape.requests).get(name, 0)


def add_order_constraints(
    model: Any,
    overlay: Overlay,
    movable_pods: MovablePods,
    stays: Mapping[int, Linear],
    moving: Mapping[int, PodVariables],
) -> None:
    """Every pod that moves has a turn of its own, at which its node has enough free."""
    turns = _Turns(model, overlay, movable_pods, stays, moving)
    for number, pod_variables in moving.items():
        for node, here in pod_variables.node_vars.items():
            turns.room_on_node(number, node, here)
            turns.room_on_devices(number, node)


class _Turns:
    def __init__(
        self,
        model: Any,
        overlay: Overlay,
        movable_pods: MovablePods,
        stays: Mapping[int, Linear],
        moving: Mapping[int, PodVariables],
    ) -> None:
        self._model, self._overlay, self._movable = model, overlay, movable_pods
        self._stays, self._moving = stays, moving
        turn = {number: model.new_int_var(0, len(moving), "") for number in moving}
        self._before: dict[tuple[int, int], Linear] = {}
        for number in moving:
            for other in moving:
                if number < other:
                    first = model.new_bool_var("")
                    model.add(turn[number] + 1 <= turn[other]).only_enforce_if(first)
                    model.add(turn[other] + 1 <= turn[number]).only_enforce_if(~first)
                    self._before[number, other], self._before[other, number] = first, ~first

    def _has_left(self, other: int, number: int) -> Linear:
        """Whether the other pod has left its node at this pod's turn; a pod doesn't block itself."""
        if other == number:
            return 1
        has_left = self._model.new_bool_var("")
        self._model.add_implication(has_left, self._before[other, number])
        self._model.add_implication(has_left, ~self._stays[other])
        return has_left

    def _has_arrived(self, there: Linear, other: int, number: int) -> Linear:
        """Whether the other pod, if it goes `there`, has arrived by this pod's turn."""
        has_arrived = self._model.new_bool_var("")
        self._model.add_bool_or([~there, ~self._before[other, number], has_arrived])
        return has_arrived

    def _others(self, number: int, node: int) -> list[tuple[int, PodVariables]]:
        return [(n, pod) for n, pod in self._moving.items() if n != number and node in pod.node_vars]

    def room_on_node(self, number: int, node: int, here: Linear) -> None:
        pod = self._moving[number]
        free = self._overlay.state.free[node]
        leaving = [other for other in self._movable.on_node.get(node, ()) if other in self._moving]
        left = {other: self._has_left(other, number) for other in leaving}
        arrived = {
            other: self._has_arrived(variables.node_vars[node], other, number)
            for other, variables in self._others(number, node)
        }
        for name, amount in pod.shape.requests:
            freed = sum(self._moving[other].request(name) * leaves for other, leaves in left.items())
            taken = sum(self._moving[other].request(name) * arrives for other, arrives in arrived.items())
            free_now = int(free[self._overlay.snapshot.resources.column(name)])
            self._model.add(amount + taken <= free_now + freed).only_enforce_if(here)

    def room_on_devices(self, number: int, node: int) -> None:
        pod, state = self._moving[number], self._overlay.state
        devices = state.devices(node)
        for index, milli, _ in usable_devices(self._overlay, pod.shape, pod.row, node):
            if index not in pod.device_vars.get(node, {}):
                continue
            freed: Linear = 0
            for other in self._movable.on_node.get(node, ()):
                for grant in self._movable.pods[other].grants if other in self._moving else ():
                    if grant.index == index:
                        freed += grant.milli * self._has_left(other, number)
            taken: Linear = 0
            for arriving, variables in self._others(number, node):
                there = variables.device_vars.get(node, {}).get(index)
                if there is not None:
                    share = self._milli_by_device(variables, node)[index]
                    taken += share * self._has_arrived(there, arriving, number)
            free = int(state.device_occupancy[devices[index], FREE_MILLI])
            self._model.add(milli + taken <= free + freed).only_enforce_if(pod.device_vars[node][index])

    def _milli_by_device(self, pod_variables: PodVariables, node: int) -> dict[int, int]:
        """Device → milli-GPU that the pod would take of it."""
        usable = usable_devices(self._overlay, pod_variables.shape, pod_variables.row, node)
        return {index: milli for index, milli, _ in usable}
