"""For each workload that waits, in order: the cheapest moves that let it start, as far as the budget of steps goes.

The search and the solver are in `placement.defrag`; here it is decided for whom to search, and what they find is staged
(moves in an order that can be carried out), confirmed by the engine, and kept for those who come after.
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
from windlass.queueing.admitted_workload import GPU
from windlass.queueing.outcome import (
    BEHIND_HEAD,
    FLAVOR_MISMATCH,
    QUEUE_MISSING,
    QUOTA_INSUFFICIENT,
    QUOTA_MISCONFIGURED,
)

CODES_MOVES_CANNOT_LIFT = frozenset(
    {QUOTA_INSUFFICIENT, QUOTA_MISCONFIGURED, QUEUE_MISSING, FLAVOR_MISMATCH, BEHIND_HEAD}
    | {"REQUEST_EXCEEDS_CLUSTER", "GANG_INCOMPLETE", "JOB_SUSPENDED"}
    | {reason.code for reason in POD_REASONS}
)
"""Codes of holds that no move can lift."""


class DefragRequest(msgspec.Struct, frozen=True):
    """For whom, and how far to go."""

    workload: str = ""
    """`namespace/name`; empty: the first ones that wait, in order."""
    only_unsubmitted: bool = False
    """Only for what has not been submitted yet (a stated shape)."""
    limits: SearchLimits = SearchLimits()
    use_exact_solver: bool = False
    """Ask the solver instead of the search."""


def defrag_plan(
    objects: Sequence[object], settings: Settings, now: int, request: DefragRequest
) -> DefragPlan:
    """The cheapest moves that were found, and what they bring."""
    with np.errstate(over="ignore"):  # the kernels' mixing of words overflows on purpose
        # Moves are what is asked for here: the engine is not to make any of its own beside them.
        config = msgspec.structs.replace(engine_config(settings), defrag=Defragmentation())
        return _Planner(DefragBaseline(visible_objects(objects, settings), config, now), now, request).run()


class _Planner:
    def __init__(self, scene: DefragBaseline, now: int, request: DefragRequest) -> None:
        self._scene, self._request = scene, request
        self._costs = MoveCosts(now, scene.config.queues)
        self._overlay, self._site = scene.overlay()
        self._stage_overlay, self._stage_site = scene.overlay()
        self._reader = GrantUnpacker(scene.snapshot)
        self._started = scene.started
        self._moves: list[Move] = []
        self._starts: list[Start] = []
        self._waits: dict[str, NoMovesFound] = {}
        self._notes = list(scene.snapshot.notes)
        self._codes = {hold.workload: hold.verdict.code for hold in scene.plan_before.holds}

    def run(self) -> DefragPlan:
        for piece in self._targets():
            self._make_room(piece)
        waits = tuple(wait for key, wait in self._waits.items() if key not in self._keys_started())
        return DefragPlan(tuple(self._moves), tuple(self._starts), waits, tuple(self._notes))

    # For whom

    def _targets(self) -> list[Workload]:
        """Those who wait for room, or who were asked for."""
        request = self._request
        waiting = self._scene.waiting()
        if request.workload:
            asked = self._named([piece for piece in waiting if workload_key(piece.key) == request.workload])
            return [piece for piece in asked if self._waits_for_room(piece)]
        if request.only_unsubmitted:
            for piece in self._scene.pieces:
                if piece.key in self._started and not self._is_submitted(piece):
                    self._notes.append(f"{workload_key(piece.key)} starts without any move")
            return [piece for piece in waiting if not self._is_submitted(piece)]
        return [piece for piece in waiting if self._waits_for_room(piece)][: request.limits.targets]

    def _waits_for_room(self, piece: Workload) -> bool:
        """Whether room is what it lacks; otherwise what it waits for is noted."""
        key = workload_key(piece.key)
        code = self._codes.get(key, "")
        if code in CODES_MOVES_CANNOT_LIFT:
            self._waits[key] = NoMovesFound(key, f"{code}: no move of running pods lifts this")
        return code not in CODES_MOVES_CANNOT_LIFT

    def _named(self, waiting: list[Workload]) -> list[Workload]:
        name = self._request.workload
        known = [one for one in self._scene.workloads if one.key == name]
        if not known:
            raise InputError(
                f"there is no workload {name}", remedy="give --for the namespace and name of one that waits"
            )
        if known[0].hold:
            self._waits[name] = NoMovesFound(name, known[0].hold)
        elif not waiting:
            runs = "runs" if name not in self._started else "starts without any move"
            self._notes.append(f"{name} {runs}")
        return waiting

    def _is_submitted(self, piece: Workload) -> bool:
        pods = self._scene.snapshot.pods
        keys = {key for one in piece.pod_sets for key in one.pod_keys}
        members = [pod for pod in pods.objects if pod.key in keys]
        return bool(piece.uid) or any(pod.metadata.uid or pod.metadata.creation_timestamp for pod in members)

    def _keys_started(self) -> set[str]:
        return {start.workload for start in self._starts}

    # Room for one of them

    def _make_room(self, piece: Workload) -> None:
        park = find_movable_pods(
            self._scene.snapshot,
            self._scene.workloads,
            self._scene.budgets,
            self._costs,
            frozenset(move.pod for move in self._moves),
        )
        best: tuple[MoveSearchResult, Demand] | None = None
        steps, lowest = 0, UNPLACEABLE
        for demand in demands_of(piece, self._site, self._overlay, self._scene.snapshot.queue_system):
            for domain in demand.domains:
                items = demand.pods_in(domain)
                bound = lower_bound(self._overlay, park, items)
                lowest = min(lowest, bound)
                if bound >= UNPLACEABLE or (best is not None and best[0].weight <= bound):
                    continue
                ceiling = best[0].weight if best is not None else NO_CEILING
                found, used = self._search(park, demand, items, bound, ceiling, steps)
                steps += used
                if found is not None:
                    best = found, demand
        if best is None:
            self._waits[workload_key(piece.key)] = NoMovesFound(
                workload_key(piece.key), _why_not(lowest, park, steps)
            )
        else:
            self._keep(piece, park, best[1], best[0])

    def _search(
        self, park: MovablePods, demand: Demand, items: list[PodToPlace], bound: int, ceiling: int, steps: int
    ) -> tuple[MoveSearchResult | None, int]:
        left = self._request.limits.max_moves - len(self._moves)
        limits = msgspec.structs.replace(
            self._request.limits,
            max_moves=max(0, left),
            steps=max(1, self._request.limits.steps - steps),
        )
        accept = self._judge(park, demand, limits.max_moves)
        if self._request.use_exact_solver:
            found = exact_solver.solve_exactly(self._overlay, park, items, limits, accept)
            if found is None or found.weight >= ceiling:
                return None, 0
            return msgspec.structs.replace(found, bound=max(found.bound, min(bound, found.weight))), 0
        search = MoveSearch(self._overlay, park, limits, accept, ceiling)
        search.run(items, bound)
        return search.found(bound), search.steps

    def _judge(
        self, park: MovablePods, demand: Demand, most: int
    ) -> Callable[[tuple[Relocation, ...]], int | None]:
        """What a set of moves weighs once it is staged; None where it can't be made or doesn't help."""
        stage = MoveSequencer(self._stage_overlay, park)

        def accept(relocations: tuple[Relocation, ...]) -> int | None:
            before, site_before = self._stage_overlay.checkpoint(), self._stage_site.checkpoint()
            steps = stage.execute(relocations)
            weight = None
            if steps is not None and len(steps) <= most:
                placed = self._stage_site.place(demand.piece, demand.choices)
                if placed.ok and self._is_confirmed(demand.piece, park, steps):
                    weight = steps_weight(steps)
            self._stage_site.rollback(site_before)
            self._stage_overlay.rollback(before)
            return weight

        return accept

    def _is_confirmed(self, piece: Workload, park: MovablePods, steps: Sequence[MoveStep]) -> bool:
        moves = [*self._moves, *self._as_moves(park, steps, piece.key)]
        return self._scene.is_improvement(self._scene.plan_after(moves), piece, self._started)

    def _as_moves(self, park: MovablePods, steps: Sequence[MoveStep], piece: str) -> list[Move]:
        names = self._scene.snapshot.nodes.names
        last = {step.pod_number: i for i, step in enumerate(steps)}
        return [
            Move(
                pod=park.pods[step.pod_number].pod.key,
                from_node=names[step.from_node],
                to_node=names[step.assumed.node],
                devices=self._reader.grants(
                    park.pods[step.pod_number].pod_row, step.assumed.node, step.assumed.grant
                ),
                lost_milli_seconds=step.loss,
                for_workload=workload_key(piece),
                is_stop=last[step.pod_number] != i,
            )
            for i, step in enumerate(steps)
        ]

    def _keep(self, piece: Workload, park: MovablePods, demand: Demand, found: MoveSearchResult) -> None:
        """Makes the moves and places the workload on both overlays; from now on they are part of the scene."""
        steps = MoveSequencer(self._stage_overlay, park).execute(found.relocations)
        again = MoveSequencer(self._overlay, park).execute(found.relocations)
        assert steps is not None, "it was tried"
        assert again is not None, "both overlays are alike"
        for site in (self._stage_site, self._site):
            site.place(piece, demand.choices)
        self._moves += self._as_moves(park, steps, piece.key)
        self._started |= {piece.key}
        gpus = sum(held_gpu_milli(item.shape, ()) or self._share(item) for item in demand.pods)
        self._starts.append(
            Start(
                workload=workload_key(piece.key),
                pods=len(demand.pods),
                gpu_milli=gpus,
                moves=len(steps),
                lost_milli_seconds=sum(step.loss for step in steps),
                bound_milli_seconds=found.bound // LOSS_WEIGHT,
                bound_moves=found.bound % LOSS_WEIGHT,
                is_proven=found.bound >= found.weight,
                steps=found.steps,
                by="exact" if self._request.use_exact_solver else "search",
            )
        )

    def _share(self, item: PodToPlace) -> int:
        """Milli-GPU of a pod that asks for GPU memory, on the largest device there is."""
        memory = int(self._overlay.state.device_info[:, MEMORY_MIB].max(initial=0))
        return quota_requests(item.pod, memory).get(GPU, 0)


def _why_not(lowest: int, park: MovablePods, steps: int) -> str:
    if lowest >= UNPLACEABLE:
        return "no moves can make room: what is free, and what pods that may be moved hold, is too little"
    if not park.pods:
        return "there is no pod that may be moved"
    return f"no moves were found that make room (after {steps} steps)"
