"""Placing sets of pods together: all of them, as close as asked, or none.

`placement.workload_placer` hands over what a workload's pod sets ask for; the pods are placed on the overlay. Sets
with a topology request go through the topology search, with the overlay as the room; the others go pod by pod to the
best node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import Ints
from windlass.cluster.shape import Shape
from windlass.model.pod import Pod
from windlass.model.workload import TopologyRequest
from windlass.placement.combination_search import IdenticalPods, try_combinations
from windlass.placement.inter_pod import has_inter_pod_rules, may_repel_identical_pod
from windlass.placement.overlay import AssumedPod, Overlay
from windlass.placement.topology import DomainTree, TopologyFailure, TopologyPodSetRequest, plan_topology
from windlass.placement.topology.affinity_request import request_from_affinity
from windlass.placement.verdicts import Refusal

MIN_PODS_FOR_KERNEL = 4
"""From so many pods on, one call of the compiled loop is quicker than a look at the nodes for each of them."""


class PendingPodSet(msgspec.Struct, frozen=True):
    """Equal pods of a workload that are to be placed."""

    name: str
    count: int
    pod: Pod
    """As it will be: with the selectors and tolerations of its flavor."""
    shape: Shape
    topology: TopologyRequest | None = None
    tree: DomainTree | None = None
    """The domains of its flavor."""
    topology_name: str = ""
    existing: tuple[Pod, ...] = ()
    """Those of the pods that exist; the rest is placed as if they were like `pod`."""

    def pod_at(self, i: int) -> Pod:
        return self.existing[i] if i < len(self.existing) else self.pod


class PodPlacement(msgspec.Struct, frozen=True):
    """One pod's place."""

    pod_set: int
    """Which of the parts it belongs to."""
    member: int
    """Its number in the part."""
    assumed: AssumedPod


class PlacementFailure(msgspec.Struct, frozen=True):
    pod_set: str
    message: str = ""
    """From the topology search."""
    refusal: Refusal | None = None
    """From the nodes, where no topology was asked for."""


def place_gang(overlay: Overlay, pod_sets: Sequence[PendingPodSet]) -> list[PodPlacement] | PlacementFailure:
    """Places for every pod of every part, taken on the overlay; on failure the overlay is as it was."""
    rows = [overlay.table.row(part.shape, overlay.snapshot, part.pod) for part in pod_sets]
    found = _place_quickly(overlay, pod_sets, rows)
    if not isinstance(found, PlacementFailure):
        return found
    other = try_combinations(overlay, _crowds(overlay, pod_sets, rows))
    return found if other is None else [PodPlacement(*one) for one in other]


def _place_quickly(
    overlay: Overlay, parts: Sequence[PendingPodSet], rows: Sequence[int]
) -> list[PodPlacement] | PlacementFailure:
    before = overlay.checkpoint()
    by_tree: dict[int, list[int]] = {}
    for i, part in enumerate(parts):
        if part.topology is not None and part.tree is not None:
            by_tree.setdefault(id(part.tree), []).append(i)
    places: list[PodPlacement] = []
    for close in by_tree.values():
        found = _place_close(overlay, [parts[i] for i in close], [rows[i] for i in close])
        if isinstance(found, PlacementFailure):
            overlay.rollback(before)
            return found
        places += [msgspec.structs.replace(place, pod_set=close[place.pod_set]) for place in found]
    # The largest pods first: they have the fewest places to go.
    loose = set(range(len(parts))).difference(*by_tree.values())
    in_order = sorted(loose, key=lambda i: (-_size(parts[i].shape), i))
    members = [(i, member) for i in in_order for member in range(parts[i].count)]
    found = _place_in_order(overlay, parts, rows, members)
    if isinstance(found, PlacementFailure):
        overlay.rollback(before)
        return found
    return [*places, *found]


def _place_in_order(
    overlay: Overlay, parts: Sequence[PendingPodSet], rows: Sequence[int], members: Sequence[tuple[int, int]]
) -> list[PodPlacement] | PlacementFailure:
    """Pods (part and number), each on the best node that is left; on failure some may be on the overlay."""
    if len(members) >= MIN_PODS_FOR_KERNEL and all(
        overlay.is_plain(parts[i].pod_at(member)) for i, member in members
    ):
        return _place_by_kernel(overlay, parts, rows, members)
    places: list[PodPlacement] = []
    for i, member in members:
        place = _place_one(overlay, i, parts[i], rows[i], member)
        if isinstance(place, PlacementFailure):
            return place
        places.append(place)
    return places


def _place_by_kernel(
    overlay: Overlay, parts: Sequence[PendingPodSet], rows: Sequence[int], members: Sequence[tuple[int, int]]
) -> list[PodPlacement] | PlacementFailure:
    """The same in one call of the compiled loop, for pods that only a node's own state decides on."""
    found = overlay.place_all_or_none(
        [parts[i].pod_at(member) for i, member in members], [rows[i] for i, _ in members]
    )
    if isinstance(found, int):
        part = parts[members[found][0]]
        return PlacementFailure(part.name, refusal=overlay.last_kernel_refusal(part.shape))
    return [PodPlacement(i, member, placing) for (i, member), placing in zip(members, found, strict=True)]


