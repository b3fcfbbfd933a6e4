"""Topology spread: a pod's constraints, and which nodes the hard ones refuse.

`InterPodRules` asks for hard constraints, `placement.preferences` for soft ones. Kube-scheduler's default constraints
(it mildly spreads the pods of a Service or ReplicaSet) are not implemented.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.model.pod import Pod
from windlass.model.reasons import WHY_NODE_AFFINITY, WHY_TAINT
from windlass.placement.inter_pod.match_counters import Counts, MatchCounters, sums_by_domain
from windlass.placement.inter_pod.pod_matchers import PodMatcher, namespace_of, with_match_label_keys

DO_NOT_SCHEDULE = "DoNotSchedule"
SCHEDULE_ANYWAY = "ScheduleAnyway"


class SpreadConstraint(NamedTuple):
    """One spread constraint, its selector narrowed by `matchLabelKeys` to the pod's own labels."""

    matcher: PodMatcher
    topology_key: str
    max_skew: int
    min_domains: int
    ignored_bits: int
    """Node-local reasons that exclude a node from the count, by nodeAffinityPolicy and nodeTaintsPolicy."""

    def counts(self, counters: MatchCounters, nodes: NodeColumns) -> Counts:
        """Matching pods per node. As in kube-scheduler, an empty selector counts no pods, and terminating pods never
        count."""
        if self.matcher.selects_everything:
            return np.zeros(nodes.size, dtype=np.int64)
        return counters.counter((self.matcher,), skip_terminating=True).per_node

    def matches_itself(self, pod: Pod, listers: Listers) -> bool:
        return self.matcher.matches(namespace_of(pod), pod.metadata.labels, listers)


def spread_constraints(pod: Pod, when_unsatisfiable: str) -> tuple[SpreadConstraint, ...]:
    found = []
    for raw in pod.spec.topology_spread_constraints:
        if (raw.when_unsatisfiable or DO_NOT_SCHEDULE) != when_unsatisfiable:
            continue
        selector = with_match_label_keys(raw.label_selector, pod.metadata.labels, raw.match_label_keys)
        ignored = 0 if raw.node_affinity_policy == "Ignore" else WHY_NODE_AFFINITY
        if raw.node_taints_policy == "Honor":
            ignored |= WHY_TAINT
        matcher = PodMatcher(frozenset([namespace_of(pod)]), None, selector)
        min_domains = 1 if raw.min_domains is None else raw.min_domains
        found.append(SpreadConstraint(matcher, raw.topology_key, raw.max_skew, min_domains, ignored))
    return tuple(found)


def has_all_keys(constraints: tuple[SpreadConstraint, ...], nodes: NodeColumns) -> Bools:
    """Nodes that have the label of every constraint: no other nodes are counted."""
    mask = np.ones(nodes.size, dtype=np.bool_)
    for constraint in constraints:
        mask &= nodes.label(constraint.topology_key).present
    return mask


def counted_nodes(constraint: SpreadConstraint, eligible: Bools, static: npt.NDArray[np.uint64]) -> Bools:
    """The eligible nodes that the constraint's node policies include."""
    if not constraint.ignored_bits:
        return eligible
    kept: Bools = eligible & ((static & np.uint64(constraint.ignored_bits)) == 0)
    return kept


class SpreadRefusals(NamedTuple):
    """Nodes that a hard constraint refuses; the first one that refuses a node, in the pod's order, gives the reason."""

    too_skewed: Bools
    missing_label: Bools


def refused_by_spread(
    pod: Pod, static: npt.NDArray[np.uint64], nodes: NodeColumns, listers: Listers, counters: MatchCounters
) -> SpreadRefusals | None:
    constraints = spread_constraints(pod, DO_NOT_SCHEDULE)
    if not constraints:
        return None
    too_skewed = np.zeros(nodes.size, dtype=np.bool_)
    missing_label = np.zeros(nodes.size, dtype=np.bool_)
    eligible = has_all_keys(constraints, nodes)
    for constraint in constraints:
        column = nodes.label(constraint.topology_key)
        counted = counted_nodes(constraint, eligible, static)
        sums, occurs = sums_by_domain(nodes, constraint.topology_key, constraint.counts(counters, nodes), counted)
        # A pod that its own selector does not match adds nothing to the domain.
        allowed = _most_allowed(constraint, sums, occurs) - int(constraint.matches_itself(pod, listers))
        # A domain that is not counted is taken to be empty. ABSENT is -1, so unlabelled nodes read the appended entry.
        full = np.append(sums > allowed, False)[column.codes] if len(sums) else too_skewed
        # kube-scheduler stops at the first constraint that refuses the node, so a node has one of the two reasons.
        undecided = ~(too_skewed | missing_label)
        missing_label |= undecided & ~column.present
        too_skewed = too_skewed | (undecided & full)
    return SpreadRefusals(too_skewed, missing_label)


def _most_allowed(constraint: SpreadConstraint, sums: Counts, occurs: Bools) -> int:
    """The most matching pods that a domain may hold, the new one included."""
    domains = int(np.count_nonzero(occurs))
    # With fewer domains than minDomains the global minimum counts as 0, as in kube-scheduler.
    fewest = 0 if domains < max(constraint.min_domains, 1) else int(sums[occurs].min())
    return fewest + constraint.max_skew
