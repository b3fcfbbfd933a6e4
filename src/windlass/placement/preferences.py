"""What a pod would rather have: kube-scheduler's four preference scores, summed with its weights.

`placement` asks for them once the nodes that fit are known, and ranks by them after hard topology and before
fragmentation. Each part is normalised to 0..100 over the feasible nodes, as kube-scheduler does it, down to
where it rounds: two of its formulas go through floating point, and so do these (single IEEE operations, the
same everywhere).
"""

from __future__ import annotations

import math

import numpy as np

from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.model.node import Taint
from windlass.model.pod import Pod
from windlass.model.reasons import WHY_NODE_AFFINITY, WHY_TAINT
from windlass.model.taints import tolerates
from windlass.placement.filters.node_affinity import refused_by_node_affinity
from windlass.placement.filters.taints import refused_by_taints
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

_FULL = 100
_HOSTNAME = "kubernetes.io/hostname"


def preference_scores(
    pod: Pod, facts: NodeColumns, neighbours: InterPodRules, feasible: Bools
) -> Counts | None:
    """A score for every feasible node (0 for the others), higher is better.

    None if nothing is preferred: no preferred term, no soft spread, no PreferNoSchedule taint that the pod
    doesn't tolerate, no placed pod that pulls or pushes it.
    """
    disliked = _disliked_taints(pod, facts)
    liked = _liked_labels(pod, facts)
    pull = neighbours.affinity_scores(pod)
    soft = spread_constraints(pod, SCHEDULE_ANYWAY)
    if disliked is None and liked is None and pull is None and not soft:
        return None
    rows = np.flatnonzero(feasible)
    scores: Counts = np.zeros(facts.size, dtype=np.int64)
    if not len(rows):
        return scores
    total = TAINT_TOLERATION_WEIGHT * (_FULL if disliked is None else _FULL - _share_of_most(disliked[rows]))
    if liked is not None:
        total = total + NODE_AFFINITY_WEIGHT * _share_of_most(liked[rows])
    if soft:
        total = total + POD_TOPOLOGY_SPREAD_WEIGHT * _evenness(pod, soft, neighbours, feasible)[rows]
    if pull is not None:
        total = total + INTER_POD_AFFINITY_WEIGHT * _between_least_and_most(pull[rows])
    scores[rows] = total
    return scores


def _disliked_taints(pod: Pod, facts: NodeColumns) -> Counts | None:
    """PreferNoSchedule taints per node that the pod doesn't tolerate; None if there are none anywhere."""
    counts = np.array([_count_disliked(pod, taints) for taints in facts.taint_sets], dtype=np.int64)
    if not counts.any():
        return None
    by_node: Counts = counts[facts.taint_set_codes]
    return by_node


def _count_disliked(pod: Pod, taints: tuple[Taint, ...]) -> int:
    soft = (taint for taint in taints if taint.effect == "PreferNoSchedule")
    return sum(not tolerates(pod.spec.tolerations, taint) for taint in soft)


def _liked_labels(pod: Pod, facts: NodeColumns) -> Counts | None:
    """Summed weight of the preferred node affinity terms that match; None if the pod has none."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    terms = affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()
    if not terms:
        return None
    total: Counts = np.zeros(facts.size, dtype=np.int64)
    for term in terms:
        total += term.weight * facts.matching_term(term.preference)
    return total


def _evenness(
    pod: Pod, soft: tuple[SpreadConstraint, ...], neighbours: InterPodRules, feasible: Bools
) -> Counts:
    """The fewer matching pods in a node's domains, the higher. Nodes that lack one of the labels get 0."""
    facts = neighbours.facts
    eligible = has_all_keys(soft, facts)
    judged = feasible & eligible
    static = _static_for_spread(pod, facts)
    crowding = np.zeros(facts.size, dtype=np.float64)
    for constraint in soft:
        counts = constraint.counts(neighbours.counters, facts)
        if constraint.topology_key == _HOSTNAME:
            size, matching = int(np.count_nonzero(judged)), counts
        else:
            counted = counted_nodes(constraint, eligible, static)
            size, matching = _matching_in_domain(constraint.topology_key, counts, counted, judged, facts)
        # Rare domains weigh less than common ones, so that a zone is not drowned out by thousands of hosts.
        crowding += matching * math.log(size + 2) + (constraint.max_skew - 1)
    crowded = _rounded(crowding)
    result: Counts = np.zeros(facts.size, dtype=np.int64)
    if judged.any():
        least, most = int(crowded[judged].min()), int(crowded[judged].max())
        result[judged] = _FULL if most == 0 else _FULL * (most + least - crowded[judged]) // most
    return result


def _matching_in_domain(
    key: str, counts: Counts, counted: Bools, judged: Bools, facts: NodeColumns
) -> tuple[int, Counts]:
    """How many domains the judged nodes are in, and the matching pods in each node's domain."""
    column = facts.label(key)
    sums, _ = sums_by_domain(facts, key, counts, counted)
    domains = len(np.unique(column.codes[judged]))
    by_node: Counts = np.append(sums, 0)[column.codes]
    return domains, by_node


def _static_for_spread(pod: Pod, facts: NodeColumns) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """The two node-local reasons that a spread constraint's policies ask about."""
    static = np.zeros(facts.size, dtype=np.uint64)
    for bit, refused in (
        (WHY_NODE_AFFINITY, refused_by_node_affinity(pod, facts)),
        (WHY_TAINT, refused_by_taints(pod, facts)),
    ):
        if refused is not None:
            static |= np.where(refused, np.uint64(bit), np.uint64(0))
    return static


def _share_of_most(values: Counts) -> Counts:
    """Non-negative numbers scaled so that the largest is 100; all 0 if it is 0."""
    most = int(values.max())
    return _FULL * values // most if most > 0 else np.zeros_like(values)


def _between_least_and_most(values: Counts) -> Counts:
    least, most = int(values.min()), int(values.max())
    if least == most:
        return np.zeros_like(values)
    # In kube-scheduler's order of operations: the quotient first, in floating point, then cut off.
    return (float(_FULL) * ((values - least) / float(most - least))).astype(np.int64)


def _rounded(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Counts:
    """To the nearest integer, halves up (the values are never negative)."""
    whole = np.trunc(values)
    return (whole + (values - whole >= 0.5)).astype(np.int64)
