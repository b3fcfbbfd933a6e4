"""Which pods to move where: branch and bound on the overlay, with a budget of steps.

A branch is a set of pods that need a place, first those that wait, then those that were taken off their nodes for
them. The next one is put where there is room, or where pods can be made to leave, who then need a place themselves. A
pod that was moved stays where it is put. Plans with few moves are looked for first, and whatever has been found bounds
the rest. `accept` has the last word on an answer: it tries the moves one after another, and the engine on the result.
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
PARTS = 64
TryMoves = Callable[[tuple[Relocation, ...]], int | None]
"""The moves in some order → what they weigh when carried out; None where they can't be."""


class MoveOption(msgspec.Struct, frozen=True, order=True):
    weight: int
    rank: int
    node: int
    leave: Subset
    device: int = ANY_DEVICE


class _OutOfSteps(Exception):
    pass


class MoveSearch:
    """One search: for one way in which a waiting workload may be placed."""

    def __init__(
        self,
        overlay: Overlay,
        movable_pods: MovablePods,
        limits: SearchLimits,
        accept: TryMoves,
        ceiling: int = NO_CEILING,
    ) -> None:
        self._overlay, self._park, self._limits, self._accept = overlay, movable_pods, limits, accept
        self._freight = MovableUsage(overlay, movable_pods)
        self._clearing = NodeClearing(overlay, movable_pods, limits.subsets, self._step)
        self.steps = 0
        self.best: tuple[Relocation, ...] | None = None
        self.weight = ceiling
        """Of the best so far; only what is lighter counts."""
        self.is_complete = True
        """Nothing was left out: what was found is the lightest there is, or there is nothing."""
        self._deadline = 0
        self._most = 0
        self._cut = self._cut_by_moves = False
        self._moved: dict[int, Relocation | None] = {}
        """Pod → where it was put; None while it has no place."""
        self._refused: set[frozenset[Relocation]] = set()

    def run(self, pods: Sequence[PodToPlace], stop_at: int = 0) -> None:
        """Look for moves after which all items have a place; stop at a weight of `enough`."""
        base = self._overlay.checkpoint()
        queue = sorted(pods, key=lambda item: (-_size(item), item.pod_set))
        most = 1
        while True:
            most = min(most, self._limits.max_moves)
            last = most == self._limits.max_moves
            left = self._limits.steps - self.steps
            self._deadline = self.steps + (left if last else left // 2)
            self._most, self._cut_by_moves, self._cut = most, False, False
            try:
                self._descend(queue, stop_at)
            except _OutOfSteps:
                self._cut = True
            self._overlay.rollback(base)
            self._moved.clear()
            if self.weight <= stop_at or last or (not self._cut_by_moves and not self._cut):
                break
            most *= 2
        self.is_complete = not self._cut

    def _step(self) -> None:
        self.steps += 1
        if self.steps > self._deadline:
            raise _OutOfSteps

    def _descend(self, queue: Sequence[PodToPlace], enough: int) -> None:
        """Depth first, on a stack of our own: a gang may have a thousand pods."""
        seen: set[object] = set()
        placed: list[tuple[int, int]] = []
        stack: list[_Frame] = [self._frame(list(queue), 0)]
        while stack:
            frame = stack[-1]
            self._undo(frame, placed)
            option = next(frame.options, None)
            if option is None or self.weight <= enough:
                stack.pop()
                continue
            if frame.spent + option.weight >= self.weight:
                stack.pop()  # options come in order of weight
                continue
            rest = self._apply(frame, option, placed)
            key = (frozenset(self._moved.items()), tuple(sorted(placed)))
            if key in seen:
                continue
            seen.add(key)
            if rest:
                stack.append(self._frame(rest, frame.spent + option.weight))
            else:
                self._answer()

    def _frame(self, queue: list[PodToPlace], spent: int) -> _Frame:
        return _Frame(queue, spent, self._overlay.checkpoint(), iter(self._options(queue[0], spent)))

    def _undo(self, frame: _Frame, placed: list[tuple[int, int]]) -> None:
        """Back to how things were when the frame was made."""
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
        movables = self._park.pods
        for number in option.leave:
            self._overlay.remove_running(movables[number].pod_row)
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
            rest = [one for one in rest if one.pod_number == WAITING] + sorted(
                [one for one in rest if one.pod_number != WAITING] + [self._item(n) for n in option.leave],
                key=lambda one: (-_size(one), one.pod_number),
            )
        return rest

    def _item(self, number: int) -> PodToPlace:
        one = self._park.pods[number]
        row = self._overlay.table.row(one.shape, self._overlay.snapshot)
        return PodToPlace(one.pod, one.shape, row, number, allowed=one.allowed)

    # Where the next one can go

    def _options(self, item: PodToPlace, spent: int) -> list[MoveOption]:
        why = self._clearing.reasons(item)
        allowed: Bools = self._overlay.table.cells.static[item.row] == 0
        if item.allowed is not None:
            allowed = allowed & item.allowed
        if item.pod_number != WAITING and not self._park.pods[item.pod_number].may_change_device:
            allowed = allowed.copy()
            allowed[self._park.pods[item.pod_number].node] = False
        options = list(self._direct(item, allowed & (why == 0)))
        for node in self._nodes_to_clear(item, allowed & (why != 0)):
            options += self._by_clearing(item, node, int(why[node]), spent)
        return sorted(options)

    def _direct(self, item: PodToPlace, feasible: Bools) -> Iterator[MoveOption]:
        nodes = np.flatnonzero(feasible)
        score = self._overlay.table.cells.score[item.row]
        best = nodes[np.lexsort((nodes, -score[nodes]))]
        if len(best) > self._limits.nodes:
            self._cut = True
        chosen: list[int] = best[: self._limits.nodes].tolist()
        for rank, node in enumerate(chosen):
            yield MoveOption(0, rank, node, ())
        if item.pod_number == WAITING or not is_gpu_share(item.shape):
            return
        for rank, node in enumerate(chosen):
            for device in other_devices(self._overlay, item.shape, item.row, node):
                yield MoveOption(0, len(chosen) + rank, node, (), device)

    def _there(self, node: int) -> Subset:
        return tuple(number for number in self._park.on_node.get(node, ()) if number not in self._moved)

    def _nodes_to_clear(self, item: PodToPlace, allowed: Bools) -> list[int]:
        """Nodes with pods that may leave, those that promise to be cheap first."""
        nodes = np.flatnonzero(allowed & (self._freight.weight > 0))
        if len(self._moved) >= self._most:
            self._cut_by_moves |= len(nodes) > 0
            return []
        if len(nodes) > self._limits.nodes:
            self._cut = True
            estimate = self._freight.estimate(self._overlay, item, nodes)
            nodes = nodes[np.lexsort((nodes, estimate))[: self._limits.nodes]]
        found: list[int] = nodes.tolist()
        return found

    def _by_clearing(self, item: PodToPlace, node: int, why: int, spent: int) -> Iterator[MoveOption]:
        ways, complete = self._clearing.smallest_sets_to_move(item, node, self._there(node), why)
        self._cut |= not complete
        for leave in ways:
            if len(self._moved) + len(leave) > self._most:
                self._cut_by_moves = True
            elif self._within_budgets(leave):
                weight = self._added(leave)
                if spent + weight < self.weight:
                    yield MoveOption(weight, 0, node, leave)

    def _added(self, leave: Subset) -> int:
        """What these moves add to those made already: a gang's loss counts once."""
        movables, charges = self._park.pods, self._park.gang_losses
        charged = {movables[number].gang_loss for number in self._moved}
        fresh = {movables[number].gang_loss for number in leave} - charged - {-1}
        return sum(movables[number].weight for number in leave) + LOSS_WEIGHT * sum(
            charges[number].loss for number in fresh
        )

    def _within_budgets(self, leave: Subset) -> bool:
        used: dict[int, int] = {}
        for number in (*self._moved, *leave):
            for budget in self._park.pods[number].budgets:
                used[budget] = used.get(budget, 0) + 1
        return all(count <= self._park.budgets[budget] for budget, count in used.items())

    def _answer(self) -> None:
        relocations = tuple(goal for goal in self._moved.values() if goal is not None)
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
    """What the pods that may leave hold on each node, in sums: a guess at what clearing it would weigh."""

    def __init__(self, overlay: Overlay, park: MovablePods) -> None:
        self.held: Ints = np.zeros_like(overlay.state.free)
        self.weight: Ints = np.zeros(overlay.snapshot.nodes.size, dtype=np.int64)
        resources = overlay.snapshot.resources
        for one in park.pods:
            self.weight[one.node] += park.min_weight(one.number)
            for name, amount in one.shape.requests:
                self.held[one.node, resources.column(name)] += amount

    def estimate(self, overlay: Overlay, item: PodToPlace, nodes: Ints) -> Ints:
        """As if pods could leave in part; it only decides whom to look at first."""
        parts: Ints = np.zeros(len(nodes), dtype=np.int64)
        for name, amount in item.shape.requests:
            column = overlay.snapshot.resources.column(name)
            short = np.maximum(0, amount - overlay.state.free[nodes, column])
            held = np.maximum(1, self.held[nodes, column])
            parts = np.maximum(parts, np.minimum(1000 * PARTS, short * PARTS // held))
        weight: Ints = self.weight[nodes] // PARTS * np.where(parts > 0, parts, PARTS)
        return np.where(parts > PARTS, np.iinfo(np.int64).max, weight)


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
