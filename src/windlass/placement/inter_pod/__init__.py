"""Rules between pods: inter-pod affinity in both directions, topology spread, host ports, exclusive claims, and how
many volumes a node can have attached.

Built from a snapshot's facts and placed pods; `decide` adds and removes pods as it places them and takes
placements back. It asks `reasons` at choice time and ORs the answer with the node-local mask of the pod's
shape, since these rules change with every placement and node-local ones don't.

    matchers    which pods a term speaks of
    index       which of many matchers match a pod
    terms       a pod's affinity terms            spread      a pod's spread constraints, and whom they refuse
    counters    matching pods by node and domain  existing    what placed pods want of pods to come
    affinity    whom required affinity refuses    occupied    host ports and exclusive claims
    attachments volumes by node and driver
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
from windlass.placement.inter_pod.affinity_terms import preferred_terms, required_anti_affinity, scoring_terms
from windlass.placement.inter_pod.existing_terms import ExistingTerms
from windlass.placement.inter_pod.match_counters import Counts, MatchCounters, PlacedPodGroups
from windlass.placement.inter_pod.pod_affinity import refused_by_affinity, refused_by_anti_affinity
from windlass.placement.inter_pod.pod_matchers import namespace_of
from windlass.placement.inter_pod.ports_and_claims import ClaimsInUse, HostPorts, has_claims, host_ports
from windlass.placement.inter_pod.topology_spread import DO_NOT_SCHEDULE, refused_by_spread
from windlass.placement.inter_pod.volume_limits import VolumeLimits

__all__ = ["InterPodRules", "has_inter_pod_rules"]

Words = npt.NDArray[np.uint64]


def has_inter_pod_rules(pod: Pod) -> bool:
    """Whether the pod itself has a hard rule about other pods, or wants something that only one can have."""
    affinity = pod.spec.affinity.pod_affinity if pod.spec.affinity else None
    if affinity is not None and affinity.required_during_scheduling_ignored_during_execution:
        return True
    return may_repel_identical_pod(pod)


def may_repel_identical_pod(pod: Pod) -> bool:
    """Whether the pod, once it is on a node, may keep another one like it from going there."""
    spec = pod.spec
    repelled = spec.affinity.pod_anti_affinity if spec.affinity else None
    if repelled is not None and repelled.required_during_scheduling_ignored_during_execution:
        return True
    if any(
        (c.when_unsatisfiable or DO_NOT_SCHEDULE) == DO_NOT_SCHEDULE for c in spec.topology_spread_constraints
    ):
        return True
    return has_claims(pod) or bool(host_ports(pod))


class InterPodRules:
    """The placed pods, as far as pods to come are concerned."""

    def __init__(self, facts: NodeColumns, objects: Listers, placed: Iterable[tuple[Pod, int]] = ()) -> None:
        self.facts = facts
        self.objects = objects
        self._population = PlacedPodGroups()
        self.counters = MatchCounters(facts, objects, self._population)
        self._repelling = ExistingTerms(facts, objects)
        self._pulling = ExistingTerms(facts, objects)
        self._ports = HostPorts(facts)
        self._claims = ClaimsInUse(objects)
        self._attachments = VolumeLimits(facts, objects)
        for pod, row in placed:
            self.add(pod, row)

    def add(self, pod: Pod, row: int) -> None:
        """The pod is on this node now."""
        self._population.add(pod, row)
        self._change(pod, row, 1)

    def remove(self, pod: Pod, row: int) -> None:
        """The exact opposite of `add`. KeyError if no such pod is on this node."""
        self._population.remove(pod, row)
        self._change(pod, row, -1)

    def _change(self, pod: Pod, row: int, by: int) -> None:
        self.counters.change(pod, row, by)
        self._ports.change(pod, row, by)
        if pod.spec.volumes:
            self._claims.change(pod, by)
            self._attachments.change(pod, row, by)
        if pod.spec.affinity is None:
            return
        for term in required_anti_affinity(pod):
            self._repelling.change(term, row, by)
        for weighted in scoring_terms(pod):
            self._pulling.change(weighted.term, row, by * weighted.weight)

    def constrains(self, pod: Pod) -> bool:
        """False only if `reasons` would refuse no node: the pod has no such rule, and no placed pod minds
        it."""
        return has_inter_pod_rules(pod) or self._repelling.matches_any(namespace_of(pod), pod.metadata.labels)

    def reasons(self, pod: Pod, static: Words) -> Words:
        """Why not, per node, as far as other pods are the reason.

        `static` is the pod's node-local mask: spread constraints leave out nodes that node affinity or taints
        refuse.
        """
        why: Words = np.zeros(self.facts.size, dtype=np.uint64)
        _mark(why, WHY_PORTS, self._ports.conflicting_nodes(pod))
        affinity = refused_by_affinity(pod, self.facts, self.objects, self.counters)
        _mark(why, WHY_POD_AFFINITY, affinity)
        _mark(why, WHY_POD_ANTI_AFFINITY, refused_by_anti_affinity(pod, self.facts, self.counters))
        against = self._repelling.weights(namespace_of(pod), pod.metadata.labels)
        _mark(why, WHY_EXISTING_ANTI_AFFINITY, None if against is None else against > 0)
        spread = refused_by_spread(pod, static, self.facts, self.objects, self.counters)
        if spread is not None:
            _mark(why, WHY_SPREAD, spread.too_skewed)
            _mark(why, WHY_SPREAD_MISSING_LABEL, spread.missing_label)
        _mark(why, WHY_VOLUME_LIMIT, self._attachments.refused_nodes(pod))
        if self._claims.excludes(pod):
            why |= np.uint64(WHY_EXCLUSIVE_CLAIM)
        return why

    def affinity_scores(self, pod: Pod) -> Counts | None:
        """How much each node's company speaks for (or, negative, against) the pod there; None if nobody has a
        say.

        The pod's preferred terms count placed pods that match; placed pods' own terms count where they match
        the pod.
        """
        total = self._pulling.weights(namespace_of(pod), pod.metadata.labels)
        for (matcher, topology_key), weight in preferred_terms(pod):
            near = weight * self.counters.counter((matcher,)).in_domain_of_each_node(topology_key)
            total = near if total is None else total + near
        return total


def _mark(why: Words, bit: int, refused: Bools | None) -> None:
    if refused is not None:
        why |= np.where(refused, np.uint64(bit), np.uint64(0))
