"""Inter-pod affinity: a pod's terms, and the nodes that its required terms refuse.

`InterPodRules` reads the terms in both directions: those of the pod that looks for a node, and those of placed pods
(`existing_terms`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.model.pod import Pod, PodAffinity, PodAffinityTerm
from windlass.placement.inter_pod.match_counters import MatchCounters
from windlass.placement.inter_pod.pod_matchers import PodMatcher, namespace_of, with_match_label_keys

HARD_AFFINITY_WEIGHT = 1
"""What a required affinity term of a placed pod adds to the score of a pod that it matches; the default of
kube-scheduler's `hardPodAffinityWeight`."""


class AffinityTerm(NamedTuple):
    """Matching pods, and the node label whose values are the domains."""

    matcher: PodMatcher
    topology_key: str


class WeightedAffinityTerm(NamedTuple):
    """`weight` is negative for anti-affinity."""

    term: AffinityTerm
    weight: int


def required_affinity(pod: Pod) -> tuple[AffinityTerm, ...]:
    return _required(pod, pod.spec.affinity.pod_affinity if pod.spec.affinity else None)


def required_anti_affinity(pod: Pod) -> tuple[AffinityTerm, ...]:
    return _required(pod, pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None)


def preferred_terms(pod: Pod) -> tuple[WeightedAffinityTerm, ...]:
    """Preferred affinity and anti-affinity."""
    affinity = pod.spec.affinity
    if affinity is None:
        return ()
    return (*_preferred(pod, affinity.pod_affinity, 1), *_preferred(pod, affinity.pod_anti_affinity, -1))


def scoring_terms(pod: Pod) -> tuple[WeightedAffinityTerm, ...]:
    """Terms of a placed pod that score later pods: its preferred terms, and its required affinity at weight 1."""
    hard = tuple(WeightedAffinityTerm(term, HARD_AFFINITY_WEIGHT) for term in required_affinity(pod))
    return (*hard, *preferred_terms(pod))


def _required(pod: Pod, affinity: PodAffinity | None) -> tuple[AffinityTerm, ...]:
    if affinity is None:
        return ()
    return tuple(_term(pod, raw) for raw in affinity.required_during_scheduling_ignored_during_execution)


def _preferred(pod: Pod, affinity: PodAffinity | None, sign: int) -> tuple[WeightedAffinityTerm, ...]:
    if affinity is None:
        return ()
    weighted = affinity.preferred_during_scheduling_ignored_during_execution
    return tuple(WeightedAffinityTerm(_term(pod, raw.pod_affinity_term), sign * raw.weight) for raw in weighted)


def _term(pod: Pod, raw: PodAffinityTerm) -> AffinityTerm:
    # An empty namespaceSelector selects all namespaces; only a missing one means the pod's own.
    own_namespace_only = not raw.namespaces and raw.namespace_selector is None
    namespaces = frozenset([namespace_of(pod)] if own_namespace_only else raw.namespaces)
    selector = with_match_label_keys(
        raw.label_selector, pod.metadata.labels, raw.match_label_keys, raw.mismatch_label_keys
    )
    return AffinityTerm(PodMatcher(namespaces, raw.namespace_selector, selector), raw.topology_key)


def refused_by_affinity(pod: Pod, nodes: NodeColumns, listers: Listers, counters: MatchCounters) -> Bools | None:
    """Nodes that the pod's required affinity refuses; None if it has none.

    As in kube-scheduler: for every term the node's domain must hold a pod that matches *all* terms. Where no pod in
    any domain does and the pod matches its own terms, it is the first of its group and may go to any node that has
    the topology label of every term.
    """
    terms = required_affinity(pod)
    if not terms:
        return None
    # One counter for all terms together, not one for each: kube-scheduler counts pods that match every term.
    counter = counters.counter(tuple(term.matcher for term in terms))
    keys = {term.topology_key for term in terms}
    is_first_of_group = not any(counter.per_domain(key).any() for key in keys) and all(
        term.matcher.matches(namespace_of(pod), pod.metadata.labels, listers) for term in terms
    )
    refused = np.zeros(nodes.size, dtype=np.bool_)
    for key in keys:
        if is_first_of_group:
            refused |= ~nodes.label(key).present
        else:
            refused |= counter.in_domain_of_each_node(key) == 0
    return refused


def refused_by_anti_affinity(pod: Pod, nodes: NodeColumns, counters: MatchCounters) -> Bools | None:
    """Nodes whose domain holds a pod that matches one of the pod's required anti-affinity terms."""
    terms = required_anti_affinity(pod)
    if not terms:
        return None
    refused = np.zeros(nodes.size, dtype=np.bool_)
    for term in terms:
        refused |= counters.counter((term.matcher,)).in_domain_of_each_node(term.topology_key) > 0
    return refused
