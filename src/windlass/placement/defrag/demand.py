"""What waits, as pods that need a place, and the ways in which it may be placed.

Made of a workload's piece (`placement.workload_pieces`) and the site that would place it; feeds `search`, `bound` and
`exact`. A queue that has several flavors, or a topology that has several domains, gives several ways; each is
searched by itself, and `placement.gang` has the last word on whether the pods really start.
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
"""Combinations of flavors that are looked at for one workload."""


class Demand(msgspec.Struct, frozen=True):
    piece: Workload
    choices: Choices
    pods: tuple[PodToPlace, ...]
    domains: tuple[Bools | None, ...] = (None,)
    """The nodes that all the pods with a topology request have to be on: any one of these."""
    topology_pod_sets: frozenset[int] = frozenset()
    """Parts that the domains are meant for."""

    def pods_in(self, domain: Bools | None) -> list[PodToPlace]:
        """The pods, with the domain as a limit on those that have to be close."""
        if domain is None:
            return list(self.pods)
        return [
            msgspec.structs.replace(item, allowed=domain) if item.pod_set in self.topology_pod_sets else item
            for item in self.pods
        ]


def demands_of(
    piece: Workload, placer: WorkloadPlacer, overlay: Overlay, system: QueueSystem
) -> Iterator[Demand]:
    """The ways in which the piece may be placed, in the order in which its queue would try them."""
    for choices in _choices(piece, placer, system):
        yield demand_of(piece, choices, placer, overlay)


def demand_of(piece: Workload, choices: Choices, placer: WorkloadPlacer, overlay: Overlay) -> Demand:
    """The piece on these flavors."""
    parts, tree, _ = placer.pending_pod_sets(piece, choices)
    items = tuple(
        PodToPlace(
            part.pod_at(i), part.shape, overlay.table.row(part.shape, overlay.snapshot), pod_set=number
        )
        for number, part in enumerate(parts)
        for i in range(part.count)
    )
    close = [i for i, part in enumerate(parts) if part.topology is not None and tree is not None]
    if not close or tree is None:
        return Demand(piece, choices, items)
    domains = _domains(tree, [parts[i] for i in close], overlay.snapshot.nodes.size)
    return Demand(piece, choices, items, domains, frozenset(close))


def _choices(piece: Workload, site: WorkloadPlacer, system: QueueSystem) -> Iterator[Choices]:
    local = system.local_queues.get(f"{piece.namespace}/{piece.queue_name}") if piece.queue_name else None
    queue = system.queues.get(local.cluster_queue) if local is not None else None
    if queue is None:
        yield tuple(PodSetChoice(one.name, one.count, {}) for one in piece.pod_sets)
        return
    tried = [[one.flavor for one in group.flavors] for group in queue.resource_groups]
    for names in islice(product(*tried), MAX_FLAVOR_COMBINATIONS):
        choices = _flavored(piece, queue.resource_groups, names, site, system)
        if choices:
            yield choices


def _flavored(
    piece: Workload,
    groups: tuple[ResourceGroup, ...],
    names: tuple[str, ...],
    site: WorkloadPlacer,
    system: QueueSystem,
) -> Choices:
    """Every set on these flavors, as far as it asks for their resources; nothing where one can't use its flavor."""
    choices = []
    for one in piece.pod_sets:
        asked = site.requests(piece, one)
        flavors = {
            resource: name
            for group, name in zip(groups, names, strict=True)
            for resource in group.resources
            if resource in asked
        }
        used = [system.flavors.get(name) for name in dict.fromkeys(flavors.values())]
        if any(flavor is None or site.ineligible_reason(one, flavor) for flavor in used):
            return ()
        choices.append(PodSetChoice(one.name, one.count, flavors))
    return tuple(choices)


def _domains(tree: DomainTree, parts: list[PendingPodSet], nodes: int) -> tuple[Bools, ...]:
    """Masks of nodes: one for every domain of the narrowest level that is required, or one for the whole topology."""
    required = [
        tree.levels.index(part.topology.level)
        for part in parts
        if part.topology is not None
        and part.topology.mode == "required"
        and part.topology.level in tree.levels
    ]
    return tree.domains(tree.levels[max(required)] if required else "", nodes)
