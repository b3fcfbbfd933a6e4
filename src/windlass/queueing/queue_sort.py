"""The order in which pods on their own are looked at, and where they stand among gangs and queued work.

Reads a snapshot's pending pods; feeds `engine.decide`. Higher priority first, then older, then by namespace and name:
never by the position in a file or a watch. Between lone pods and gangs the same order holds: lone pods before all gangs
and behind all gangs are placed in one fast loop each, those in between one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import Ints
from windlass.cluster.pod_table import PodRows
from windlass.cluster.snapshot import Snapshot
from windlass.model.workload import Workload
from windlass.queueing.quota_node import queue_order_timestamp

MAX_PODS_BETWEEN = 2_000
"""So many lone pods between gangs are looked at one by one; more of them go behind all gangs."""
QueueSortKey = tuple[int, int]
"""Priority, the higher the earlier, and since when it waits."""


def sort_pending_pods(snapshot: Snapshot, mask: Bools | None = None) -> Ints:
    """Rows of the pending pods in order, or of those of them that the mask wants."""
    rows = snapshot.pods.pending()
    if mask is not None:
        rows = rows[mask[rows]]
    return _ranked(snapshot.pods, rows)


def waiting_sort_keys(gangs: Iterable[Workload]) -> list[QueueSortKey]:
    """When the gangs that are in no queue have their turn, and, all at once, what is queued."""
    turns: list[QueueSortKey] = []
    first: QueueSortKey | None = None
    for one in gangs:
        if one.admission is None and not one.hold:
            turn = _turn(one)
            if not one.queue_name:
                turns.append(turn)
            elif first is None or turn < first:
                first = turn
    return sorted([*turns, *([first] if first is not None else [])])


def sorts_before_all(snapshot: Snapshot, turns: Sequence[QueueSortKey]) -> Bools:
    """Which pods have their turn before all of those.

    Pods for which others went have, too, with what is more urgent than they are: a queue has its turn all at once, and
    its lesser work would take the room that it had to leave, over and over.
    """
    priority, created = snapshot.pods.priority, _since(snapshot.pods.created)
    first, since = turns[0] if turns else (0, 0)
    before: Bools = (-priority < first) | ((-priority == first) & (created < since))
    named = [
        row
        for row in snapshot.pods.pending().tolist()
        if snapshot.pods.objects[row].status.nominated_node_name
    ]
    if named:
        before |= priority > priority[named].min()
        before[named] = True
    return before


def single_pods_between(turns: Sequence[QueueSortKey], single_pods: Iterable[Workload]) -> list[Workload]:
    """Lone pods that wait and have their turn behind the first of those and before the last."""
    if len(turns) < 2:
        return []
    waiting = (one for one in single_pods if one.admission is None)
    found = [one for one in waiting if turns[0] <= _turn(one) < turns[-1]]
    return sorted(found, key=lambda one: (_turn(one), one.key))[:MAX_PODS_BETWEEN]


def _turn(workload: Workload) -> QueueSortKey:
    return -workload.priority, queue_order_timestamp(workload)


def _since(created: Ints) -> Ints:
    """A pod without a date has only just been handed in: it comes behind all that have one, as its workload does."""
    return np.where(created > 0, created, np.iinfo(np.int64).max)


def _ranked(pods: PodRows, rows: Ints) -> Ints:
    """Before its equals comes a pod for which others went (`nominatedNodeName`)."""
    if len(rows) < 2:
        return rows
    priority, created = pods.priority[rows], _since(pods.created[rows])
    unnamed = np.ones(len(rows), dtype=np.bool_)
    if priority.max() > pods.priority[pods.alive == 1].min():
        unnamed[:] = [not pods.objects[row].status.nominated_node_name for row in rows.tolist()]
    keys = (created, unnamed, -priority)
    ranking = np.lexsort(keys)
    ordered = rows[ranking]
    equal = np.logical_and.reduce([np.diff(key[ranking]) == 0 for key in keys])
    return _by_name(pods, ordered, equal) if equal.any() else ordered


def _by_name(pods: PodRows, rows: Ints, equal: Bools) -> Ints:
    """Runs of equals (`equal[i]`: row i + 1 is row i's equal) by namespace and name."""
    ordered = rows.tolist()
    edges = np.flatnonzero(np.diff(np.concatenate(([False], equal, [False])).astype(np.int8)))
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        run = ordered[first : last + 1]
        ordered[first : last + 1] = sorted(run, key=pods.keys.__getitem__)
    return np.array(ordered, dtype=np.int64)
