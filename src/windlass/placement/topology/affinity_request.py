"""Reads pod affinity of a gang to itself as a topology request: all of it in one domain.

Training guides write it that way: every pod of a job requires (or prefers) to be where pods of the same job are, by a
topology key. Placed one by one, the first pod may choose a domain that is too small for the rest; as a topology
request, the domain is chosen for all of them. `placement.implied_topology` asks for pod sets of more than one pod that
have no topology request.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.model.labels import matches_selector
from windlass.model.pod import Pod, PodAffinityTerm
from windlass.model.workload import TopologyRequest


def request_from_affinity(pod: Pod, gang: Sequence[Pod]) -> TopologyRequest | None:
    """The topology request that the pod's affinity means; `gang` has one pod of each pod set of the gang."""
    affinity = pod.spec.affinity.pod_affinity if pod.spec.affinity else None
    if affinity is None:
        return None
    terms = affinity.required_during_scheduling_ignored_during_execution
    required = [term for term in terms if selects_pod(term, pod, pod)]
    if len(required) == 1:
        return _request("required", required[0], pod, gang)
    if required:
        return None  # several topology keys at once: inter-pod rules decide pod by pod
    weighted_terms = affinity.preferred_during_scheduling_ignored_during_execution
    preferred = [term for term in weighted_terms if selects_pod(term.pod_affinity_term, pod, pod)]
    if not preferred:
        return None
    # The first of equal weights: the order is the author's.
    heaviest = max(preferred, key=lambda term: term.weight)
    return _request("preferred", heaviest.pod_affinity_term, pod, gang)


def selects_pod(term: PodAffinityTerm, pod: Pod, other: Pod) -> bool:
    """Whether the affinity term of the pod selects the other pod."""
    # Would need the namespaces and labels of the cluster; inter-pod rules decide these pod by pod.
    if term.namespace_selector is not None or term.match_label_keys or term.mismatch_label_keys:
        return False
    own, theirs = pod.metadata.namespace or "default", other.metadata.namespace or "default"
    if theirs not in (term.namespaces or (own,)):
        return False
    return matches_selector(term.label_selector, other.metadata.labels)


def _request(mode: str, term: PodAffinityTerm, pod: Pod, gang: Sequence[Pod]) -> TopologyRequest:
    selects_all = all(selects_pod(term, pod, other) for other in gang)
    return TopologyRequest(mode, term.topology_key, spans_pod_sets=selects_all)
