"""Pod affinity of a gang to itself, read as what it is meant as: all of it in one domain.

Training guides ask for it that way: every pod of a job must be (or would like to be) where pods of the same job are,
by a topology key. Placed one by one, the first pod may pick a domain that is too small for the rest; read as a
topology request, the domain is chosen for all of them. `placement.workload_placer` asks for sets of more than one pod
that have no request of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.model.labels import matches_selector
from windlass.model.pod import Pod, PodAffinityTerm
from windlass.model.workload import TopologyRequest


def request_from_affinity(pod: Pod, gang: Sequence[Pod]) -> TopologyRequest | None:
    """The request that the pod's affinity stands for; `gang` has one pod of each kind that starts with it."""
    affinity = pod.spec.affinity.pod_affinity if pod.spec.affinity else None
    if affinity is None:
        return None
    required = [
        term
        for term in affinity.required_during_scheduling_ignored_during_execution
        if selects_pod(term, pod, pod)
    ]
    if len(required) == 1:
        return _request("required", required[0], pod, gang)
    if required:
        return None  # several domains at once: the rules between pods decide pod by pod
    preferred = [
        one
        for one in affinity.preferred_during_scheduling_ignored_during_execution
        if selects_pod(one.pod_affinity_term, pod, pod)
    ]
    if not preferred:
        return None
    dearest = max(preferred, key=lambda one: one.weight)
    return _request("preferred", dearest.pod_affinity_term, pod, gang)


def selects_pod(term: PodAffinityTerm, pod: Pod, other: Pod) -> bool:
    """Whether the pod's term draws it to the other one."""
    if term.namespace_selector is not None or term.match_label_keys or term.mismatch_label_keys:
        return False
    own, theirs = pod.metadata.namespace or "default", other.metadata.namespace or "default"
    if theirs not in (term.namespaces or (own,)):
        return False
    return matches_selector(term.label_selector, other.metadata.labels)


def _request(mode: str, term: PodAffinityTerm, pod: Pod, gang: Sequence[Pod]) -> TopologyRequest:
    everybody = all(selects_pod(term, pod, other) for other in gang)
    return TopologyRequest(mode, term.topology_key, spans_pod_sets=everybody)
