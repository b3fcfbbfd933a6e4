"""Solves the search for moves exactly, with CP-SAT: which pods stay, where the others and the waiting pods go.

`windlass plan defrag --exact` uses it, and tests compare the search with it. OR-Tools is an optional dependency and is
imported when it is needed. One worker, a fixed seed and a limit in the solver's deterministic time: the same input
gives the same answer. The lost work is minimised first, then the number of pods with that loss.

The model has every resource of every node, every device and share, flavors and topology as sets of nodes, disruption
budgets, and gangs that lose their work once. It lacks MIG instances made on demand, time-sliced replicas and inter-pod
rules: waiting pods that have these are refused, running ones stay. The order of the moves is added to the model
(`exact_solver_order`) when an answer turns out to have no order.
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
"""Pods × nodes of the largest instance that is given to the solver."""
MAX_REJECTED_ANSWERS = 8
"""Answers that may be rejected as impossible to execute before it gives up."""
DETERMINISTIC_TIME_LIMIT = 30.0
"""Limit of one solve in the solver's deterministic time."""
MAX_ORDER_PAIRS = 100_000
"""Pairs of pods × nodes up to which the order of the moves is added to the model."""


def solve_exactly(
    overlay: Overlay,
    movable_pods: MovablePods,
    pods: Sequence[PodToPlace],
    limits: SearchLimits,
    accept: TryMoves,
) -> MoveSearchResult | None:
    """The lightest set of moves that can be executed; None where there is none."""
    return _Model(overlay, movable_pods, pods, limits).solve(accept)


def load_solver() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise InputError(
            "--exact needs OR-Tools, which is not installed",
            remedy="pip install 'windlass[exact]', or leave --exact out",
        ) from error
    return cp_model


