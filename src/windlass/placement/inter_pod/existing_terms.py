"""Affinity terms of placed pods, which apply to pods that are placed later: their weights per topology domain.

`InterPodRules` has two: one for required anti-affinity (weight 1 a term; any positive sum refuses the node), one for
terms that only change the score. Both hold the terms of all jobs, so lookups go through an index of matchers.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np

from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import ABSENT, NodeColumns
from windlass.placement.inter_pod.match_counters import Counts
from windlass.placement.inter_pod.pod_affinity import AffinityTerm
from windlass.placement.inter_pod.pod_matchers import MatcherIndex


class _Entry:
    """One term, shared by all placed pods that have it: its summed weight in each domain."""

    __slots__ = ("by_domain", "topology_key")

    def __init__(self, topology_key: str) -> None:
        self.topology_key = topology_key
        self.by_domain: dict[int, int] = {}


class ExistingTerms:
    def __init__(self, nodes: NodeColumns, listers: Listers) -> None:
        self._nodes = nodes
        self._entries: dict[Hashable, _Entry] = {}
        self._index: MatcherIndex[_Entry] = MatcherIndex(listers)

    def change(self, term: AffinityTerm, row: int, weight: int) -> None:
        """Add to the term's weight in the domain of this node; a node without the label is in no domain."""
        domain = int(self._nodes.label(term.topology_key).codes[row])
        if domain == ABSENT or weight == 0:
            return
        key = (term.topology_key, term.matcher.key)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(term.topology_key)
            self._index.put(key, (term.matcher,), entry)
        total = entry.by_domain.get(domain, 0) + weight
        if total:
            entry.by_domain[domain] = total
            return
        del entry.by_domain[domain]
        # Dropped, so that `matches_any` stays exact and the index does not grow with every job that ended.
        if not entry.by_domain:
            del self._entries[key]
            self._index.drop(key, (term.matcher,))

    def matches_any(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether any term matches such a pod."""
        return bool(self._index) and next(self._index.matching(namespace, labels), None) is not None

    def weights(self, namespace: str, labels: Mapping[str, str]) -> Counts | None:
        """For every node, the summed weight of the terms that match such a pod; None if no term does."""
        if not self._index:
            return None
        by_key: dict[str, Counts] = {}
        for entry in self._index.matching(namespace, labels):
            key = entry.topology_key
            if key not in by_key:
                # One entry more than there are domains, always 0: ABSENT is -1, so unlabelled nodes read it.
                by_key[key] = np.zeros(len(self._nodes.label(key).values) + 1, dtype=np.int64)
            size = len(entry.by_domain)
            domains = np.fromiter(entry.by_domain.keys(), dtype=np.int64, count=size)
            by_key[key][domains] += np.fromiter(entry.by_domain.values(), dtype=np.int64, count=size)
        if not by_key:
            return None
        total: Counts = np.zeros(self._nodes.size, dtype=np.int64)
        for key, by_domain in by_key.items():
            total += by_domain[self._nodes.label(key).codes]
        return total
