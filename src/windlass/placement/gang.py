"""Places the pod sets of a workload on the overlay: all pods, within the topology that is asked for, or none.

`placement.gang_domains` calls `place_gang`. Pod sets with a topology request go through the topology search, which
counts capacity on the overlay; the others go pod by pod to the best node. So do pods with a topology request and rules
about one another (anti-affinity, spread, host ports, volumes), domain after domain: counts per node can't express that
members placed earlier restrict the later ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

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
from windlass.placement.verdicts import NoNodeFound

MIN_PODS_FOR_KERNEL = 4
"""From this many pods on, one call of the placement loop is faster than one node selection for each of them."""


class PendingPodSet(msgspec.Struct, frozen=True):
    """Equal pods of a workload that have no node yet."""

    name: str
    count: int
    pod: Pod
    """The template with the selectors and tolerations of its flavors."""
    shape: Shape
    topology: TopologyRequest | None = None
    tree: DomainTree | None = None
    """The domains of its flavor."""
    topology_name: str = ""
    existing: tuple[Pod, ...] = ()
    """The pods that exist; for the others `pod` stands."""

    def pod_at(self, i: int) -> Pod:
        return self.existing[i] if i < len(self.existing) else self.pod


class PodPlacement(msgspec.Struct, frozen=True):
    pod_set: int
    """Index of its pod set."""
    member: int
    """Index of the pod in the set."""
    assumed: AssumedPod


class PlacementFailure(msgspec.Struct, frozen=True):
    pod_set: str
    message: str = ""
    """From the topology search."""
    no_node: NoNodeFound | None = None
    """From the nodes, where no topology was asked for."""


def place_gang(overlay: Overlay, pod_sets: Sequence[PendingPodSet]) -> list[PodPlacement] | PlacementFailure:
    """Assume every pod of every pod set; on failure the overlay is unchanged."""
    rows = [overlay.table.row(pod_set.shape, overlay.snapshot, pod_set.pod) for pod_set in pod_sets]
    # Greedy first: it finds most placements, and its failure is the one that a verdict can explain.
    found = _place_greedily(overlay, pod_sets, rows)
    if not isinstance(found, PlacementFailure):
        return found
    combination = try_combinations(overlay, _groups_to_combine(overlay, pod_sets, rows))
    return found if combination is None else [PodPlacement(*placement) for placement in combination]


def place_gang_on_nodes(
    overlay: Overlay, pod_sets: Sequence[PendingPodSet], nodes: Sequence[Mapping[int, int]]
) -> list[PodPlacement] | None:
    """As `place_gang`, on these nodes (per pod set, node → pods); None where one of them has no room."""
    before = overlay.checkpoint()
    placements: list[PodPlacement] = []
    for i, pod_set in enumerate(pod_sets):
        row = overlay.table.row(pod_set.shape, overlay.snapshot, pod_set.pod)
        left = dict(nodes[i])
        for member in range(pod_set.count):
            allowed = np.zeros(overlay.snapshot.nodes.size, dtype=np.bool_)
            allowed[[node for node, pods in left.items() if pods > 0]] = True
            found = _place_one(overlay, i, pod_set, row, member, allowed)
            if isinstance(found, PlacementFailure):
                overlay.rollback(before)
                return None
            left[found.assumed.node] -= 1
            placements.append(found)
    return placements


def _place_greedily(
    overlay: Overlay, pod_sets: Sequence[PendingPodSet], rows: Sequence[int]
) -> list[PodPlacement] | PlacementFailure:
    before = overlay.checkpoint()
    by_tree: dict[int, list[int]] = {}
    for i, pod_set in enumerate(pod_sets):
        if pod_set.topology is not None and pod_set.tree is not None:
            # Sets of one tree are searched together, since a leader and its workers share a domain.
            by_tree.setdefault(id(pod_set.tree), []).append(i)
    placements: list[PodPlacement] = []
    for indices in by_tree.values():
        found = _place_by_topology(overlay, [pod_sets[i] for i in indices], [rows[i] for i in indices])
        if isinstance(found, PlacementFailure):
            overlay.rollback(before)
            return found
        placements += [replace(placement, pod_set=indices[placement.pod_set]) for placement in found]
    # The largest pods first: the fewest nodes fit them.
    unconstrained = set(range(len(pod_sets))).difference(*by_tree.values())
    in_order = sorted(unconstrained, key=lambda i: (-_size(pod_sets[i].shape), i))
    members = [(i, member) for i in in_order for member in range(pod_sets[i].count)]
    found = _place_in_order(overlay, pod_sets, rows, members)
    if isinstance(found, PlacementFailure):
        overlay.rollback(before)
        return found
    return [*placements, *found]


def _place_in_order(
    overlay: Overlay,
    pod_sets: Sequence[PendingPodSet],
    rows: Sequence[int],
    members: Sequence[tuple[int, int]],
) -> list[PodPlacement] | PlacementFailure:
    """Pods (pod set and member), each on the best node; on failure some of them may stay assumed."""
    fits_one_call = len(members) >= MIN_PODS_FOR_KERNEL and len(pod_sets) <= overlay.table.capacity
    if fits_one_call and all(overlay.is_plain(pod_sets[i].pod_at(member)) for i, member in members):
        return _place_by_kernel(overlay, pod_sets, rows, members)
    placements: list[PodPlacement] = []
    for i, member in members:
        placement = _place_one(overlay, i, pod_sets[i], rows[i], member)
        if isinstance(placement, PlacementFailure):
            return placement
        placements.append(placement)
    return placements


def _place_by_kernel(
    overlay: Overlay,
    pod_sets: Sequence[PendingPodSet],
    rows: Sequence[int],
    members: Sequence[tuple[int, int]],
) -> list[PodPlacement] | PlacementFailure:
    """The same in one call of the placement loop, for pods that only node-local state decides on."""
    found = overlay.place_all_or_none(
        [pod_sets[i].pod_at(member) for i, member in members], [rows[i] for i, _ in members]
    )
    if isinstance(found, int):
        pod_set = pod_sets[members[found][0]]
        return PlacementFailure(pod_set.name, no_node=overlay.no_node_found_by_kernel(pod_set.shape))
    return [PodPlacement(i, member, assumed) for (i, member), assumed in zip(members, found, strict=True)]


def _groups_to_combine(overlay: Overlay, pod_sets: Sequence[PendingPodSet], rows: Sequence[int]) -> list[IdenticalPods]:
    """The pod sets for the combination search; none with slices or leaders, which it can't express."""
    groups = []
    for i, pod_set in enumerate(pod_sets):
        wanted = pod_set.topology if pod_set.tree is not None else None
        if wanted is not None and (wanted.slice_size or wanted.group):
            return []
        # A preferred level excludes nothing here: the search looks for any placement, not for a near one.
        domains: tuple[Bools, ...] = (np.ones(overlay.snapshot.nodes.size, dtype=np.bool_),)
        if pod_set.tree is not None and wanted is not None:
            domains = pod_set.tree.domains(wanted.level if wanted.mode == "required" else "", len(domains[0]))
        if pod_set.count:
            groups.append(IdenticalPods(i, rows[i], pod_set.count, pod_set.pod_at, domains))
    return groups


