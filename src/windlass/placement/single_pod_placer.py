"""Places single pods: each goes to the best node that fits, in order, or is refused with the reasons.

`preemption.single_pods` hands over the overlay and the ordered pod rows; `engine.decide` turns the resulting arrays
into a plan. Consecutive plain pods go through one call of the placement loop. A pod with rules about other pods, or
with preferences, uses the same row of the score table; the other reasons and scores are added when its node is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import Ints, Uint64s
from windlass.cluster.pod_table import UNREADABLE
from windlass.cluster.shape import Shape, has_pod_affinity
from windlass.model.pod import Pod
from windlass.model.reasons import INVALID_OBJECT, Reason
from windlass.placement.filters import prefilter_pod
from windlass.placement.overlay import PERMANENT_REASONS, Overlay
from windlass.placement.score_table import KERNEL_CHUNK
from windlass.placement.verdicts import NoNodeFound, VerdictArrays


class SinglePodResults(NamedTuple):
    """The results by queue position."""

    node: Ints
    """Node row, or -1."""
    grant: Uint64s
    failure: Ints
    """Index into `failures` where the node is -1; -1 for a pod that was held."""
    failures: list[NoNodeFound]
    held: dict[int, Reason]
    """Queue position → why no node was checked."""
    preempted_nodes: dict[int, list[tuple[int, frozenset[str]]]] = {}
    """Node → queue positions of preemptors, each with its victims: pods placed there before don't wait for those."""


NO_SINGLE_PODS = SinglePodResults(
    np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64), [], {}
)


def score_table_rows(overlay: Overlay, rows: Ints) -> Ints:
    """The row of the score table for every pod row; -1 for an unreadable pod."""
    snapshot, table = overlay.snapshot, overlay.table
    shapes = snapshot.pods.shape[rows]
    if not table.scorer_selector.depends_on_shape_only:
        return _rows_by_pod(overlay, rows)
    row_of = np.full(len(snapshot.shapes) + 1, -1, dtype=np.int64)  # UNREADABLE, being -1, picks the last
    present = np.zeros(len(row_of), dtype=np.bool_)
    present[shapes] = True
    for number in np.flatnonzero(present[:UNREADABLE]).tolist():
        row_of[number] = table.row(snapshot.shapes[number], snapshot)
    return row_of[shapes]


def _rows_by_pod(overlay: Overlay, rows: Ints) -> Ints:
    """The same where workload classes select by labels, so that pods of one shape may have different scorers."""
    snapshot, table = overlay.snapshot, overlay.table
    found = []
    for pod_row, number in zip(rows.tolist(), snapshot.pods.shape[rows].tolist(), strict=True):
        readable = number != UNREADABLE
        found.append(table.row(snapshot.shapes[number], snapshot, snapshot.pods.objects[pod_row]) if readable else -1)
    return np.array(found, dtype=np.int64)


