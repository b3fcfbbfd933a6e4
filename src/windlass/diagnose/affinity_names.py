"""Which rule between pods keeps a pod off a node, and which pods it is about.

Called by `unschedulable`, since the engine's reason says only that there is such a rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.model.labels import matches_selector
from windlass.model.meta import LabelSelector
from windlass.model.node import Node
from windlass.model.pod import Pod, PodAffinityTerm


def affinity_conflict(evidence: Evidence, node: Node, pod: Pod) -> str:
    """The first required rule of the pod that its node can't keep; empty if the rule is another pod's."""
    affinity = pod.spec.affinity
    near = affinity.pod_affinity if affinity is not None else None
    for term in near.required_during_scheduling_ignored_during_execution if near is not None else ():
        if not any(True for _ in _matching(evidence, term, pod)):
            return (
                f"the pod has to run in one {term.topology_key} with a pod that has {_words(term.label_selector)}, "
                "and no running pod has"
            )
    apart = affinity.pod_anti_affinity if affinity is not None else None
    for term in apart.required_during_scheduling_ignored_during_execution if apart is not None else ():
        for other in _matching(evidence, term, pod):
            if _same_domain(evidence, node, other, term.topology_key):
                words = _words(term.label_selector)
                return f"the pod may not share its {term.topology_key} with {other.title} of node {node.name} ({words})"
    return ""


def _matching(evidence: Evidence, term: PodAffinityTerm, pod: Pod) -> Iterator[ClusterObject]:
    """Running pods that the term selects."""
    spaces = term.namespaces or (pod.metadata.namespace or "default",)
    for item in evidence.of_kind("Pod"):
        other = item.decoded
        if not isinstance(other, Pod) or other.is_terminal or item.namespace not in spaces:
            continue
        if other.is_bound and matches_selector(term.label_selector, other.metadata.labels):
            yield item


def _same_domain(evidence: Evidence, node: Node, other: ClusterObject, key: str) -> bool:
    value = other.decoded
    place = evidence.nodes.get(value.spec.node_name) if isinstance(value, Pod) else None
    return place is not None and key in node.labels and place.labels.get(key) == node.labels[key]


def _words(selector: LabelSelector | None) -> str:
    if selector is None:
        return "no label"
    words = [f"{key}={value}" for key, value in selector.match_labels.items()]
    words += [f"{part.key} {part.operator} {', '.join(part.values)}".strip() for part in selector.match_expressions]
    return " and ".join(words) or "any label"