def _size(shape: Shape) -> int:
    """Milli-GPU in the high bits, milli-CPU in the low 32."""
    gpu = shape.gpu
    return (gpu.count * (gpu.milli or 1000) if gpu else 0) * (1 << 32) + dict(shape.requests).get("cpu", 0)


def _place_one(
    overlay: Overlay,
    index: int,
    pod_set: PendingPodSet,
    row: int,
    member: int,
    allowed_nodes: Bools | None = None,
) -> PodPlacement | PlacementFailure:
    pod = pod_set.pod_at(member)
    why = overlay.reasons(pod, row)
    # The sequence grows with every assumed pod, so that `random` draws anew for each of them.
    sequence = overlay.snapshot.decided_pods + overlay.checkpoint()
    node = overlay.select_node(pod, row, why, sequence, allowed_nodes)
    if node < 0:
        return PlacementFailure(pod_set.name, no_node=overlay.explain_no_node(row, pod_set.shape, why))
    return PodPlacement(index, member, overlay.assume(pod, row, node))


def _place_by_topology(
    overlay: Overlay, pod_sets: Sequence[PendingPodSet], rows: Sequence[int]
) -> list[PodPlacement] | PlacementFailure:
    """Pod sets of one topology tree, by the topology search."""
    tree = pod_sets[0].tree
    assert tree is not None, "only pod sets with a tree are placed by it"
    if _goes_pod_by_pod(pod_sets):
        before = overlay.checkpoint()
        under_rules = _place_under_rules(overlay, pod_sets, rows)
        if under_rules is not None:
            return under_rules
        overlay.rollback(before)
    capacity = OverlayCapacity(overlay, pod_sets, rows)
    requests = []
    for pod_set, row in zip(pod_sets, rows, strict=True):
        scores = overlay.table.cells.score[overlay.refresh(row)].copy()
        requests.append(TopologyPodSetRequest(pod_set.name, pod_set.count, pod_set.topology, scores))
    found = plan_topology(tree, requests, capacity, pod_sets[0].topology_name)
    if isinstance(found, TopologyFailure):
        return PlacementFailure(found.pod_set, found.message)
    return capacity.rule_violation or capacity.placements


