"""The overlay as queueing sees it: places, removes and restores whole workloads.

Implements `queueing.placement_interface.PlacementInterface`; `placement.decision_context` makes one a decision.
`pod_set_builder` says which pods a workload has, `placed_workloads` where the pods of all workloads are, and
`gang_domains` places them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from windlass.cluster.node_state import MEMORY_MIB
from windlass.model.configuration import ResourceRules, transform_requests
from windlass.model.queue import QueueSystem, ResourceFlavor
from windlass.model.quota import quota_requests
from windlass.model.workload import PodSet, Workload
from windlass.placement.blocked_capacity import BlockedCapacity
from windlass.placement.empty_cluster import EmptyCluster
from windlass.placement.fit_estimate import could_fit_without
from windlass.placement.gang import PendingPodSet, PlacementFailure, PodPlacement, place_gang_on_nodes
from windlass.placement.gang_domains import place_in_domains
from windlass.placement.overlay import Overlay
from windlass.placement.placed_workloads import PlacedWorkloads
from windlass.placement.pod_set_builder import PodSetBuilder
from windlass.placement.room_model import build_room
from windlass.placement.topology import DomainTree
from windlass.placement.workload_pieces import prerequisite_pieces, workload_key
from windlass.queueing.flavor_eligibility import flavor_ineligible_reason
from windlass.queueing.placement_interface import PlacementResult, PodSetChoice
from windlass.queueing.victim_room import VictimRoom


class _FailedPlacement(NamedTuple):
    """The last failed placement: the same request fails again while the overlay has the same version."""

    version: int
    workload: Workload
    choices: tuple[PodSetChoice, ...]
    result: PlacementResult


class PlacementGuard(Protocol):
    """Keeps placements from delaying planned starts (`timeplan.guard`)."""

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
        """`removed_nodes`: workloads that were removed from the overlay before this → the nodes that they were on.
        `topology_levels`: node labels where no Topology object names them; empty: the default list."""
        self._overlay, self._system, self._rules = overlay, system, rules
        self._covered_resources = _covered_resources(system)
        self._empty_cluster = EmptyCluster(overlay)
        self._builder = PodSetBuilder(overlay, system, topology_levels)
        self._requests = overlay.cache.quota_requests_under(rules)
        workloads = list(workloads)
        self._piece_keys = {workload.key for workload in workloads}
        running = (workload for workload in workloads if workload.admission is not None)
        self.placed_workloads = PlacedWorkloads(overlay, self._builder, running, removed_nodes or {})
        self._last_failure: _FailedPlacement | None = None
        self.guard: PlacementGuard | None = None
        """Set during a pass that has to respect planned starts."""

    def copy_onto(self, overlay: Overlay) -> WorkloadPlacer:
        """A placer on a copy of the overlay that knows no running workloads, so none can be removed."""
        return WorkloadPlacer(overlay, self._system, (), self._rules, topology_levels=self._builder.topology_levels)

    def cache_sizes(self) -> tuple[int, int]:
        """Entries by template in the decision cache; for `truncate_caches`."""
        return len(self._builder.flavored_pods), len(self._requests)

    def truncate_caches(self, sizes: tuple[int, int]) -> None:
        """Drop the entries added since: their templates were made for a what-if and will not come again."""
        while len(self._builder.flavored_pods) > sizes[0]:
            self._builder.flavored_pods.popitem()
        while len(self._requests) > sizes[1]:
            self._requests.popitem()

    def requests(self, workload: Workload, pod_set: PodSet) -> dict[str, int]:
        """What one pod of the set counts against quota."""
        entry = self._requests.get(id(pod_set.template))
        if entry is None:
            # Shares by GPU memory are counted against the largest device of the cluster.
            memory = int(self._overlay.state.device_info[:, MEMORY_MIB].max(initial=0))
            effective = self._overlay.cache.requests_of(pod_set.template)
            requests = transform_requests(quota_requests(pod_set.template, memory, effective), self._rules)
            entry = self._requests[id(pod_set.template)] = (pod_set.template, requests)
        return dict(entry[1])

    def ineligible_reason(self, pod_set: PodSet, flavor: ResourceFlavor) -> str:
        """Kueue's message why the pod set can't use the flavor; empty if it can."""
        reason = flavor_ineligible_reason(pod_set.template.spec, flavor)
        covered = self._covered_resources.get(flavor.name, set())
        if not reason and pod_set.flavors and flavor.name not in pod_set.flavors:
            reason = f"its running pods use another flavor than {flavor.name}"
        if reason or covered.isdisjoint(self._overlay.cache.requests_of(pod_set.template)):
            return reason  # a flavor of none of the pod's resources says nothing about its nodes
        if pod_set.topology is None:
            return f"Flavor {flavor.name!r} supports only TopologyAwareScheduling" if flavor.topology else ""
        if flavor.any_topology:
            return ""
        if not flavor.topology:
            return f"Flavor {flavor.name!r} does not support TopologyAwareScheduling"
        topology = self._system.topologies.get(flavor.topology)
        levels = topology.levels if topology else ()
        if pod_set.topology.level and pod_set.topology.level not in levels:
            return f"Flavor {flavor.name!r} does not contain the requested level"
        return ""

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
        """See `PodSetBuilder.pending_pod_sets`."""
        return self._builder.pending_pod_sets(workload, choices)

    def could_place(self, workload: Workload, choices: tuple[PodSetChoice, ...], without: Iterable[Workload]) -> bool:
        """False only where the workload has no place even with all of `without` removed; a cheap check."""
        pod_sets, _, _ = self.pending_pod_sets(workload, choices)
        removed = (self.placed_workloads.get_or_empty(victim.key) for victim in without)
        return could_fit_without(self._overlay, pod_sets, removed)

    def room(
        self, workload: Workload, choices: tuple[PodSetChoice, ...], units: Sequence[Sequence[Workload]]
    ) -> VictimRoom | None:
        """How much room the removal of each unit makes; a unit is one or more workloads that go together."""
        pod_sets, _, _ = self.pending_pod_sets(workload, choices)
        placed = self.placed_workloads
        return build_room(self._overlay, pod_sets, [[placed.get_or_empty(part.key) for part in unit] for unit in units])

    def place(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlacementResult:
        if self.guard is not None:
            return self.guard.place(workload, choices)
        return self.place_ignoring_plans(workload, choices)

    def place_ignoring_plans(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlacementResult:
        """As `place`, without regard to planned starts."""
        version, last = self._overlay.version, self._last_failure
        # Versions are never used again, so that an equal one means an equal overlay.
        if last is not None and last[:3] == (version, workload, choices):
            return last.result
        found = self.place_around_blocked(workload, choices, BlockedCapacity())
        if not found.ok:
            self._last_failure = _FailedPlacement(version, workload, choices, found)
        return found

    def place_around_blocked(
        self, workload: Workload, choices: tuple[PodSetChoice, ...], blocked: BlockedCapacity
    ) -> PlacementResult:
        """As `place`, on what the blocked capacity leaves free."""
        if not self._has_prerequisites(workload.key):
            return PlacementResult(
                ok=False,
                message=f"gang {workload_key(workload.key)} has not started its minimum, so pods above it wait",
                code="GANG_INCOMPLETE",
                feasible=False,
            )
        pod_sets, _, _ = self.pending_pod_sets(workload, choices)
        never = self._empty_cluster.never_fits(pod_sets)
        if never is not None:
            return PlacementResult(ok=False, message=never.message, code=never.code, feasible=False)
        self._overlay.expect_node_checks(self._overlay.snapshot.nodes.size + sum(pod_set.count for pod_set in pod_sets))
        self.placed_workloads.begin_placing(workload.key)
        before = self._overlay.checkpoint()
        blocked.apply(self._overlay)
        found = place_in_domains(self._overlay, pod_sets, self._existing_pods(workload, pod_sets))
        if isinstance(found, PlacementFailure):
            # Also frees the blocked capacity, which was applied after the checkpoint.
            self._overlay.rollback(before)
            self.placed_workloads.cancel_placing()
            return self._failure_result(found, pod_sets)
        blocked.revert(self._overlay)
        self.placed_workloads.add_placed(workload.key, found, tuple(choice.name for choice in choices))
        after = self.placed_workloads.removed_from({placement.assumed.node for placement in found})
        return PlacementResult(ok=True, nodes=self._pods_by_node(found, len(pod_sets)), after=after)

    def place_as_admitted(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlacementResult | None:
        """On the nodes that its admission names; None where it names none, or where they have no room any more."""
        index = self._overlay.snapshot.nodes.index
        assigned = {item.name: item.nodes for item in workload.admission.assignments} if workload.admission else {}
        nodes = [
            {index[name]: pods for name, pods in assigned.get(choice.name, {}).items() if name in index}
            for choice in choices
        ]
        pod_sets, _, _ = self.pending_pod_sets(workload, choices)
        if not all(nodes) or any(sum(at.values()) < pod_set.count for at, pod_set in zip(nodes, pod_sets, strict=True)):
            return None
        self.placed_workloads.begin_placing(workload.key)
        found = place_gang_on_nodes(self._overlay, pod_sets, nodes)
        if found is None:
            self.placed_workloads.cancel_placing()
            return None
        self.placed_workloads.add_placed(workload.key, found, tuple(choice.name for choice in choices))
        after = self.placed_workloads.removed_from({placement.assumed.node for placement in found})
        return PlacementResult(ok=True, nodes=self._pods_by_node(found, len(pod_sets)), after=after)

    def _existing_pods(self, workload: Workload, pod_sets: Sequence[PendingPodSet]) -> list[Counter[int]]:
        """Per pod set, node → pods under the same topology request: of its set, or of the whole gang."""
        requests = [pod_set.topology for pod_set in pod_sets if pod_set.topology is not None]
        if not any(request.level or request.slice_size for request in requests):
            return [Counter() for _ in pod_sets]
        nodes = self._overlay.snapshot.pods.node
        by_set: dict[str, Counter[int]] = {}
        for key in (*prerequisite_pieces(workload.key), workload.key):
            pods = self.placed_workloads.get_or_empty(key)
            for row in pods.running_rows:
                by_set.setdefault(pods.pod_set_by_row[row], Counter())[int(nodes[row])] += 1
            for placement in pods.placed:
                name = pods.pod_set_names[placement.pod_set]
                by_set.setdefault(name, Counter())[placement.assumed.node] += 1
        of_gang = sum(by_set.values(), Counter[int]())
        return [
            of_gang
            if pod_set.topology is not None and pod_set.topology.spans_pod_sets
            else by_set.get(pod_set.name, Counter())
            for pod_set in pod_sets
        ]

    def _has_prerequisites(self, key: str) -> bool:
        """Whether the pieces that have to run with this one are placed."""
        needed = [piece for piece in prerequisite_pieces(key) if piece in self._piece_keys]
        return all(piece in self.placed_workloads for piece in needed)

    def _failure_result(self, failure: PlacementFailure, pod_sets: Sequence[PendingPodSet]) -> PlacementResult:
        if failure.no_node is None:
            never = self._empty_cluster.never_fits_topology(pod_sets)
            if never is not None:
                message = f"{failure.message}; {never.message}"
                return PlacementResult(ok=False, message=message, code=never.code, feasible=False)
            return PlacementResult(ok=False, message=failure.message, code="KUEUE_TOPOLOGY_NOFIT")
        return PlacementResult(ok=False, message=failure.no_node, code=failure.no_node.code)

    def _pods_by_node(self, placements: Sequence[PodPlacement], sets: int) -> tuple[dict[str, int], ...]:
        """Per pod set, node name → pods."""
        names = self._overlay.snapshot.nodes.names
        counts: tuple[dict[str, int], ...] = tuple({} for _ in range(sets))
        for placement in placements:
            name, by_node = names[placement.assumed.node], counts[placement.pod_set]
            by_node[name] = by_node.get(name, 0) + 1
        return counts


def _covered_resources(system: QueueSystem) -> dict[str, set[str]]:
    """Flavor → the resources for which a queue has quota in it."""
    covered: dict[str, set[str]] = {}
    for queue in system.queues.values():
        for group in queue.resource_groups:
            for quotas in group.flavors:
                covered.setdefault(quotas.flavor, set()).update(quotas.quotas)
    return covered
