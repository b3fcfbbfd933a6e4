"""Judges guaranteed quota: what is first in its queue and within its nominal quota runs, if evicting work of other
queues that borrow makes room for it and its queue may reclaim from any of them.

Only what is certain counts: classical preemption, one flavor, victims that may go while their queue still borrows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from tests.invariants.judge import asked
from tests.worlds.judges.conservation import Flavors, flavor_choices, flavor_nodes, heads, is_open, within_nominal
from tests.worlds.judges.trees import admission, annotations_of, is_deleted, node_of, owner_uids
from tests.worlds.judges.twin import Twin
from tests.worlds.judges.waiting import Unit, waiting_units
from tests.worlds.judges.world_state import PREEMPTABLE, WorldState, is_finished

from windlass.model.unstructured import Unstructured


class GuaranteeJudge:
    def __init__(self, state: WorldState, wrong: Callable[[str], None], patience: float) -> None:
        self._state, self._wrong, self._patience = state, wrong, patience
        self._since: dict[str, float] = {}
        self._basis: tuple[object, ...] = ()
        self._owed: dict[str, tuple[str, str]] = {}
        self.is_classical = True
        """Not fair sharing, whose rules for victims are others."""

    def disturb(self) -> None:
        self._since.clear()

    def check(self) -> None:
        now = self._state.clock()
        if not self.is_classical or any(is_deleted(pod) for pod in self._state.pods.values()):
            self._since.clear()
            return
        owed = self._owed_units()
        for key, (node, said) in owed.items():
            late = now - self._since.setdefault(key, now)
            if late > self._patience:
                self._wrong(f"{key} waits for {late:.0f} s although borrowers on {node} could go: {said}")
                self._since[key] = now + 10_000
        self._since = {key: since for key, since in self._since.items() if key in owed}

    def _owed_units(self) -> dict[str, tuple[str, str]]:
        """Unit → the node that could be cleared for it, and what it says."""
        units, plan = waiting_units(self._state), self._state.plan
        basis = (self._state.version, tuple(unit.key for unit in units), plan is not None and bool(plan.reserves))
        if basis != self._basis:
            places = [(unit, self._place_by_reclaim(unit)) for unit in heads(units) if unit.queue]
            self._owed, self._basis = {unit.key: (node, unit.said) for unit, node in places if node}, basis
        return self._owed

    def _place_by_reclaim(self, unit: Unit) -> str:
        """A node on which all of it fits once borrowers have gone; empty if there is none."""
        state, spec = self._state, self._state.books.queues.get(unit.queue, {})
        is_polite = any(tree["spec"].get("priorityClassName") == "polite" for tree in unit.trees)
        if (
            is_polite
            or unit.is_stopped
            or not is_open(state, unit)
            or spec.get("preemption", {}).get("reclaimWithinCohort") != "Any"
        ):
            return ""
        if unit.topology or unit.asks_for_topology:
            return ""
        choices = [*flavor_choices(state.books, unit)]
        if len(choices) != 1 or (state.plan is not None and state.plan.reserves):
            return ""
        for name in flavor_nodes(state, unit, choices[0]):
            victims = [*self._borrowers_on(name, unit, choices[0])]
            if victims and self._fits_without(unit, choices[0], name, victims):
                return name
        return ""

    def _fits_without(self, unit: Unit, flavors: Flavors, name: str, victims: list[Unstructured]) -> bool:
        state = self._state
        usage = {queue: Counter(cells) for queue, cells in state.usage.items()}
        gone: set[str] = set()
        for tree in victims:
            queue, need = admission(tree)["clusterQueue"], _usage_of(tree)  # type: ignore[index]
            # A queue that borrows no more keeps what it has.
            if any(usage[queue][cell] > state.books.quota(queue, cell)[0] for cell in _contested(flavors)):
                usage[queue].subtract(need)
                gone |= owner_uids(tree)
        if not within_nominal(state.books, unit, flavors, usage):
            return False
        left = [pod for pod in state.placed_pods() if not owner_uids(pod) & gone]
        return Twin([*state.nodes.values()], left).place(unit.pods, [name]) is not None

    def _borrowers_on(self, name: str, unit: Unit, flavors: Flavors) -> Iterator[Unstructured]:
        state, cells = self._state, _contested(flavors)
        chain = set(state.books.chain(unit.queue))
        for tree in state.workloads.values():
            found = admission(tree)
            if not found or is_finished(tree) or found["clusterQueue"] in (unit.queue, ""):
                continue
            queue = found["clusterQueue"]
            if queue not in state.books.queues or not chain & set(state.books.chain(queue)):
                continue
            borrowed = [cell for cell in cells if state.usage[queue][cell] > state.books.quota(queue, cell)[0]]
            pods = state.pods_of(tree)
            if borrowed and any(node_of(pod) == name for pod in pods) and _may_go(state, tree, pods):
                yield tree


def _contested(flavors: Flavors) -> set[tuple[str, str]]:
    """Flavors and resources that victims give; there are CPUs enough."""
    return {(flavor, resource) for resource, flavor in flavors.items() if resource != "cpu"}


def _may_go(state: WorldState, tree: Unstructured, pods: list[Unstructured]) -> bool:
    jobs = [job for job in state.objects["jobs"].values() if job["metadata"]["uid"] in owner_uids(tree)]
    guarded = any(annotations_of(found).get(PREEMPTABLE) == "false" for found in (*jobs, *pods))
    return bool(jobs) and not guarded and not any("app" in (pod["metadata"].get("labels") or {}) for pod in pods)


def _usage_of(tree: Unstructured) -> Counter[tuple[str, str]]:
    sets = {pod_set["name"]: pod_set["template"] for pod_set in tree["spec"]["podSets"]}
    total: Counter[tuple[str, str]] = Counter()
    for part in admission(tree)["podSetAssignments"]:  # type: ignore[index]
        template = sets[part["name"]]
        amounts = asked({"metadata": template.get("metadata") or {}, "spec": template["spec"]})
        for resource, flavor in part["flavors"].items():
            total[flavor, resource] += amounts[resource] * part["count"]
    return total