def _goes_pod_by_pod(pod_sets: Sequence[PendingPodSet]) -> bool:
    """Whether members may keep one another off nodes. Slices and leaders need the counts of the topology search."""
    requests = [pod_set.topology for pod_set in pod_sets if pod_set.topology is not None]
    if any(request.slice_size or request.group for request in requests):
        return False
    return any(_restricts_members(pod_set, pod_sets) for pod_set in pod_sets)


def _restricts_members(pod_set: PendingPodSet, pod_sets: Sequence[PendingPodSet]) -> bool:
    """Whether a pod of the set, once placed, may restrict the members that are placed after it."""
    if not has_inter_pod_rules(pod_set.pod):
        return False
    # Affinity of the pods to one another is already expressed by the topology request that was derived from it.
    derived = request_from_affinity(pod_set.pod, [each.pod for each in pod_sets])
    if pod_set.topology is not None and pod_set.topology == derived:
        return may_repel_identical_pod(pod_set.pod)
    return True


def _place_under_rules(
    overlay: Overlay, pod_sets: Sequence[PendingPodSet], rows: Sequence[int]
) -> list[PodPlacement] | PlacementFailure | None:
    """Every set pod by pod within one domain of its level; on failure some of them may stay assumed. None where a set
    has no domain with room for it even without the rules: the topology search says it better."""
    placements: list[PodPlacement] = []
    for i in sorted(range(len(pod_sets)), key=lambda i: (-_size(pod_sets[i].shape), i)):
        pod_set, most = pod_sets[i], -1
        for domain in _domains_by_capacity(overlay, pod_set, rows[i]):
            found = _place_in_domain(overlay, i, pod_set, rows[i], domain)
            most = max(most, len(found))
            if most == pod_set.count:
                placements += found
                break
        else:
            message = f'topology "{pod_set.topology_name}" allows to fit only {most} out of {pod_set.count} pod(s)'
            failure = PlacementFailure(pod_set.name, f"{message} under the rules between pods")
            return failure if most >= 0 else None
    return placements


def _place_in_domain(
    overlay: Overlay, index: int, pod_set: PendingPodSet, row: int, domain: Bools
) -> list[PodPlacement]:
    """All pods of the set, or those that could be placed, without a trace on the overlay."""
    before = overlay.checkpoint()
    placements: list[PodPlacement] = []
    for member in range(pod_set.count):
        placement = _place_one(overlay, index, pod_set, row, member, domain)
        if isinstance(placement, PlacementFailure):
            overlay.rollback(before)
            break
        placements.append(placement)
    return placements


def _domains_by_capacity(overlay: Overlay, pod_set: PendingPodSet, row: int) -> Iterator[Bools]:
    """Domains with room for all pods of the set, not counting rules between them: the requested level first, then wider
    ones where it is only preferred; within a level, those with the least room first."""
    assert pod_set.tree is not None
    counts = overlay.count_fits(row)
    for level in levels_to_try(pod_set):
        domains = pod_set.tree.domains(level, len(counts))
        room = [int(counts[domain].sum()) for domain in domains]
        for number in sorted(range(len(domains)), key=lambda number: (room[number], number)):
            if room[number] >= pod_set.count:
                yield from _parts_by_affinity(overlay, pod_set, domains[number], counts)
                yield domains[number]


