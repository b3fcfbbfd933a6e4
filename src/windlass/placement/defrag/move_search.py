"""Searches for the lightest moves that give all pods of a workload a node: branch and bound, with a budget of steps.

`defrag.planner` and `move_finder` run it. A branch of the search tree is a queue of pods that need a node: first the
waiting ones, then those that had to leave their nodes for them. The next pod goes to a node that has capacity, or to
one that other pods leave, which then join the queue. A pod moves at most once. Answers with few moves are looked for
first, and the best answer so far bounds the rest. The caller's `accept` confirms an answer: it executes the moves in
some order, and asks the engine for the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import Ints
from windlass.placement.defrag.device_choice import assume_on_device, is_gpu_share, other_devices
from windlass.placement.defrag.node_clearing import NodeClearing, Subset
from windlass.placement.defrag.types import (
    ANY_DEVICE,
    LOSS_WEIGHT,
    WAITING,
    MovablePods,
    MoveSearchResult,
    PodToPlace,
    Relocation,
    SearchLimits,
)
from windlass.placement.overlay import Overlay

NO_CEILING = 1 << 100
FRACTION = 64
"""Estimates count in 64ths of what the movable pods of a node hold."""
TryMoves = Callable[[tuple[Relocation, ...]], int | None]
"""Relocations → their weight when they are executed in a possible order; None where there is none."""


class MoveOption(msgspec.Struct, frozen=True, order=True):
    weight: int
    rank: int
    node: int
    leave: Subset
    """Numbers of the pods that have to leave the node first."""
    device: int = ANY_DEVICE


class _OutOfSteps(Exception):
    pass


class MoveSearch:
    """One search, for one choice of flavors and topology domain of a waiting workload."""

    def __init__(
        self,
        overlay: Overlay,
        movable_pods: MovablePods,
        limits: SearchLimits,
        accept: TryMoves,
        ceiling: int = NO_CEILING,
    ) -> None:
        self._overlay, self._movable, self._limits, self._accept = overlay, movable_pods, limits, accept
        self._usage = MovableUsage(overlay, movable_pods)
        self._clearing = NodeClearing(overlay, movable_pods, limits.subsets, self._step)
        self.steps = 0
        self.best: tuple[Relocation, ...] | None = None
        self.weight = ceiling
        """Weight of the best answer so far; only lighter ones are accepted."""
        self.is_complete = True
        """Whether no branch was left out: then the best answer is optimal, or there is none."""
        self._deadline = 0
        self._max_moves = 0
        self._is_cut = self._is_cut_by_moves = False
        self._moved: dict[int, Relocation | None] = {}
        """Number of a displaced pod → where it goes; None while it has no node."""
        self._refused: set[frozenset[Relocation]] = set()

    def run(self, pods: Sequence[PodToPlace], stop_at: int = 0) -> None:
        """Search for moves after which all pods have a node; stop at an answer of weight `stop_at`."""
        base = self._overlay.checkpoint()
        # The largest first: the fewest nodes fit it, so that the tree is narrow at the top.
        queue = sorted(pods, key=lambda item: (-_size(item), item.pod_set))
        most = 1
        # Iterative deepening: the limit on moves doubles; all rounds but the last get half of the remaining steps.
        while True:
            most = min(most, self._limits.max_moves)
            last = most == self._limits.max_moves
            left = self._limits.steps - self.steps
            self._deadline = self.steps + (left if last else left // 2)
            self._max_moves, self._is_cut_by_moves, self._is_cut = most, False, False
            try:
                self._descend(queue, stop_at)
            except _OutOfSteps:
                self._is_cut = True
            self._overlay.rollback(base)
            self._moved.clear()
            if self.weight <= stop_at or last or (not self._is_cut_by_moves and not self._is_cut):
                break
            most *= 2
        self.is_complete = not self._is_cut

    def _step(self) -> None:
        self.steps += 1
        if self.steps > self._deadline:
            raise _OutOfSteps

    def _descend(self, queue: Sequence[PodToPlace], stop_at: int) -> None:
        """Depth-first search with an explicit stack: a gang may have a thousand pods."""
        seen: set[object] = set()
        placed: list[tuple[int, int]] = []
        stack: list[_Frame] = [self._frame(list(queue), 0)]
        while stack:
            frame = stack[-1]
            self._undo(frame, placed)
            option = next(frame.options, None)
            if option is None or self.weight <= stop_at:
                stack.pop()
                continue
            if frame.spent + option.weight >= self.weight:
                stack.pop()  # options come in order of weight, so none of the others is lighter
                continue
            rest = self._apply(frame, option, placed)
            # Which pod of a set is where does not matter, nor the order of the moves.
            key = (frozenset(self._moved.items()), tuple(sorted(placed)))
            if key in seen:
                continue
            seen.add(key)
            if rest:
                stack.append(self._frame(rest, frame.spent + option.weight))
            else:
                self._offer_answer()

    def _frame(self, queue: list[PodToPlace], spent: int) -> _Frame:
        return _Frame(queue, spent, self._overlay.checkpoint(), iter(self._options(queue[0], spent)))

    def _undo(self, frame: _Frame, placed: list[tuple[int, int]]) -> None:
        """Restore the state in which the frame was made."""
        self._overlay.rollback(frame.mark)
        if not frame.applied:
            return
        frame.applied = False
        item = frame.queue[0]
        if item.pod_number == WAITING:
            placed.pop()
        else:
            self._moved[item.pod_number] = None
        for number in frame.left:
            del self._moved[number]

    def _apply(self, frame: _Frame, option: MoveOption, placed: list[tuple[int, int]]) -> list[PodToPlace]:
        item = frame.queue[0]
        movable = self._movable.pods
        for number in option.leave:
            self._overlay.remove_running(movable[number].pod_row)
            self._moved[number] = None
        self._step()
        assume_on_device(self._overlay, item.pod, item.row, option.node, option.device)
        frame.applied, frame.left = True, option.leave
        if item.pod_number == WAITING:
            placed.append((item.pod_set, option.node))
        else:
            self._moved[item.pod_number] = Relocation(item.pod_number, option.node, option.device)
        rest = frame.queue[1:]
        if option.leave:
            # Waiting pods first, and of the displaced ones the largest: small ones fit into what is left.
            rest = [pod for pod in rest if pod.pod_number == WAITING] + sorted(
                [pod for pod in rest if pod.pod_number != WAITING]
                + [self._displaced(number) for number in option.leave],
                key=lambda pod: (-_size(pod), pod.pod_number),
            )
        return rest

    def _displaced(self, number: int) -> PodToPlace:
        movable = self._movable.pods[number]
        row = self._overlay.table.row(movable.shape, self._overlay.snapshot)
        return PodToPlace(movable.pod, movable.shape, row, number, allowed=movable.allowed)

    # Options for the next pod

    def _options(self, item: PodToPlace, spent: int) -> list[MoveOption]:
        reasons = self._clearing.reasons(item)
        allowed: Bools = self._overlay.table.static(item.row) == 0
        if item.allowed is not None:
            allowed = allowed & item.allowed
        if item.pod_number != WAITING and not self._movable.pods[item.pod_number].may_change_device:
            allowed = allowed.copy()
            allowed[self._movable.pods[item.pod_number].node] = False
        options = list(self._direct(item, allowed & (reasons == 0)))
        for node in self._nodes_to_clear(item, allowed & (reasons != 0)):
            options += self._by_clearing(item, node, int(reasons[node]), spent)
        return sorted(options)

    def _direct(self, item: PodToPlace, feasible: Bools) -> Iterator[MoveOption]:
        nodes = np.flatnonzero(feasible)
        score = self._overlay.table.cells.score[self._overlay.slot(item.row)]
        best = nodes[np.lexsort((nodes, -score[nodes]))]
        if len(best) > self._limits.nodes:
            self._is_cut = True
        chosen: list[int] = best[: self._limits.nodes].tolist()
        for rank, node in enumerate(chosen):
            yield MoveOption(0, rank, node, ())
        if item.pod_number == WAITING or not is_gpu_share(item.shape):
            return
        for rank, node in enumerate(chosen):
            for device in other_devices(self._overlay, item.shape, item.row, node):
                yield MoveOption(0, len(chosen) + rank, node, (), device)

    def _movable_on(self, node: int) -> Subset:
        return tuple(number for number in self._movable.on_node.get(node, ()) if number not in self._moved)

    def _nodes_to_clear(self, item: PodToPlace, allowed: Bools) -> list[int]:
        """Nodes with movable pods, those with the lowest estimated weight first."""
        nodes = np.flatnonzero(allowed & (self._usage.weight > 0))
        if len(self._moved) >= self._max_moves:
            self._is_cut_by_moves |= len(nodes) > 0
            return []
        if len(nodes) > self._limits.nodes:
            self._is_cut = True
            estimate = self._usage.estimate(self._overlay, item, nodes)
            nodes = nodes[np.lexsort((nodes, estimate))[: self._limits.nodes]]
        found: list[int] = nodes.tolist()
        return found

    def _by_clearing(self, item: PodToPlace, node: int, reasons: int, spent: int) -> Iterator[MoveOption]:
        sets, complete = self._clearing.smallest_sets_to_move(item, node, self._movable_on(node), reasons)
        self._is_cut |= not complete
        for numbers in sets:
            if len(self._moved) + len(numbers) > self._max_moves:
                self._is_cut_by_moves = True
            elif self._within_budgets(numbers):
                weight = self._added_weight(numbers)
                if spent + weight < self.weight:
                    yield MoveOption(weight, 0, node, numbers)

    def _added_weight(self, numbers: Subset) -> int:
        """What these moves add to the weight of those made already; a gang's loss counts once."""
        pods, gang_losses = self._movable.pods, self._movable.gang_losses
        gangs = {pods[number].gang_loss for number in self._moved}
        new_gangs = {pods[number].gang_loss for number in numbers} - gangs - {-1}
        return sum(pods[number].weight for number in numbers) + LOSS_WEIGHT * sum(
            gang_losses[number].loss for number in new_gangs
        )

    def _within_budgets(self, numbers: Subset) -> bool:
        used: dict[int, int] = {}
        for number in (*self._moved, *numbers):
            for budget in self._movable.pods[number].budgets:
                used[budget] = used.get(budget, 0) + 1
        return all(count <= self._movable.budgets[budget] for budget, count in used.items())

    def _offer_answer(self) -> None:
        relocations = tuple(relocation for relocation in self._moved.values() if relocation is not None)
        if frozenset(relocations) in self._refused:
            return
        weight = self._accept(relocations)
        if weight is None:
            self._refused.add(frozenset(relocations))
        elif weight < self.weight:
            self.weight, self.best = weight, relocations

    def found(self, bound: int) -> MoveSearchResult | None:
        if self.best is None:
            return None
        lowest = self.weight if self.is_complete else min(bound, self.weight)
        return MoveSearchResult(self.best, self.weight, lowest, self.steps)


