"""Judges work conservation: what is first in its queue, within its nominal quota, and fits now, starts now.

Only a planned start that is earlier in order may hold it, and only where it could not be kept otherwise. The plans are
those of the scheduler's own plan (`Reserve`), with their nodes and times; nothing is read from messages but for what is
held for work that leaves a node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from tests.invariants.judge import Books, Usage
from tests.worlds.judges.trees import admission, labels_of, node_of
from tests.worlds.judges.twin import Twin, has_two_shapes, twin_now
from tests.worlds.judges.waiting import Unit, waiting_units
from tests.worlds.judges.world_state import WorldState, is_finished

from windlass.model.decision import Reserve
from windlass.model.plan import Plan
from windlass.model.pod import Pod
from windlass.model.unstructured import Unstructured

RESERVED = "RESERVED_FOR_OTHERS"
Flavors = dict[str, str]
"""Resource → flavor."""


class ConservationJudge:
    def __init__(
        self, state: WorldState, wrong: Callable[[str], None], count: Callable[[str], None], patience: float
    ) -> None:
        self._state, self._wrong, self._count, self._patience = state, wrong, count, patience
        self._since: dict[str, float] = {}
        self._basis: tuple[object, ...] = ()
        self._found: dict[str, tuple[str, str]] = {}
        """Unit → where it could start, and what it says: true for as long as the basis is the same."""

    def disturb(self) -> None:
        """The scheduler may be late for other reasons: its time begins again."""
        self._since.clear()

    def check(self) -> None:
        now, found = self._state.clock(), self._startable_units()
        for key, (where, said) in found.items():
            late = now - self._since.setdefault(key, now)
            if late > self._patience:
                self._wrong(f"{key} waits for {late:.0f} s although {where}: {said}")
                self._since[key] = now + 10_000  # said once
        self._since = {key: since for key, since in self._since.items() if key in found}

    def _startable_units(self) -> dict[str, tuple[str, str]]:
        units = waiting_units(self._state)
        basis = (self._state.version, tuple(unit.key for unit in units), kept_by_plan(self._state.plan))
        if basis != self._basis or (self._state.plan is not None and self._state.plan.reserves):
            places = [(unit, self.startable(unit, units)) for unit in heads(units)]
            self._found = {unit.key: (where, unit.said) for unit, where in places if where}
            self._basis = basis
        return self._found

    def startable(self, unit: Unit, units: Sequence[Unit]) -> str:
        """Where it could start now without delaying a plan before it; empty if it could not."""
        state = self._state
        if unit.is_stopped or (unit.queue and not is_open(state, unit)):
            return ""
        if keeps_room_for_leaving_work(state.plan) and RESERVED in unit.said:
            self._count("held for work that leaves its node")
            return ""
        for flavors in flavor_choices(state.books, unit):
            if unit.queue and not within_nominal(state.books, unit, flavors, state.usage):
                continue
            names = flavor_nodes(state, unit, flavors)
            kept = self._kept_for_others(unit, units)
            where = find_place(state, unit, [name for name in names if name not in kept])
            if where:
                return f"it fits on {where}" + (f" within nominal quota of {unit.queue}" if unit.queue else "")
            if kept and find_place(state, unit, names):
                self._count("held for an earlier plan or for victims to go")
        return ""

    def _kept_for_others(self, unit: Unit, units: Sequence[Unit]) -> set[str]:
        """Nodes that are cleared for others, or on which a start is planned that is before it in order."""
        plan, state = self._state.plan, self._state
        kept = {pod["status"].get("nominatedNodeName", "") for pod in state.alive_pods() if not node_of(pod)}
        for tree in state.workloads.values():
            kept |= _missing_pods(state, tree)
        if plan is None:
            return kept
        kept |= kept_by_plan(plan)
        by_key = {other.key: other for other in units}
        for reserve in plan.reserves:
            if reserve.workload != unit.key and _comes_before(state, reserve, by_key.get(reserve.workload), unit):
                kept |= reserve.nodes.keys()
        return kept


def keeps_room_for_leaving_work(plan: Plan | None) -> bool:
    """Whether the plan has work that leaves since its node goes: its place elsewhere stands in no plan."""
    return plan is not None and any(found.reason == "LeaveNotice" for found in (*plan.asks, *plan.evicts))


def kept_by_plan(plan: Plan | None) -> frozenset[str]:
    """Nodes on which something starts once its victims have gone."""
    if plan is None:
        return frozenset()
    admits = (admit for admit in plan.admits if admit.after)
    nodes = (node for admit in admits for pod_set in admit.pod_sets for node in pod_set.nodes)
    return frozenset((*nodes, *(bind.node for bind in plan.binds if bind.after)))


def heads(units: Sequence[Unit]) -> Iterator[Unit]:
    """The first of each queue, where that is one alone, and everything that is in none."""
    for unit in units:
        others = [other for other in units if other.queue == unit.queue and other is not unit]
        if not unit.queue or all(unit.order < other.order for other in others):
            yield unit


def _comes_before(state: WorldState, reserve: Reserve, other: Unit | None, unit: Unit) -> bool:
    """Whether the plan restricts the unit: it overlaps with its run, and is earlier in order."""
    if unit.limit is not None and state.clock() + unit.limit <= reserve.start:
        return False
    if other is None:
        return True  # a reservation of the calendar, or one that has just started
    if other.queue and other.queue != unit.queue and borrows(state, other):
        return not unit.queue  # a workload within its nominal quota comes before one that borrows
    return other.order <= unit.order


def borrows(state: WorldState, unit: Unit) -> bool:
    return not any(
        within_nominal(state.books, unit, flavors, {unit.queue: state.usage.get(unit.queue, Counter())})
        for flavors in flavor_choices(state.books, unit)
    )


def is_open(state: WorldState, unit: Unit) -> bool:
    spec = state.books.queues.get(unit.queue)
    return spec is not None and spec.get("stopPolicy", "None") == "None"


def flavor_choices(books: Books, unit: Unit) -> Iterator[Flavors]:
    """Every way to take flavors for what it needs; none if its queue lacks a resource."""
    need = [resource for resource, amount in unit.need.items() if amount]
    if not unit.queue:
        yield {}
        return
    groups = []
    for group in books.queues[unit.queue]["resourceGroups"]:
        covered = [resource for resource in need if resource in group["coveredResources"]]
        if covered:
            groups.append([dict.fromkeys(covered, flavor["name"]) for flavor in group["flavors"]])
    for chosen in product(*groups):
        flavors = {resource: flavor for part in chosen for resource, flavor in part.items()}
        if flavors.keys() == set(need):
            yield flavors


def with_unit(unit: Unit, flavors: Flavors, usage: Usage) -> Usage:
    after = {queue: Counter(cells) for queue, cells in usage.items()}
    total = after.setdefault(unit.queue, Counter())
    for resource, flavor in flavors.items():
        total[flavor, resource] += unit.need[resource]
    return after


def within_nominal(books: Books, unit: Unit, flavors: Flavors, usage: Usage) -> bool:
    after = with_unit(unit, flavors, usage)
    nominal = all(
        after[unit.queue][flavor, resource] <= books.quota(unit.queue, (flavor, resource))[0]
        for resource, flavor in flavors.items()
    )
    return nominal and not books.pushed_over(usage, after)


def flavor_nodes(state: WorldState, unit: Unit, flavors: Flavors) -> list[str]:
    """Nodes that have the labels of all these flavors, and the levels of their topologies."""
    labels: dict[str, str] = {}
    levels: list[str] = []
    for name in set(flavors.values()):
        spec = state.books.flavors.get(name, {})
        for key, value in spec.get("nodeLabels", {}).items():
            if labels.setdefault(key, value) != value:
                return []
        if spec.get("nodeTaints") or (unit.asks_for_topology and not spec.get("topologyName")):
            return []  # whether taints are tolerated is not computed here; as in Kueue, all flavors need a topology
        topology = state.objects["topologies"].get(spec.get("topologyName", ""))
        levels += [level["nodeLabel"] for level in topology["spec"]["levels"]] if topology else []
    return [
        name
        for name, node in state.nodes.items()
        if labels.items() <= labels_of(node).items() and all(level in labels_of(node) for level in levels)
    ]


def find_place(state: WorldState, unit: Unit, names: Sequence[str]) -> str:
    """Nodes that take all of it now, found by a simple search; empty if it finds none."""
    domains = [list(names)]
    if unit.topology:
        values = {labels_of(state.nodes[name]).get(unit.topology) for name in names}
        domains = [
            [name for name in names if labels_of(state.nodes[name]).get(unit.topology) == value]
            for value in sorted(value for value in values if value)
        ]
    is_mixed = has_two_shapes(unit.pods)
    for domain in domains:
        if not domain or not any(_may_take(twin_now(state), unit.pods[0], name) for name in domain):
            continue
        where = twin_now(state).copy().place(unit.pods, domain)
        if not where and is_mixed:
            where = twin_now(state).copy().place_mixed(unit.pods, domain)
        if where:
            return ", ".join(f"{node} ({count})" for node, count in where.items())
    return ""


def _may_take(twin: Twin, pod: Pod, name: str) -> bool:
    return not twin.lacks(pod, name) and not twin.rules(pod, name)


def _missing_pods(state: WorldState, tree: Unstructured) -> set[str]:
    """Nodes of an admitted Workload some of whose pods are still to come."""
    found = admission(tree)
    if not found or is_finished(tree):
        return set()
    pods = state.pods_of(tree)
    count = sum(part["count"] for part in found["podSetAssignments"])
    if len(pods) >= count and all(node_of(pod) for pod in pods):
        return set()
    return {
        str(value)
        for part in found["podSetAssignments"]
        for value in _assigned_hosts(part.get("topologyAssignment") or {})
    }


def _assigned_hosts(assignment: Unstructured) -> Iterator[str]:
    for domain in assignment.get("domains") or ():
        yield from domain["values"][-1:]
    for piece in assignment.get("slices") or ():
        values = piece["valuesPerLevel"][-1]
        yield from ([values["universal"]] if "universal" in values else [])
        individual = values.get("individual") or {}
        for root in individual.get("roots") or ():
            yield f"{individual.get('prefix', '')}{root}{individual.get('suffix', '')}"
