"""The overlay: a private copy of the state, on which a decision places pods, takes others away, and undoes both.

`placement.place` works through the queue on it, and whatever asks "what if" does so too: `checkpoint`, try, `rollback`.
The table's rows follow the overlay through a log of the nodes that changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from windlass import jit
from windlass.cluster.facts import Bools
from windlass.cluster.ledger import book
from windlass.cluster.shape import Shape, bears_on_others, is_plain
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.state import BLOCKED, Ints, NodeState, Words
from windlass.model.pod import Pod
from windlass.model.reasons import (
    WHY_BIND_REFUSED,
    WHY_GPU_DEVICE_ROOM,
    WHY_GPU_UNHEALTHY,
    WHY_MIG_NO_ROOM,
    why_insufficient,
)
from windlass.placement.arrays import IMPOSSIBLE, MAX_REQUESTS, SCORER, Rule
from windlass.placement.kernels.scores import RANDOM, WINDLASS
from windlass.placement.neighbours import Neighbours, needs_neighbours
from windlass.placement.preferences import preference_scores
from windlass.placement.recall import Recall
from windlass.placement.table import ScoreTable
from windlass.placement.verdicts import Accounts, Refusal, bits_of

# What freeing room on the node could cure; anything else is not a near miss.
_CURABLE = (
    sum(why_insufficient(j) for j in range(MAX_REQUESTS))
    | WHY_GPU_DEVICE_ROOM
    | WHY_GPU_UNHEALTHY
    | WHY_MIG_NO_ROOM
)
HOPELESS = np.uint64(((1 << 64) - 1) ^ _CURABLE)

MOST_INTERPRETED = 20_000
"""Nodes that are looked at by plain Python, one trial after the other, before loading the kernels pays."""


class Placing(NamedTuple):
    """A pod that was put on a node here."""

    pod: Pod
    row: int
    """Of the table."""
    node: int
    grant: np.uint64


class Removal(NamedTuple):
    """A running pod that was taken off its node here."""

    pod_row: int
    """Of the snapshot's pods."""
    node: int


class Unseating(NamedTuple):
    """A pod that was placed here and taken off again, out of turn."""

    placing: Placing


class Closing(NamedTuple):
    """A node was closed to new pods (1), or opened again (-1)."""

    node: int
    sign: int


class Return(NamedTuple):
    """A pod that was taken off here and came back, out of turn."""

    of: Removal | Unseating


Step = Placing | Removal | Unseating | Return | Closing


