"""The overlay as queueing sees it: can this workload be placed, and what if that one were gone?

Implements `queueing.site.Site` for `engine`. Pods of a workload are placed with the selectors and tolerations of the
flavors that quota gave them, close together where that is asked for, whole or not at all. A running workload that has
no pods yet (its topology assignment says where they will be) is seated at the start like one that has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from windlass.cluster.pods import PENDING
from windlass.cluster.shape import Shape, make_shape
from windlass.cluster.state import MEMORY_MIB
from windlass.model.configuration import ResourceRules, counted
from windlass.model.pod import Pod, PodSpec
from windlass.model.queue import QueueSystem, ResourceFlavor
from windlass.model.quota import quota_requests
from windlass.model.requests import pod_requests
from windlass.model.workload import PodSet, PodSetAssignment, Workload
from windlass.placement.closeness import Closeness, is_ready
from windlass.placement.domains import place_in_domains
from windlass.placement.elastic import pieces_before
from windlass.placement.empty import EmptyCluster
from windlass.placement.gang import Failure, Part, Place
from windlass.placement.obstacles import Obstacles
from windlass.placement.overlay import Overlay, Placing
from windlass.placement.topology import DomainTree
from windlass.placement.topology.default import NAME as DEFAULT_NAME
from windlass.queueing.eligibility import refusal
from windlass.queueing.site import PlaceResult, PodSetChoice


class Seats(msgspec.Struct):
    """Where a workload's pods are on the overlay."""

    running: list[int]
    """Rows of the snapshot's pods."""
    placed: list[Place]
    """What was placed in this decision."""
    sets: tuple[str, ...] = ()
    """Names of the pod sets whose numbers stand in `placed`."""
    set_of: dict[int, str] = {}
    """Row of a pod → its pod set."""


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
        self._pod_row = overlay.pod_rows()
        self.seats: dict[str, Seats] = {}
        self._gone: dict[str, set[int]] = dict(gone or {})
        """Removed workload → the nodes that it was on."""
        self._undo: list[tuple[int, str, Seats | None, set[int] | None]] = []
        self._covers = _covered_resources(system)
        self._empty = EmptyCluster(overlay)
        self._closeness = Closeness(overlay, levels)
        self._trees = overlay.recall.trees
        self._flavored = overlay.recall.flavored
        self._requests = overlay.recall.requests_by(rules)
        workloads = list(workloads)
        self._pieces = {workload.key for workload in workloads}
        known = overlay.recall.seats.known
        for workload in workloads:
            if workload.admission is not None and workload.key not in self._gone:
                kept = known.get(id(workload))
                if kept is None:
                    self._seat(workload)
                else:
                    self.seats[workload.key] = kept[1]

    def twin(self, overlay: Overlay) -> OverlaySite:
        """A site on a copy of the overlay, on which nobody can be removed."""
        return OverlaySite(overlay, self._system, (), self._rules, levels=self._closeness.levels)

    def remembered(self) -> tuple[int, int]:
        """How much is known of templates; for `forget`."""
        return len(self._flavored), len(self._requests)

    def forget(self, since: tuple[int, int]) -> None:
        """What was learnt of templates since then: they were only tried, and nobody will ask again."""
        while len(self._flavored) > since[0]:
            self._flavored.popitem()
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
        return len(self._undo)

    def rollback(self, to: int) -> None:
        if len(self._undo) <= to:
            return
        self._overlay.rollback(self._undo[to][0])
        while len(self._undo) > to:
            _, key, seats, nodes = self._undo.pop()
            self.seats.pop(key, None)
            self._gone.pop(key, None)
            if seats is not None:
                self.seats[key] = seats
            if nodes is not None:
                self._gone[key] = nodes

    @property
    def after_removal(self) -> bool:
        """The last thing done here was to take somebody off: what is placed next is what others go for."""
        return bool(self._undo) and self._undo[-1][1] in self._gone

    def pod_row(self, key: str) -> int | None:
        """Row of the snapshot's pods."""
        return self._pod_row.get(key)

    def watch(self, workload: Workload) -> None:
        """Know where a running workload's pods are, though nobody decides on it."""
        if workload.key not in self.seats and workload.key not in self._gone:
            kept = self._overlay.recall.seats.known.get(id(workload))
            if kept is None:
                self._seat(workload)
            else:
                self.seats[workload.key] = kept[1]

    def is_seated(self, key: str) -> bool:
        return key in self.seats

    def _remember(self, key: str) -> None:
        self._undo.append((self._overlay.checkpoint(), key, self.seats.get(key), self._gone.get(key)))

    def remove(self, workload: Workload) -> None:
        self._remember(workload.key)
        seats = self.seats.pop(workload.key, Seats([], []))
        nodes = {int(self._overlay.snapshot.pods.node[row]) for row in seats.running}
        for row in seats.running:
            self._overlay.remove(row)
        for place in seats.placed:
            self._overlay.unseat(place.placing)
            nodes.add(place.placing.node)
        # What was only just placed here is taken back at once: nobody waits for it.
        nodes |= self._gone.get(workload.key, set())
        self._gone[workload.key] = nodes if workload.admission is not None else set()

    def leaving(self) -> dict[int, tuple[str, ...]]:
        """Node → running workloads that were taken off it, so that their room is free only once they are gone."""
        found: dict[int, list[str]] = {}
        for key in sorted(self._gone):
            for node in self._gone[key]:
                found.setdefault(node, []).append(key)
        return {node: tuple(keys) for node, keys in found.items()}

    def place(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlaceResult:
        return self.place_around(workload, choices, Obstacles())

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
        self._remember(workload.key)
        before = self._overlay.checkpoint()
        obstacles.put_up(self._overlay)
        found = place_in_domains(self._overlay, parts, self._beside(workload, parts))
        if isinstance(found, Failure):
            self._overlay.rollback(before)
            self._undo.pop()
            return self._failed(found, parts)
        obstacles.take_down(self._overlay)
        there = self.seats.get(workload.key, Seats([], []))
        sets = tuple(choice.name for choice in choices)
        self.seats[workload.key] = Seats(there.running, [*there.placed, *found], sets, there.set_of)
        return PlaceResult(ok=True, nodes=self._nodes(found, len(parts)), after=self._after(found))

    def _beside(self, workload: Workload, parts: Sequence[Part]) -> list[Counter[int]]:
        """Per part, how many pods with the same request are on which nodes: of its set, or of the whole gang."""
        wishes = [part.topology for part in parts if part.topology is not None]
        if not any(wish.level or wish.slice_size for wish in wishes):
            return [Counter() for _ in parts]
        nodes = self._overlay.snapshot.pods.node
        by_set: dict[str, Counter[int]] = {}
        for key in (*pieces_before(workload.key), workload.key):
            seats = self.seats.get(key, Seats([], []))
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
        verdict = failure.refusal.verdict()
        return PlaceResult(ok=False, message=verdict.kube_message, code=verdict.code)

    def _nodes(self, places: Sequence[Place], parts: int) -> tuple[dict[str, int], ...]:
        names = self._overlay.snapshot.facts.names
        found: tuple[dict[str, int], ...] = tuple({} for _ in range(parts))
        for place in places:
            name = names[place.placing.node]
            found[place.part][name] = found[place.part].get(name, 0) + 1
        return found

    def _after(self, places: Sequence[Place]) -> tuple[str, ...]:
        used = {place.placing.node for place in places}
        return tuple(sorted(key for key, nodes in self._gone.items() if nodes & used))

    # From choices to pods

    def parts(
        self, workload: Workload, choices: Sequence[PodSetChoice]
    ) -> tuple[list[Part], DomainTree | None, str]:
        """The pods that are to be placed, the domains of their flavor, and the topology's name."""
        sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
        parts, tree, topology = [], None, ""
        for choice in choices:
            pod_set = sets[choice.name]
            flavors = self._flavors(choice)
            pod, shape = self._with_flavors(pod_set.pod, flavors)
            named = next((flavor for flavor in flavors if flavor.topology), None)
            if named is not None and named.topology in self._system.topologies:
                tree, topology = self._tree(named), named.topology
            request = pod_set.topology if named is not None else None
            own = tree if named is not None else None
            if named is None:
                request, own = self._closeness.of(workload, pod_set, pod, shape)
                tree, topology = (own, DEFAULT_NAME) if own is not None else (tree, topology)
            waiting = [self._pod_row[key] for key in pod_set.pods if key in self._pod_row]
            nodes = self._overlay.snapshot.pods.node
            objects = self._overlay.snapshot.pods.objects
            existing = tuple(objects[row] for row in waiting if nodes[row] == PENDING)
            bound = sum(1 for row in waiting if nodes[row] >= 0)
            left = max(0, choice.count - bound)
            parts.append(Part(choice.name, left, pod, shape, request, own, topology, existing))
        return parts, tree, topology

    def _flavors(self, choice: PodSetChoice) -> list[ResourceFlavor]:
        names = dict.fromkeys(choice.flavors.values())
        return [self._system.flavors[name] for name in names if name in self._system.flavors]

    def _with_flavors(self, pod: Pod, flavors: Sequence[ResourceFlavor]) -> tuple[Pod, Shape]:
        key = (id(pod), tuple(flavor.name for flavor in flavors))
        known = self._flavored.get(key)
        if known is None:
            made = _flavored(pod, flavors)
            known = self._flavored[key] = (pod, made, make_shape(made))
        return known[1], known[2]

    def _tree(self, flavor: ResourceFlavor) -> DomainTree:
        """The domains of the flavor's nodes."""
        key = (flavor.topology, flavor.name)
        found = self._trees.get(key)
        if found is None:
            facts = self._overlay.snapshot.facts
            levels = self._system.topologies[flavor.topology].levels
            ours = facts.matching_labels(flavor.node_labels) & np.array(
                [is_ready(node) for node in facts.nodes]
            )
            values = [
                [node.labels.get(level) if mine else None for level in levels]
                for node, mine in zip(facts.nodes, ours.tolist(), strict=True)
            ]
            found = self._trees[key] = DomainTree.build(levels, values, facts.names)
        return found

    # Those that run

    def _seat(self, workload: Workload) -> None:
        """Note where a running workload's pods are; book those that have a place and no pod yet."""
        nodes = self._overlay.snapshot.pods.node
        rows = {
            self._pod_row[key]: pod_set.name
            for pod_set in workload.pod_sets
            for key in pod_set.pods
            if key in self._pod_row
        }
        seats = Seats([row for row in rows if nodes[row] >= 0], [], set_of=rows)
        if rows:
            self._overlay.recall.seats.keep(workload, seats)
        if not rows and workload.admission is not None:
            seats.sets = tuple(one.name for one in workload.admission.assignments)
            sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
            for i, assignment in enumerate(workload.admission.assignments):
                if assignment.name in sets:
                    seats.placed += self._seat_assignment(i, sets[assignment.name], assignment)
        self.seats[workload.key] = seats

    def _seat_assignment(self, part: int, pod_set: PodSet, assignment: PodSetAssignment) -> list[Place]:
        facts = self._overlay.snapshot.facts
        pod, shape = self._with_flavors(pod_set.pod, [])
        row = self._overlay.table.row(shape, self._overlay.snapshot)
        wanted = [
            facts.index[name]
            for name, count in assignment.nodes.items()
            for _ in range(count)
            if name in facts.index
        ]
        places = []
        for member, node in enumerate(wanted):
            places.append(Place(part, member, self._overlay.seat(pod, row, node)))
        for values, count in assignment.domains if not assignment.nodes else ():
            there = facts.matching_labels(dict(zip(assignment.levels, values, strict=False)))
            for _ in range(count):
                placing = self._seat_in(pod, row, np.flatnonzero(there).tolist())
                if placing is not None:
                    places.append(Place(part, len(places), placing))
        return places

    def _seat_in(self, pod: Pod, row: int, nodes: list[int]) -> Placing | None:
        """In a domain, a pod sits on the first node that has room for it, or on the first at all."""
        self._overlay.refresh(row)
        score = self._overlay.table.cells.score[row]
        fitting = [node for node in nodes if self._overlay.table.cells.why[row, node] == 0]
        best = max(fitting, key=lambda node: (score[node], -node)) if fitting else next(iter(nodes), None)
        return None if best is None else self._overlay.seat(pod, row, best)


def _covered_resources(system: QueueSystem) -> dict[str, set[str]]:
    """Flavor → the resources that some queue gives out in it."""
    covered: dict[str, set[str]] = {}
    for queue in system.queues.values():
        for group in queue.groups:
            for quotas in group.flavors:
                covered.setdefault(quotas.flavor, set()).update(quotas.cells)
    return covered


def _flavored(pod: Pod, flavors: Sequence[ResourceFlavor]) -> Pod:
    """The pod as it will be once its flavors' labels and tolerations are on it."""
    if not flavors:
        return pod
    spec: PodSpec = pod.spec
    selector = dict(spec.node_selector)
    tolerations = list(spec.tolerations)
    for flavor in flavors:
        selector |= flavor.node_labels
        tolerations += flavor.tolerations
    changed = msgspec.structs.replace(spec, node_selector=selector, tolerations=tuple(tolerations))
    return msgspec.structs.replace(pod, spec=changed)
