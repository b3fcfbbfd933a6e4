"""Kube-scheduler's four preference scores, summed with its weights.

`placement.overlay` asks for them once the feasible nodes are known, and ranks by them before the policy's own score.
Each score is normalised to 0..100 over the feasible nodes exactly as kube-scheduler does it, its rounding included:
two of its formulas use floating point, and so do these (single IEEE operations, the same on every machine).
"""

from __future__ import annotations

import math

import numpy as np

from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.node import Taint
from windlass.model.pod import Pod
from windlass.model.reasons import WHY_NODE_AFFINITY, WHY_TAINT
from windlass.model.taints import tolerates
from windlass.placement.filters.node_filters import refused_by_node_affinity, refused_by_taints
from windlass.placement.inter_pod import InterPodRules
from windlass.placement.inter_pod.match_counters import Counts, sums_by_domain
from windlass.placement.inter_pod.topology_spread import (
    SCHEDULE_ANYWAY,
    SpreadConstraint,
    counted_nodes,
    has_all_keys,
    spread_constraints,
)

TAINT_TOLERATION_WEIGHT = 3
NODE_AFFINITY_WEIGHT = 2
POD_TOPOLOGY_SPREAD_WEIGHT = 2
INTER_POD_AFFINITY_WEIGHT = 2

_MAX_NODE_SCORE = 100


def preference_scores(pod: Pod, nodes: NodeColumns, inter_pod: InterPodRules, feasible: Bools) -> Counts | None:
    """A score for every feasible node (0 for the others), higher is better.

    None if no preference applies: no preferred term, no soft spread, no untolerated PreferNoSchedule taint, no
    affinity term of a placed pod that matches.
    """
    untolerated = _untolerated_taints(pod, nodes)
    preferred = _preferred_labels(pod, nodes)
    affinity = inter_pod.affinity_scores(pod)
    soft = spread_constraints(pod, SCHEDULE_ANYWAY)
    if untolerated is None and preferred is None and affinity is None and not soft:
        return None
    rows = np.flatnonzero(feasible)
    scores: Counts = np.zeros(nodes.size, dtype=np.int64)
    if not len(rows):
        return scores
    # With no untolerated taint every node gets the full score, as in kube-scheduler; it only shifts the sum.
    total = TAINT_TOLERATION_WEIGHT * (
        _MAX_NODE_SCORE if untolerated is None else _MAX_NODE_SCORE - _normalised_to_max(untolerated[rows])
    )
    if preferred is not None:
        total = total + NODE_AFFINITY_WEIGHT * _normalised_to_max(preferred[rows])
    if soft:
        total = total + POD_TOPOLOGY_SPREAD_WEIGHT * _spread_scores(pod, soft, inter_pod, feasible)[rows]
    if affinity is not None:
        total = total + INTER_POD_AFFINITY_WEIGHT * _normalised_to_range(affinity[rows])
    scores[rows] = total
    return scores


def _untolerated_taints(pod: Pod, nodes: NodeColumns) -> Counts | None:
    """Untolerated PreferNoSchedule taints per node; None if no node has any."""
    counts = np.array([_count_untolerated(pod, taints) for taints in nodes.taint_sets], dtype=np.int64)
    if not counts.any():
        return None
    by_node: Counts = counts[nodes.taint_set_codes]
    return by_node


def _count_untolerated(pod: Pod, taints: tuple[Taint, ...]) -> int:
    soft = (taint for taint in taints if taint.effect == "PreferNoSchedule")
    return sum(not tolerates(pod.spec.tolerations, taint) for taint in soft)


def _preferred_labels(pod: Pod, nodes: NodeColumns) -> Counts | None:
    """Summed weight of the preferred node affinity terms that match; None if the pod has none."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    terms = affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()
    if not terms:
        return None
    total: Counts = np.zeros(nodes.size, dtype=np.int64)
    for term in terms:
        total += term.weight * nodes.matching_term(term.preference)
    return total


def _spread_scores(pod: Pod, soft: tuple[SpreadConstraint, ...], inter_pod: InterPodRules, feasible: Bools) -> Counts:
    """Spread score: the fewer matching pods in a node's domains, the higher; 0 for nodes that lack a label."""
    nodes = inter_pod.nodes
    eligible = has_all_keys(soft, nodes)
    scored = feasible & eligible
    static = _static_for_spread(pod, nodes)
    raw = np.zeros(nodes.size, dtype=np.float64)
    for constraint in soft:
        counts = constraint.counts(inter_pod.counters, nodes)
        if constraint.topology_key == HOSTNAME_LABEL:
            size, matching = int(np.count_nonzero(scored)), counts
        else:
            counted = counted_nodes(constraint, eligible, static)
            size, matching = _matching_in_domain(constraint.topology_key, counts, counted, scored, nodes)
        # Kube-scheduler weighs a key by the log of its domain count, so that thousands of hosts don't outweigh zones.
        raw += matching * math.log(size + 2) + (constraint.max_skew - 1)
    rounded = _rounded(raw)
    result: Counts = np.zeros(nodes.size, dtype=np.int64)
    if scored.any():
        least, most = int(rounded[scored].min()), int(rounded[scored].max())
        result[scored] = _MAX_NODE_SCORE if most == 0 else _MAX_NODE_SCORE * (most + least - rounded[scored]) // most
    return result


def _matching_in_domain(
    key: str, counts: Counts, counted: Bools, scored: Bools, nodes: NodeColumns
) -> tuple[int, Counts]:
    """The number of domains of the scored nodes, and the matching pods in each node's domain."""
    column = nodes.label(key)
    sums, _ = sums_by_domain(nodes, key, counts, counted)
    domains = len(np.unique(column.codes[scored]))
    by_node: Counts = np.append(sums, 0)[column.codes]
    return domains, by_node


def _static_for_spread(pod: Pod, nodes: NodeColumns) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """The two node-local reasons that nodeAffinityPolicy and nodeTaintsPolicy refer to."""
    static = np.zeros(nodes.size, dtype=np.uint64)
    for bit, refused in (
        (WHY_NODE_AFFINITY, refused_by_node_affinity(pod, nodes)),
        (WHY_TAINT, refused_by_taints(pod, nodes)),
    ):
        if refused is not None:
            static |= np.where(refused, np.uint64(bit), np.uint64(0))
    return static


def _normalised_to_max(values: Counts) -> Counts:
    """Non-negative numbers scaled so that the largest is 100; all 0 if it is 0."""
    most = int(values.max())
    return _MAX_NODE_SCORE * values // most if most > 0 else np.zeros_like(values)


def _normalised_to_range(values: Counts) -> Counts:
    least, most = int(values.min()), int(values.max())
    if least == most:
        return np.zeros_like(values)
    # In kube-scheduler's order of operations: the quotient first, in floating point, then truncated.
    return (float(_MAX_NODE_SCORE) * ((values - least) / float(most - least))).astype(np.int64)


def _rounded(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Counts:
    """To the nearest integer, halves up (the values are never negative)."""
    whole = np.trunc(values)
    return (whole + (values - whole >= 0.5)).astype(np.int64)
