"""Why waiting workloads stand where they stand in their queues: priority, share, age, and what would move them.

`windlass plan order` asks, with the snapshot and the plan that was made on it. The order inside a queue is that of
admission (`pending_workload.workload_sort_key`); between queues, each cycle takes one head of every queue, those within
their quota before those that borrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.queue import QueueSystem
from windlass.model.verdict import Verdict
from windlass.model.workload import Workload
from windlass.queueing.config import QueueConfig
from windlass.queueing.dominant_share import dominant_share
from windlass.queueing.pending_workload import workload_sort_key
from windlass.queueing.quota_cache import QuotaTreeCache
from windlass.queueing.quota_node import QuotaNode, queue_order_timestamp


class OrderEntry(msgspec.Struct, frozen=True):
    """A waiting workload and its place."""

    workload: str
    queue: str
    """ClusterQueue."""
    place: int
    """1 is the head of its queue."""
    priority: int
    waiting_seconds: int
    used_gpus: int
    """What its queue uses, and its own quota, in milli-GPU."""
    nominal_gpus: int
    is_borrowing: bool
    """Whether its queue uses more than its own quota of anything."""
    share: int
    """What the queue borrows of what its cohort can lend, by its weight, in thousandths."""
    code: str
    """Why it waits; empty where it starts now."""
    moves: tuple[str, ...]
    """What its place depends on, and what would change it."""


def order_breakdown(
    system: QueueSystem, workloads: Sequence[Workload], config: QueueConfig, now: int, verdicts: Mapping[str, Verdict]
) -> list[OrderEntry]:
    """All waiting workloads of queues that exist, by queue and place. `verdicts`: of the plan's holds, by workload."""
    running = [workload for workload in workloads if workload.queue_name and workload.admission is not None]
    tree = QuotaTreeCache().tree_with_usage(system, config, now, running)
    by_queue: dict[str, list[Workload]] = {}
    for workload in workloads:
        local = system.local_queue(workload.namespace, workload.queue_name) if workload.queue_name else None
        if workload.admission is None and local is not None and local.cluster_queue in tree.queues:
            by_queue.setdefault(local.cluster_queue, []).append(workload)
    return [
        entry
        for name in sorted(by_queue)
        for entry in _entries(tree.queues[name], by_queue[name], config.fair_sharing, now, verdicts)
    ]


def _entries(
    node: QuotaNode, waiting: Iterable[Workload], fair_sharing: bool, now: int, verdicts: Mapping[str, Verdict]
) -> Iterator[OrderEntry]:
    ordered, share = sorted(waiting, key=workload_sort_key), dominant_share(node)
    used = sum(amount for (_, resource), amount in node.usage.items() if resource == GPU_RESOURCE)
    nominal = sum(quota.nominal for (_, resource), quota in node.quotas.items() if resource == GPU_RESOURCE)
    for index, workload in enumerate(ordered):
        verdict = verdicts.get(workload.key)
        moves = [*_moves(workload, ordered[:index]), *_queue_moves(node, share.is_borrowing, fair_sharing)]
        if verdict is not None and verdict.is_infeasible:
            moves = ["it never starts as it is, whatever its place"]
        yield OrderEntry(
            workload.key,
            node.name,
            index + 1,
            workload.priority,
            max(0, now - queue_order_timestamp(workload)),
            used,
            nominal,
            share.is_borrowing,
            share.rank[1],
            verdict.code if verdict is not None else "",
            tuple(moves),
        )


def _moves(workload: Workload, before: Sequence[Workload]) -> Iterator[str]:
    """Inside its queue."""
    if not before:
        yield "first of its queue"
        return
    nominated = sum(other.nominated for other in before if not workload.nominated)
    if nominated:
        yield f"{nominated} before it, since others were preempted for them"
    rest = [other for other in before if other.nominated == workload.nominated]
    higher = [other for other in rest if other.priority > workload.priority]
    if higher:
        yield f"{len(higher)} before it by priority: above {max(other.priority for other in higher)} it would be first"
    same = [other for other in rest if other.priority == workload.priority]
    if same:
        yield f"{len(same)} before it by age: a priority above {workload.priority} would put it before them"


def _queue_moves(node: QuotaNode, is_borrowing: bool, fair_sharing: bool) -> Iterator[str]:
    """Among the queues."""
    if node.spec.queueing_strategy == "StrictFIFO":
        yield "StrictFIFO: nothing passes a head that waits"
    if node.spec.usage_based:
        yield "usage-based: the LocalQueue that has used least comes first, before priority and age"
    if node.parent is not None and is_borrowing:
        by = "a smaller share comes first" if fair_sharing else "queues within their quota come first"
        yield f"its queue borrows: {by}"
