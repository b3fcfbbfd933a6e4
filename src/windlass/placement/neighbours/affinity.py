"""Required inter-pod affinity and anti-affinity of the pod that looks for a node."""

from __future__ import annotations

import numpy as np

from windlass.cluster.facts import Bools, NodeFacts
from windlass.cluster.objects import ClusterObjects
from windlass.model.pod import Pod
from windlass.placement.neighbours.counters import Counters
from windlass.placement.neighbours.matchers import namespace_of
from windlass.placement.neighbours.terms import required_affinity, required_anti_affinity


def refused_by_affinity(
    pod: Pod, facts: NodeFacts, objects: ClusterObjects, counters: Counters
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


def refused_by_anti_affinity(pod: Pod, facts: NodeFacts, counters: Counters) -> Bools | None:
    """Nodes in whose domain a pod runs that matches any of the pod's required anti-affinity terms."""
    terms = required_anti_affinity(pod)
    if not terms:
        return None
    refused = np.zeros(facts.size, dtype=np.bool_)
    for term in terms:
        refused |= counters.counter((term.matcher,)).in_domain_of_each_node(term.topology_key) > 0
    return refused