class SinglePodPlacer:
    def __init__(self, overlay: Overlay, queue: Ints) -> None:
        self.overlay, self.queue = overlay, queue
        self.snapshot = overlay.snapshot
        self._table_rows = score_table_rows(overlay, queue)
        entries = len(queue)
        self._buffer = overlay.table.result_buffer(entries)
        self._results = SinglePodResults(
            np.full(entries, -1, dtype=np.int64),
            np.zeros(entries, dtype=np.uint64),
            np.full(entries, -1, dtype=np.int64),
            [],
            {},
        )

    def run(self) -> SinglePodResults:
        for first, end, plain in self._batches():
            if plain:
                self._place_by_kernel(first, end)
            else:
                for entry in range(first, end):
                    self._place_one(entry)
        return self._results

    def _batches(self) -> Iterator[tuple[int, int, bool]]:
        """The queue in batches (first, end, is plain), plain ones no longer than a kernel chunk, and of no more rows
        than the score table has cells for."""
        plain = self._plain_entries()
        cuts = np.flatnonzero(np.diff(plain.astype(np.int8))) + 1
        for first, end in pairwise([0, *cuts.tolist(), len(plain)]):
            if first == end:
                continue
            if not plain[first]:
                yield first, end, False
                continue
            start = first
            while start < end:
                stop = self._end_of_chunk(start, end)
                yield start, stop, True
                start = stop

    def _end_of_chunk(self, start: int, end: int) -> int:
        # The buffer has room for as many verdicts.
        end = min(end, start + KERNEL_CHUNK)
        if end - start <= self.overlay.table.capacity:
            return end
        _, first_use = np.unique(self._table_rows[start:end], return_index=True)
        if len(first_use) <= self.overlay.table.capacity:
            return end
        return start + int(np.sort(first_use)[self.overlay.table.capacity])

    def _plain_entries(self) -> Bools:
        """Entries that only node-local state decides on, which the placement loop can place."""
        taints = (taint for taints in self.snapshot.nodes.taint_sets for taint in taints)
        # Of the overlay, not of the snapshot: terms of pods assumed earlier in this decision count.
        if self.overlay.has_affinity_terms or any(taint.effect == "PreferNoSchedule" for taint in taints):
            return np.zeros(len(self.queue), dtype=np.bool_)
        plain: Bools = (self.snapshot.pods.node_local[self.queue] == 1) & (self._table_rows >= 0)
        refused = self.snapshot.refusals.binds
        if refused:
            for i in range(len(self.queue)):
                plain[i] &= self._pod(i).key not in refused
        # Once a pod with affinity terms is placed, no later pod is plain.
        if any(has_pod_affinity(self._pod(i)) for i in np.flatnonzero(~plain).tolist()):
            return np.zeros(len(self.queue), dtype=np.bool_)
        return plain

    def _place_by_kernel(self, start: int, stop: int) -> None:
        overlay, table = self.overlay, self.overlay.table
        slots = table.slots(self._table_rows[start:stop])
        overlay.grow_changed_nodes(2 * (stop - start) + 1)
        overlay.changed_nodes_end, verdicts = overlay.kernels.place_queue(
            overlay.state,
            table.cell_shapes,
            table.cells,
            table.memo,
            table.mix,
            overlay.rule,
            slots,
            np.arange(stop - start + 1, dtype=np.int64),
            self._turn(start),
            overlay.changed_nodes,
            overlay.changed_nodes_end,
            PERMANENT_REASONS,
            self._buffer,
        )
        self._collect(start, stop, verdicts)

    def _collect(self, start: int, stop: int, verdicts: int) -> None:
        outcome, result = self._buffer, self._results
        count = stop - start
        result.node[start:stop] = outcome.node[:count]
        result.grant[start:stop] = outcome.grant[:count]
        known = len(result.failures)
        refused = outcome.verdict[:count]
        # The kernel counts its verdicts from 0 in every call.
        result.failure[start:stop] = np.where(refused >= 0, refused + known, -1)
        if verdicts:
            arrays = VerdictArrays.copy_from(outcome, verdicts)
            failed = self.queue[start + outcome.verdict_entry[:verdicts]]
            for v, number in enumerate(self.snapshot.pods.shape[failed].tolist()):
                result.failures.append(NoNodeFound(self.snapshot.shapes[number], self.snapshot.nodes, arrays, v))
        placed = start + np.flatnonzero(outcome.node[:count] >= 0)
        objects = self.snapshot.pods.objects
        pods = [objects[row] for row in self.queue[placed].tolist()]
        self.overlay.record_assumed(
            pods, self._table_rows[placed].tolist(), result.node[placed].tolist(), result.grant[placed]
        )

    def _turn(self, position: int) -> int:
        """The number of the pod over all decisions, so that `random` draws anew for each pod."""
        return self.snapshot.decided_pods + position

    def _pod(self, position: int) -> Pod:
        return self.snapshot.pods.objects[int(self.queue[position])]

    def _shape(self, position: int) -> Shape:
        return self.snapshot.shapes[int(self.snapshot.pods.shape[self.queue[position]])]

    # One pod at a time, where other pods or preferences matter.

    def _place_one(self, i: int) -> None:
        hold = self._hold(i)
        if hold is not None:
            self._results.held[i] = hold
            return
        pod, row = self._pod(i), int(self._table_rows[i])
        why = self.overlay.reasons(pod, row)
        node = self.overlay.select_node(pod, row, why, self._turn(i))
        if node < 0:
            self._results.failure[i] = len(self._results.failures)
            self._results.failures.append(self.overlay.explain_no_node(row, self._shape(i), why))
            return
        self._results.node[i] = node
        self._results.grant[i] = self.overlay.assume(pod, row, node).grant

    def _hold(self, i: int) -> Reason | None:
        if self._table_rows[i] < 0:
            return INVALID_OBJECT
        return prefilter_pod(self._pod(i), self.snapshot.listers)
