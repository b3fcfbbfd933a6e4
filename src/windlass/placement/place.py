"""Placing a queue: each unit goes to the best nodes that take it, in order, or is refused with the reasons.

`engine.decide` hands over a snapshot, the ordered queue and the memo; the result is arrays that it turns into a plan.
Runs of plain pods go through one compiled loop. A pod that other pods bear on, or that prefers some nodes, uses the
same table row, with the rules between pods masked in at choice time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from windlass import jit
from windlass.cluster.pods import UNREADABLE
from windlass.cluster.shape import Shape
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.state import Ints, Words
from windlass.model.pod import Pod
from windlass.model.reasons import (
    INVALID_OBJECT,
    WHY_GPU_DEVICE_ROOM,
    WHY_GPU_UNHEALTHY,
    WHY_MIG_NO_ROOM,
    Reason,
    why_insufficient,
)
from windlass.placement.arrays import IMPOSSIBLE, MAX_REQUESTS, NEAREST, Outcome, Rule
from windlass.placement.filters import pod_holds
from windlass.placement.kernels.scores import RANDOM, WINDLASS
from windlass.placement.neighbours import Neighbours
from windlass.placement.preferences import preference_scores
from windlass.placement.table import ScoreTable
from windlass.placement.verdicts import Refusal, refusal_of
from windlass.queueing.order import Queue

SMALL = 8_000
"""Cells (nodes times shapes) up to which plain Python is quicker than loading the compiled kernels."""
CHUNK = 4096

# What freeing room on the node could cure; anything else is not a near miss.
_CURABLE = (
    sum(why_insufficient(j) for j in range(MAX_REQUESTS))
    | WHY_GPU_DEVICE_ROOM
    | WHY_GPU_UNHEALTHY
    | WHY_MIG_NO_ROOM
)
HOPELESS = np.uint64(((1 << 64) - 1) ^ _CURABLE)


class Placed(NamedTuple):
    """What became of the queue, entry by entry."""

    node: Ints
    grant: Words
    refusal: Ints
    """Index into `refusals` where the node is -1; -1 for a pod that was held."""
    refusals: list[Refusal]
    held: dict[int, Reason]
    """Queue position → why no node was looked at."""


class Placer:
    """One decision's work on a private copy of the state."""

    def __init__(self, snapshot: Snapshot, table: ScoreTable, rule: Rule, queue: Queue) -> None:
        self.snapshot, self.table, self.rule, self.queue = snapshot, table, rule, queue
        self.state = snapshot.state.copy()
        self._rows = self._table_rows()
        small = snapshot.facts.size * len(np.unique(self._rows)) <= SMALL
        self.kernels = jit.kernels(small)
        self._log = np.zeros(2 * len(queue.rows) + 1, dtype=np.int64)
        self._log_end = 0
        self._neighbours: Neighbours | None = None
        self._outcome = _empty_outcome(len(queue.rows))
        self._result = Placed(
            np.full(len(queue.rows), -1, dtype=np.int64),
            np.zeros(len(queue.rows), dtype=np.uint64),
            np.full(len(queue.rows), -1, dtype=np.int64),
            [],
            {},
        )

    def run(self) -> Placed:
        with np.errstate(over="ignore"):  # the kernels' mixing of words overflows on purpose
            self.table.begin()
            self.kernels.refresh_all_nodes(self.state, self.table.memo, self.table.mix, self.rule)
            for first, end, plain in self._runs():
                if plain:
                    self._place_plain(first, end)
                else:
                    for unit in range(first, end):
                        self._place_unit(unit)
        return self._result

    def _table_rows(self) -> Ints:
        """The table row of every queue entry; -1 for a pod that can't be read."""
        shapes = self.snapshot.pods.shape[self.queue.rows]
        numbers, inverse = np.unique(shapes, return_inverse=True)
        rows = [
            -1 if number == UNREADABLE else self.table.row(self.snapshot.shapes[number], self.snapshot)
            for number in numbers.tolist()
        ]
        return np.array(rows, dtype=np.int64)[inverse] if len(rows) else np.zeros(0, dtype=np.int64)

    def _runs(self) -> Iterator[tuple[int, int, bool]]:
        """Units cut into runs (first, end, plain), plain ones no longer than a chunk."""
        units = self.queue.units
        plain = self._plain_units()
        cuts = np.flatnonzero(np.diff(plain.astype(np.int8))) + 1
        edges = [0, *cuts.tolist(), len(plain)]
        for first, end in pairwise(edges):
            if first == end:
                continue
            if not plain[first]:
                yield first, end, False
                continue
            while first < end:
                stop = int(np.searchsorted(units, units[first] + CHUNK, side="right")) - 1
                stop = min(end, max(first + 1, stop))
                yield first, stop, True
                first = stop

    def _plain_units(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Units that the compiled loop can take as they are."""
        count = len(self.queue.units) - 1
        if self.snapshot.tied or any(
            t.effect == "PreferNoSchedule" for ts in self.snapshot.facts.taint_sets for t in ts
        ):
            return np.zeros(count, dtype=np.bool_)
        plain = (self.snapshot.pods.plain[self.queue.rows] == 1) & (self._rows >= 0)
        if not count or not len(plain):
            return np.ones(count, dtype=np.bool_)
        return np.logical_and.reduceat(plain, self.queue.units[:-1])

    def _place_plain(self, first: int, end: int) -> None:
        units = self.queue.units[first : end + 1]
        start, stop = int(units[0]), int(units[-1])
        table, outcome = self.table, self._outcome
        self._log_end, verdicts = self.kernels.place_queue(
            self.state,
            table.shapes,
            table.cells,
            table.memo,
            table.mix,
            self.rule,
            self._rows[start:stop],
            units - start,
            self._turn(start),
            self._log,
            self._log_end,
            HOPELESS,
            outcome,
        )
        self._collect(start, stop, verdicts)
        if self._neighbours is not None:
            for i in range(start, stop):
                if self._result.node[i] >= 0:
                    self._neighbours.add(self._pod(i), int(self._result.node[i]))

    def _collect(self, start: int, stop: int, verdicts: int) -> None:
        outcome, result = self._outcome, self._result
        count = stop - start
        result.node[start:stop] = outcome.node[:count]
        result.grant[start:stop] = outcome.grant[:count]
        known = len(result.refusals)
        refused = outcome.verdict[:count]
        result.refusal[start:stop] = np.where(refused >= 0, refused + known, -1)
        for v in range(verdicts):
            shape = self._shape(start + int(outcome.verdict_entry[v]))
            result.refusals.append(refusal_of(shape, self.snapshot.facts, outcome, v))

    def _turn(self, position: int) -> int:
        """A number that no other pod of the snapshot's stream has, for `random` to draw anew each time."""
        return self.snapshot.decisions + position

    def _pod(self, position: int) -> Pod:
        return self.snapshot.pods.objects[int(self.queue.rows[position])]

    def _shape(self, position: int) -> Shape:
        return self.snapshot.shapes[int(self.snapshot.pods.shape[self.queue.rows[position]])]

    # One pod at a time, where others bear on it.

    def _place_unit(self, unit: int) -> None:
        first, end = int(self.queue.units[unit]), int(self.queue.units[unit + 1])
        for i in range(first, end):
            hold = self._hold(i)
            node = -1 if hold else self._choose(i)
            if node >= 0:
                self._take(i, node)
                continue
            refusal = -1 if hold else len(self._result.refusals) - 1
            for j in range(i - 1, first - 1, -1):
                self._give_back(j)
            self._result.refusal[first:end] = refusal
            if hold:
                self._result.held.update(dict.fromkeys(range(first, end), hold))
            return

    def _hold(self, i: int) -> Reason | None:
        if self._rows[i] < 0:
            return INVALID_OBJECT
        return pod_holds(self._pod(i), self.snapshot.objects)

    def _choose(self, i: int) -> int:
        pod, row, cells = self._pod(i), int(self._rows[i]), self.table.cells
        self.kernels.refresh_row(
            self.state,
            self.table.shapes,
            cells,
            self.table.memo,
            self.table.mix,
            self.rule,
            self._log,
            self._log_end,
            row,
        )
        neighbours = self._neighbourhood()
        why = cells.why[row] | neighbours.reasons(pod, cells.static[row])
        feasible = why == 0
        if not feasible.any():
            self._result.refusals.append(self._refusal(i, why))
            return -1
        score = cells.score[row]
        if self.rule.scorer == RANDOM:
            words = np.arange(len(why), dtype=np.uint64) + self.kernels.mixed(
                np.uint64(self._turn(i) + self.rule.seed)
            )
            score = np.array(
                [int(self.kernels.mixed(word) >> np.uint64(2)) for word in words], dtype=np.int64
            )
        preferred = preference_scores(pod, self.snapshot.facts, neighbours, feasible)
        if preferred is not None:
            feasible &= preferred == preferred[feasible].max()
        return int(np.argmax(np.where(feasible, score, IMPOSSIBLE - 1)))

    def _refusal(self, i: int, why: Words) -> Refusal:
        """The same account of the row as the compiled loop gives, with the rules between pods in it."""
        row, table = int(self._rows[i]), self.table
        kept_why, kept_counts = table.cells.why[row].copy(), table.cells.counts[row].copy()
        table.cells.why[row] = why
        table.cells.counts[row] = [
            np.count_nonzero(why >> np.uint64(bit) & np.uint64(1)) for bit in range(64)
        ]
        self.kernels.write_verdict(self.state, table.shapes, table.cells, self._outcome, row, 0, HOPELESS)
        table.cells.why[row], table.cells.counts[row] = kept_why, kept_counts
        return refusal_of(self._shape(i), self.snapshot.facts, self._outcome, 0)

    def _take(self, i: int, node: int) -> None:
        row = int(self._rows[i])
        device = int(self.table.cells.device[row, node])
        islands = self.rule.scorer == WINDLASS
        self._result.grant[i] = self.kernels.take(self.state, self.table.shapes, row, node, device, islands)
        self._result.node[i] = node
        self._changed(node)
        self._neighbourhood().add(self._pod(i), node)

    def _give_back(self, i: int) -> None:
        node = int(self._result.node[i])
        grant = self._result.grant[i]
        self.kernels.give_back(self.state, self.table.shapes, int(self._rows[i]), node, grant)
        self._result.node[i] = -1
        self._changed(node)
        self._neighbourhood().remove(self._pod(i), node)

    def _changed(self, node: int) -> None:
        self.kernels.refresh_node(self.state, self.table.memo, self.table.mix, self.rule, node)
        self._log[self._log_end] = node
        self._log_end += 1

    def _neighbourhood(self) -> Neighbours:
        """The pods that are bound, and those placed so far, as others see them; made when first needed."""
        if self._neighbours is None:
            pods = self.snapshot.pods
            bound = np.flatnonzero((pods.node >= 0) & (pods.alive == 1)).tolist()
            placed = [(pods.objects[row], int(pods.node[row])) for row in bound]
            done = np.flatnonzero(self._result.node >= 0).tolist()
            placed += [(self._pod(i), int(self._result.node[i])) for i in done]
            self._neighbours = Neighbours(self.snapshot.facts, self.snapshot.objects, placed)
        return self._neighbours


def _empty_outcome(entries: int) -> Outcome:
    size = max(1, entries)
    verdicts = max(1, min(entries, CHUNK))
    return Outcome(
        node=np.zeros(size, dtype=np.int64),
        grant=np.zeros(size, dtype=np.uint64),
        verdict=np.zeros(size, dtype=np.int64),
        verdict_entry=np.zeros(verdicts, dtype=np.int64),
        verdict_counts=np.zeros((verdicts, 64), dtype=np.int64),
        verdict_near=np.zeros((verdicts, NEAREST), dtype=np.int64),
        verdict_near_why=np.zeros((verdicts, NEAREST), dtype=np.uint64),
        verdict_short=np.zeros((verdicts, NEAREST, MAX_REQUESTS + 1), dtype=np.int64),
        verdict_free=np.zeros((verdicts, NEAREST, MAX_REQUESTS + 1), dtype=np.int64),
    )
