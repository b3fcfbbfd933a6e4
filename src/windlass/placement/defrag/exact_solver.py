"""The same problem for CP-SAT: who stays, who goes where, and where the waiting pods go, at the least weight.

Asked on demand (`windlass plan defrag --exact`) and by tests that compare the search with it. OR-Tools is an extra and
is imported when it is asked. One worker, a fixed seed and a limit in the solver's own deterministic time: the same
input gives the same answer. First the lost work is minimised, then the number of pods with that much lost.

In the model: every resource of every node, every device and share, flavors and topology as sets of nodes, disruption
budgets, gangs that lose their work once. Not in it: MIG instances made on demand, time-sliced replicas, and rules
between pods; where the waiting pods have such, the question is refused, and running pods that have them stay. The order
of the moves comes in (`exact_order`) once an answer turns out to have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import FREE_MILLI, REPLICAS
from windlass.cluster.shape import Shape
from windlass.model.errors import InputError
from windlass.placement.defrag.device_choice import is_gpu_share, usable_devices
from windlass.placement.defrag.exact_solver_order import Linear, PodVariables, add_order_constraints
from windlass.placement.defrag.types import (
    ANY_DEVICE,
    MovablePods,
    MoveSearchResult,
    PodToPlace,
    Relocation,
    SearchLimits,
)
from windlass.placement.overlay import Overlay

TryMoves = Callable[[tuple[Relocation, ...]], int | None]
MAX_CELLS = 200_000
"""Pods times nodes, the largest instance that is put to the solver."""
MAX_REJECTED_ANSWERS = 8
"""Answers that may turn out not to be carried out before it gives up."""
DETERMINISTIC_TIME_LIMIT = 30.0
"""Limit of one solve in the solver's deterministic time."""
MAX_ORDER_PAIRS = 100_000
"""Pairs of pods times nodes up to which the order of the moves is put to the solver as well."""


def solve_exactly(
    overlay: Overlay,
    movable_pods: MovablePods,
    pods: Sequence[PodToPlace],
    limits: SearchLimits,
    accept: TryMoves,
) -> MoveSearchResult | None:
    """The lightest set of moves that can be carried out; None where there is none."""
    return _Model(overlay, movable_pods, pods, limits).solve(accept)


def load_solver() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise InputError(
            "the exact answer needs OR-Tools, which is not installed",
            remedy="pip install 'windlass[exact]', or leave --exact out",
        ) from error
    return cp_model


