"""Whether the pods of a set could run on the nodes of a flavor at all, judged by the two objects alone.

Called by `ineligible_reason` of every placement; no node is read. Kueue's rule: the taints of the flavor must be
tolerated by the pod or by the flavor itself, and of the pod's node selector and required node affinity only those keys
count that the flavor defines.
"""

from __future__ import annotations

from windlass.model.affinity import matches_requirement
from windlass.model.pod import PodSpec
from windlass.model.queue import ResourceFlavor
from windlass.model.taints import find_untolerated_taint


def flavor_ineligible_reason(spec: PodSpec, flavor: ResourceFlavor) -> str:
    """Why the flavor can't take the pod, in Kueue's wording; empty where it can."""
    taint = find_untolerated_taint(flavor.node_taints, (*spec.tolerations, *flavor.tolerations))
    if taint is not None:
        value = f"={taint.value}" if taint.value else ""
        return f"untolerated taint {taint.key}{value}:{taint.effect} in flavor {flavor.name}"
    if not _matches_labels(spec, flavor.node_labels):
        return f"flavor {flavor.name} doesn't match node affinity"
    return ""


def _matches_labels(spec: PodSpec, labels: dict[str, str]) -> bool:
    for key, value in spec.node_selector.items():
        if key in labels and labels[key] != value:
            return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None:
        return True
    terms = [
        [expression for expression in term.match_expressions if expression.key in labels]
        for term in required.node_selector_terms
    ]
    # Terms are alternatives: a term without any of the flavor's keys matches every flavor.
    return any(all(matches_requirement(part, labels) for part in term) for term in terms) or not terms
