"""Placing a queue: each unit goes to the best nodes that take it, in order, or is refused with the reasons.

`engine.decide` hands over the overlay and the ordered queue; the result is arrays that it turns into a plan. Runs of
plain pods go through one compiled loop. A pod that other pods bear on, or that prefers some nodes, uses the same table
row, with the rules between pods masked in at choice time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from windlass.cluster.facts import Bools
from windlass.cluster.pods import UNREADABLE
from windlass.cluster.shape import Shape, bears_on_others
from windlass.cluster.state import Ints, Words
from windlass.model.pod import Pod
from windlass.model.reasons import INVALID_OBJECT, Reason
from windlass.placement.filters import pod_holds
from windlass.placement.overlay import HOPELESS, Overlay
from windlass.placement.table import CHUNK
from windlass.placement.verdicts import Accounts, Refusal
from windlass.queueing.order import Queue


class Placed(NamedTuple):
    """What became of the queue, entry by entry."""

    node: Ints
    grant: Words
    refusal: Ints
    """Index into `refusals` where the node is -1; -1 for a pod that was held."""
    refusals: list[Refusal]
    held: dict[int, Reason]
    """Queue position → why no node was looked at."""


def table_rows(overlay: Overlay, queue: Queue) -> Ints:
    """The table row of every queue entry; -1 for a pod that can't be read."""
    snapshot, table = overlay.snapshot, overlay.table
    shapes = snapshot.pods.shape[queue.rows]
    if not table.strategies.by_shape:
        return _rows_by_pod(overlay, queue)
    row_of = np.full(len(snapshot.shapes) + 1, -1, dtype=np.int64)  # UNREADABLE, being -1, picks the last
    asked = np.zeros(len(row_of), dtype=np.bool_)
    asked[shapes] = True
    for number in np.flatnonzero(asked[:UNREADABLE]).tolist():
        row_of[number] = table.row(snapshot.shapes[number], snapshot)
    return row_of[shapes]


def _rows_by_pod(overlay: Overlay, queue: Queue) -> Ints:
    """The same where the labels of a pod decide by which rule it is placed."""
    snapshot, table = overlay.snapshot, overlay.table
    rows = []
    for pod_row, number in zip(queue.rows.tolist(), snapshot.pods.shape[queue.rows].tolist(), strict=True):
        readable = number != UNREADABLE
        rows.append(
            table.row(snapshot.shapes[number], snapshot, snapshot.pods.objects[pod_row]) if readable else -1
        )
    return np.array(rows, dtype=np.int64)


class Placer:
    """One pass over a queue."""

    def __init__(self, overlay: Overlay, queue: Queue) -> None:
        self.overlay, self.queue = overlay, queue
        self.snapshot = overlay.snapshot
        self._rows = table_rows(overlay, queue)
        entries = len(queue.rows)
        self._outcome = overlay.table.scratch(entries)
        self._result = Placed(
            np.full(entries, -1, dtype=np.int64),
            np.zeros(entries, dtype=np.uint64),
            np.full(entries, -1, dtype=np.int64),
            [],
            {},
        )

    def run(self) -> Placed:
        for first, end, plain in self._runs():
            if plain:
                self._place_plain(first, end)
            else:
                for unit in range(first, end):
                    self._place_unit(unit)
        return self._result

    def _runs(self) -> Iterator[tuple[int, int, bool]]:
        """Units cut into runs (first, end, plain), plain ones no longer than a chunk."""
        units = self.queue.units
        plain = self._plain_units()
        cuts = np.flatnonzero(np.diff(plain.astype(np.int8))) + 1
        for first, end in pairwise([0, *cuts.tolist(), len(plain)]):
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

    def _plain_units(self) -> Bools:
        """Units that the compiled loop can take as they are."""
        count = len(self.queue.units) - 1
        taints = (taint for taints in self.snapshot.facts.taint_sets for taint in taints)
        if self.snapshot.tied or any(taint.effect == "PreferNoSchedule" for taint in taints):
            return np.zeros(count, dtype=np.bool_)
        plain = (self.snapshot.pods.plain[self.queue.rows] == 1) & (self._rows >= 0)
        # Once a pod is placed that minds others, no pod behind it is plain any more.
        if any(bears_on_others(self._pod(i)) for i in np.flatnonzero(~plain).tolist()):
            return np.zeros(count, dtype=np.bool_)
        if not count or not len(plain):
            return np.ones(count, dtype=np.bool_)
        return np.logical_and.reduceat(plain, self.queue.units[:-1])

    def _place_plain(self, first: int, end: int) -> None:
        units = self.queue.units[first : end + 1]
        start, stop = int(units[0]), int(units[-1])
        overlay, table = self.overlay, self.overlay.table
        overlay.reserve_log(2 * (stop - start) + 1)
        overlay.log_end, verdicts = overlay.kernels.place_queue(
            overlay.state,
            table.shapes,
            table.cells,
            table.memo,
            table.mix,
            overlay.rule,
            self._rows[start:stop],
            units - start,
            self._turn(start),
            overlay.log,
            overlay.log_end,
            HOPELESS,
            self._outcome,
        )
        self._collect(start, stop, verdicts)

    def _collect(self, start: int, stop: int, verdicts: int) -> None:
        outcome, result = self._outcome, self._result
        count = stop - start
        result.node[start:stop] = outcome.node[:count]
        result.grant[start:stop] = outcome.grant[:count]
        known = len(result.refusals)
        refused = outcome.verdict[:count]
        result.refusal[start:stop] = np.where(refused >= 0, refused + known, -1)
        if verdicts:
            accounts, facts, book = (
                Accounts.keep(outcome, verdicts),
                self.snapshot.facts,
                self.snapshot.shapes,
            )
            failed = self.queue.rows[start + outcome.verdict_entry[:verdicts]]
            for v, number in enumerate(self.snapshot.pods.shape[failed].tolist()):
                result.refusals.append(Refusal(book[number], facts, accounts, v))
        at = start + np.flatnonzero(outcome.node[:count] >= 0)
        objects = self.snapshot.pods.objects
        pods = [objects[row] for row in self.queue.rows[at].tolist()]
        self.overlay.placed(pods, self._rows[at].tolist(), result.node[at].tolist(), result.grant[at])

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
        before = self.overlay.checkpoint()
        for i in range(first, end):
            hold = self._hold(i)
            if hold is None and self._place_one(i):
                continue
            self.overlay.rollback(before)
            self._result.node[first:end] = -1
            if hold is None:
                self._result.refusal[first:end] = len(self._result.refusals) - 1
            else:
                self._result.held.update(dict.fromkeys(range(first, end), hold))
            return

    def _hold(self, i: int) -> Reason | None:
        if self._rows[i] < 0:
            return INVALID_OBJECT
        return pod_holds(self._pod(i), self.snapshot.objects)

    def _place_one(self, i: int) -> bool:
        pod, row = self._pod(i), int(self._rows[i])
        why = self.overlay.reasons(pod, row)
        node = self.overlay.best(pod, row, why, self._turn(i))
        if node < 0:
            self._result.refusals.append(self.overlay.refusal(row, self._shape(i), why))
            return False
        self._result.node[i] = node
        self._result.grant[i] = self.overlay.take(pod, row, node).grant
        return True
