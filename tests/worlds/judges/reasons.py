"""Judges what is said: everything that waits says why, and the code at the end of what it says is true.

A code is compared with the objects: quota lacks, no node takes it and some node refuses it for the reason that the
code names, a plan holds it, victims are still there, pods are missing. Called while nothing has changed for a while.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from tests.invariants.judge import Usage
from tests.worlds.judges.conservation import (
    find_place,
    flavor_choices,
    flavor_nodes,
    is_open,
    keeps_room_for_leaving_work,
    kept_by_plan,
    with_unit,
)
from tests.worlds.judges.lost_gpus import healthy_node
from tests.worlds.judges.trees import admission, condition, is_deleted, is_gated, node_of
from tests.worlds.judges.twin import Twin
from tests.worlds.judges.waiting import Unit, waiting_units
from tests.worlds.judges.world_state import WorldState, is_finished

from windlass.model.notices import NODE_NOTICE_TAINTS
from windlass.model.unstructured import Unstructured

CODE = re.compile(r"\(([A-Z][A-Z0-9_]+)\)$")
REASONS_OF_CODE = {
    "NODE_UNSCHEDULABLE": {"UNSCHEDULABLE"},
    "TAINT_NOT_TOLERATED": {"TAINT"},
    "SELECTOR_MISMATCH": {"NODE_AFFINITY", "NODE_NAME", "GPU_MODEL"},
    "POD_AFFINITY_CONFLICT": {"POD_AFFINITY", "POD_ANTI_AFFINITY", "EXISTING_ANTI_AFFINITY"},
    "POD_SPREAD_CONFLICT": {"SPREAD", "SPREAD_MISSING_LABEL"},
    "DEVICE_UNHEALTHY": {"GPU_UNHEALTHY"},
    "POD_COUNT_LIMIT": {"INSUFFICIENT_PODS"},
    "CPU_MEM_INSUFFICIENT": {"INSUFFICIENT_cpu", "INSUFFICIENT_memory"},
}
"""Of codes that say that no node takes a pod: the twin's reasons that they may stand for."""
NO_NODE = {*REASONS_OF_CODE, "GPU_FULL", "GPU_FRAGMENTED", "REQUEST_EXCEEDS_CLUSTER"}


