"""Required inter-pod affinity and anti-affinity of the pod that looks for a node."""

from __future__ import annotations

import numpy as np

from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.model.pod import Pod
from windlass.placement.inter_pod.affinity_terms import required_affinity, required_anti_affinity
from windlass.placement.inter_pod.match_counters import MatchCounters
from windlass.placement.inter_pod.pod_matchers import namespace_of


def refused_by_affinity(
    pod: Pod, facts: NodeColumns, objects: Listers, counters: MatchCounters
) -> Bools | None:
    """Nodes that the pod's required affinity refuses; None if it has none.

    For every term the node's domain must hold a pod that matches *all* terms. Where no pod in any domain does
    and the pod matches its own terms, it is the first of its kind and may start anywhere; but never on a node
    that lacks a term's topology label.
    """
    terms = required_affinity(pod)
    if not terms:
        return None
    counter = counters.counter(tuple(term.matcher for term in terms))
    keys = {term.topology_key for term in terms}
    first_of_its_kind = not any(counter.per_domain(key).any() for key in keys) and all(
        term.matcher.matches(namespace_of(pod), pod.metadata.labels, objects) for term in terms
    )
    refused = np.zeros(facts.size, dtype=np.bool_)
    for key in keys:
        if first_of_its_kind:
            refused |= ~facts.label(key).present
        else:
            refused |= counter.in_domain_of_each_node(key) == 0
    return refused


def refused_by_anti_affinity(pod: Pod, facts: NodeColumns, counters: MatchCounters) -> Bools | None:
    """Nodes in whose domain a pod runs that matches any of the pod's required anti-affinity terms."""
    terms = required_anti_affinity(pod)
    if not terms:
        return None
    refused = np.zeros(facts.size, dtype=np.bool_)
    for term in terms:
        refused |= counters.counter((term.matcher,)).in_domain_of_each_node(term.topology_key) > 0
    return refused
