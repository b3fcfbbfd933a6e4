"""Topology spread: a pod's constraints, and which nodes the hard ones refuse.

Constraints are read from the pod alone: kube-scheduler can also be configured with default constraints for
pods that have none (and by default mildly spreads the pods of a Service or ReplicaSet); Windlass has no such
defaults.
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
    """Static reasons that take a node out of the count: of node affinity, of taints, as the two policies
    say."""

    def counts(self, counters: MatchCounters, facts: NodeColumns) -> Counts:
        """Matching pods per node. An empty selector counts nobody, as kube-scheduler has it; pods that are
        being deleted never count."""
        if self.matcher.selects_everything:
            return np.zeros(facts.size, dtype=np.int64)
        return counters.counter((self.matcher,), skip_terminating=True).per_node

    def matches_itself(self, pod: Pod, objects: Listers) -> bool:
        return self.matcher.matches(namespace_of(pod), pod.metadata.labels, objects)


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


def has_all_keys(constraints: tuple[SpreadConstraint, ...], facts: NodeColumns) -> Bools:
    """Nodes that have the label of every constraint: only those are counted at all."""
    mask = np.ones(facts.size, dtype=np.bool_)
    for constraint in constraints:
        mask &= facts.label(constraint.topology_key).present
    return mask


def counted_nodes(constraint: SpreadConstraint, eligible: Bools, static: npt.NDArray[np.uint64]) -> Bools:
    """Those of the eligible nodes that the constraint's node policies leave in."""
    if not constraint.ignored_bits:
        return eligible
    kept: Bools = eligible & ((static & np.uint64(constraint.ignored_bits)) == 0)
    return kept


class SpreadRefusals(NamedTuple):
    """Nodes that a hard constraint refuses. The first constraint that does, in the pod's order, gives the
    reason."""

    too_skewed: Bools
    missing_label: Bools


def refused_by_spread(
    pod: Pod, static: npt.NDArray[np.uint64], facts: NodeColumns, objects: Listers, counters: MatchCounters
) -> SpreadRefusals | None:
    constraints = spread_constraints(pod, DO_NOT_SCHEDULE)
    if not constraints:
        return None
    too_skewed = np.zeros(facts.size, dtype=np.bool_)
    missing_label = np.zeros(facts.size, dtype=np.bool_)
    eligible = has_all_keys(constraints, facts)
    for constraint in constraints:
        column = facts.label(constraint.topology_key)
        counted = counted_nodes(constraint, eligible, static)
        sums, occurs = sums_by_domain(
            facts, constraint.topology_key, constraint.counts(counters, facts), counted
        )
        allowed = _most_allowed(constraint, sums, occurs) - int(constraint.matches_itself(pod, objects))
        # A domain that is not counted holds nobody as far as the constraint knows; ABSENT reads the last
        # place.
        full = np.append(sums > allowed, False)[column.codes] if len(sums) else too_skewed
        undecided = ~(too_skewed | missing_label)
        missing_label |= undecided & ~column.present
        too_skewed = too_skewed | (undecided & full)
    return SpreadRefusals(too_skewed, missing_label)


def _most_allowed(constraint: SpreadConstraint, sums: Counts, occurs: Bools) -> int:
    """So many matching pods may a domain hold, the new one included."""
    domains = int(np.count_nonzero(occurs))
    fewest = 0 if domains < max(constraint.min_domains, 1) else int(sums[occurs].min())
    return fewest + constraint.max_skew