class _Model:
    def __init__(
        self, overlay: Overlay, movable_pods: MovablePods, pods: Sequence[PodToPlace], limits: SearchLimits
    ) -> None:
        self._solver = load_solver()
        self._model = self._solver.CpModel()
        self._overlay, self._movable = overlay, movable_pods
        self._numbers = [
            movable.number for movable in movable_pods.pods if not self._is_not_modelled(movable.shape, movable.pod)
        ]
        self._is_exact = len(self._numbers) == len(movable_pods.pods)
        """Whether the model has everything and was solved to optimality: then its weight is a lower bound."""
        for pod in pods:
            if self._is_not_modelled(pod.shape, pod.pod):
                raise InputError(
                    "has inter-pod rules or requests a MIG instance, which --exact doesn't support",
                    object=f"Pod {pod.pod.key}",
                    remedy="leave --exact out",
                )
        if (len(pods) + len(self._numbers)) * overlay.snapshot.nodes.size > MAX_CELLS:
            raise InputError(
                f"{len(pods) + len(self._numbers)} pods on {overlay.snapshot.nodes.size} nodes are too many "
                f"for --exact (at most {MAX_CELLS:,} pods × nodes)",
                remedy="leave --exact out, or plan for a part of the cluster",
            )
        self._has_order = False
        self._stays = {number: self._model.new_bool_var("") for number in self._numbers}
        self._moving = {number: self._moving_pod(number) for number in self._numbers}
        self._waiting = [self._pod_variables(pod.shape, pod.row, pod.allowed) for pod in pods]
        self._add_constraints(limits)

    def _is_not_modelled(self, shape: Shape, pod: Any) -> bool:
        return bool(shape.gpu and shape.gpu.profile) or self._overlay.inter_pod_rules().constrains(pod)

    # Variables

    def _pod_variables(self, shape: Shape, row: int, allowed: Bools | None) -> PodVariables:
        overlay = self._overlay
        possible: Bools = overlay.table.static(row) == 0
        if allowed is not None:
            possible = possible & allowed
        if shape.gpu is not None:
            possible = possible & (overlay.state.node_info[:, REPLICAS] == 1)
        nodes = np.flatnonzero(possible).tolist()
        return PodVariables(shape, row, {node: self._model.new_bool_var("") for node in nodes})

    def _moving_pod(self, number: int) -> PodVariables:
        movable = self._movable.pods[number]
        allowed = movable.allowed
        if not movable.may_change_device:
            everywhere = np.ones(self._overlay.snapshot.nodes.size, dtype=np.bool_)
            allowed = everywhere if allowed is None else allowed.copy()
            allowed[movable.node] = False
        row = self._overlay.table.row(movable.shape, self._overlay.snapshot)
        return self._pod_variables(movable.shape, row, allowed)

    # Constraints

    def _add_constraints(self, limits: SearchLimits) -> None:
        model = self._model
        for pod_variables in self._waiting:
            model.add_exactly_one(pod_variables.node_vars.values())
        for number, pod_variables in self._moving.items():
            model.add_exactly_one([self._stays[number], *pod_variables.node_vars.values()])
        moves = {number: 1 - stays for number, stays in self._stays.items()}
        model.add(sum(moves.values()) <= limits.max_moves)
        for budget, allowance in enumerate(self._movable.budgets):
            pods = self._movable.pods
            covered = [moved for number, moved in moves.items() if budget in pods[number].budgets]
            model.add(sum(covered) <= allowance)
        self._gang_stops: dict[int, Linear] = {}
        for number in self._numbers:
            gang = self._movable.pods[number].gang_loss
            if gang >= 0:
                stops = self._gang_stops.setdefault(gang, model.new_bool_var(""))
                model.add(stops + self._stays[number] >= 1)
        for node in range(self._overlay.snapshot.nodes.size):
            self._add_node_constraints(node)

    def _pods_on(self, node: int) -> Iterator[tuple[PodVariables, Linear]]:
        for pod_variables in (*self._waiting, *self._moving.values()):
            if node in pod_variables.node_vars:
                yield pod_variables, pod_variables.node_vars[node]

    def _add_node_constraints(self, node: int) -> None:
        pods = list(self._pods_on(node))
        if not pods:
            return
        movable = [number for number in self._movable.on_node.get(node, ()) if number in self._stays]
        resources, state = self._overlay.snapshot.resources, self._overlay.state
        for name in sorted({name for pod, _ in pods for name, _ in pod.shape.requests}):
            taken = sum(dict(pod.shape.requests).get(name, 0) * here for pod, here in pods)
            freed = sum(
                dict(self._movable.pods[number].shape.requests).get(name, 0) * (1 - self._stays[number])
                for number in movable
            )
            free = int(state.free[node, resources.column(name)])
            if free >= 0:
                self._model.add(taken <= free + freed)
            else:
                # An over-committed node may stay so, as long as no pod is added to it.
                for pod, here in pods:
                    if dict(pod.shape.requests).get(name, 0):
                        self._model.add(taken <= free + freed).only_enforce_if(here)
        self._add_device_constraints(node, pods, movable)

    def _add_device_constraints(
        self, node: int, pods: Sequence[tuple[PodVariables, Linear]], movable: Sequence[int]
    ) -> None:
        state = self._overlay.state
        devices = list(state.devices(node))
        free: list[Linear] = [int(state.device_occupancy[device, FREE_MILLI]) for device in devices]
        most = [int(state.device_occupancy[device, FREE_MILLI]) for device in devices]
        for number in movable:
            for grant in self._movable.pods[number].grants:
                free[grant.index] += grant.milli * (1 - self._stays[number])
                most[grant.index] += grant.milli
        taken: list[Linear] = [0] * len(devices)
        for pod, here in pods:
            gpu = pod.shape.gpu
            if gpu is None:
                continue
            uses = {}
            for i, milli, _ in usable_devices(self._overlay, pod.shape, pod.row, node):
                if milli <= most[i]:
                    uses[i] = self._model.new_bool_var("")
                    taken[i] += milli * uses[i]
            self._model.add(sum(uses.values()) == gpu.count * here)
            pod.device_vars[node] = uses
        for i in range(len(devices)):
            if not isinstance(taken[i], int):
                self._model.add(taken[i] <= free[i])

    # Answers

    def solve(self, accept: TryMoves) -> MoveSearchResult | None:
        bound: int | None = None
        best: MoveSearchResult | None = None
        for _ in range(MAX_REJECTED_ANSWERS):
            answer = self._solve_lightest()
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
            if accepted is None and not self._has_order and self._order_size() <= MAX_ORDER_PAIRS:
                self._has_order = True
                add_order_constraints(self._model, self._overlay, self._movable, self._stays, self._moving)
            else:
                self._exclude(relocations)
        if best is None or bound is None:
            return None
        return msgspec.structs.replace(best, bound=min(bound, best.weight) if self._is_exact else 0)

    def _order_size(self) -> int:
        return len(self._numbers) ** 2 * self._overlay.snapshot.nodes.size

    def _solve_lightest(self) -> tuple[tuple[Relocation, ...], int] | None:
        movable_pods = self._movable
        pods = sum(1 - stays for stays in self._stays.values())
        lost = sum(movable_pods.pods[number].loss * (1 - stays) for number, stays in self._stays.items()) + sum(
            movable_pods.gang_losses[gang].loss * stops for gang, stops in self._gang_stops.items()
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
        relocations = tuple(self._relocation(number, solver) for number in moved)
        return relocations, movable_pods.total_weight(set(moved))

    def _relocation(self, number: int, solver: Any) -> Relocation:
        pod_variables = self._moving[number]
        node = next(node for node, here in pod_variables.node_vars.items() if solver.value(here))
        if not is_gpu_share(pod_variables.shape):
            return Relocation(number, node)
        devices = pod_variables.device_vars[node].items()
        return Relocation(number, node, next(device for device, used in devices if solver.value(used)))

    def _run(self, model: Any) -> Any | None:
        solver = self._solver.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 0
        solver.parameters.max_deterministic_time = DETERMINISTIC_TIME_LIMIT
        status = solver.solve(model)
        self._is_exact &= status != self._solver.FEASIBLE
        return solver if status in (self._solver.OPTIMAL, self._solver.FEASIBLE) else None

    def _exclude(self, relocations: Sequence[Relocation]) -> None:
        """Forbid exactly this set of moves."""
        chosen = []
        for relocation in relocations:
            pod_variables = self._moving[relocation.pod_number]
            chosen.append(
                pod_variables.node_vars[relocation.node]
                if relocation.device == ANY_DEVICE
                else pod_variables.device_vars[relocation.node][relocation.device]
            )
        moved = {relocation.pod_number for relocation in relocations}
        others = [~stays for number, stays in self._stays.items() if number not in moved]
        self._model.add_bool_or([~here for here in chosen] + others)
