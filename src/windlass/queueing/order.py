"""The order in which what waits is looked at, and what stands or falls together.

Reads a snapshot's pending pods; feeds `engine.decide`. Higher priority first, then older, then as they came. The
members of a gang form one unit at the place of its first member. Between lone pods and gangs the same order holds:
lone pods before all gangs and behind all gangs are placed in one fast loop each, those in between one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from windlass.cluster.facts import Bools
from windlass.cluster.pods import ALONE, PENDING, PodRows
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.state import Ints
from windlass.model.workload import Workload
from windlass.queueing.node import queue_time

MOST_BETWEEN = 2_000
"""So many lone pods between gangs are looked at one by one; more of them go behind all gangs."""
Turn = tuple[int, int]
"""Priority, the higher the earlier, and since when it waits."""


class Queue(NamedTuple):
    rows: Ints
    """Pod rows in order."""
    units: Ints
    """Unit u is rows[units[u]:units[u + 1]]: placed whole or not at all."""
    incomplete: tuple[tuple[int, int], ...]
    """(gang number, members that are there) of gangs that still lack members; their pods are not in `rows`."""


def order(snapshot: Snapshot, wanted: Bools | None = None) -> Queue:
    """The pending pods, or those of them that the mask wants."""
    pods = snapshot.pods
    rows = pods.pending()
    if wanted is not None:
        rows = rows[wanted[rows]]
    rows = rows[_ranking(pods, rows)]
    groups = pods.group[rows]
    if not len(rows) or groups.max() == ALONE:
        return Queue(rows, np.arange(len(rows) + 1, dtype=np.int64), ())
    return _gangs_together(snapshot, rows, groups)


def waiting_turns(together: Iterable[Workload]) -> list[Turn]:
    """When the gangs that are in no queue have their turn, and, all at once, what is queued."""
    turns: list[Turn] = []
    first: Turn | None = None
    for one in together:
        if one.admission is None and not one.hold:
            turn = _turn(one)
            if not one.queue:
                turns.append(turn)
            elif first is None or turn < first:
                first = turn
    return sorted([*turns, *([first] if first is not None else [])])


def before_all(snapshot: Snapshot, turns: Sequence[Turn]) -> Bools:
    """Which pods have their turn before all of those.

    Pods for which others went have, too, with what is more urgent than they are: a queue has its turn all at once, and
    its lesser work would take the room that it had to leave, over and over.
    """
    priority, created = snapshot.pods.priority, snapshot.pods.created
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


def between(turns: Sequence[Turn], alone: Iterable[Workload]) -> list[Workload]:
    """Lone pods that wait and have their turn behind the first of those and before the last."""
    if len(turns) < 2:
        return []
    waiting = (one for one in alone if one.admission is None)
    found = [one for one in waiting if turns[0] <= _turn(one) < turns[-1]]
    return sorted(found, key=lambda one: (_turn(one), one.key))[:MOST_BETWEEN]


def _turn(workload: Workload) -> Turn:
    return -workload.priority, queue_time(workload)


def _ranking(pods: PodRows, rows: Ints) -> Ints:
    """Before its equals comes a pod for which others went (`nominatedNodeName`)."""
    priority, created = pods.priority[rows], pods.created[rows]
    if len(rows) and (priority == priority[0]).all() and (created == created[0]).all():
        return np.arange(len(rows), dtype=np.int64)
    unnamed = np.ones(len(rows), dtype=np.bool_)
    if len(rows) and priority.max() > pods.priority[pods.alive == 1].min():
        unnamed[:] = [not pods.objects[row].status.nominated_node_name for row in rows.tolist()]
    return np.lexsort((rows, created, unnamed, -priority)).astype(np.int64)


def _gangs_together(snapshot: Snapshot, rows: Ints, groups: Ints) -> Queue:
    """Members side by side, gangs that lack members left out."""
    pods = snapshot.pods
    # A lone pod is a unit of its own: give it a number that no gang has.
    unit = np.where(groups == ALONE, len(snapshot.gangs) + np.arange(len(rows)), groups)
    _, first, inverse = np.unique(unit, return_index=True, return_inverse=True)
    by_unit = np.argsort(first[inverse], kind="stable")
    bound = pods.group[(pods.alive == 1) & (pods.node != PENDING)]
    there = np.bincount(np.concatenate([groups, bound])[np.concatenate([groups, bound]) >= 0])
    lacking = tuple(
        (int(number), int(there[number]))
        for number in np.unique(groups[groups >= 0])
        if there[number] < snapshot.gangs[number].total
    )
    keep = ~np.isin(groups[by_unit], [number for number, _ in lacking])
    ordered, ordered_unit = rows[by_unit][keep], unit[by_unit][keep]
    starts = np.flatnonzero(np.diff(ordered_unit, prepend=-1))
    return Queue(ordered, np.append(starts, len(ordered)).astype(np.int64), lacking)