class _Model:
    def __init__(
        self, overlay: Overlay, park: MovablePods, items: Sequence[PodToPlace], limits: SearchLimits
    ) -> None:
        self._solver = load_solver()
        self._model = self._solver.CpModel()
        self._overlay, self._park = overlay, park
        self._mobile = [one.number for one in park.pods if not self._is_beyond(one.shape, one.pod)]
        self._is_whole = len(self._mobile) == len(park.pods)
        """Nothing is missing in the model, and it was solved to the end."""
        for item in items:
            if self._is_beyond(item.shape, item.pod):
                raise InputError(
                    "has rules about other pods, or asks for a MIG instance, which the solver's model lacks",
                    object=f"Pod {item.pod.key}",
                    remedy="leave --exact out",
                )
        if (len(items) + len(self._mobile)) * overlay.snapshot.nodes.size > MAX_CELLS:
            raise InputError(
                f"{len(items) + len(self._mobile)} pods on {overlay.snapshot.nodes.size} nodes are too many to ask "
                "for the exact answer",
                remedy="leave --exact out, or ask on a part of the cluster",
            )
        self._in_turn = False
        self._stays = {number: self._model.new_bool_var("") for number in self._mobile}
        self._movers = {number: self._mover(number) for number in self._mobile}
        self._waiting = [self._guest(item.shape, item.row, item.allowed) for item in items]
        self._constrain(limits)

    def _is_beyond(self, shape: Shape, pod: Any) -> bool:
        return bool(shape.gpu and shape.gpu.profile) or self._overlay.inter_pod_rules().constrains(pod)

    # Variables

    def _guest(self, shape: Shape, row: int, allowed: Bools | None) -> PodVariables:
        overlay = self._overlay
        possible: Bools = overlay.table.cells.static[row] == 0
        if allowed is not None:
            possible = possible & allowed
        if shape.gpu is not None:
            possible = possible & (overlay.state.node_info[:, REPLICAS] == 1)
        nodes = np.flatnonzero(possible).tolist()
        return PodVariables(shape, row, {node: self._model.new_bool_var("") for node in nodes})

    def _mover(self, number: int) -> PodVariables:
        one = self._park.pods[number]
        allowed = one.allowed
        if not one.may_change_device:
            allowed = (
                np.ones(self._overlay.snapshot.nodes.size, dtype=np.bool_)
                if allowed is None
                else allowed.copy()
            )
            allowed[one.node] = False
        return self._guest(one.shape, self._overlay.table.row(one.shape, self._overlay.snapshot), allowed)

    # Constraints

    def _constrain(self, limits: SearchLimits) -> None:
        model = self._model
        for guest in self._waiting:
            model.add_exactly_one(guest.node_vars.values())
        for number, guest in self._movers.items():
            model.add_exactly_one([self._stays[number], *guest.node_vars.values()])
        gone = {number: 1 - stays for number, stays in self._stays.items()}
        model.add(sum(gone.values()) <= limits.max_moves)
        for budget, allowance in enumerate(self._park.budgets):
            covered = [left for number, left in gone.items() if budget in self._park.pods[number].budgets]
            model.add(sum(covered) <= allowance)
        self._charged: dict[int, Linear] = {}
        for number in self._mobile:
            charge = self._park.pods[number].gang_loss
            if charge >= 0:
                paid = self._charged.setdefault(charge, model.new_bool_var(""))
                model.add(paid + self._stays[number] >= 1)
        for node in range(self._overlay.snapshot.nodes.size):
            self._constrain_node(node)

    def _guests(self, node: int) -> Iterator[tuple[PodVariables, Linear]]:
        for guest in (*self._waiting, *self._movers.values()):
            if node in guest.node_vars:
                yield guest, guest.node_vars[node]

    def _constrain_node(self, node: int) -> None:
        guests = list(self._guests(node))
        if not guests:
            return
        leaving = [number for number in self._park.on_node.get(node, ()) if number in self._stays]
        resources, state = self._overlay.snapshot.resources, self._overlay.state
        for name in sorted({name for guest, _ in guests for name, _ in guest.shape.requests}):
            taken = sum(dict(guest.shape.requests).get(name, 0) * here for guest, here in guests)
            given = sum(
                dict(self._park.pods[number].shape.requests).get(name, 0) * (1 - self._stays[number])
                for number in leaving
            )
            free = int(state.free[node, resources.column(name)])
            if free >= 0:
                self._model.add(taken <= free + given)
            else:
                # An over-committed node may stay as it is as long as nobody comes.
                for guest, here in guests:
                    if dict(guest.shape.requests).get(name, 0):
                        self._model.add(taken <= free + given).only_enforce_if(here)
        self._constrain_devices(node, guests, leaving)

    def _constrain_devices(
        self, node: int, guests: Sequence[tuple[PodVariables, Linear]], leaving: Sequence[int]
    ) -> None:
        state = self._overlay.state
        devices = list(state.devices(node))
        room: list[Linear] = [int(state.device_occupancy[device, FREE_MILLI]) for device in devices]
        most = [int(state.device_occupancy[device, FREE_MILLI]) for device in devices]
        for number in leaving:
            for grant in self._park.pods[number].grants:
                room[grant.index] += grant.milli * (1 - self._stays[number])
                most[grant.index] += grant.milli
        taken: list[Linear] = [0] * len(devices)
        for guest, here in guests:
            gpu = guest.shape.gpu
            if gpu is None:
                continue
            uses = {}
            for i, milli, _ in usable_devices(self._overlay, guest.shape, guest.row, node):
                if milli <= most[i]:
                    uses[i] = self._model.new_bool_var("")
                    taken[i] += milli * uses[i]
            self._model.add(sum(uses.values()) == gpu.count * here)
            guest.device_vars[node] = uses
        for i in range(len(devices)):
            if not isinstance(taken[i], int):
                self._model.add(taken[i] <= room[i])

    # Answers

    def solve(self, accept: TryMoves) -> MoveSearchResult | None:
        bound: int | None = None
        best: MoveSearchResult | None = None
        for _ in range(MAX_REJECTED_ANSWERS):
            answer = self._lightest()
            if answer is None:
                break
            relocations, weight = answer
            bound = weight if bound is None else bound
            if best is not None and weight >= best.weight:
                break
            accepted = accept(relocations)
            if accepted is not None and (best is None or accepted < best.weight):
                best = MoveSearchResult(relocations, accepted, 0)
            if accepted == weight:
                break
            if accepted is None and not self._in_turn and self._order_size() <= MAX_ORDER_PAIRS:
                self._in_turn = True
                add_order_constraints(self._model, self._overlay, self._park, self._stays, self._movers)
            else:
                self._exclude(relocations)
        if best is None or bound is None:
            return None
        return msgspec.structs.replace(best, bound=min(bound, best.weight) if self._is_whole else 0)

    def _order_size(self) -> int:
        return len(self._mobile) ** 2 * self._overlay.snapshot.nodes.size

    def _lightest(self) -> tuple[tuple[Relocation, ...], int] | None:
        park = self._park
        pods = sum(1 - stays for stays in self._stays.values())
        lost = sum(park.pods[number].loss * (1 - stays) for number, stays in self._stays.items()) + sum(
            park.gang_losses[charge].loss * paid for charge, paid in self._charged.items()
        )
        model = self._model.clone()
        model.minimize(lost)
        solver = self._run(model)
        if solver is None:
            return None
        model.add(lost <= round(solver.objective_value))
        model.minimize(pods)
        solver = self._run(model) or solver
        moved = [number for number, stays in self._stays.items() if not solver.value(stays)]
        return tuple(self._goal(number, solver) for number in moved), park.total_weight(set(moved))

    def _goal(self, number: int, solver: Any) -> Relocation:
        guest = self._movers[number]
        node = next(node for node, here in guest.node_vars.items() if solver.value(here))
        if not is_gpu_share(guest.shape):
            return Relocation(number, node)
        return Relocation(
            number, node, next(i for i, used in guest.device_vars[node].items() if solver.value(used))
        )

    def _run(self, model: Any) -> Any | None:
        solver = self._solver.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 0
        solver.parameters.max_deterministic_time = DETERMINISTIC_TIME_LIMIT
        status = solver.solve(model)
        self._is_whole &= status != self._solver.FEASIBLE
        return solver if status in (self._solver.OPTIMAL, self._solver.FEASIBLE) else None

    def _exclude(self, relocations: Sequence[Relocation]) -> None:
        """Not exactly these moves again."""
        chosen = []
        for one in relocations:
            guest = self._movers[one.pod_number]
            chosen.append(
                guest.node_vars[one.node]
                if one.device == ANY_DEVICE
                else guest.device_vars[one.node][one.device]
            )
        moved = {one.pod_number for one in relocations}
        others = [~stays for number, stays in self._stays.items() if number not in moved]
        self._model.add_bool_or([~here for here in chosen] + others)
