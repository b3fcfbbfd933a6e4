"""Rules between pods: inter-pod affinity in both directions, topology spread, host ports, exclusive claims, and how
many volumes a node can have attached.

`placement.overlay` builds `InterPodRules` from the placed pods when a pod needs it, and adds and removes pods as it
assumes and forgets them. It asks `reasons` when it chooses a node and ORs the answer with the node-local reasons of
the pod's shape: these rules change with every placement, node-local ones don't.

    pod_matchers      which pods a term selects; an index over many such matchers
    pod_affinity      a pod's affinity terms, and the nodes that required ones refuse
    topology_spread   a pod's spread constraints, and the nodes that hard ones refuse
    match_counters    matching pods by node and domain
    existing_terms    affinity terms of placed pods, which apply to later pods
    ports_and_claims  host ports and ReadWriteOncePod claims in use
    volume_limits     attached volumes by node and CSI driver
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.model.pod import Pod
from windlass.model.reasons import (
    WHY_EXCLUSIVE_CLAIM,
    WHY_EXISTING_ANTI_AFFINITY,
    WHY_POD_AFFINITY,
    WHY_POD_ANTI_AFFINITY,
    WHY_PORTS,
    WHY_SPREAD,
    WHY_SPREAD_MISSING_LABEL,
    WHY_VOLUME_LIMIT,
)
from windlass.placement.inter_pod.existing_terms import ExistingTerms
from windlass.placement.inter_pod.match_counters import Counts, MatchCounters, PlacedPodGroups
from windlass.placement.inter_pod.pod_affinity import (
    preferred_terms,
    refused_by_affinity,
    refused_by_anti_affinity,
    required_anti_affinity,
    scoring_terms,
)
from windlass.placement.inter_pod.pod_matchers import namespace_of
from windlass.placement.inter_pod.ports_and_claims import ClaimsInUse, HostPorts, has_claims, host_ports
from windlass.placement.inter_pod.topology_spread import DO_NOT_SCHEDULE, refused_by_spread
from windlass.placement.inter_pod.volume_limits import VolumeLimits

__all__ = ["InterPodRules", "has_inter_pod_rules"]

Words = npt.NDArray[np.uint64]


def has_inter_pod_rules(pod: Pod) -> bool:
    """Whether the pod itself has a hard rule about other pods, or needs a resource that only one pod can hold."""
    affinity = pod.spec.affinity.pod_affinity if pod.spec.affinity else None
    if affinity is not None and affinity.required_during_scheduling_ignored_during_execution:
        return True
    return may_repel_identical_pod(pod)


def may_repel_identical_pod(pod: Pod) -> bool:
    """Whether the pod, once on a node, may keep another pod with the same spec off that node."""
    spec = pod.spec
    anti_affinity = spec.affinity.pod_anti_affinity if spec.affinity else None
    if anti_affinity is not None and anti_affinity.required_during_scheduling_ignored_during_execution:
        return True
    if any(
        (constraint.when_unsatisfiable or DO_NOT_SCHEDULE) == DO_NOT_SCHEDULE
        for constraint in spec.topology_spread_constraints
    ):
        return True
    return has_claims(pod) or bool(host_ports(pod))


class InterPodRules:
    """The placed pods and what follows from them for pods that are placed later."""

    def __init__(self, nodes: NodeColumns, listers: Listers, placed: Iterable[tuple[Pod, int]] = ()) -> None:
        self.nodes = nodes
        self.listers = listers
        self._placed_pods = PlacedPodGroups()
        self.counters = MatchCounters(nodes, listers, self._placed_pods)
        self._repelling = ExistingTerms(nodes, listers)
        self._pulling = ExistingTerms(nodes, listers)
        self._ports = HostPorts(nodes)
        self._claims = ClaimsInUse(listers)
        self._volume_limits = VolumeLimits(nodes, listers)
        for pod, row in placed:
            self.add(pod, row)

    def add(self, pod: Pod, row: int) -> None:
        self._placed_pods.add(pod, row)
        self._change(pod, row, 1)

    def remove(self, pod: Pod, row: int) -> None:
        """Undoes `add`. KeyError if no such pod is on this node."""
        self._placed_pods.remove(pod, row)
        self._change(pod, row, -1)

    def _change(self, pod: Pod, row: int, by: int) -> None:
        self.counters.change(pod, row, by)
        self._ports.change(pod, row, by)
        if pod.spec.volumes:
            self._claims.change(pod, by)
            self._volume_limits.change(pod, row, by)
        if pod.spec.affinity is None:
            return
        for term in required_anti_affinity(pod):
            self._repelling.change(term, row, by)
        # Negative weights are anti-affinity: placed pods may push later ones away by preference.
        for weighted in scoring_terms(pod):
            self._pulling.change(weighted.term, row, by * weighted.weight)

    def constrains(self, pod: Pod) -> bool:
        """False only if `reasons` would refuse no node: the pod has no such rule, and no placed pod repels it."""
        return has_inter_pod_rules(pod) or self._repelling.matches_any(namespace_of(pod), pod.metadata.labels)

    def reasons(self, pod: Pod, static: Words) -> Words:
        """Per node, the bits of the reasons that other pods cause.

        `static` are the pod's node-local reasons: spread constraints don't count nodes that node affinity or taints
        refuse.
        """
        why: Words = np.zeros(self.nodes.size, dtype=np.uint64)
        _mark(why, WHY_PORTS, self._ports.conflicting_nodes(pod))
        affinity = refused_by_affinity(pod, self.nodes, self.listers, self.counters)
        _mark(why, WHY_POD_AFFINITY, affinity)
        _mark(why, WHY_POD_ANTI_AFFINITY, refused_by_anti_affinity(pod, self.nodes, self.counters))
        repelled = self._repelling.weights(namespace_of(pod), pod.metadata.labels)
        _mark(why, WHY_EXISTING_ANTI_AFFINITY, None if repelled is None else repelled > 0)
        spread = refused_by_spread(pod, static, self.nodes, self.listers, self.counters)
        if spread is not None:
            _mark(why, WHY_SPREAD, spread.too_skewed)
            _mark(why, WHY_SPREAD_MISSING_LABEL, spread.missing_label)
        _mark(why, WHY_VOLUME_LIMIT, self._volume_limits.refused_nodes(pod))
        if self._claims.excludes(pod):
            why |= np.uint64(WHY_EXCLUSIVE_CLAIM)
        return why

    def affinity_scores(self, pod: Pod) -> Counts | None:
        """Per node, the raw inter-pod affinity score (negative for anti-affinity); None if no term applies.

        Sums the pod's preferred terms over matching placed pods, and the terms of placed pods that match the pod.
        """
        total = self._pulling.weights(namespace_of(pod), pod.metadata.labels)
        for (matcher, topology_key), weight in preferred_terms(pod):
            score = weight * self.counters.counter((matcher,)).in_domain_of_each_node(topology_key)
            total = score if total is None else total + score
        return total


def _mark(why: Words, bit: int, refused: Bools | None) -> None:
    if refused is not None:
        why |= np.where(refused, np.uint64(bit), np.uint64(0))
