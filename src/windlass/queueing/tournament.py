"""The order of a round's heads under fair sharing: a tournament in every tree, from the leaves to the root.

`cycle` takes one winner after another; between two it may have added usage to the winner's path. At each cohort its
children compete with the share that they would have once their nominee is admitted: first those for whom others were
evicted, then those that wouldn't borrow what they ask for, then the smaller share, then priority, then age. A queue's
share changes only when its own nominee is taken, so its standing is computed once, and a cohort's only when something
below it was taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop
from typing import Generic, Protocol, TypeVar

from windlass.queueing.dominant_share import dominant_share
from windlass.queueing.flavor_assignment import Assignment
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.quota_node import QuotaNode


class Nominee(Protocol):
    """A head, and what it would take."""

    pending: PendingWorkload
    assignment: Assignment


Entry = TypeVar("Entry", bound=Nominee)
TournamentKey = tuple[bool, bool, tuple[bool, int], int, bool, int, str]


def fair_sharing_order(entries: list[Entry]) -> Iterator[Entry]:
    """Queues without a cohort as they come, then tree after tree."""
    trees: dict[int, tuple[QuotaNode, list[Entry]]] = {}
    for entry in entries:
        root = entry.pending.node.root
        if root is entry.pending.node:
            yield entry
        else:
            trees.setdefault(id(root), (root, []))[1].append(entry)
    for root, members in trees.values():
        bracket = _Bracket(root, members)
        while (winner := bracket.winner()) is not None:
            bracket.strike(winner)
            yield winner


class _Bracket(Generic[Entry]):
    """One cohort: its own queues' entries, and the brackets below it."""

    def __init__(self, cohort: QuotaNode, entries: list[Entry]) -> None:
        self.cohort = cohort
        self._heap: list[tuple[TournamentKey, str, Entry]] = []
        self._below: dict[int, _Bracket[Entry]] = {}
        self._best: dict[int, tuple[TournamentKey, Entry] | None] = {}
        """Per bracket below, its nominee and how it stands here."""
        grouped: dict[int, tuple[QuotaNode, list[Entry]]] = {}
        for entry in entries:
            child = _child_towards(cohort, entry.pending.node)
            if child is entry.pending.node:
                self._heap.append((tournament_key(entry, child), entry.pending.key, entry))
            else:
                grouped.setdefault(id(child), (child, []))[1].append(entry)
        heapify(self._heap)
        for number, (child, members) in grouped.items():
            self._below[number] = _Bracket(child, members)

    def winner(self) -> Entry | None:
        choices = [(self._heap[0][0], self._heap[0][2])] if self._heap else []
        for number, bracket in self._below.items():
            if number not in self._best:
                nominee = bracket.winner()
                self._best[number] = (
                    None if nominee is None else (tournament_key(nominee, bracket.cohort), nominee)
                )
            best = self._best[number]
            if best is not None:
                choices.append(best)
        return min(choices, key=lambda choice: choice[0])[1] if choices else None

    def strike(self, entry: Entry) -> None:
        child = _child_towards(self.cohort, entry.pending.node)
        if child is entry.pending.node:
            heappop(self._heap)
            return
        self._best.pop(id(child))
        self._below[id(child)].strike(entry)


def tournament_key(entry: Nominee, child: QuotaNode) -> TournamentKey:
    """How the entry stands in the cohort above `child`, with its usage added."""
    pending, usage = entry.pending, entry.assignment.usage
    pending.node.add_usage(usage)
    share = dominant_share(child)
    pending.node.remove_usage(usage)
    promised = pending.workload.nominated
    return (
        not promised,
        share.borrows_any(usage),
        share.rank,
        -pending.priority,
        not pending.workload.gang_running,
        pending.queued_at,
        pending.uid,
    )


def _child_towards(cohort: QuotaNode, queue: QuotaNode) -> QuotaNode:
    child = queue
    while child.parent is not None and child.parent is not cohort:
        child = child.parent
    return child
