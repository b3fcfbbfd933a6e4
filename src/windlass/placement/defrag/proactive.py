"""Moves that the engine makes on its own, where the policy allows: small pods restart elsewhere, a large job starts.

`engine` calls `with_moves` last, with what is still held. What is decided is an eviction for `Defragmentation` and the
start of the one that it is for; the moved pods are made again by their controllers and find their place in the next
decision. Nothing moves but pods on their own whose controller makes them anew (no gang stops for it), within disruption
budgets, and only if the work that is lost is worth less than the earlier start.

Why it comes to rest: moves are made only where the one that waits asks for more GPUs than all moved pods hold, where it
goes before them in order (their priority is no higher, and they come back younger), and where nobody else who waits
could take the room that becomes free. So it does start, and for a fixed set of workloads the GPUs that are waited for
become strictly fewer with every set of moves. While pods are on their way out, nothing is moved.
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
"""Of those that wait, so many are looked at in one decision."""
MAX_OTHERS = 64
"""If more different requests than these wait beside it, nobody can say that none of them takes the room: no moves."""
HORIZON_SECONDS = 3600
"""An earlier start counts as so much earlier, where no start is planned."""
MAX_SEARCH_STEPS = 1500


class MoveDecisions(msgspec.Struct, frozen=True):
    """What was decided beside everything else."""

    evicts: tuple[Evict, ...] = ()
    admits: tuple[Admit, ...] = ()
    binds: tuple[Bind, ...] = ()
    starts: frozenset[str] = frozenset()
    """Those that are not held any more."""


def with_moves(plan: Plan, make: Callable[[], PostDecisionState], policy: Defragmentation) -> Plan:
    """The plan, with moves for the first of those who wait that moves help, where the policy allows it."""
    if not policy.proactive or not plan.holds or plan.evicts:
        return plan
    with np.errstate(over="ignore"):  # the kernels' mixing of words overflows on purpose
        after = make()
        if _is_somebody_leaving(after):
            return plan
        found = _Mover(after, list(plan.holds), policy).run()
    if not found.starts:
        return plan
    return msgspec.structs.replace(
        plan,
        binds=(*plan.binds, *found.binds),
        holds=tuple(hold for hold in plan.holds if hold.workload not in found.starts),
        admits=(*plan.admits, *found.admits),
        evicts=(*plan.evicts, *found.evicts),
    )


def _is_somebody_leaving(after: PostDecisionState) -> bool:
    pods = after.overlay.snapshot.pods
    rows = np.flatnonzero((pods.alive == 1) & (pods.node >= 0)).tolist()
    return any(pods.objects[row].metadata.deletion_timestamp for row in rows)


class _Mover:
    def __init__(self, after: PostDecisionState, holds: Sequence[Hold], policy: Defragmentation) -> None:
        self._after, self._holds, self._policy = after, holds, policy
        snapshot = after.overlay.snapshot
        self._owner = {
            pod: workload
            for workload in snapshot.workloads
            for pod_set in workload.pod_sets
            for pod in pod_set.pod_keys
        }
        costs = MoveCosts(after.now, after.queues)
        self._park = find_movable_pods(
            snapshot, snapshot.workloads, snapshot.budgets, costs, after.evicted_pods()
        )

    def run(self) -> MoveDecisions:
        for hold in self._targets():
            piece = self._after.pending_piece(hold.workload)
            choices = DryRuns(self._after).choices(piece) if piece is not None else None
            if piece is None or choices is None:
                continue
            park = self._may_move_for(piece)
            limits = SearchLimits(max_moves=self._policy.max_moves, steps=MAX_SEARCH_STEPS)
            found = MoveFinder(self._after.overlay, self._after.placer, park, limits).find(piece, choices)
            if found is not None and self._is_worth_it(piece, hold.verdict, park, found):
                made = self._carry_out(piece, choices, park, found)
                if made is not None:
                    return made
        return MoveDecisions()

    def _targets(self) -> Iterator[Hold]:
        fitting = [
            hold for hold in self._holds if hold.verdict.code in CODES_FIXED_BY_MOVES and self._is_whole(hold)
        ]
        yield from fitting[:MAX_TARGETS]

    def _is_whole(self, hold: Hold) -> bool:
        """A workload that waits with all its pods, not what a running one lacks."""
        piece = self._after.pending_piece(hold.workload)
        return piece is not None and piece.key == hold.workload

    # Who may be moved, and at what price

    def _may_move_for(self, piece: Workload) -> MovablePods:
        """Pods that stop nobody else, and that come after the piece once they are made again."""
        kept = [one for one in self._park.pods if one.gang_loss < 0 and self._comes_after(one, piece)]
        numbered = [msgspec.structs.replace(one, number=number) for number, one in enumerate(kept)]
        on_node: dict[int, list[int]] = {}
        for one in numbered:
            on_node.setdefault(one.node, []).append(one.number)
        return MovablePods(
            tuple(numbered),
            (),
            self._park.budgets,
            {node: tuple(numbers) for node, numbers in on_node.items()},
        )

    def _comes_after(self, one: MovablePod, piece: Workload) -> bool:
        owner = self._owner.get(one.pod.key)
        priority = owner.priority if owner is not None else one.pod.spec.priority
        if priority > piece.priority:
            return False
        return owner is None or not owner.queue_name or self._queue(owner) == self._queue(piece)

    def _queue(self, workload: Workload) -> str:
        node = self._after.occupancy.cluster_queue_of(workload)
        return node.name if node is not None else ""

    def _is_worth_it(self, piece: Workload, verdict: Verdict, park: MovablePods, found: FoundMoves) -> bool:
        moved = {step.pod_number for step in found.steps}
        held = sum(held_gpu_milli(park.pods[number].shape, park.pods[number].grants) for number in moved)
        asked = sum(
            held_gpu_milli(part.shape, ()) * part.count
            for part in self._after.placer.pending_pod_sets(piece, _plain(piece))[0]
        )
        earlier = HORIZON_SECONDS
        if verdict.planned_start is not None:
            earlier = min(earlier, max(0, verdict.planned_start - self._after.now))
        return held < asked and sum(step.loss for step in found.steps) < asked * earlier

    # Making the moves

    def _carry_out(
        self, piece: Workload, choices: Choices, park: MovablePods, found: FoundMoves
    ) -> MoveDecisions | None:
        """On the overlay: the moved pods are gone, the piece has its place, and so would they."""
        after, overlay = self._after, self._after.overlay
        mark = after.occupancy.checkpoint()
        moved = [park.pods[step.pod_number] for step in found.steps]
        moved = list({one.number: one for one in moved}.values())
        for one in moved:
            overlay.remove_running(one.pod_row)
        ahead, behind = self._others(piece)
        placed = PlacementResult(ok=False)
        if not self._is_wanted_by(ahead):
            placed = PlannedStartGuard(after.occupancy, after.planned_starts, after.turns).place(
                piece, choices
            )
        if not placed.ok or self._is_wanted_by(behind) or not self._find_places_again(moved):
            after.occupancy.rollback(mark)
            return None
        keys = tuple(dict.fromkeys(self._key(one) for one in moved))
        return MoveDecisions(
            self._evicts(moved, piece.key),
            ()
            if piece.kind == "Pod" and not piece.queue_name
            else (self._admit(piece, choices, placed.nodes, keys),),
            tuple(self._binds(piece, keys)),
            frozenset([piece.key]),
        )

    def _others(self, piece: Workload) -> tuple[list[Workload], list[Workload]]:
        """Those who wait and are decided before the piece, and those behind it; one of each kind of request."""
        waiting = [(self._after.pending_piece(hold.workload), at) for at, hold in enumerate(self._holds)]
        ranks = {one.key: self._rank(one, at) for one, at in waiting if one is not None}
        ahead: dict[object, Workload] = {}
        behind: dict[object, Workload] = {}
        for other, _ in waiting:
            if other is None or other.key == piece.key or other.hold or not other.active:
                continue
            parts, _, _ = self._after.placer.pending_pod_sets(other, _plain(other))
            kind = (other.namespace, other.queue_name, *((part.shape.key, part.count) for part in parts))
            side = ahead if ranks[other.key] < ranks[piece.key] else behind
            side.setdefault(kind, other)
        return list(ahead.values()), list(behind.values())

    def _rank(self, piece: Workload, at: int) -> tuple[int, int]:
        """Holds come in the order of the decision: urgent pods, workloads (whose turn is known), other pods."""
        turn = self._after.turns.get(piece.key)
        if turn is not None:
            return 1, turn
        first = next((i for i, hold in enumerate(self._holds) if hold.workload in self._after.turns), at)
        return (0 if at < first else 2), at

    def _is_wanted_by(self, others: Sequence[Workload]) -> bool:
        """Whether any of them could start in the room as it is without the pods that move."""
        if len(others) > MAX_OTHERS:
            return True
        return any(DryRuns(self._after).would_start(other) for other in others)

    def _find_places_again(self, moved: Iterable[MovablePod]) -> bool:
        """The pods that move, as the next decision would place them; they stay there for this one."""
        overlay = self._after.overlay
        for one in sorted(moved, key=lambda one: (-held_gpu_milli(one.shape, one.grants), one.number)):
            row = overlay.table.row(one.shape, overlay.snapshot, one.pod)
            why = overlay.reasons(one.pod, row)
            node = overlay.select_node(one.pod, row, why, overlay.snapshot.decided_pods, one.allowed)
            if node < 0:
                return False
            overlay.assume(one.pod, row, node)
        return True

    # Decisions

    def _key(self, one: MovablePod) -> str:
        owner = self._owner.get(one.pod.key)
        return owner.key if owner is not None else one.pod.key

    def _evicts(self, moved: Sequence[MovablePod], target: str) -> tuple[Evict, ...]:
        pods: dict[str, list[str]] = {}
        for one in moved:
            pods.setdefault(self._key(one), []).append(one.pod.key)
        return tuple(Evict(key, tuple(names), target, EVICTION_REASON) for key, names in pods.items())

    def _admit(
        self, piece: Workload, choices: Choices, nodes: Sequence[dict[str, int]], keys: tuple[str, ...]
    ) -> Admit:
        sets = tuple(
            AdmittedPodSet(choice.name, choice.count, choice.flavors, where)
            for choice, where in zip(choices, nodes, strict=True)
        )
        return Admit(piece.key, piece.kind, self._queue(piece), sets, keys)

    def _binds(self, piece: Workload, keys: tuple[str, ...]) -> Iterator[Bind]:
        """Of the pods that exist."""
        snapshot, site = self._after.overlay.snapshot, self._after.placer
        reader = GrantUnpacker(snapshot)
        for part, pod_set in enumerate(piece.pod_sets):
            rows = [
                row for key in pod_set.pod_keys if (row := site.placed_workloads.pod_row(key)) is not None
            ]
            waiting = [row for row in rows if int(snapshot.pods.node[row]) == PENDING]
            for place in site.placed_workloads[piece.key].placed:
                if place.pod_set == part and place.member < len(waiting):
                    row, placing = waiting[place.member], place.assumed
                    grants = reader.grants(row, placing.node, placing.grant)
                    node = snapshot.nodes.names[placing.node]
                    yield Bind(snapshot.pods.objects[row].key, node, grants, keys)


def _plain(piece: Workload) -> Choices:
    return tuple(PodSetChoice(one.name, one.count, {}) for one in piece.pod_sets)
