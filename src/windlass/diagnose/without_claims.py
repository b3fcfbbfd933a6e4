"""A pod as it would be without its resource claims, held to the nodes that publish devices for them.

The engine does not place pods with claims. `waiting` asks it about this pod instead: what keeps that off every node
keeps the real one off, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.resource_claims import claim_nodes
from windlass.model.pod import Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod


def without_claims(evidence: Evidence, pod: Pod, item: ClusterObject) -> Pod:
    spec = msgspec.structs.replace(pod.spec, resource_claims=())
    names = claim_nodes(evidence, item)
    if names:
        spec = msgspec.structs.replace(spec, affinity=_held_to(spec.affinity or Affinity(), names))
    return msgspec.structs.replace(pod, spec=spec)


def _held_to(affinity: Affinity, names: Sequence[str]) -> Affinity:
    """The affinity, with each of its terms for these nodes only."""
    only = NodeSelectorRequirement(key="metadata.name", operator="In", values=tuple(names))
    own = affinity.node_affinity or NodeAffinity()
    required = own.required_during_scheduling_ignored_during_execution
    terms = required.node_selector_terms if required is not None else (NodeSelectorTerm(),)
    held = NodeSelector(tuple(msgspec.structs.replace(term, match_fields=(*term.match_fields, only)) for term in terms))
    node_affinity = msgspec.structs.replace(own, required_during_scheduling_ignored_during_execution=held)
    return msgspec.structs.replace(affinity, node_affinity=node_affinity)
