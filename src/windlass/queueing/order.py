"""The order in which what waits is looked at, and what stands or falls together.

Reads a snapshot's pending pods; feeds `engine.decide`. Higher priority first, then older, then as they came. The
members of a gang form one unit at the place of its first member.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from windlass.cluster.facts import Bools
from windlass.cluster.pods import ALONE, PENDING, PodRows
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.state import Ints


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


def _ranking(pods: PodRows, rows: Ints) -> Ints:
    priority, created = pods.priority[rows], pods.created[rows]
    if len(rows) and (priority == priority[0]).all() and (created == created[0]).all():
        return np.arange(len(rows), dtype=np.int64)
    return np.lexsort((rows, created, -priority)).astype(np.int64)


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
