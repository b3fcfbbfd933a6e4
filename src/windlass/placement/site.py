"""The overlay as queueing sees it: can this workload be placed, and what if that one were gone?

Implements `queueing.site.Site` for `engine`. What a workload's pods are is `members`' business, where everybody sits
that of `seating`; here they are placed close together where that is asked for, whole or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from windlass.cluster.state import MEMORY_MIB
from windlass.model.configuration import ResourceRules, counted
from windlass.model.pod import Pod
from windlass.model.queue import QueueSystem, ResourceFlavor
from windlass.model.quota import quota_requests
from windlass.model.requests import pod_requests
from windlass.model.workload import PodSet, Workload
from windlass.placement.domains import place_in_domains
from windlass.placement.elastic import pieces_before
from windlass.placement.empty import EmptyCluster
from windlass.placement.gang import Failure, Part, Place
from windlass.placement.members import Members
from windlass.placement.obstacles import Obstacles
from windlass.placement.overlay import Overlay
from windlass.placement.prospects import could_have_room
from windlass.placement.seating import Seating
from windlass.placement.topology import DomainTree
from windlass.queueing.eligibility import refusal
from windlass.queueing.site import PlaceResult, PodSetChoice


class _Refused(NamedTuple):
    """Somebody who found no place, and would find none again while nothing has changed."""

    version: int
    workload: Workload
    choices: tuple[PodSetChoice, ...]
    why: PlaceResult


class Guard(Protocol):
    """Sees to it that nothing is placed at the cost of what is planned (`timeplan.guard`)."""

    def place(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlaceResult: ...

    def somebody_left(self) -> None: ...


class OverlaySite:
    def __init__(
        self,
        overlay: Overlay,
        system: QueueSystem,
        workloads: Iterable[Workload],
        rules: ResourceRules,
        gone: Mapping[str, set[int]] | None = None,
        levels: Sequence[str] = (),
    ) -> None:
        """`gone`: workloads that were taken off the overlay before → the nodes that they were on. `levels` are the
        topology's where no Topology object names them; empty: the default list."""
        self._overlay, self._system, self._rules = overlay, system, rules
        self._covers = _covered_resources(system)
        self._empty = EmptyCluster(overlay)
        self._members = Members(overlay, system, levels)
        self._requests = overlay.recall.requests_by(rules)
        workloads = list(workloads)
        self._pieces = {workload.key for workload in workloads}
        running = (workload for workload in workloads if workload.admission is not None)
        self.seats = Seating(overlay, self._members, running, gone or {})
        self._refused: _Refused | None = None
        self.guard: Guard | None = None
        """Set while workloads are decided on that must leave room for planned starts."""

    def twin(self, overlay: Overlay) -> OverlaySite:
        """A site on a copy of the overlay, on which nobody can be removed."""
        return OverlaySite(overlay, self._system, (), self._rules, levels=self._members.levels)

    def remembered(self) -> tuple[int, int]:
        """How much is known of templates; for `forget`."""
        return len(self._members.flavored), len(self._requests)

    def forget(self, since: tuple[int, int]) -> None:
        """What was learnt of templates since then: they were only tried, and nobody will ask again."""
        while len(self._members.flavored) > since[0]:
            self._members.flavored.popitem()
        while len(self._requests) > since[1]:
            self._requests.popitem()

    # What a pod asks for

    def requests(self, workload: Workload, pod_set: PodSet) -> dict[str, int]:
        known = self._requests.get(id(pod_set.pod))
        if known is None:
            memory = int(self._overlay.state.device[:, MEMORY_MIB].max(initial=0))
            asked = counted(quota_requests(pod_set.pod, memory), self._rules)
            known = self._requests[id(pod_set.pod)] = (pod_set.pod, asked)
        return dict(known[1])

    def _asked(self, pod: Pod) -> Iterable[str]:
        """The resources that a pod asks for."""
        known = self._overlay.recall.asked.get(id(pod))
        if known is None:
            known = self._overlay.recall.asked[id(pod)] = (pod, tuple(pod_requests(pod)))
        return known[1]

    def eligible(self, pod_set: PodSet, flavor: ResourceFlavor) -> str:
        found = refusal(pod_set.pod.spec, flavor)
        if found or self._covers.get(flavor.name, set()).isdisjoint(self._asked(pod_set.pod)):
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
        return self.seats.checkpoint()

    def rollback(self, to: int) -> None:
        self.seats.rollback(to)

    def remove(self, workload: Workload) -> None:
        if self.guard is not None:
            self.guard.somebody_left()
        self.seats.remove(workload)

    def put_back(self, workload: Workload) -> None:
        self.seats.put_back(workload)

    def parts(
        self, workload: Workload, choices: Sequence[PodSetChoice]
    ) -> tuple[list[Part], DomainTree | None, str]:
        """The pods that are to be placed, the domains of their flavor, and the topology's name."""
        return self._members.parts(workload, choices)

    def could_place(
        self, workload: Workload, choices: tuple[PodSetChoice, ...], without: Iterable[Workload]
    ) -> bool:
        parts, _, _ = self.parts(workload, choices)
        return could_have_room(self._overlay, parts, (self.seats.of(one.key) for one in without))

    def place(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlaceResult:
        if self.guard is not None:
            return self.guard.place(workload, choices)
        return self.place_freely(workload, choices)

    def place_freely(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlaceResult:
        """Whatever others are promised."""
        version, known = self._overlay.version, self._refused
        if known is not None and known[:3] == (version, workload, choices):
            return known.why
        found = self.place_around(workload, choices, Obstacles())
        if not found.ok:
            self._refused = _Refused(version, workload, choices, found)
        return found

    def place_around(
        self, workload: Workload, choices: tuple[PodSetChoice, ...], obstacles: Obstacles
    ) -> PlaceResult:
        """As `place`, with room that others are promised left free."""
        if not self._has_base(workload.key):
            return PlaceResult(
                ok=False,
                message="it goes with the minimum of its gang, which doesn't run",
                code="GANG_INCOMPLETE",
                feasible=False,
            )
        parts, _, _ = self.parts(workload, choices)
        never = self._empty.never_fits(parts)
        if never is not None:
            return PlaceResult(ok=False, message=never.message, code=never.code, feasible=False)
        self._overlay.expect(self._overlay.snapshot.facts.size + sum(part.count for part in parts))
        self.seats.begin(workload.key)
        before = self._overlay.checkpoint()
        obstacles.put_up(self._overlay)
        found = place_in_domains(self._overlay, parts, self._beside(workload, parts))
        if isinstance(found, Failure):
            self._overlay.rollback(before)
            self.seats.forget_last()
            return self._failed(found, parts)
        obstacles.take_down(self._overlay)
        self.seats.put(workload.key, found, tuple(choice.name for choice in choices))
        after = self.seats.gone_from({place.placing.node for place in found})
        return PlaceResult(ok=True, nodes=self._nodes(found, len(parts)), after=after)

    def _beside(self, workload: Workload, parts: Sequence[Part]) -> list[Counter[int]]:
        """Per part, how many pods with the same request are on which nodes: of its set, or of the whole gang."""
        wishes = [part.topology for part in parts if part.topology is not None]
        if not any(wish.level or wish.slice_size for wish in wishes):
            return [Counter() for _ in parts]
        nodes = self._overlay.snapshot.pods.node
        by_set: dict[str, Counter[int]] = {}
        for key in (*pieces_before(workload.key), workload.key):
            seats = self.seats.of(key)
            for row in seats.running:
                by_set.setdefault(seats.set_of[row], Counter())[int(nodes[row])] += 1
            for place in seats.placed:
                by_set.setdefault(seats.sets[place.part], Counter())[place.placing.node] += 1
        everywhere = sum(by_set.values(), Counter[int]())
        return [
            everywhere
            if part.topology is not None and part.topology.of_gang
            else by_set.get(part.name, Counter())
            for part in parts
        ]

    def _has_base(self, key: str) -> bool:
        """Whether what a piece of a gang goes with is there: its minimum, and what that lacks, before an extra."""
        needed = [piece for piece in pieces_before(key) if piece in self._pieces]
        return all(piece in self.seats for piece in needed)

    def _failed(self, failure: Failure, parts: Sequence[Part]) -> PlaceResult:
        if failure.refusal is None:
            never = self._empty.never_fits_close(parts)
            if never is not None:
                message = f"{failure.message}; {never.message}"
                return PlaceResult(ok=False, message=message, code=never.code, feasible=False)
            return PlaceResult(ok=False, message=failure.message, code="KUEUE_TOPOLOGY_NOFIT")
        return PlaceResult(ok=False, message=failure.refusal, code=failure.refusal.code)

    def _nodes(self, places: Sequence[Place], parts: int) -> tuple[dict[str, int], ...]:
        names = self._overlay.snapshot.facts.names
        found: tuple[dict[str, int], ...] = tuple({} for _ in range(parts))
        for place in places:
            name = names[place.placing.node]
            found[place.part][name] = found[place.part].get(name, 0) + 1
        return found


def _covered_resources(system: QueueSystem) -> dict[str, set[str]]:
    """Flavor → the resources that some queue gives out in it."""
    covered: dict[str, set[str]] = {}
    for queue in system.queues.values():
        for group in queue.groups:
            for quotas in group.flavors:
                covered.setdefault(quotas.flavor, set()).update(quotas.cells)
    return covered