class MovableUsage:
    """Sums of what the movable pods of each node hold, to estimate the weight of clearing it."""

    def __init__(self, overlay: Overlay, movable_pods: MovablePods) -> None:
        self.held: Ints = np.zeros_like(overlay.state.free)
        self.weight: Ints = np.zeros(overlay.snapshot.nodes.size, dtype=np.int64)
        resources = overlay.snapshot.resources
        for movable in movable_pods.pods:
            self.weight[movable.node] += movable_pods.min_weight(movable.number)
            for name, amount in movable.shape.requests:
                self.held[movable.node, resources.column(name)] += amount

    def estimate(self, overlay: Overlay, item: PodToPlace, nodes: Ints) -> Ints:
        """As if fractions of pods could leave; it decides only which nodes come first."""
        fractions: Ints = np.zeros(len(nodes), dtype=np.int64)
        for name, amount in item.shape.requests:
            column = overlay.snapshot.resources.column(name)
            short = np.maximum(0, amount - overlay.state.free[nodes, column])
            usage = np.maximum(1, self.held[nodes, column])
            fractions = np.maximum(fractions, np.minimum(1000 * FRACTION, short * FRACTION // usage))
        weight: Ints = self.weight[nodes] // FRACTION * np.where(fractions > 0, fractions, FRACTION)
        # Even without all movable pods the node would be too small, so that it comes last.
        return np.where(fractions > FRACTION, np.iinfo(np.int64).max, weight)


class _Frame:
    """One level of the search."""

    __slots__ = ("applied", "left", "mark", "options", "queue", "spent")

    def __init__(self, queue: list[PodToPlace], spent: int, mark: int, options: Iterator[MoveOption]) -> None:
        self.queue, self.spent, self.mark, self.options = queue, spent, mark, options
        self.applied = False
        self.left: Subset = ()


def _size(item: PodToPlace) -> int:
    gpu = item.shape.gpu
    milli = gpu.count * (gpu.milli or 1000) if gpu else 0
    return (milli << 32) + dict(item.shape.requests).get("cpu", 0)
