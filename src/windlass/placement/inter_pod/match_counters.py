"""How many placed pods match, per node and per topology domain.

`pod_affinity`, `topology_spread` and `InterPodRules` ask `MatchCounters`, which keeps one `MatchCounter` for each
group of matchers. A counter is built from all placed pods on the first request and then updated with every pod that
is added or removed. Their number is capped, since every job may bring new selectors; a dropped one is built again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.model.pod import Pod
from windlass.placement.inter_pod.pod_matchers import (
    LabelPair,
    MatcherIndex,
    PodMatcher,
    namespace_of,
    required_label_of,
)

Counts = npt.NDArray[np.int64]

_MAX_COUNTERS = 512


class MatchCounter:
    """Matching pods by node row, and by domain for the labels that were asked for."""

    def __init__(self, nodes: NodeColumns, skip_terminating: bool) -> None:
        self._nodes = nodes
        self.skip_terminating = skip_terminating
        self.per_node: Counts = np.zeros(nodes.size, dtype=np.int64)
        self._domains: dict[str, Counts] = {}

    def change(self, row: int, by: int) -> None:
        self.per_node[row] += by
        for key, counts in self._domains.items():
            # ABSENT is -1: nodes without the label are counted in the last entry, which is never read.
            counts[self._nodes.label(key).codes[row]] += by

    def per_domain(self, topology_key: str) -> Counts:
        """Matching pods per value of the label (indexed by its codes)."""
        counts = self._domains.get(topology_key)
        if counts is None:
            column = self._nodes.label(topology_key)
            # Kept with the extra entry for unlabelled nodes, since `change` writes there; returned without it.
            counts = np.zeros(len(column.values) + 1, dtype=np.int64)
            np.add.at(counts, column.codes, self.per_node)
            self._domains[topology_key] = counts
        return counts[:-1]

    def in_domain_of_each_node(self, topology_key: str) -> Counts:
        """For every node, the matching pods in its domain; 0 where it lacks the label."""
        column = self._nodes.label(topology_key)
        counts = np.append(self.per_domain(topology_key), 0)
        result: Counts = counts[column.codes]
        return result


class _Group:
    """Placed pods that no matcher can tell apart."""

    __slots__ = ("is_live", "labels", "namespace", "rows")

    def __init__(self, namespace: str, labels: Mapping[str, str], is_live: bool) -> None:
        self.namespace = namespace
        self.labels = labels
        self.is_live = is_live
        self.rows: dict[int, int] = {}
        """Node row → pods of the group on it."""


_GroupKey = tuple[str, frozenset[LabelPair], bool]


class PlacedPodGroups:
    """All placed pods by namespace, labels and whether they are terminating: new counters are built from groups."""

    def __init__(self) -> None:
        self._groups: dict[_GroupKey, _Group] = {}
        self._by_label: dict[LabelPair, dict[_GroupKey, _Group]] = {}

    def add(self, pod: Pod, row: int) -> None:
        labels = pod.metadata.labels
        key = _group_key(pod)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(namespace_of(pod), labels, is_not_terminating(pod))
            for pair in labels.items():
                self._by_label.setdefault(pair, {})[key] = group
        group.rows[row] = group.rows.get(row, 0) + 1

    def remove(self, pod: Pod, row: int) -> None:
        """KeyError if no such pod was placed there."""
        key = _group_key(pod)
        group = self._groups[key]
        group.rows[row] -= 1
        if group.rows[row]:
            return
        del group.rows[row]
        if not group.rows:
            del self._groups[key]
            for pair in group.labels.items():
                del self._by_label[pair][key]
                if not self._by_label[pair]:
                    del self._by_label[pair]

    def groups_with(self, label: LabelPair | None) -> Iterator[_Group]:
        """Groups that have the label; all groups where it is None."""
        return iter((self._groups if label is None else self._by_label.get(label, {})).values())


class MatchCounters:
    """The counters that were asked for, updated with every placed or removed pod."""

    def __init__(self, nodes: NodeColumns, listers: Listers, placed_pods: PlacedPodGroups) -> None:
        self._nodes = nodes
        self._listers = listers
        self._placed_pods = placed_pods
        self._index: MatcherIndex[MatchCounter] = MatcherIndex(listers)
        self._kept: dict[Hashable, tuple[tuple[PodMatcher, ...], MatchCounter]] = {}

    def counter(self, matchers: tuple[PodMatcher, ...], skip_terminating: bool = False) -> MatchCounter:
        """Counts pods that match all of the matchers; `skip_terminating` leaves out those being deleted."""
        key = (skip_terminating, *(matcher.key for matcher in matchers))
        kept = self._kept.pop(key, None)
        if kept is None:
            kept = matchers, self._count(matchers, skip_terminating)
            self._index.put(key, *kept)
            if len(self._kept) >= _MAX_COUNTERS:
                self._drop_least_recently_used()
        self._kept[key] = kept  # reinserted at the end: the dictionary is in order of last use
        return kept[1]

    def change(self, pod: Pod, row: int, by: int) -> None:
        if not self._index:
            return
        counts_everywhere = is_not_terminating(pod)
        for counter in self._index.matching(namespace_of(pod), pod.metadata.labels):
            if counts_everywhere or not counter.skip_terminating:
                counter.change(row, by)

    def _count(self, matchers: tuple[PodMatcher, ...], skip_terminating: bool) -> MatchCounter:
        counter = MatchCounter(self._nodes, skip_terminating)
        # Only groups with a label that every matching pod has: in a large cluster a small part of all.
        for group in self._placed_pods.groups_with(required_label_of(matchers)):
            if skip_terminating and not group.is_live:
                continue
            if all(matcher.matches(group.namespace, group.labels, self._listers) for matcher in matchers):
                for row, count in group.rows.items():
                    counter.per_node[row] += count
        return counter

    def _drop_least_recently_used(self) -> None:
        key = next(iter(self._kept))
        matchers, _ = self._kept.pop(key)
        self._index.drop(key, matchers)


def is_not_terminating(pod: Pod) -> bool:
    return not pod.metadata.deletion_timestamp


def sums_by_domain(nodes: NodeColumns, topology_key: str, per_node: Counts, counted: Bools) -> tuple[Counts, Bools]:
    """Sums over the counted nodes per value of the label, and which values occur among them."""
    column = nodes.label(topology_key)
    rows = np.flatnonzero(counted & column.present)
    codes, size = column.codes[rows], len(column.values)
    # Weights make bincount sum in floating point, which is exact for numbers of pods.
    sums = np.bincount(codes, weights=per_node[rows], minlength=size).astype(np.int64)
    return sums, np.bincount(codes, minlength=size) > 0


def _group_key(pod: Pod) -> _GroupKey:
    return namespace_of(pod), frozenset(pod.metadata.labels.items()), is_not_terminating(pod)