class ReasonJudge:
    def __init__(self, state: WorldState, wrong: Callable[[str], None], count: Callable[[str], None]) -> None:
        self._state, self._wrong, self._count = state, wrong, count

    def check(self) -> None:
        self._check_said()
        units = waiting_units(self._state)
        for unit in units:
            code = CODE.search(unit.said)
            if code:
                self._count(f"waits: {code[1]}")
                problem = self._untrue(code[1], unit, units)
                if problem:
                    self._wrong(f"{unit.key} says {code[1]}, but {problem}: {unit.said}")

    def _check_said(self) -> None:
        for key, pod in self._state.pods.items():
            waits = (
                not node_of(pod) and pod["status"]["phase"] == "Pending" and not is_gated(pod) and not is_deleted(pod)
            )
            if waits and condition(pod, "PodScheduled") != "False":
                self._wrong(f"nothing is said about {key}, which waits")
        for key, tree in self._state.workloads.items():
            if not admission(tree) and not is_finished(tree) and condition(tree, "QuotaReserved") != "False":
                self._wrong(f"nothing is said about Workload {key}, which waits")

    def _untrue(self, code: str, unit: Unit, units: Sequence[Unit]) -> str:
        if code in NO_NODE:
            return self._node_takes_it(code, unit)
        check = {
            "KUEUE_QUOTA_INSUFFICIENT": lambda one: self._quota_suffices(one, units),
            "RESERVED_FOR_OTHERS": self._nothing_planned,
            "WAITING_FOR_PREEMPTION": self._nothing_leaves,
            "KUEUE_QUEUE_MISSING": lambda one: "its queue is there" if one.queue in self._state.books.queues else "",
        }.get(code)
        if code == "QUEUE_BEHIND_HEAD":
            ahead = [
                other
                for other in units
                if other.queue == unit.queue and other.order <= unit.order and other is not unit
            ]
            return "" if ahead else "it is the first of its queue"
        return check(unit) if check else ""

    def _node_takes_it(self, code: str, unit: Unit) -> str:
        state = self._state
        if unit.queue and not is_open(state, unit):
            return ""
        excludes = False
        for flavors in flavor_choices(state.books, unit):
            found = flavor_nodes(state, unit, flavors)
            excludes = excludes or len(found) < len(state.nodes)
            has_quota = not unit.queue or not state.books.pushed_over(
                state.usage, with_unit(unit, flavors, state.usage)
            )
            where = find_place(state, unit, self._unplanned(found)) if has_quota else ""
            if where:
                return f"it fits on {where}"
        if code == "REQUEST_EXCEEDS_CLUSTER":
            return self._fits_alone(unit)
        wanted = REASONS_OF_CODE.get(code)
        if not wanted or unit.topology:
            return ""
        all_names = [*state.nodes]
        if code == "SELECTOR_MISMATCH" and excludes:
            return ""  # the labels of its flavors exclude nodes
        refusals = self._refusals(unit, all_names)
        if "TAINT" in refusals and any(map(_is_leaving, state.nodes.values())):
            refusals.add("UNSCHEDULABLE")  # its taint is no rule about pods
        return "" if refusals & wanted else f"no node refuses it for that: {sorted(refusals)}"

    def _fits_alone(self, unit: Unit) -> str:
        """Where it fits without all others, with flavors of which its queue could ever have enough."""
        state = self._state
        nodes = [_healthy(node) for node in state.nodes.values()]
        for flavors in flavor_choices(state.books, unit) if not unit.topology else ():
            alone = with_unit(unit, flavors, {})
            if not unit.queue or not state.books.pushed_over({}, alone):
                fits = Twin(nodes, ()).place(unit.pods, flavor_nodes(state, unit, flavors))
                if fits:
                    return f"without all other pods it fits on {fits}"
        return ""

    def _refusals(self, unit: Unit, names: Sequence[str]) -> set[str]:
        """Why the nodes refuse its pods, each beside those of them that found a place."""
        state = self._state
        twin = Twin([*state.nodes.values()], state.placed_pods())
        found: set[str] = set()
        for pod in unit.pods:
            for name in names:
                found |= twin.lacks(pod, name) | twin.rules(pod, name)
            twin.place([pod], names)
        return found

    def _unplanned(self, names: Sequence[str]) -> list[str]:
        plan = self._state.plan
        if plan is None:
            return list(names)
        kept = {node for reserve in plan.reserves for node in reserve.nodes} | kept_by_plan(plan)
        return [name for name in names if name not in kept]

    def _quota_suffices(self, unit: Unit, units: Sequence[Unit]) -> str:
        state = self._state
        if not unit.queue or not is_open(state, unit):
            return ""
        choices = [*flavor_choices(state.books, unit)]
        if len(choices) != 1:
            return ""  # which flavor it was tried with depends on fungibility
        before = self._with_reservations(unit, units)
        after = with_unit(unit, choices[0], before)
        return "" if state.books.pushed_over(before, after) else f"quota of {unit.queue} suffices"

    def _with_reservations(self, unit: Unit, units: Sequence[Unit]) -> Usage:
        """With what blocked heads of other StrictFIFO queues reserve, as in Kueue: what they ask for, up to nominal
        quota, or up to the borrowing limit if they borrow. Owners who take back from anybody reserve nothing."""
        books = self._state.books
        usage: Usage = {queue: Counter(cells) for queue, cells in self._state.usage.items()}
        for name, spec in books.queues.items():
            reclaim = spec.get("preemption", {}).get("reclaimWithinCohort", "Never")
            waiting = sorted((other for other in units if other.queue == name), key=lambda other: other.order)
            if name == unit.queue or spec.get("queueingStrategy") != "StrictFIFO" or reclaim == "Any" or not waiting:
                continue
            flavors = next(flavor_choices(books, waiting[0]), {})
            used = usage.setdefault(name, Counter())
            asked = {(flavor, resource): waiting[0].need[resource] for resource, flavor in flavors.items()}
            borrows = any(used[cell] + amount > books.quota(name, cell)[0] for cell, amount in asked.items())
            for cell, amount in asked.items():
                nominal, limit, _ = books.quota(name, cell)
                most = amount if borrows and limit is None else nominal + (limit or 0) * borrows - used[cell]
                used[cell] += max(0, min(amount, most))
        return usage

    def _nothing_planned(self, unit: Unit) -> str:
        plan = self._state.plan
        if plan is None or any(reserve.workload != unit.key for reserve in plan.reserves):
            return ""
        if keeps_room_for_leaving_work(plan):
            return ""
        return "nothing else is planned"

    def _nothing_leaves(self, unit: Unit) -> str:
        leaving = any(is_deleted(pod) for pod in self._state.pods.values())
        evicted = any(
            admission(tree) and condition(tree, "Evicted") == "True" for tree in self._state.workloads.values()
        )
        plan = self._state.plan
        return "" if leaving or evicted or plan is None or plan.evicts else "nothing leaves"


def _is_leaving(node: Unstructured) -> bool:
    return any(taint["key"] in NODE_NOTICE_TAINTS for taint in node["spec"].get("taints") or ())


def _healthy(node: Unstructured) -> Unstructured:
    """As it would be with all of its GPUs, and open."""
    spec = {key: value for key, value in node["spec"].items() if key not in ("unschedulable", "taints")}
    return {**healthy_node(node), "spec": spec}
