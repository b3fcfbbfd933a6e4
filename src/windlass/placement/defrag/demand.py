"""A waiting workload as pods that need nodes, for each choice of flavors and topology domains.

`defrag.planner` and `move_finder` make demands; `move_search`, `weight_bound` and `exact_solver` work on their pods. A
queue with several flavors, or a topology with several domains, gives several choices, which are searched one by one.
`placement.gang` confirms that the pods really start.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product

import msgspec

from windlass.cluster.node_columns import Bools
from windlass.model.queue import QueueSystem, ResourceGroup
from windlass.model.workload import Workload
from windlass.placement.defrag.types import PodToPlace
from windlass.placement.gang import PendingPodSet
from windlass.placement.overlay import Overlay
from windlass.placement.topology import DomainTree
from windlass.placement.workload_placer import WorkloadPlacer
from windlass.queueing.placement_interface import PodSetChoice

Choices = tuple[PodSetChoice, ...]
MAX_FLAVOR_COMBINATIONS = 6
"""Combinations of flavors that are tried for one workload."""


class Demand(msgspec.Struct, frozen=True):
    piece: Workload
    choices: Choices
    pods: tuple[PodToPlace, ...]
    domains: tuple[Bools | None, ...] = (None,)
    """Sets of nodes: all pods with a topology request have to be within one of them."""
    topology_pod_sets: frozenset[int] = frozenset()
    """Indexes of the pod sets with a topology request."""

    def pods_in(self, domain: Bools | None) -> list[PodToPlace]:
        """The pods, where those with a topology request are limited to the domain."""
        if domain is None:
            return list(self.pods)
        return [
            msgspec.structs.replace(item, allowed=domain) if item.pod_set in self.topology_pod_sets else item
            for item in self.pods
        ]


def demands_of(piece: Workload, placer: WorkloadPlacer, overlay: Overlay, system: QueueSystem) -> Iterator[Demand]:
    """The demands of the piece, one per combination of flavors, in the order in which its queue would try them."""
    for choices in _choices(piece, placer, system):
        yield demand_of(piece, choices, placer, overlay)


def demand_of(piece: Workload, choices: Choices, placer: WorkloadPlacer, overlay: Overlay) -> Demand:
    """The demand of the piece with these flavors."""
    pod_sets, tree, _ = placer.pending_pod_sets(piece, choices)
    pods = tuple(
        PodToPlace(
            pod_set.pod_at(i),
            pod_set.shape,
            overlay.table.row(pod_set.shape, overlay.snapshot),
            pod_set=number,
        )
        for number, pod_set in enumerate(pod_sets)
        for i in range(pod_set.count)
    )
    topological = [i for i, pod_set in enumerate(pod_sets) if pod_set.topology is not None]
    if not topological or tree is None:
        return Demand(piece, choices, pods)
    domains = _domains(tree, [pod_sets[i] for i in topological], overlay.snapshot.nodes.size)
    return Demand(piece, choices, pods, domains, frozenset(topological))


def _choices(piece: Workload, placer: WorkloadPlacer, system: QueueSystem) -> Iterator[Choices]:
    local = system.local_queue(piece.namespace, piece.queue_name) if piece.queue_name else None
    queue = system.queues.get(local.cluster_queue) if local is not None else None
    if queue is None:
        yield tuple(PodSetChoice(pod_set.name, pod_set.count, {}) for pod_set in piece.pod_sets)
        return
    flavors = [[quotas.flavor for quotas in group.flavors] for group in queue.resource_groups]
    for names in islice(product(*flavors), MAX_FLAVOR_COMBINATIONS):
        choices = _with_flavors(piece, queue.resource_groups, names, placer, system)
        if choices:
            yield choices


def _with_flavors(
    piece: Workload,
    groups: tuple[ResourceGroup, ...],
    names: tuple[str, ...],
    placer: WorkloadPlacer,
    system: QueueSystem,
) -> Choices:
    """Every pod set with these flavors for the resources that it requests; empty where one may not use its flavor."""
    choices = []
    for pod_set in piece.pod_sets:
        requests = placer.requests(piece, pod_set)
        flavors = {
            resource: name
            for group, name in zip(groups, names, strict=True)
            for resource in group.resources
            if resource in requests
        }
        used = [system.flavors.get(name) for name in dict.fromkeys(flavors.values())]
        if any(flavor is None or placer.ineligible_reason(pod_set, flavor) for flavor in used):
            return ()
        choices.append(PodSetChoice(pod_set.name, pod_set.count, flavors))
    return tuple(choices)


def _domains(tree: DomainTree, pod_sets: list[PendingPodSet], nodes: int) -> tuple[Bools, ...]:
    """One set of nodes for every domain of the narrowest required level, or one for the whole topology."""
    required = [
        tree.levels.index(pod_set.topology.level)
        for pod_set in pod_sets
        if pod_set.topology is not None
        and pod_set.topology.mode == "required"
        and pod_set.topology.level in tree.levels
    ]
    return tree.domains(tree.levels[max(required)] if required else "", nodes)
