"""The overlay as queueing sees it: can this workload be placed, and what if that one were gone?

Implements `queueing.placement_interface.PlacementInterface` for `engine`. What a workload's pods are is `members`'
business, where everybody sits that of `seating`; here they are placed close together where that is asked for, whole
or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from windlass.cluster.node_state import MEMORY_MIB
from windlass.model.configuration import ResourceRules, transform_requests
from windlass.model.pod import Pod
from windlass.model.queue import QueueSystem, ResourceFlavor
from windlass.model.quota import quota_requests
from windlass.model.requests import pod_requests
from windlass.model.workload import PodSet, Workload
from windlass.placement.blocked_capacity import BlockedCapacity
from windlass.placement.empty_cluster import EmptyCluster
from windlass.placement.fit_estimate import could_fit_without
from windlass.placement.gang import PendingPodSet, PlacementFailure, PodPlacement
from windlass.placement.gang_domains import place_in_domains
from windlass.placement.overlay import Overlay
from windlass.placement.placed_workloads import PlacedWorkloads
from windlass.placement.pod_set_builder import PodSetBuilder
from windlass.placement.topology import DomainTree
from windlass.placement.workload_pieces import prerequisite_pieces
from windlass.queueing.flavor_eligibility import flavor_ineligible_reason
from windlass.queueing.placement_interface import PlacementResult, PodSetChoice


class _Refused(NamedTuple):
    """Somebody who found no place, and would find none again while nothing has changed."""

    version: int
    workload: Workload
    choices: tuple[PodSetChoice, ...]
    why: PlacementResult


class PlacementGuard(Protocol):
    """Sees to it that nothing is placed at the cost of what is planned (`timeplan.guard`)."""

    def place(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlacementResult: ...

    def on_workload_removed(self) -> None: ...


class WorkloadPlacer:
    def __init__(
        self,
        overlay: Overlay,
        system: QueueSystem,
        workloads: Iterable[Workload],
        rules: ResourceRules,
        removed_nodes: Mapping[str, set[int]] | None = None,
        topology_levels: Sequence[str] = (),
    ) -> None:
        """`gone`: workloads that were taken off the overlay before → the nodes that they were on. `levels` are the
        topology's where no Topology object names them; empty: the default list."""
        self._overlay, self._system, self._rules = overlay, system, rules
        self._covers = _covered_resources(system)
        self._empty = EmptyCluster(overlay)
        self._members = PodSetBuilder(overlay, system, topology_levels)
        self._requests = overlay.cache.quota_requests_under(rules)
        workloads = list(workloads)
        self._pieces = {workload.key for workload in workloads}
        running = (workload for workload in workloads if workload.admission is not None)
        self.placed_workloads = PlacedWorkloads(overlay, self._members, running, removed_nodes or {})
        self._refused: _Refused | None = None
        self.guard: PlacementGuard | None = None
        """Set while workloads are decided on that must leave room for planned starts."""

    def copy_onto(self, overlay: Overlay) -> WorkloadPlacer:
        """A site on a copy of the overlay, on which nobody can be removed."""
        return WorkloadPlacer(
            overlay, self._system, (), self._rules, topology_levels=self._members.topology_levels
        )

    def cache_sizes(self) -> tuple[int, int]:
        """How much is known of templates; for `forget`."""
        return len(self._members.flavored_pods), len(self._requests)

    def truncate_caches(self, sizes: tuple[int, int]) -> None:
        """What was learnt of templates since then: they were only tried, and nobody will ask again."""
        while len(self._members.flavored_pods) > sizes[0]:
            self._members.flavored_pods.popitem()
        while len(self._requests) > sizes[1]:
            self._requests.popitem()

    # What a pod asks for

    def requests(self, workload: Workload, pod_set: PodSet) -> dict[str, int]:
        known = self._requests.get(id(pod_set.template))
        if known is None:
            memory = int(self._overlay.state.device_info[:, MEMORY_MIB].max(initial=0))
            asked = transform_requests(quota_requests(pod_set.template, memory), self._rules)
            known = self._requests[id(pod_set.template)] = (pod_set.template, asked)
        return dict(known[1])

    def _asked(self, pod: Pod) -> Iterable[str]:
        """The resources that a pod asks for."""
        known = self._overlay.cache.resource_names.get(id(pod))
        if known is None:
            known = self._overlay.cache.resource_names[id(pod)] = (pod, tuple(pod_requests(pod)))
        return known[1]

    def ineligible_reason(self, pod_set: PodSet, flavor: ResourceFlavor) -> str:
        found = flavor_ineligible_reason(pod_set.template.spec, flavor)
        if found or self._covers.get(flavor.name, set()).isdisjoint(self._asked(pod_set.template)):
            return found  # a flavor of made-up resources only says nothing about nodes
        if pod_set.topology is None:
            return f"Flavor {flavor.name!r} supports only TopologyAwareScheduling" if flavor.topology else ""
        if not flavor.topology:
            return f"Flavor {flavor.name!r} does not support TopologyAwareScheduling"
        topology = self._system.topologies.get(flavor.topology)
        levels = topology.levels if topology else ()
        if pod_set.topology.level and pod_set.topology.level not in levels:
            return f"Flavor {flavor.name!r} does not contain the requested level"
        return ""

    # Trying and undoing

    def checkpoint(self) -> int:
        return self.placed_workloads.checkpoint()

    def rollback(self, to: int) -> None:
        self.placed_workloads.rollback(to)

    def remove(self, workload: Workload) -> None:
        if self.guard is not None:
            self.guard.on_workload_removed()
        self.placed_workloads.remove(workload)

    def restore(self, workload: Workload) -> None:
        self.placed_workloads.restore(workload)

    def pending_pod_sets(
        self, workload: Workload, choices: Sequence[PodSetChoice]
    ) -> tuple[list[PendingPodSet], DomainTree | None, str]:
        """The pods that are to be placed, the domains of their flavor, and the topology's name."""
        return self._members.pending_pod_sets(workload, choices)

    def could_place(
        self, workload: Workload, choices: tuple[PodSetChoice, ...], without: Iterable[Workload]
    ) -> bool:
        parts, _, _ = self.pending_pod_sets(workload, choices)
        return could_fit_without(
            self._overlay, parts, (self.placed_workloads.get_or_empty(one.key) for one in without)
        )

    def place(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlacementResult:
        if self.guard is not None:
            return self.guard.place(workload, choices)
        return self.place_ignoring_plans(workload, choices)

    def place_ignoring_plans(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlacementResult:
        """Whatever others are promised."""
        version, known = self._overlay.version, self._refused
        if known is not None and known[:3] == (version, workload, choices):
            return known.why
        found = self.place_around_blocked(workload, choices, BlockedCapacity())
        if not found.ok:
            self._refused = _Refused(version, workload, choices, found)
        return found

    def place_around_blocked(
        self, workload: Workload, choices: tuple[PodSetChoice, ...], blocked: BlockedCapacity
    ) -> PlacementResult:
        """As `place`, with room that others are promised left free."""
        if not self._has_base(workload.key):
            return PlacementResult(
                ok=False,
                message="it goes with the minimum of its gang, which doesn't run",
                code="GANG_INCOMPLETE",
                feasible=False,
            )
        parts, _, _ = self.pending_pod_sets(workload, choices)
        never = self._empty.never_fits(parts)
        if never is not None:
            return PlacementResult(ok=False, message=never.message, code=never.code, feasible=False)
        self._overlay.expect_node_checks(
            self._overlay.snapshot.nodes.size + sum(part.count for part in parts)
        )
        self.placed_workloads.begin_placing(workload.key)
        before = self._overlay.checkpoint()
        blocked.apply(self._overlay)
        found = place_in_domains(self._overlay, parts, self._beside(workload, parts))
        if isinstance(found, PlacementFailure):
            self._overlay.rollback(before)
            self.placed_workloads.cancel_placing()
            return self._failed(found, parts)
        blocked.revert(self._overlay)
        self.placed_workloads.add_placed(workload.key, found, tuple(choice.name for choice in choices))
        after = self.placed_workloads.removed_from({place.assumed.node for place in found})
        return PlacementResult(ok=True, nodes=self._nodes(found, len(parts)), after=after)

    def _beside(self, workload: Workload, parts: Sequence[PendingPodSet]) -> list[Counter[int]]:
        """Per part, how many pods with the same request are on which nodes: of its set, or of the whole gang."""
        wishes = [part.topology for part in parts if part.topology is not None]
        if not any(wish.level or wish.slice_size for wish in wishes):
            return [Counter() for _ in parts]
        nodes = self._overlay.snapshot.pods.node
        by_set: dict[str, Counter[int]] = {}
        for key in (*prerequisite_pieces(workload.key), workload.key):
            seats = self.placed_workloads.get_or_empty(key)
            for row in seats.running_rows:
                by_set.setdefault(seats.pod_set_by_row[row], Counter())[int(nodes[row])] += 1
            for place in seats.placed:
                by_set.setdefault(seats.pod_set_names[place.pod_set], Counter())[place.assumed.node] += 1
        everywhere = sum(by_set.values(), Counter[int]())
        return [
            everywhere
            if part.topology is not None and part.topology.spans_pod_sets
            else by_set.get(part.name, Counter())
            for part in parts
        ]

    def _has_base(self, key: str) -> bool:
        """Whether what a piece of a gang goes with is there: its minimum, and what that lacks, before an extra."""
        needed = [piece for piece in prerequisite_pieces(key) if piece in self._pieces]
        return all(piece in self.placed_workloads for piece in needed)

    def _failed(self, failure: PlacementFailure, parts: Sequence[PendingPodSet]) -> PlacementResult:
        if failure.refusal is None:
            never = self._empty.never_fits_topology(parts)
            if never is not None:
                message = f"{failure.message}; {never.message}"
                return PlacementResult(ok=False, message=message, code=never.code, feasible=False)
            return PlacementResult(ok=False, message=failure.message, code="KUEUE_TOPOLOGY_NOFIT")
        return PlacementResult(ok=False, message=failure.refusal, code=failure.refusal.code)

    def _nodes(self, places: Sequence[PodPlacement], parts: int) -> tuple[dict[str, int], ...]:
        names = self._overlay.snapshot.nodes.names
        found: tuple[dict[str, int], ...] = tuple({} for _ in range(parts))
        for place in places:
            name = names[place.assumed.node]
            found[place.pod_set][name] = found[place.pod_set].get(name, 0) + 1
        return found


def _covered_resources(system: QueueSystem) -> dict[str, set[str]]:
    """Flavor → the resources that some queue gives out in it."""
    covered: dict[str, set[str]] = {}
    for queue in system.queues.values():
        for group in queue.resource_groups:
            for quotas in group.flavors:
                covered.setdefault(quotas.flavor, set()).update(quotas.quotas)
    return covered
