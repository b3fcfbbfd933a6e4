"""kube-scheduler's preference scores, plugin by plugin, for the feasible nodes."""

from __future__ import annotations

import math

from reference.inter_pod import constraints, count_on, is_counted, same_domain, term_matches, terms
from reference.matching import is_tolerated, node_term_matches


def preference_sums(pod, cluster, feasible):
    """{node index: weighted sum}, for the feasible indices."""
    taints = _reversed(_normalised_to_max({i: _soft_taints(pod, cluster.nodes[i]) for i in feasible}))
    labels = _normalised_to_max({i: _preferred_labels(pod, cluster.nodes[i]) for i in feasible})
    spread = _spread_scores(pod, cluster, feasible)
    pods = _normalised_to_range({i: _inter_pod_score(pod, i, cluster) for i in feasible})
    return {i: 3 * taints[i] + 2 * labels[i] + 2 * spread[i] + 2 * pods[i] for i in feasible}


def _normalised_to_max(raw):
    most = max(raw.values(), default=0)
    return {i: 100 * value // most if most else 0 for i, value in raw.items()}


def _reversed(shares):
    return {i: 100 - value for i, value in shares.items()}


def _normalised_to_range(raw):
    least, most = min(raw.values(), default=0), max(raw.values(), default=0)
    return {i: int(100.0 * ((v - least) / (most - least))) if most > least else 0 for i, v in raw.items()}


def _soft_taints(pod, node):
    soft = [taint for taint in node.spec.taints if taint.effect == "PreferNoSchedule"]
    return sum(1 for taint in soft if not is_tolerated(taint, pod.spec.tolerations))


def _preferred_labels(pod, node):
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is None:
        return 0
    preferred = affinity.preferred_during_scheduling_ignored_during_execution
    return sum(term.weight for term in preferred if node_term_matches(term.preference, node))


def _inter_pod_score(pod, index, cluster):
    total = 0
    for other, where in cluster.placed:
        for kind, sign in (("pod_affinity", 1), ("pod_anti_affinity", -1)):
            for owner, target in ((pod, other), (other, pod)):
                for weighted in terms(owner, kind, "preferred"):
                    term = weighted.pod_affinity_term
                    if term_matches(term, owner, target, cluster) and same_domain(
                        term.topology_key, index, where, cluster
                    ):
                        total += sign * weighted.weight
        for term in terms(other, "pod_affinity", "required"):
            if term_matches(term, other, pod, cluster) and same_domain(term.topology_key, index, where, cluster):
                total += 1
    return total


def _spread_scores(pod, cluster, feasible):
    soft = constraints(pod, "ScheduleAnyway")
    if not soft:
        return dict.fromkeys(feasible, 0)
    labels = [node.metadata.labels for node in cluster.nodes]
    scored = [i for i in feasible if all(c.topology_key in labels[i] for c in soft)]
    raw = {}
    for i in scored:
        score = 0.0
        for c in soft:
            if c.topology_key == "kubernetes.io/hostname":
                size, count = len(scored), count_on(c, pod, i, cluster)
            else:
                size = len({labels[j][c.topology_key] for j in scored})
                count = sum(
                    count_on(c, pod, j, cluster)
                    for j, node in enumerate(cluster.nodes)
                    if is_counted(c, soft, pod, node) and same_domain(c.topology_key, i, j, cluster)
                )
            score += count * math.log(size + 2) + (c.max_skew - 1)
        raw[i] = math.floor(score + 0.5)
    scores = dict.fromkeys(feasible, 0)
    most, least = max(raw.values(), default=0), min(raw.values(), default=0)
    for i in scored:
        scores[i] = 100 if most == 0 else 100 * (most + least - raw[i]) // most
    return scores
