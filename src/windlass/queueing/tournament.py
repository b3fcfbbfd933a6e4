"""The order of a cycle's heads under fair sharing: a tournament in every tree, from the leaves to the root.

`cycle` takes one winner after another, and may have added usage on the winner's path before the next. At each cohort,
children compete with the share that they would have once their nominee is admitted: first nominees for which others
were evicted, then those that wouldn't borrow what they ask for, then the smaller share, priority, age. A queue's share
changes only when its own nominee is taken, so its key is computed once; a cohort's only when one below it was taken.
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
    """The head of a queue, with its flavor assignment."""

    pending: PendingWorkload
    assignment: Assignment


Entry = TypeVar("Entry", bound=Nominee)
TournamentKey = tuple[bool, bool, tuple[bool, int], int, bool, int, str]


def fair_sharing_order(entries: list[Entry]) -> Iterator[Entry]:
    """First the queues without a cohort in the given order, then tree after tree."""
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
            bracket.remove(winner)
            yield winner


class _Bracket(Generic[Entry]):
    """One cohort: the entries of its own queues, and the brackets of its child cohorts."""

    def __init__(self, cohort: QuotaNode, entries: list[Entry]) -> None:
        self.cohort = cohort
        self._heap: list[tuple[TournamentKey, str, Entry]] = []
        self._child_brackets: dict[int, _Bracket[Entry]] = {}
        self._child_winners: dict[int, tuple[TournamentKey, Entry] | None] = {}
        """id of a child cohort → its winner with its key here; missing where it has to be computed again."""
        grouped: dict[int, tuple[QuotaNode, list[Entry]]] = {}
        for entry in entries:
            child = _child_towards(cohort, entry.pending.node)
            if child is entry.pending.node:
                # The workload's key breaks ties before entries would be compared, which have no order.
                self._heap.append((tournament_key(entry, child), entry.pending.key, entry))
            else:
                grouped.setdefault(id(child), (child, []))[1].append(entry)
        heapify(self._heap)
        for child_id, (child, members) in grouped.items():
            self._child_brackets[child_id] = _Bracket(child, members)

    def winner(self) -> Entry | None:
        choices = [(self._heap[0][0], self._heap[0][2])] if self._heap else []
        for child_id, bracket in self._child_brackets.items():
            if child_id not in self._child_winners:
                nominee = bracket.winner()
                self._child_winners[child_id] = (
                    None if nominee is None else (tournament_key(nominee, bracket.cohort), nominee)
                )
            best = self._child_winners[child_id]
            if best is not None:
                choices.append(best)
        return min(choices, key=lambda choice: choice[0])[1] if choices else None

    def remove(self, entry: Entry) -> None:
        child = _child_towards(self.cohort, entry.pending.node)
        if child is entry.pending.node:
            # It is the winner, so that it is on top.
            heappop(self._heap)
            return
        # Its share has changed with the winner's usage.
        self._child_winners.pop(id(child))
        self._child_brackets[id(child)].remove(entry)


def tournament_key(entry: Nominee, child: QuotaNode) -> TournamentKey:
    """Sort key of the entry among the children of `child`'s parent, with its usage added."""
    pending, usage = entry.pending, entry.assignment.usage
    pending.node.add_usage(usage)
    share = dominant_share(child)
    pending.node.remove_usage(usage)
    nominated = pending.workload.nominated
    return (
        not nominated,
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