def _crowds(overlay: Overlay, parts: Sequence[PendingPodSet], rows: Sequence[int]) -> list[IdenticalPods]:
    """The parts as a plain search sees them; none where slices or leaders say more than which domain is theirs."""
    crowds = []
    for i, part in enumerate(parts):
        wanted = part.topology if part.tree is not None else None
        if wanted is not None and (wanted.slice_size or wanted.group):
            return []
        domains: tuple[Bools, ...] = (np.ones(overlay.snapshot.nodes.size, dtype=np.bool_),)
        if part.tree is not None and wanted is not None:
            domains = part.tree.domains(wanted.level if wanted.mode == "required" else "", len(domains[0]))
        if part.count:
            crowds.append(IdenticalPods(i, rows[i], part.count, part.pod_at, domains))
    return crowds


def _size(shape: Shape) -> int:
    gpu = shape.gpu
    return (gpu.count * (gpu.milli or 1000) if gpu else 0) * (1 << 32) + dict(shape.requests).get("cpu", 0)


def _place_one(
    overlay: Overlay, index: int, part: PendingPodSet, row: int, member: int
) -> PodPlacement | PlacementFailure:
    pod = part.pod_at(member)
    why = overlay.reasons(pod, row)
    node = overlay.select_node(pod, row, why, overlay.snapshot.decided_pods + overlay.checkpoint())
    if node < 0:
        return PlacementFailure(part.name, refusal=overlay.explain_refusal(row, part.shape, why))
    return PodPlacement(index, member, overlay.assume(pod, row, node))


def _place_close(
    overlay: Overlay, parts: Sequence[PendingPodSet], rows: Sequence[int]
) -> list[PodPlacement] | PlacementFailure:
    """Parts of one tree."""
    tree = parts[0].tree
    assert tree is not None, "only parts with domains are placed by them"
    room = OverlayCapacity(overlay, parts, rows)
    asks = []
    for part, row in zip(parts, rows, strict=True):
        overlay.refresh(row)
        asks.append(
            TopologyPodSetRequest(part.name, part.count, part.topology, overlay.table.cells.score[row].copy())
        )
    found = plan_topology(tree, asks, room, parts[0].topology_name)
    return (
        PlacementFailure(found.pod_set, found.message)
        if isinstance(found, TopologyFailure)
        else room.placements
    )


class OverlayCapacity:
    """The overlay as the topology search asks it; what the search takes is placed at once."""

    def __init__(self, overlay: Overlay, pod_sets: Sequence[PendingPodSet], rows: Sequence[int]) -> None:
        self._overlay, self._parts, self._rows = overlay, pod_sets, rows
        self.placements: list[PodPlacement] = []
        self._members = [0] * len(pod_sets)

    def pods_per_node(self, request: int) -> Ints:
        counts = self._empty()
        overlay = self._overlay
        overlay.kernels.count_fits(
            overlay.state, overlay.table.shapes, overlay.table.cells, self._rows[request], counts
        )
        return self._between_pods(request, counts)

    def pods_beside_leader(self, request: int, leader: int) -> tuple[Bools, Ints]:
        counts = self._empty()
        overlay = self._overlay
        overlay.kernels.count_beside_leader(
            overlay.state,
            overlay.table.shapes,
            overlay.table.cells,
            self._rows[request],
            self._rows[leader],
            counts,
        )
        takes_leader = (counts >= 0) & (self._between_pods(leader, np.ones_like(counts)) > 0)
        return takes_leader, np.where(
            takes_leader, self._between_pods(request, counts), self.pods_per_node(request)
        )

    def reserve(self, request: int, rows: Ints, pods: Ints) -> None:
        row = self._rows[request]
        for node, count in zip(rows.tolist(), pods.tolist(), strict=True):
            for _ in range(count):
                member = self._members[request]
                self._members[request] += 1
                self._overlay.refresh(row)
                placing = self._overlay.assume(self._parts[request].pod_at(member), row, node)
                self.placements.append(PodPlacement(request, member, placing))

    def excluded_nodes(self, request: int) -> Mapping[str, int]:
        why = self._overlay.reasons(self._parts[request].pod, self._rows[request])
        refusal = self._overlay.explain_refusal(self._rows[request], self._parts[request].shape, why)
        return {count.kube: count.nodes for count in refusal.verdict().counts}

    def _between_pods(self, ask: int, counts: Ints) -> Ints:
        """Rules between pods masked in: a node that they refuse takes none; one more pod may refuse the next."""
        pod = self._parts[ask].pod
        # Members of a part change places freely, so a node that one of them is refused on takes none.
        counts[self._overlay.bind_refused_nodes(self._parts[ask].existing)] = 0
        if not self._overlay.has_inter_pod_constraints(pod):
            return counts
        neighbours = self._overlay.inter_pod_rules()
        static = self._overlay.table.cells.static[self._rows[ask]]
        wanted = self._parts[ask].topology
        # Pods that are drawn to one another stay together by the request that was made of it.
        drawn = wanted is not None and wanted == request_from_affinity(
            pod, [part.pod for part in self._parts]
        )
        alone = may_repel_identical_pod(pod) if drawn else has_inter_pod_rules(pod)
        most = 1 if alone else np.iinfo(np.int64).max
        return np.where(neighbours.reasons(pod, static) == 0, np.minimum(counts, most), 0)

    def _empty(self) -> Ints:
        return np.zeros(self._overlay.snapshot.nodes.size, dtype=np.int64)
