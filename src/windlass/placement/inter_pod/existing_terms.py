"""What placed pods want of pods to come: their terms, weighed per topology domain.

One `ExistingTerms` holds required anti-affinity (weight 1 each: is anybody against it?), another everything that
only pulls or pushes. Terms of all jobs are in there, so a pod's question goes through an index.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np

from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import ABSENT, NodeColumns
from windlass.placement.inter_pod.affinity_terms import AffinityTerm
from windlass.placement.inter_pod.match_counters import Counts
from windlass.placement.inter_pod.pod_index import MatcherIndex


class _Entry:
    """One term, whoever has it: its weight in each domain where somebody has it."""

    __slots__ = ("by_domain", "topology_key")

    def __init__(self, topology_key: str) -> None:
        self.topology_key = topology_key
        self.by_domain: dict[int, int] = {}


class ExistingTerms:
    def __init__(self, facts: NodeColumns, objects: Listers) -> None:
        self._facts = facts
        self._entries: dict[Hashable, _Entry] = {}
        self._index: MatcherIndex[_Entry] = MatcherIndex(objects)

    def change(self, term: AffinityTerm, row: int, weight: int) -> None:
        """Add to the term's weight in the domain of this node; without the label the node is in none."""
        domain = int(self._facts.label(term.topology_key).codes[row])
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
                # One place more than there are domains, always 0: nodes without the label read that one.
                by_key[key] = np.zeros(len(self._facts.label(key).values) + 1, dtype=np.int64)
            size = len(entry.by_domain)
            domains = np.fromiter(entry.by_domain.keys(), dtype=np.int64, count=size)
            by_key[key][domains] += np.fromiter(entry.by_domain.values(), dtype=np.int64, count=size)
        if not by_key:
            return None
        total: Counts = np.zeros(self._facts.size, dtype=np.int64)
        for key, table in by_key.items():
            total += table[self._facts.label(key).codes]
        return total