def _parts_by_affinity(overlay: Overlay, pod_set: PendingPodSet, domain: Bools, counts: Ints) -> Iterator[Bools]:
    """Parts of the domain with room for all pods, where these have to be near one another by a label of their own: else
    the pod that is placed first would choose the part for the others."""
    request = request_from_affinity(pod_set.pod, [pod_set.pod])
    if request is None or request.mode != "required":
        return
    column = overlay.snapshot.nodes.label(request.level)
    inside = domain & column.present
    room = np.bincount(column.codes[inside], counts[inside], len(column.values)).tolist()
    fitting = [number for number, pods in enumerate(room) if pods >= pod_set.count]
    for number in sorted(fitting, key=lambda number: (room[number], column.values[number])):
        yield inside & (column.codes == number)


def levels_to_try(pod_set: PendingPodSet) -> list[str]:
    """The level of the request; where it is only preferred, wider ones after it, and at last "" for anywhere."""
    assert pod_set.topology is not None
    assert pod_set.tree is not None
    wanted, known = pod_set.topology.level, pod_set.tree.levels
    if pod_set.topology.mode == "required" or wanted not in known:
        return [wanted]
    return [*reversed(known[: known.index(wanted) + 1]), ""]


class OverlayCapacity:
    """The overlay as the topology search sees it (`topology.types`); what the search reserves is assumed at once."""

    def __init__(self, overlay: Overlay, pod_sets: Sequence[PendingPodSet], rows: Sequence[int]) -> None:
        self._overlay, self._pod_sets, self._rows = overlay, pod_sets, rows
        self.placements: list[PodPlacement] = []
        self.rule_violation: PlacementFailure | None = None
        """Set where a pod of a slice, or one beside a leader, may not go to its node because of one placed before."""
        self._next_member = [0] * len(pod_sets)

    def pods_per_node(self, request: int) -> Ints:
        return self._with_inter_pod_rules(request, self._overlay.count_fits(self._rows[request]))

    def pods_beside_leader(self, request: int, leader: int) -> tuple[Bools, Ints]:
        overlay, counts = self._overlay, np.zeros(self._overlay.snapshot.nodes.size, dtype=np.int64)
        table = overlay.table
        slot, leader_slot = table.slots(np.array([self._rows[request], self._rows[leader]], dtype=np.int64)).tolist()
        overlay.kernels.count_beside_leader(overlay.state, table.cell_shapes, table.cells, slot, leader_slot, counts)
        takes_leader = (counts >= 0) & (self._with_inter_pod_rules(leader, np.ones_like(counts)) > 0)
        return takes_leader, np.where(
            takes_leader, self._with_inter_pod_rules(request, counts), self.pods_per_node(request)
        )

    def reserve(self, request: int, rows: Ints, pods: Ints) -> None:
        row = self._rows[request]
        is_constrained = self._overlay.has_inter_pod_constraints(self._pod_sets[request].pod)
        for node, count in zip(rows.tolist(), pods.tolist(), strict=True):
            for _ in range(count):
                member = self._next_member[request]
                self._next_member[request] += 1
                # Each pod changes the node, and with it the device that the next share would get.
                self._overlay.refresh(row)
                pod = self._pod_sets[request].pod_at(member)
                if is_constrained and self._overlay.reasons(pod, row)[node]:
                    self.rule_violation = PlacementFailure(
                        self._pod_sets[request].name,
                        "rules between its pods forbid the topology that it requests",
                    )
                assumed = self._overlay.assume(pod, row, node)
                self.placements.append(PodPlacement(request, member, assumed))

    def excluded_nodes(self, request: int) -> Mapping[str, int]:
        why = self._overlay.reasons(self._pod_sets[request].pod, self._rows[request])
        found = self._overlay.explain_no_node(self._rows[request], self._pod_sets[request].shape, why)
        return {count.kube: count.nodes for count in found.verdict().counts}

    def _with_inter_pod_rules(self, request: int, counts: Ints) -> Ints:
        """The counts under the rules between pods, conservatively: a node that they refuse takes none, and where one
        pod could refuse the next, a node takes one."""
        pod = self._pod_sets[request].pod
        # Members of a set are interchangeable, so a node that the API server refused for one of them takes none.
        counts[self._overlay.bind_refused_nodes(self._pod_sets[request].existing)] = 0
        if not self._overlay.has_inter_pod_constraints(pod):
            return counts
        rules = self._overlay.inter_pod_rules()
        static = self._overlay.table.static(self._rows[request])
        one_a_node = _restricts_members(self._pod_sets[request], self._pod_sets)
        most = 1 if one_a_node else np.iinfo(np.int64).max
        return np.where(rules.reasons(pod, static) == 0, np.minimum(counts, most), 0)
