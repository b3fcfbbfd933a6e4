"""A pod's inter-pod affinity terms, read into matchers.

Used in both directions: the terms of a pod that looks for a node, and those of pods that are already on one.
"""

from __future__ import annotations

from typing import NamedTuple

from windlass.model.pod import Pod, PodAffinity, PodAffinityTerm
from windlass.placement.inter_pod.pod_matchers import PodMatcher, namespace_of, with_match_label_keys

HARD_AFFINITY_WEIGHT = 1
"""What a required affinity of an existing pod adds to the score of a pod that it matches (kube-scheduler's
`hardPodAffinityWeight`)."""


class AffinityTerm(NamedTuple):
    """Pods that match, and the label whose value makes a domain."""

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
    """What a placed pod wishes of pods to come: its preferred terms, and lightly its required affinity."""
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
    return tuple(
        WeightedAffinityTerm(_term(pod, raw.pod_affinity_term), sign * raw.weight) for raw in weighted
    )


def _term(pod: Pod, raw: PodAffinityTerm) -> AffinityTerm:
    own_namespace_only = not raw.namespaces and raw.namespace_selector is None
    namespaces = frozenset([namespace_of(pod)] if own_namespace_only else raw.namespaces)
    selector = with_match_label_keys(
        raw.label_selector, pod.metadata.labels, raw.match_label_keys, raw.mismatch_label_keys
    )
    return AffinityTerm(PodMatcher(namespaces, raw.namespace_selector, selector), raw.topology_key)
