"""Proactive defragmentation: evicts small pods, which restart elsewhere, so that a large workload starts.

`engine` calls `with_moves` last, with what is still held, where the policy allows it. The decisions are evictions with
reason `Defragmentation` and the start of the workload; controllers create the evicted pods again, and the next decision
places them. Only single pods with a controller move (no gang stops), within disruption budgets, and only if the lost
work is worth less than the earlier start.

Why this terminates: the waiting workload requests more GPUs than all moved pods hold, it comes before them in the queue
(their priority is not higher, and they come back younger), and no other waiting workload could take the freed capacity.
So it does start, and for a fixed set of workloads the GPUs that are waited for become strictly fewer with every set of
moves. While any pod is terminating, nothing is moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np

from windlass.cluster.pod_table import PENDING
from windlass.model.configuration import Defragmentation
from windlass.model.decision import Admit, AdmittedPodSet, Bind, Evict, Hold
from windlass.model.plan import Plan
from windlass.model.verdict import Verdict
from windlass.model.workload import Workload
from windlass.placement.defrag.movable import MoveCosts, find_movable_pods, held_gpu_milli
from windlass.placement.defrag.move_finder import FoundMoves, MoveFinder
from windlass.placement.defrag.types import MovablePod, MovablePods, SearchLimits
from windlass.placement.explain.advisor import CODES_FIXED_BY_MOVES
from windlass.placement.explain.dry_runs import Choices, DryRuns
from windlass.placement.explain.post_decision import PostDecisionState
from windlass.placement.grants import GrantUnpacker
from windlass.placement.timeplan.guard import PlannedStartGuard
from windlass.queueing.placement_interface import PlacementResult, PodSetChoice

EVICTION_REASON = "Defragmentation"
MAX_TARGETS = 4
"""Waiting workloads that are considered in one decision."""
MAX_OTHERS = 64
"""If more different requests wait besides it, checking that none of them takes the freed capacity costs too much: no
moves."""
HORIZON_SECONDS = 3600
"""The gain of starting now where no start is planned; also the most that a planned start can gain."""
MAX_SEARCH_STEPS = 1500


class MoveDecisions(msgspec.Struct, frozen=True):
    """The decisions that are added to the plan."""

    evicts: tuple[Evict, ...] = ()
    admits: tuple[Admit, ...] = ()
    binds: tuple[Bind, ...] = ()
    starts: frozenset[str] = frozenset()
    """Workloads that are not held any more."""


def with_moves(plan: Plan, make: Callable[[], PostDecisionState], policy: Defragmentation) -> Plan:
    """The plan, with moves for the first held workload that moves help, where the policy allows it."""
    if not policy.proactive or not plan.holds or plan.evicts:
        return plan
    with np.errstate(over="ignore"):  # the hash function of the kernels overflows on purpose
        state = make()
        if _is_any_pod_terminating(state):
            return plan
        found = _Mover(state, list(plan.holds), policy).run()
    if not found.starts:
        return plan
    return msgspec.structs.replace(
        plan,
        binds=(*plan.binds, *found.binds),
        holds=tuple(hold for hold in plan.holds if hold.workload not in found.starts),
        admits=(*plan.admits, *found.admits),
        evicts=(*plan.evicts, *found.evicts),
    )


def _is_any_pod_terminating(state: PostDecisionState) -> bool:
    pods = state.overlay.snapshot.pods
    rows = np.flatnonzero((pods.alive == 1) & (pods.node >= 0)).tolist()
    return any(pods.objects[row].metadata.deletion_timestamp for row in rows)


class _Mover:
    def __init__(self, state: PostDecisionState, holds: Sequence[Hold], policy: Defragmentation) -> None:
        self._state, self._holds, self._policy = state, holds, policy
        snapshot = state.overlay.snapshot
        self._owner = {
            pod: workload
            for workload in snapshot.workloads
            for pod_set in workload.pod_sets
            for pod in pod_set.pod_keys
        }
        costs = MoveCosts(state.now, state.queues)
        evicted = state.evicted_pods()
        self._movable = find_movable_pods(snapshot, snapshot.workloads, snapshot.budgets, costs, evicted)

    def run(self) -> MoveDecisions:
        for hold in self._targets():
            piece = self._state.pending_piece(hold.workload)
            choices = DryRuns(self._state).choices(piece) if piece is not None else None
            if piece is None or choices is None:
                continue
            movable = self._movable_for(piece)
            limits = SearchLimits(max_moves=self._policy.max_moves, steps=MAX_SEARCH_STEPS)
            found = MoveFinder(self._state.overlay, self._state.placer, movable, limits).find(piece, choices)
            if found is not None and self._is_worth_it(piece, hold.verdict, movable, found):
                decisions = self._execute(piece, choices, movable, found)
                if decisions is not None:
                    return decisions
        return MoveDecisions()

    def _targets(self) -> Iterator[Hold]:
        movable = (hold for hold in self._holds if hold.verdict.code in CODES_FIXED_BY_MOVES)
        yield from [hold for hold in movable if self._is_whole(hold)][:MAX_TARGETS]

    def _is_whole(self, hold: Hold) -> bool:
        """Whether all of the workload waits, not only a piece of a running one."""
        piece = self._state.pending_piece(hold.workload)
        return piece is not None and piece.key == hold.workload

    # Movable pods and their loss

    def _movable_for(self, piece: Workload) -> MovablePods:
        """Pods whose move stops no gang, and which come after the piece in the queue when they are created again."""
        kept = [pod for pod in self._movable.pods if pod.gang_loss < 0 and self._comes_after(pod, piece)]
        numbered = [msgspec.structs.replace(pod, number=number) for number, pod in enumerate(kept)]
        on_node: dict[int, list[int]] = {}
        for pod in numbered:
            on_node.setdefault(pod.node, []).append(pod.number)
        return MovablePods(
            tuple(numbered),
            (),
            self._movable.budgets,
            {node: tuple(numbers) for node, numbers in on_node.items()},
        )

    def _comes_after(self, movable: MovablePod, piece: Workload) -> bool:
        owner = self._owner.get(movable.pod.key)
        priority = owner.priority if owner is not None else movable.pod.spec.priority
        if priority > piece.priority:
            return False
        return owner is None or not owner.queue_name or self._queue(owner) == self._queue(piece)

    def _queue(self, workload: Workload) -> str:
        node = self._state.occupancy.cluster_queue_of(workload)
        return node.name if node is not None else ""

    def _is_worth_it(self, piece: Workload, verdict: Verdict, movable: MovablePods, moves: FoundMoves) -> bool:
        moved = {step.pod_number for step in moves.steps}
        pods = [movable.pods[number] for number in moved]
        held_milli = sum(held_gpu_milli(pod.shape, pod.grants) for pod in pods)
        requested = sum(
            held_gpu_milli(pod_set.shape, ()) * pod_set.count
            for pod_set in self._state.placer.pending_pod_sets(piece, _without_flavors(piece))[0]
        )
        seconds_gained = HORIZON_SECONDS
        if verdict.planned_start is not None:
            seconds_gained = min(seconds_gained, max(0, verdict.planned_start - self._state.now))
        return held_milli < requested and sum(step.loss for step in moves.steps) < requested * seconds_gained

    # Executing the moves on the overlay

    def _execute(
        self, piece: Workload, choices: Choices, movable: MovablePods, found: FoundMoves
    ) -> MoveDecisions | None:
        """The decisions, if the piece fits without the moved pods, and these fit elsewhere; otherwise None."""
        state, overlay = self._state, self._state.overlay
        checkpoint = state.occupancy.checkpoint()
        moved = [movable.pods[step.pod_number] for step in found.steps]
        moved = list({pod.number: pod for pod in moved}.values())
        for pod in moved:
            overlay.remove_running(pod.pod_row)
        ahead, behind = self._other_waiting(piece)
        placed = PlacementResult(ok=False)
        if not self._could_any_start(ahead):
            guard = PlannedStartGuard(state.occupancy, state.planned_starts, state.turns)
            placed = guard.place(piece, choices)
        if not placed.ok or self._could_any_start(behind) or not self._place_again(moved):
            state.occupancy.rollback(checkpoint)
            return None
        keys = tuple(dict.fromkeys(self._workload_key(pod) for pod in moved))
        return MoveDecisions(
            self._evicts(moved, piece.key),
            () if piece.kind == "Pod" and not piece.queue_name else (self._admit(piece, choices, placed.nodes, keys),),
            tuple(self._binds(piece, keys)),
            frozenset([piece.key]),
        )

    def _other_waiting(self, piece: Workload) -> tuple[list[Workload], list[Workload]]:
        """Waiting workloads decided before the piece, and those after it; one for each kind of request."""
        waiting = [(self._state.pending_piece(hold.workload), position) for position, hold in enumerate(self._holds)]
        ranks = {
            waiting_piece.key: self._rank(waiting_piece, position)
            for waiting_piece, position in waiting
            if waiting_piece is not None
        }
        ahead: dict[object, Workload] = {}
        behind: dict[object, Workload] = {}
        for other, _ in waiting:
            if other is None or other.key == piece.key or other.hold or not other.active:
                continue
            pod_sets, _, _ = self._state.placer.pending_pod_sets(other, _without_flavors(other))
            shapes = ((pod_set.shape.key, pod_set.count) for pod_set in pod_sets)
            kind = (other.namespace, other.queue_name, *shapes)
            side = ahead if ranks[other.key] < ranks[piece.key] else behind
            side.setdefault(kind, other)
        return list(ahead.values()), list(behind.values())

    def _rank(self, piece: Workload, place: int) -> tuple[int, int]:
        """Holds are in the order of the decision: urgent single pods, workloads (with a known turn), other pods."""
        turn = self._state.turns.get(piece.key)
        if turn is not None:
            return 1, turn
        first = next((i for i, hold in enumerate(self._holds) if hold.workload in self._state.turns), place)
        return (0 if place < first else 2), place

    def _could_any_start(self, others: Sequence[Workload]) -> bool:
        """Whether any of them could start on the overlay as it is now, without the moved pods."""
        if len(others) > MAX_OTHERS:
            return True
        return any(DryRuns(self._state).would_start(other) for other in others)

    def _place_again(self, moved: Iterable[MovablePod]) -> bool:
        """Place the moved pods as the next decision would, and leave them there; false where one doesn't fit."""
        overlay = self._state.overlay
        for pod in sorted(moved, key=lambda pod: (-held_gpu_milli(pod.shape, pod.grants), pod.number)):
            row = overlay.table.row(pod.shape, overlay.snapshot, pod.pod)
            reasons = overlay.reasons(pod.pod, row)
            node = overlay.select_node(pod.pod, row, reasons, overlay.snapshot.decided_pods, pod.allowed)
            if node < 0:
                return False
            overlay.assume(pod.pod, row, node)
        return True

    # Decisions

    def _workload_key(self, movable: MovablePod) -> str:
        owner = self._owner.get(movable.pod.key)
        return owner.key if owner is not None else movable.pod.key

    def _evicts(self, moved: Sequence[MovablePod], target: str) -> tuple[Evict, ...]:
        pods: dict[str, list[str]] = {}
        for pod in moved:
            pods.setdefault(self._workload_key(pod), []).append(pod.pod.key)
        return tuple(Evict(key, tuple(names), target, EVICTION_REASON) for key, names in pods.items())

    def _admit(
        self, piece: Workload, choices: Choices, nodes: Sequence[dict[str, int]], keys: tuple[str, ...]
    ) -> Admit:
        pod_sets = tuple(
            AdmittedPodSet(choice.name, choice.count, choice.flavors, pod_nodes)
            for choice, pod_nodes in zip(choices, nodes, strict=True)
        )
        return Admit(piece.key, piece.kind, self._queue(piece), pod_sets, keys)

    def _binds(self, piece: Workload, keys: tuple[str, ...]) -> Iterator[Bind]:
        """Binds for the pods of the piece that exist already."""
        snapshot, placer = self._state.overlay.snapshot, self._state.placer
        unpacker = GrantUnpacker(snapshot)
        for index, pod_set in enumerate(piece.pod_sets):
            rows = [row for key in pod_set.pod_keys if (row := placer.placed_workloads.pod_row(key)) is not None]
            waiting = [row for row in rows if int(snapshot.pods.node[row]) == PENDING]
            for placement in placer.placed_workloads[piece.key].placed:
                if placement.pod_set == index and placement.member < len(waiting):
                    row, assumed = waiting[placement.member], placement.assumed
                    grants = unpacker.grants(row, assumed.node, assumed.grant)
                    node = snapshot.nodes.names[assumed.node]
                    yield Bind(snapshot.pods.objects[row].key, node, grants, keys)


def _without_flavors(piece: Workload) -> Choices:
    return tuple(PodSetChoice(pod_set.name, pod_set.count, {}) for pod_set in piece.pod_sets)
