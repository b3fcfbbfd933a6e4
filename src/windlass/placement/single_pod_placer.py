"""Placing pods on their own: each goes to the best node that takes it, in order, or is refused with the reasons.

`engine.decide` hands over the overlay and the ordered rows; the result is arrays that it turns into a plan. Runs of
plain pods go through one compiled loop. A pod that other pods bear on, or that prefers some nodes, uses the same table
row, with the rules between pods masked in at choice time.
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
from windlass.placement.overlay import INCURABLE_REASONS, Overlay
from windlass.placement.score_table import KERNEL_CHUNK
from windlass.placement.verdicts import Refusal, VerdictArrays


class SinglePodResults(NamedTuple):
    """What became of the queue, entry by entry."""

    node: Ints
    grant: Uint64s
    refusal: Ints
    """Index into `refusals` where the node is -1; -1 for a pod that was held."""
    refusals: list[Refusal]
    held: dict[int, Reason]
    """Queue position → why no node was looked at."""
    preempted_nodes: dict[int, list[tuple[int, frozenset[str]]]] = {}
    """Node → queue positions for which others leave it, and who: what was placed there before doesn't wait for them."""


def score_table_rows(overlay: Overlay, rows: Ints) -> Ints:
    """The table row of every pod row; -1 for a pod that can't be read."""
    snapshot, table = overlay.snapshot, overlay.table
    shapes = snapshot.pods.shape[rows]
    if not table.scorer_selector.depends_on_shape_only:
        return _rows_by_pod(overlay, rows)
    row_of = np.full(len(snapshot.shapes) + 1, -1, dtype=np.int64)  # UNREADABLE, being -1, picks the last
    asked = np.zeros(len(row_of), dtype=np.bool_)
    asked[shapes] = True
    for number in np.flatnonzero(asked[:UNREADABLE]).tolist():
        row_of[number] = table.row(snapshot.shapes[number], snapshot)
    return row_of[shapes]


def _rows_by_pod(overlay: Overlay, rows: Ints) -> Ints:
    """The same where the labels of a pod decide by which rule it is placed."""
    snapshot, table = overlay.snapshot, overlay.table
    found = []
    for pod_row, number in zip(rows.tolist(), snapshot.pods.shape[rows].tolist(), strict=True):
        readable = number != UNREADABLE
        found.append(
            table.row(snapshot.shapes[number], snapshot, snapshot.pods.objects[pod_row]) if readable else -1
        )
    return np.array(found, dtype=np.int64)


class SinglePodPlacer:
    """One pass over pods in order, given by their rows."""

    def __init__(self, overlay: Overlay, queue: Ints) -> None:
        self.overlay, self.queue = overlay, queue
        self.snapshot = overlay.snapshot
        self._rows = score_table_rows(overlay, queue)
        entries = len(queue)
        self._outcome = overlay.table.result_buffer(entries)
        self._result = SinglePodResults(
            np.full(entries, -1, dtype=np.int64),
            np.zeros(entries, dtype=np.uint64),
            np.full(entries, -1, dtype=np.int64),
            [],
            {},
        )

    def run(self) -> SinglePodResults:
        for first, end, plain in self._runs():
            if plain:
                self._place_plain(first, end)
            else:
                for entry in range(first, end):
                    self._place_one(entry)
        return self._result

    def _runs(self) -> Iterator[tuple[int, int, bool]]:
        """Entries cut into runs (first, end, plain), plain ones no longer than a chunk."""
        plain = self._plain_entries()
        cuts = np.flatnonzero(np.diff(plain.astype(np.int8))) + 1
        for first, end in pairwise([0, *cuts.tolist(), len(plain)]):
            if first == end:
                continue
            if not plain[first]:
                yield first, end, False
                continue
            for start in range(first, end, KERNEL_CHUNK):
                yield start, min(end, start + KERNEL_CHUNK), True

    def _plain_entries(self) -> Bools:
        """Entries that the compiled loop can take as they are."""
        taints = (taint for taints in self.snapshot.nodes.taint_sets for taint in taints)
        # Of the overlay and not of the snapshot: pods that were assumed earlier in this decision count.
        if self.overlay.has_affinity_terms or any(taint.effect == "PreferNoSchedule" for taint in taints):
            return np.zeros(len(self.queue), dtype=np.bool_)
        plain: Bools = (self.snapshot.pods.node_local[self.queue] == 1) & (self._rows >= 0)
        refused = self.snapshot.refusals.binds
        if refused:
            for i in range(len(self.queue)):
                plain[i] &= self._pod(i).key not in refused
        # Once a pod is placed that minds others, no pod behind it is plain any more.
        if any(has_pod_affinity(self._pod(i)) for i in np.flatnonzero(~plain).tolist()):
            return np.zeros(len(self.queue), dtype=np.bool_)
        return plain

    def _place_plain(self, start: int, stop: int) -> None:
        overlay, table = self.overlay, self.overlay.table
        overlay.grow_changed_nodes(2 * (stop - start) + 1)
        overlay.changed_nodes_end, verdicts = overlay.kernels.place_queue(
            overlay.state,
            table.shapes,
            table.cells,
            table.memo,
            table.mix,
            overlay.rule,
            self._rows[start:stop],
            np.arange(stop - start + 1, dtype=np.int64),
            self._turn(start),
            overlay.changed_nodes,
            overlay.changed_nodes_end,
            INCURABLE_REASONS,
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
                VerdictArrays.copy_from(outcome, verdicts),
                self.snapshot.nodes,
                self.snapshot.shapes,
            )
            failed = self.queue[start + outcome.verdict_entry[:verdicts]]
            for v, number in enumerate(self.snapshot.pods.shape[failed].tolist()):
                result.refusals.append(Refusal(book[number], facts, accounts, v))
        at = start + np.flatnonzero(outcome.node[:count] >= 0)
        objects = self.snapshot.pods.objects
        pods = [objects[row] for row in self.queue[at].tolist()]
        self.overlay.record_assumed(pods, self._rows[at].tolist(), result.node[at].tolist(), result.grant[at])

    def _turn(self, position: int) -> int:
        """A number that no other pod of the snapshot's stream has, for `random` to draw anew each time."""
        return self.snapshot.decided_pods + position

    def _pod(self, position: int) -> Pod:
        return self.snapshot.pods.objects[int(self.queue[position])]

    def _shape(self, position: int) -> Shape:
        return self.snapshot.shapes[int(self.snapshot.pods.shape[self.queue[position]])]

    # One pod at a time, where others bear on it.

    def _place_one(self, i: int) -> None:
        hold = self._hold(i)
        if hold is not None:
            self._result.held[i] = hold
            return
        pod, row = self._pod(i), int(self._rows[i])
        why = self.overlay.reasons(pod, row)
        node = self.overlay.select_node(pod, row, why, self._turn(i))
        if node < 0:
            self._result.refusal[i] = len(self._result.refusals)
            self._result.refusals.append(self.overlay.explain_refusal(row, self._shape(i), why))
            return
        self._result.node[i] = node
        self._result.grant[i] = self.overlay.assume(pod, row, node).grant

    def _hold(self, i: int) -> Reason | None:
        if self._rows[i] < 0:
            return INVALID_OBJECT
        return prefilter_pod(self._pod(i), self.snapshot.listers)
