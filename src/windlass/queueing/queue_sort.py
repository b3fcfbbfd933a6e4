"""The order of single pods, and where they come among gangs and queued workloads.

`engine.collect_pending` calls it. Higher priority first, then older, then by namespace and name; never by position in a
file or a watch. The same order holds between single pods and gangs: single pods before all gangs and after all gangs
are placed in one compiled loop each, those in between one by one.
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
"""So many single pods between gangs are decided one by one; the rest comes after all gangs."""
QueueSortKey = tuple[int, int]
"""Negative priority, and since when it waits: lower keys come first."""


def sort_pending_pods(snapshot: Snapshot, mask: Bools | None = None) -> Ints:
    """Rows of the pending pods (that are set in the mask), in order."""
    rows = snapshot.pods.pending()
    if mask is not None:
        rows = rows[mask[rows]]
    return _sort_rows(snapshot.pods, rows)


def waiting_sort_keys(workloads: Iterable[Workload]) -> list[QueueSortKey]:
    """Sort keys of pending gangs in no queue, of the first queued workload, and before the lowest priority in a queue.

    Queued workloads are decided in one go. A single pod of higher priority than the last of them has to be decided with
    them: it takes its place from those below it, or it would evict them in the next decision.
    """
    sort_keys: list[QueueSortKey] = []
    queued: list[QueueSortKey] = []
    for workload in workloads:
        if workload.admission is None and not workload.hold:
            sort_key = _sort_key(workload)
            (queued if workload.queue_name else sort_keys).append(sort_key)
    if queued:
        first, last = min(queued), max(queued)
        sort_keys += [first, (last[0], -1)] if last[0] > first[0] else [first]
    return sorted(sort_keys)


def sorts_before_all(snapshot: Snapshot, sort_keys: Sequence[QueueSortKey]) -> Bools:
    """[pod row] whether the pod comes before all workloads with these keys.

    Nominated pods do where none of the workloads is of higher priority: those of the same priority would take again the
    nodes from which others were evicted for the nominated pod. Pods of higher priority than such a pod come with it.
    """
    priority, waiting_since = snapshot.pods.priority, _waiting_since(snapshot.pods.created)
    key_priority, key_since = sort_keys[0] if sort_keys else (0, 0)
    before: Bools = (-priority < key_priority) | ((-priority == key_priority) & (waiting_since < key_since))
    nominated = [
        row
        for row in snapshot.pods.pending().tolist()
        if snapshot.pods.objects[row].status.nominated_node_name and (not sort_keys or priority[row] >= -key_priority)
    ]
    if nominated:
        before |= priority > priority[nominated].min()
        before[nominated] = True
    return before


def single_pods_between(sort_keys: Sequence[QueueSortKey], single_pods: Iterable[Workload]) -> list[Workload]:
    """Pending single pods between the first and the last of these keys, in order. Among them are nominated pods of the
    last priority: a nomination counts against workloads of the same priority."""
    if len(sort_keys) < 2:
        return []
    first, last = sort_keys[0], sort_keys[-1]
    pending = (pod for pod in single_pods if pod.admission is None and first <= _sort_key(pod))
    between = [
        pod for pod in pending if _sort_key(pod) < last or (pod.nominated and -pod.priority == last[0] > first[0])
    ]
    # Those beyond the limit lose their turn among the gangs, but not their place among single pods.
    return sorted(between, key=lambda pod: (_sort_key(pod), pod.key))[:MAX_PODS_BETWEEN]


def _sort_key(workload: Workload) -> QueueSortKey:
    return -workload.priority, queue_order_timestamp(workload)


def _waiting_since(created: Ints) -> Ints:
    """A pod without a creation time was not submitted yet: it comes after all others, as its workload does."""
    return np.where(created > 0, created, np.iinfo(np.int64).max)


def _sort_rows(pods: PodRows, rows: Ints) -> Ints:
    """By priority, then nominated pods (`nominatedNodeName`), then by age, then by namespace and name."""
    if len(rows) < 2:
        return rows
    priority, created = pods.priority[rows], _waiting_since(pods.created[rows])
    not_nominated = np.ones(len(rows), dtype=np.bool_)
    # Only a pod of more than the lowest priority can have been nominated: reading the objects is saved otherwise.
    if priority.max() > pods.priority[pods.alive == 1].min():
        not_nominated[:] = [not pods.objects[row].status.nominated_node_name for row in rows.tolist()]
    keys = (created, not_nominated, -priority)
    # lexsort takes the most important key last.
    ranking = np.lexsort(keys)
    ordered = rows[ranking]
    equal = np.logical_and.reduce([np.diff(key[ranking]) == 0 for key in keys])
    return _sort_equals_by_name(pods, ordered, equal) if equal.any() else ordered


def _sort_equals_by_name(pods: PodRows, rows: Ints, equal: Bools) -> Ints:
    """Sorts each run of equals (`equal[i]`: rows i and i + 1 have equal keys) by namespace and name."""
    ordered = rows.tolist()
    edges = np.flatnonzero(np.diff(np.concatenate(([False], equal, [False])).astype(np.int8)))
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        run = ordered[first : last + 1]
        ordered[first : last + 1] = sorted(run, key=pods.keys.__getitem__)
    return np.array(ordered, dtype=np.int64)
