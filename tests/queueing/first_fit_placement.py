"""A placement on small nodes: all pods of a workload go first-fit or none does, with an undo log."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.model.queue import ResourceFlavor
from windlass.model.workload import PodSet, Workload
from windlass.queueing.flavor_eligibility import flavor_ineligible_reason
from windlass.queueing.placement_interface import PlacementResult, PodSetChoice, UnlimitedPlacement
from windlass.queueing.victim_room import RoomByAmount, VictimRoom

Node = tuple[str, int]


class FirstFitPlacement(UnlimitedPlacement):
    """`free` is in whole CPUs by node; a node of flavor f is named `f-…`."""

    def __init__(self, capacity: dict[str, int], running: list[Workload]) -> None:
        self.free = dict(capacity)
        self.capacity = capacity
        self._log: list[tuple[str, int]] = []
        self._placed: dict[str, dict[str, int]] = {}
        self.tries = 0
        for workload in running:
            assert workload.admission is not None
            for part in workload.admission.assignments:
                for node, pods in part.nodes.items():
                    self.free[node] -= pods * self._cpus(workload)

    def ineligible_reason(self, pod_set: PodSet, flavor: ResourceFlavor) -> str:
        return flavor_ineligible_reason(pod_set.template.spec, flavor)

    def checkpoint(self) -> int:
        return len(self._log)

    def rollback(self, to: int) -> None:
        while len(self._log) > to:
            node, change = self._log.pop()
            self.free[node] -= change

    def remove(self, workload: Workload) -> None:
        self._move(workload, 1)

    def restore(self, workload: Workload) -> None:
        self._move(workload, -1)

    def _move(self, workload: Workload, sign: int) -> None:
        for node, pods in self._held(workload).items():
            self._change(node, sign * pods * self._cpus(workload))

    def _held(self, workload: Workload) -> dict[str, int]:
        """Node → pods."""
        nodes = self._placed.get(workload.key)
        if nodes is None:
            assert workload.admission is not None
            nodes = workload.admission.assignments[0].nodes
        return nodes

    def place(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlacementResult:
        self.tries += 1
        before = self.checkpoint()
        where = []
        for choice in choices:
            nodes: dict[str, int] = {}
            flavor = choice.flavors["cpu"]
            for _ in range(choice.count):
                node = self._first_fit(flavor, self._cpus(workload))
                if node is None:
                    self.rollback(before)
                    biggest = max((room for name, room in self.capacity.items() if name.startswith(flavor)), default=0)
                    feasible = biggest >= self._cpus(workload)
                    return PlacementResult(
                        False, message="no room on any node", code="GPU_FRAGMENTED", feasible=feasible
                    )
                self._change(node, -self._cpus(workload))
                nodes[node] = nodes.get(node, 0) + 1
            where.append(nodes)
        self._placed[workload.key] = where[0]
        return PlacementResult(True, tuple(where))

    def _first_fit(self, flavor: str, cpus: int) -> str | None:
        fitting = (name for name in sorted(self.free) if name.startswith(flavor) and self.free[name] >= cpus)
        return next(fitting, None)

    def _change(self, node: str, change: int) -> None:
        self.free[node] += change
        self._log.append((node, change))

    def _cpus(self, workload: Workload) -> int:
        return self.requests(workload, workload.pod_sets[0])["cpu"] // 1000

    def room(
        self, workload: Workload, choices: tuple[PodSetChoice, ...], units: Sequence[Sequence[Workload]]
    ) -> VictimRoom | None:
        cpus, pods = self._cpus(workload), sum(choice.count for choice in choices)
        nodes = []
        for node, free in self.free.items():
            held = enumerate(self._held(unit[0]).get(node, 0) * self._cpus(unit[0]) for unit in units)
            freed = {unit: amount for unit, amount in held if amount}
            most = min(pods, max(0, free + sum(freed.values())) // cpus)
            if node.startswith(choices[0].flavors["cpu"]):
                lacking = tuple(max(0, count * cpus - free) for count in range(most + 1))
                nodes.append(RoomByAmount(tuple(freed), tuple(freed.values()), lacking))
        return VictimRoom(pods, [nodes], [0])
