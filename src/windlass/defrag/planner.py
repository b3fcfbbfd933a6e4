"""Plans the cheapest moves for each waiting workload, in order, within a budget of steps.

`cli` calls `defrag_plan` for `windlass plan defrag`. The search and the solver are in `placement.defrag`. Here the
workloads are chosen; what is found is put into an executable order, confirmed by the engine, and kept for the workloads
after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from windlass.cluster.node_state import MEMORY_MIB
from windlass.defrag.baseline import DefragBaseline
from windlass.model.configuration import Defragmentation, Settings
from windlass.model.defrag import DefragPlan, Move, NoMovesFound, Start
from windlass.model.errors import InputError
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.quota import quota_requests
from windlass.model.reasons import POD_REASONS
from windlass.model.workload import Workload
from windlass.placement.defrag import exact_solver
from windlass.placement.defrag.demand import Demand, demands_of
from windlass.placement.defrag.movable import MoveCosts, find_movable_pods, held_gpu_milli
from windlass.placement.defrag.move_search import NO_CEILING, MoveSearch
from windlass.placement.defrag.move_sequence import MoveSequencer, MoveStep, steps_weight
from windlass.placement.defrag.types import (
    LOSS_WEIGHT,
    MovablePods,
    MoveSearchResult,
    PodToPlace,
    Relocation,
    SearchLimits,
)
from windlass.placement.defrag.weight_bound import UNPLACEABLE, lower_bound
from windlass.placement.grants import GrantUnpacker
from windlass.placement.workload_pieces import workload_key
from windlass.planner import engine_config, visible_objects
from windlass.queueing.outcome import (
    ADMISSION_DEFERRED,
    BEHIND_HEAD,
    FLAVOR_MISMATCH,
    LIMIT_REACHED,
    QUEUE_MISSING,
    QUOTA_INSUFFICIENT,
    QUOTA_MISCONFIGURED,
)

CODES_MOVES_CANNOT_LIFT = frozenset(
    {
        QUOTA_INSUFFICIENT,
        QUOTA_MISCONFIGURED,
        QUEUE_MISSING,
        FLAVOR_MISMATCH,
        BEHIND_HEAD,
        ADMISSION_DEFERRED,
        LIMIT_REACHED,
    }
    | {"REQUEST_EXCEEDS_CLUSTER", "GANG_INCOMPLETE", "JOB_SUSPENDED", "DURATION_EXCEEDED"}
    | {reason.code for reason in POD_REASONS}
)
"""Codes of holds that no move can resolve."""


class DefragRequest(msgspec.Struct, frozen=True):
    """Which workloads to plan for, and the budget."""

    workload: str = ""
    """`namespace/name`; empty: the first waiting workloads, in order."""
    only_unsubmitted: bool = False
    """Only workloads that are not in the cluster yet (given by a file or by a shape)."""
    limits: SearchLimits = SearchLimits()
    use_exact_solver: bool = False
    """Use CP-SAT instead of the search."""


def defrag_plan(objects: Sequence[object], settings: Settings, now: int, request: DefragRequest) -> DefragPlan:
    """The cheapest moves that were found, and the workloads that start with them."""
    with np.errstate(over="ignore"):  # the hash function of the kernels overflows on purpose
        # The engine must not make proactive moves of its own in addition to those that are planned here.
        config = msgspec.structs.replace(engine_config(settings), defrag=Defragmentation())
        return _Planner(DefragBaseline(visible_objects(objects, settings), config, now), now, request).run()


class _Planner:
    def __init__(self, baseline: DefragBaseline, now: int, request: DefragRequest) -> None:
        self._baseline, self._request = baseline, request
        self._costs = MoveCosts(now, baseline.config.queues)
        self._overlay, self._placer = baseline.overlay()
        self._trial_overlay, self._trial_placer = baseline.overlay()
        self._unpacker = GrantUnpacker(baseline.snapshot)
        self._started = baseline.started
        self._moves: list[Move] = []
        self._starts: list[Start] = []
        self._without_moves: dict[str, NoMovesFound] = {}
        self._notes = list(baseline.snapshot.notes)
        self._codes = {hold.workload: hold.verdict.code for hold in baseline.plan_before.holds}

    def run(self) -> DefragPlan:
        for piece in self._targets():
            self._plan_for(piece)
        waits = tuple(wait for key, wait in self._without_moves.items() if key not in self._keys_started())
        return DefragPlan(tuple(self._moves), tuple(self._starts), waits, tuple(self._notes))

    # Targets

    def _targets(self) -> list[Workload]:
        """The workloads to plan moves for."""
        request = self._request
        waiting = self._baseline.waiting()
        if request.workload:
            requested = self._requested([piece for piece in waiting if workload_key(piece.key) == request.workload])
            return [piece for piece in requested if self._can_moves_help(piece)]
        if request.only_unsubmitted:
            for piece in self._baseline.pieces:
                if piece.key in self._started and not self._is_submitted(piece):
                    self._notes.append(f"{workload_key(piece.key)} starts without any move")
            return [piece for piece in waiting if not self._is_submitted(piece)]
        return [piece for piece in waiting if self._can_moves_help(piece)][: request.limits.targets]

    def _can_moves_help(self, piece: Workload) -> bool:
        """Whether moves can help; otherwise its code is recorded as the reason."""
        key = workload_key(piece.key)
        code = self._codes.get(key, "")
        if code in CODES_MOVES_CANNOT_LIFT:
            self._without_moves[key] = NoMovesFound(key, f"{code}: moving pods can't help")
        return code not in CODES_MOVES_CANNOT_LIFT

    def _requested(self, waiting: list[Workload]) -> list[Workload]:
        name = self._request.workload
        known = [workload for workload in self._baseline.workloads if workload.key == name]
        if not known:
            raise InputError(f"there is no workload {name}", remedy="set --for to namespace/name of a waiting workload")
        if known[0].hold:
            self._without_moves[name] = NoMovesFound(name, known[0].hold)
        elif not waiting:
            runs = "runs already" if name not in self._started else "starts without any move"
            self._notes.append(f"{name} {runs}")
        return waiting

    def _is_submitted(self, piece: Workload) -> bool:
        pods = self._baseline.snapshot.pods
        keys = {key for pod_set in piece.pod_sets for key in pod_set.pod_keys}
        members = [pod for pod in pods.objects if pod.key in keys]
        return bool(piece.uid) or any(pod.metadata.uid or pod.metadata.creation_timestamp for pod in members)

    def _keys_started(self) -> set[str]:
        return {start.workload for start in self._starts}

    # Moves for one workload

    def _plan_for(self, piece: Workload) -> None:
        movable = find_movable_pods(
            self._baseline.snapshot,
            self._baseline.workloads,
            self._baseline.budgets,
            self._costs,
            frozenset(move.pod for move in self._moves),
        )
        best: tuple[MoveSearchResult, Demand] | None = None
        steps, lowest = 0, UNPLACEABLE
        for demand in demands_of(piece, self._placer, self._overlay, self._baseline.snapshot.queue_system):
            for domain in demand.domains:
                pods = demand.pods_in(domain)
                bound = lower_bound(self._overlay, movable, pods)
                lowest = min(lowest, bound)
                if bound >= UNPLACEABLE or (best is not None and best[0].weight <= bound):
                    continue
                ceiling = best[0].weight if best is not None else NO_CEILING
                result, used_steps = self._search(movable, demand, pods, bound, ceiling, steps)
                steps += used_steps
                if result is not None:
                    best = result, demand
        if best is None:
            self._without_moves[workload_key(piece.key)] = NoMovesFound(
                workload_key(piece.key), _why_not(lowest, movable, steps)
            )
        else:
            self._accept_moves(piece, movable, best[1], best[0])

    def _search(
        self,
        movable: MovablePods,
        demand: Demand,
        pods: list[PodToPlace],
        bound: int,
        ceiling: int,
        steps: int,
    ) -> tuple[MoveSearchResult | None, int]:
        moves_left = self._request.limits.max_moves - len(self._moves)
        limits = msgspec.structs.replace(
            self._request.limits,
            max_moves=max(0, moves_left),
            steps=max(1, self._request.limits.steps - steps),
        )
        accept = self._make_accept(movable, demand, limits.max_moves)
        if self._request.use_exact_solver:
            result = exact_solver.solve_exactly(self._overlay, movable, pods, limits, accept)
            if result is None or result.weight >= ceiling:
                return None, 0
            return msgspec.structs.replace(result, bound=max(result.bound, min(bound, result.weight))), 0
        search = MoveSearch(self._overlay, movable, limits, accept, ceiling)
        search.run(pods, bound)
        return search.found(bound), search.steps

    def _make_accept(
        self, movable: MovablePods, demand: Demand, max_moves: int
    ) -> Callable[[tuple[Relocation, ...]], int | None]:
        """The function that executes a set of moves on the trial overlay: it returns their weight, or None where they
        can't be executed or the engine doesn't confirm them."""
        sequencer = MoveSequencer(self._trial_overlay, movable)

        def accept(relocations: tuple[Relocation, ...]) -> int | None:
            checkpoint, placer_checkpoint = self._trial_overlay.checkpoint(), self._trial_placer.checkpoint()
            steps = sequencer.execute(relocations)
            weight = None
            if steps is not None and len(steps) <= max_moves:
                placed = self._trial_placer.place(demand.piece, demand.choices)
                if placed.ok and self._is_confirmed(demand.piece, movable, steps):
                    weight = steps_weight(steps)
            self._trial_placer.rollback(placer_checkpoint)
            self._trial_overlay.rollback(checkpoint)
            return weight

        return accept

    def _is_confirmed(self, piece: Workload, movable: MovablePods, steps: Sequence[MoveStep]) -> bool:
        moves = [*self._moves, *self._moves_of(movable, steps, piece.key)]
        return self._baseline.is_improvement(self._baseline.plan_after(moves), piece, self._started)

    def _moves_of(self, movable: MovablePods, steps: Sequence[MoveStep], piece: str) -> list[Move]:
        names = self._baseline.snapshot.nodes.names
        last = {step.pod_number: i for i, step in enumerate(steps)}
        return [
            Move(
                pod=movable.pods[step.pod_number].pod.key,
                from_node=names[step.from_node],
                to_node=names[step.assumed.node],
                devices=self._unpacker.grants(
                    movable.pods[step.pod_number].pod_row, step.assumed.node, step.assumed.grant
                ),
                lost_milli_seconds=step.loss,
                for_workload=workload_key(piece),
                is_stop=last[step.pod_number] != i,
            )
            for i, step in enumerate(steps)
        ]

    def _accept_moves(self, piece: Workload, movable: MovablePods, demand: Demand, result: MoveSearchResult) -> None:
        """Execute the moves and place the workload on both overlays, for the workloads that come after."""
        steps = MoveSequencer(self._trial_overlay, movable).execute(result.relocations)
        again = MoveSequencer(self._overlay, movable).execute(result.relocations)
        assert steps is not None, "the search has accepted these moves"
        assert again is not None, "both overlays are equal"
        for placer in (self._trial_placer, self._placer):
            placer.place(piece, demand.choices)
        self._moves += self._moves_of(movable, steps, piece.key)
        self._started |= {piece.key}
        gpus = sum(held_gpu_milli(item.shape, ()) or self._share(item) for item in demand.pods)
        self._starts.append(
            Start(
                workload=workload_key(piece.key),
                pods=len(demand.pods),
                gpu_milli=gpus,
                moves=len(steps),
                lost_milli_seconds=sum(step.loss for step in steps),
                bound_milli_seconds=result.bound // LOSS_WEIGHT,
                bound_moves=result.bound % LOSS_WEIGHT,
                is_proven=result.bound >= result.weight,
                steps=result.steps,
                by="exact" if self._request.use_exact_solver else "search",
            )
        )

    def _share(self, pod: PodToPlace) -> int:
        """Thousandths of a GPU for a pod that requests GPU memory, on the largest device of the cluster."""
        memory = int(self._overlay.state.device_info[:, MEMORY_MIB].max(initial=0))
        return quota_requests(pod.pod, memory).get(GPU_RESOURCE, 0)


def _why_not(lowest: int, movable: MovablePods, steps: int) -> str:
    if lowest >= UNPLACEABLE:
        return f"no moves can make room: even without all {len(movable.pods)} movable pods, too little is free"
    if not movable.pods:
        return "no running pod may be moved: those without a controller and those protected from eviction stay"
    return f"no moves that make room were found in {steps} steps of the search"