class Overlay:
    def __init__(
        self,
        snapshot: Snapshot,
        table: ScoreTable,
        rule: Rule,
        kernels: jit.Kernels,
        recall: Recall | None = None,
        state: NodeState | None = None,
    ) -> None:
        """`recall`: what earlier decisions worked out. `state`: to start from, in place of the snapshot's."""
        self.snapshot, self.table, self.rule, self.kernels = snapshot, table, rule, kernels
        self.recall = recall or Recall()
        self.recall.begin(snapshot)
        self.state = (state or snapshot.state).copy()
        self.log: Ints = np.zeros(64, dtype=np.int64)
        self.log_end = 0
        self._steps: list[Step] = []
        self._numbers: list[int] = []
        """A number for every step that no other step ever has."""
        self._next = 1
        self._looks = 0
        self._neighbours: Neighbours | None = None
        self._is_tied = bool(snapshot.tied)
        """Some pod that is or was here bears on others by more than what it takes."""
        self._one = table.scratch(1)
        table.begin()
        kernels.refresh_all_nodes(self.state, table.memo, table.mix, rule)

    def expect(self, looks: int) -> None:
        """So many more nodes are about to be looked at: who looks often soon wants compiled kernels."""
        self._looks += looks
        if self._looks > MOST_INTERPRETED:
            self.kernels = jit.kernels(small=False)

    def fork(self) -> Overlay:
        """A copy with a table of its own, to try things on while this one is in use. Its past can't be undone."""
        table = ScoreTable(self.snapshot, self.table.mix, self.table.strategies)
        other = Overlay(self.snapshot, table, self.rule, self.kernels, state=self.state)
        other._is_tied = self._is_tied
        other._steps, other._numbers, other._next = list(self._steps), list(self._numbers), self._next
        return other

    # Trying and undoing

    def checkpoint(self) -> int:
        return len(self._steps)

    @property
    def version(self) -> int:
        """Where this is the same, everything here is the same: what was tried in between has been undone."""
        return self._numbers[-1] if self._numbers else 0

    def _note(self, step: Step) -> None:
        self._steps.append(step)
        self._numbers.append(self._next)
        self._next += 1

    def rollback(self, to: int) -> None:
        """Undo everything since the checkpoint, latest first."""
        back: dict[int, Removal] = {}
        """Running pods that came back, whose going is perhaps undone as well: then both were nothing."""
        while len(self._steps) > to:
            step = self._steps.pop()
            self._numbers.pop()
            if isinstance(step, Placing):
                self._exchange(step, 1)
            elif isinstance(step, Unseating):
                self._exchange(step.placing, -1)
            elif isinstance(step, Closing):
                self._close(step.node, -step.sign)
            elif isinstance(step, Removal):
                if back.pop(step.pod_row, None) is None:
                    self._book(step, 1)
            elif isinstance(step.of, Removal):
                back[step.of.pod_row] = step.of
            else:
                self._exchange(step.of.placing, 1)
        for gone in back.values():
            self._book(gone, -1)

    def take(self, pod: Pod, row: int, node: int) -> Placing:
        """Put a pod that fits on the node."""
        device = int(self.table.cells.device[row, node])
        grant = self.kernels.take(
            self.state, self.table.shapes, row, node, device, self.table.shapes[row, SCORER] == WINDLASS
        )
        placing = Placing(pod, row, node, np.uint64(grant))
        self._is_tied = self._is_tied or bears_on_others(pod)
        self._note(placing)
        self._changed(node)
        if self._neighbours is not None:
            self._neighbours.add(pod, node)
        return placing

    def is_plain(self, pod: Pod) -> bool:
        """Whether only the nodes' own state decides where the pod goes: no rule between pods, and no preference."""
        is_refused = pod.key in self.snapshot.refusals.binds
        return not self._is_tied and not self._dislikes and not is_refused and is_plain(pod)

    def place_whole(self, pods: Sequence[Pod], rows: Sequence[int]) -> list[Placing] | int:
        """Plain pods (with their rows of the table), each on the best node that is left, in one call; or, with nothing
        changed, the number of the first that finds none."""
        count, table = len(pods), self.table
        outcome = table.scratch(count)
        self.reserve_log(2 * count + 1)
        self.log_end, verdicts = self.kernels.place_queue(
            self.state,
            table.shapes,
            table.cells,
            table.memo,
            table.mix,
            self.rule,
            np.array(rows, dtype=np.int64),
            np.array([0, count], dtype=np.int64),
            self.snapshot.decisions + self.checkpoint(),
            self.log,
            self.log_end,
            HOPELESS,
            outcome,
        )
        if verdicts:
            return int(outcome.verdict_entry[0])
        nodes, grants = outcome.node[:count].tolist(), outcome.grant[:count].copy()
        self.placed(pods, rows, nodes, grants)
        made = self._steps[-count:]
        return [step for step in made if isinstance(step, Placing)]

    def refused_by_kernel(self, shape: Shape) -> Refusal:
        """Why the pod found no node that `place_whole` has just named."""
        return Refusal(shape, self.snapshot.facts, Accounts.keep(self.table.scratch(1), 1), 0)

    def seat(self, pod: Pod, row: int, node: int) -> Placing:
        """Put a pod on the node whether it fits or not: somebody else has decided that it is there."""
        self.refresh(row)
        return self.take(pod, row, node)

    def pod_rows(self) -> dict[str, int]:
        """Pod key → row of the snapshot's pods."""
        return self.recall.pod_rows(self.snapshot.pods)

    def remove(self, pod_row: int) -> None:
        """Take a running pod off its node, as if it had been evicted."""
        step = Removal(pod_row, int(self.snapshot.pods.node[pod_row]))
        self._note(step)
        self._book(step, -1)

    def removed(self) -> list[Pod]:
        """The running pods that are off their nodes here."""
        objects = self.snapshot.pods.objects
        return [objects[row] for row in self._rows_off()]

    def taken_off(self) -> frozenset[int]:
        """Rows of the running pods that are not here any more."""
        return frozenset(self._rows_off())

    def _rows_off(self) -> dict[int, None]:
        rows: dict[int, None] = {}
        for step in self._steps:
            if isinstance(step, Removal):
                rows[step.pod_row] = None
            elif isinstance(step, Return) and isinstance(step.of, Removal):
                rows.pop(step.of.pod_row, None)
        return rows

    def come_back(self, pod_row: int) -> None:
        """The opposite of `remove`, whatever was done since."""
        step = Removal(pod_row, int(self.snapshot.pods.node[pod_row]))
        self._note(Return(step))
        self._book(step, 1)

    def reseat(self, placing: Placing) -> None:
        """The opposite of `unseat`, whatever was done since."""
        self._note(Return(Unseating(placing)))
        self._exchange(placing, -1)

    def unseat(self, placing: Placing) -> None:
        """Take a pod that was placed here off its node again."""
        self._note(Unseating(placing))
        self._exchange(placing, 1)

    def close(self, node: int, sign: int = 1) -> None:
        """The node takes no new pods; with -1 it does again."""
        self._note(Closing(node, sign))
        self._close(node, sign)

    def _close(self, node: int, sign: int) -> None:
        self.state.node[node, BLOCKED] += sign
        self._changed(node)

    def _exchange(self, placing: Placing, sign: int) -> None:
        self.kernels.exchange(self.state, self.table.shapes, placing.row, placing.node, placing.grant, sign)
        self._changed(placing.node)
        if self._neighbours is not None:
            change = self._neighbours.remove if sign > 0 else self._neighbours.add
            change(placing.pod, placing.node)

    def placed(
        self, pods: Sequence[Pod], rows: Sequence[int], nodes: Sequence[int], grants: Iterable[np.uint64]
    ) -> None:
        """Note placements that a kernel has already made."""
        self._steps.extend(map(Placing, pods, rows, nodes, grants))
        self._numbers.extend(range(self._next, self._next + len(pods)))
        self._next += len(pods)
        if self._neighbours is not None:
            for pod, node in zip(pods, nodes, strict=True):
                self._neighbours.add(pod, node)

    def reserve_log(self, entries: int) -> None:
        """Room in the log for a kernel that writes so many entries."""
        if self.log_end + entries > len(self.log):
            self.log = np.concatenate([self.log, np.zeros(max(entries, len(self.log)), dtype=np.int64)])

    def _book(self, step: Removal, sign: int) -> None:
        pods = self.snapshot.pods
        shape = self.snapshot.shapes[int(pods.shape[step.pod_row])]
        book(self.state, step.node, shape, pods.grants[step.pod_row], self.snapshot.resources, sign)
        self._changed(step.node)
        if self._neighbours is not None:
            change = self._neighbours.add if sign > 0 else self._neighbours.remove
            change(pods.objects[step.pod_row], step.node)

    def _changed(self, node: int) -> None:
        self.kernels.refresh_node(self.state, self.table.memo, self.table.mix, self.rule, node)
        self.reserve_log(1)
        self.log[self.log_end] = node
        self.log_end += 1

    # Looking

    def refresh(self, row: int) -> None:
        """Bring a row of the table up to the overlay."""
        table = self.table
        self.kernels.refresh_row(
            self.state,
            table.shapes,
            table.cells,
            table.memo,
            table.mix,
            self.rule,
            self.log,
            self.log_end,
            row,
        )

    def reasons(self, pod: Pod, row: int) -> Words:
        """For every node why it can't take the pod now; 0 where it can."""
        self.refresh(row)
        cells = self.table.cells
        if not self.constrains(pod):
            alone: Words = cells.why[row].copy()
            return self._without_refused(pod, alone)
        why: Words = cells.why[row] | self.neighbours().reasons(pod, cells.static[row])
        return self._without_refused(pod, why)

    def _without_refused(self, pod: Pod, why: Words) -> Words:
        """With the nodes to which the API server has just refused to bind this very pod; changes `why` itself."""
        for node in self.refused_nodes((pod,)):
            why[node] |= np.uint64(WHY_BIND_REFUSED)
        return why

    def refused_nodes(self, pods: Iterable[Pod]) -> list[int]:
        """Nodes to which one of the pods may not be bound."""
        refused = self.snapshot.refusals.binds
        if not refused:
            return []
        index = self.snapshot.facts.index
        names = (one.node for pod in pods for one in refused.get(pod.key, ()))
        return [index[name] for name in names if name in index]

    def constrains(self, pod: Pod) -> bool:
        """Whether rules between pods could keep this one off a node."""
        if not self._is_tied and not needs_neighbours(pod):
            return False
        return self.neighbours().constrains(pod)

    def best(self, pod: Pod, row: int, why: Words, turn: int, among: Bools | None = None) -> int:
        """The node to choose, given the reasons; -1 if none is left."""
        feasible = why == 0
        if among is not None:
            feasible &= among
        if not feasible.any():
            return -1
        if self._is_tied or self._dislikes or not is_plain(pod):
            preferred = preference_scores(pod, self.snapshot.facts, self.neighbours(), feasible)
            if preferred is not None:
                feasible &= preferred == preferred[feasible].max()
        table = self.table
        if self.rule.scorer == RANDOM:
            left = np.where(feasible, np.uint64(0), np.uint64(1))
            return int(
                self.kernels.choose_at_random(
                    self.state, table.shapes, table.cells, self.rule, row, turn, left
                )
            )
        return int(np.argmax(np.where(feasible, table.cells.score[row], IMPOSSIBLE - 1)))

    @cached_property
    def _dislikes(self) -> bool:
        """Whether some node would rather not have some pods."""
        taints = (taint for taints in self.snapshot.facts.taint_sets for taint in taints)
        return any(taint.effect == "PreferNoSchedule" for taint in taints)

    def refusal(self, row: int, shape: Shape, why: Words) -> Refusal:
        """The same account of the row as the compiled loop gives, with the rules between pods in it."""
        cells = self.table.cells
        between = why & ~cells.why[row]
        if not between.any():  # the row has its own account, and nothing is added to it
            return self._account(row, shape)
        kept_why, kept_counts = cells.why[row].copy(), cells.counts[row].copy()
        cells.why[row] = why
        bits = int(np.bitwise_or.reduce(between))
        for bit in bits_of(bits):
            cells.counts[row, bit] += np.count_nonzero(between >> np.uint64(bit) & np.uint64(1))
        found = self._account(row, shape)
        cells.why[row], cells.counts[row] = kept_why, kept_counts
        return found

    def _account(self, row: int, shape: Shape) -> Refusal:
        table = self.table
        self.kernels.write_verdict(self.state, table.shapes, table.cells, self._one, row, 0, HOPELESS)
        return Refusal(shape, self.snapshot.facts, Accounts.keep(self._one, 1), 0)

    def neighbours(self) -> Neighbours:
        """The pods that are bound, and those placed so far, as others see them; made when first needed."""
        if self._neighbours is None:
            pods = self.snapshot.pods
            gone = self._rows_off()
            bound = np.flatnonzero((pods.node >= 0) & (pods.alive == 1)).tolist()
            there = [(pods.objects[row], int(pods.node[row])) for row in bound if row not in gone]
            there += [(placing.pod, placing.node) for placing in self.placed_here()]
            self._neighbours = Neighbours(self.snapshot.facts, self.snapshot.objects, there)
        return self._neighbours

    def placed_here(self) -> list[Placing]:
        """Pods that were placed on this overlay and are still there."""
        placed: dict[int, Placing] = {}
        for step in self._steps:
            if isinstance(step, Placing):
                placed[id(step)] = step
            elif isinstance(step, Unseating):
                placed.pop(id(step.placing), None)
            elif isinstance(step, Return) and isinstance(step.of, Unseating):
                placed[id(step.of.placing)] = step.of.placing
        return list(placed.values())
