"""Node selectors that match no node at all: the workload's own, its flavors', or that of the scheduler's configuration.

`limits` names the first two in a hold, `engine` the third, where the scheduler sees no node because of it. The texts
are public: selectors are the workload's own or the cluster's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from windlass.model.decision import Hold
from windlass.model.pod import PodSpec
from windlass.model.reasons import WHY_NODE_AFFINITY
from windlass.model.verdict import Limit
from windlass.placement.explain.node_reasons import NODE_REFUSAL_CODES, STORAGE_CODE
from windlass.placement.explain.pod_set_feasibility import PodSetFeasibility

SELECTOR = "selector"
"""Kind of these limits."""


def unmatched_selector(fit: PodSetFeasibility, own: PodSpec) -> Limit | None:
    """The limit of a pod set whose node selector or affinity no node matches; None where one does.

    `own`: the spec that people wrote, without the labels that flavors add.
    """
    nodes = fit.overlay.snapshot.nodes
    affine = fit.overlay.table.static(fit.row) & np.uint64(WHY_NODE_AFFINITY) == 0
    if not nodes.size or affine.any():
        return None
    selector = fit.pod_set.pod.spec.node_selector
    missing = {key: value for key, value in selector.items() if not nodes.matching_labels({key: value}).any()}
    labels = missing or ({} if nodes.matching_labels(selector).any() else selector)
    if not labels:
        return Limit(SELECTOR, f"its required node affinity matches 0 of {nodes.size} nodes", nodes=nodes.size)
    whose = "node selector" if labels.items() & own.node_selector.items() else "queue's flavor with node labels"
    text = f"its {whose} {format_labels(labels)} matches 0 of {nodes.size} nodes"
    return Limit(SELECTOR, text, nodes=nodes.size)


def with_selector_of_configuration(holds: Iterable[Hold], selector: Mapping[str, str]) -> Iterator[Hold]:
    """Holds of a scheduler that sees no node, since `nodeSelector` of its configuration matches none."""
    labels = format_labels(selector)
    text = f"the scheduler's nodeSelector {labels} matches no node"
    remedy = "label the nodes that the scheduler should use, or correct nodeSelector in its configuration"
    for hold in holds:
        verdict = hold.verdict
        if verdict.code in NODE_REFUSAL_CODES and not (verdict.code == STORAGE_CODE and verdict.detail):
            verdict = replace(verdict, detail=text, limits=(Limit(SELECTOR, text),), remedy=remedy)
        yield replace(hold, verdict=verdict)


def format_labels(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
