"""Which flavor serves which resource: Kueue's flavor assignment and fungibility.

`nominator` calls it with a workload's requests and an oracle that says whether preemption would help. The flavors of a
resource group are tried in the queue's order; the queue's fungibility says whether the search stops at a flavor, and
the best flavor seen is taken. Only quota is considered here, never a node. Messages about quota are Kueue's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from windlass.model.queue import FlavorQuotas, ResourceFlavor, ResourceGroup
from windlass.model.queue_names import is_shared_queue
from windlass.model.quota import format_quota
from windlass.queueing.config import QueueConfig
from windlass.queueing.flavor_assignment import (
    BEST,
    EXCEEDS_MAXIMUM,
    NO_MATCH,
    NOT_COVERED,
    WAITING,
    WORST,
    Assignment,
    FlavorAssignment,
    GranularMode,
    PodSetFlavorAssignment,
    PreemptionMode,
    is_preferred,
)
from windlass.queueing.flavor_costs import by_expected_cost, risk_of
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.quota_node import FlavorResource, QuotaNode, Usage

NEVER = "Never"
Oracle = Callable[[FlavorResource, int], tuple[PreemptionMode, int]]
"""Whether preemption could free this much of one cell, and how far up the tree it would borrow then."""


class FlavorAssignmentOptions:
    """What one assignment depends on besides the queue's own policy."""

    __slots__ = ("config", "excluded_flavors", "flavors", "oracle")

    def __init__(
        self,
        flavors: dict[str, ResourceFlavor],
        oracle: Oracle,
        config: QueueConfig,
        excluded_flavors: Collection[str] = (),
    ) -> None:
        self.flavors = flavors
        self.oracle = oracle
        self.config = config
        self.excluded_flavors = excluded_flavors
        """Flavors on whose nodes the pods found no room."""


def assign_flavors(pending: PendingWorkload, counts: tuple[int, ...], options: FlavorAssignmentOptions) -> Assignment:
    """Assigns group after group; stops at the first group of pod sets that no flavor can serve."""
    assignment = Assignment()
    pod_sets = pending.workload.pod_sets
    totals = [
        {resource: amount * counts[index] for resource, amount in pending.requests[index].items()}
        for index in range(len(pod_sets))
    ]
    for members in pending.pod_set_groups:
        parts = [PodSetFlavorAssignment(pod_sets[index].name, counts[index]) for index in members]
        served, reasons, severity = _FlavorSearch(pending, members, options, assignment.usage).run(totals)
        failed = False
        for index, part in zip(members, parts, strict=True):
            part.reasons = list(reasons)
            part.severity = severity
            asked = totals[index]
            part.flavors = {name: choice for name, choice in (served or {}).items() if name in asked}
            if not asked and served and pod_sets[index].topology is not None:
                part.flavors = dict(served)  # a leader without requests gets the flavors of its topology group
            assignment.append(part, asked)
            failed = failed or served is None
        if failed:
            break
    if len(pending.pod_set_groups) < len(pod_sets):
        # Groups may interleave, and callers expect the order of the workload's pod sets.
        names = [pod_set.name for pod_set in pod_sets]
        assignment.pod_sets.sort(key=lambda part: names.index(part.name))
    return assignment.finish()


class _FlavorSearch:
    """The flavor search for one group of pod sets, which all get the same flavors."""

    def __init__(
        self,
        pending: PendingWorkload,
        members: tuple[int, ...],
        options: FlavorAssignmentOptions,
        assumed: Usage,
    ) -> None:
        self.pending = pending
        self.members = members
        self.options = options
        self.node: QuotaNode = pending.node
        self.assumed = assumed
        """Usage of earlier groups of this workload."""
        self.reasons: list[str] = []
        self.severity = 0
        self.served: dict[str, FlavorAssignment] = {}
        self._given_up: set[str] = set()
        """Flavors with which no flavor of another resource goes together."""
        self._contradicted = ""
        """The last flavor of `served` that another one contradicts."""

    def run(self, totals: list[dict[str, int]]) -> tuple[dict[str, FlavorAssignment] | None, list[str], int]:
        """Resource → flavor for all requests of the group (None where one has none), with reasons and severity."""
        asked: dict[str, int] = {}
        for index in self.members:
            for resource, amount in totals[index].items():
                asked[resource] = asked.get(resource, 0) + amount
        first = found = self._serve(asked)
        # A flavor that was chosen first may have labels that leave none for the next resource: then without it.
        while found[0] is None and self._contradicted:
            self._given_up.add(self._contradicted)
            found = self._serve(asked)
        return found if found[0] is not None else first

    def _serve(self, asked: dict[str, int]) -> tuple[dict[str, FlavorAssignment] | None, list[str], int]:
        self.served, self._contradicted = {}, ""
        served = self.served
        reasons: list[str] = []
        severity = 0
        for resource in sorted(asked):
            group = _group_of(self.node, resource)
            if resource in served or (group is None and self._is_ignored(asked[resource])):
                continue
            if group is None:
                return None, [f"resource {resource} unavailable in ClusterQueue"], NOT_COVERED
            self.reasons, self.severity = [], 0
            found = self._best_flavor(group, resource, asked)
            if not found:
                return None, self.reasons, self.severity
            served.update(found)
            reasons += self.reasons
            severity = max(severity, self.severity)
        return served, reasons, severity

    def _is_ignored(self, amount: int) -> bool:
        return amount == 0 or self.options.config.ignore_undeclared or self.node.spec.ignores_undeclared

    def _best_flavor(self, group: ResourceGroup, resource: str, asked: dict[str, int]) -> dict[str, FlavorAssignment]:
        policy = self.node.spec.fungibility
        wanted = {name: amount for name, amount in sorted(asked.items()) if name in group.resources}
        best: dict[str, FlavorAssignment] = {}
        best_fitness = WORST
        attempted = -1
        flavors = self._in_order(group)
        for index in range(self._first_flavor(resource), len(flavors)):
            attempted = index
            name = flavors[index].flavor
            why = flavors[index].inactive_reason or self._refusal(name, resource)
            if why:
                self._refuse([why], NO_MATCH)
                continue
            served, fitness = self._try_flavor(name, wanted)
            if not _tries_next_flavor(fitness, policy.when_can_preempt, policy.when_can_borrow):
                best, best_fitness = served, fitness
                break
            if is_preferred(fitness, best_fitness, policy):
                best, best_fitness = served, fitness
        if best_fitness.preemption_mode == PreemptionMode.FIT:
            # What other flavors lack does not matter once one fits.
            self.reasons, self.severity = [], 0
        # After the last flavor the next cycle begins with the first again.
        tried = -1 if attempted == len(flavors) - 1 else attempted
        return {name: choice._replace(tried_flavor_index=tried) for name, choice in best.items()}

    def _in_order(self, group: ResourceGroup) -> tuple[FlavorQuotas, ...]:
        """As the queue lists them, or the cheapest first; the same in every cycle of a decision."""
        if not self.node.spec.policy.orders_by_cost or len(group.flavors) == 1:
            return group.flavors
        risk = risk_of(self.pending.workload, self.options.config)
        return by_expected_cost(group.flavors, self.options.flavors, risk)

    def _first_flavor(self, resource: str) -> int:
        """The search continues after the last flavor that the cycle before tried."""
        tried = self.pending.tried_flavors
        first = self.members[0]
        return tried[first].get(resource, -1) + 1 if first < len(tried) else 0

    def _refusal(self, name: str, resource: str) -> str:
        """Why the flavor is not tried; empty where it is."""
        pinned = self.pending.pinned_flavors
        if pinned and all(pinned[index].get(resource) != name for index in self.members):
            return f"flavor {name} is not the one that was nominated for {resource}"
        if name in self.options.excluded_flavors:
            return f"the pods don't fit on the nodes of flavor {name}"
        flavor = self.options.flavors.get(name)
        if flavor is None:
            return f"flavor {name} not found"
        if name in self._given_up:
            return f"no flavor of the other resources has node labels that agree with flavor {name}"
        contradiction = self._contradiction(flavor)
        if contradiction:
            return contradiction
        return next((why for index in self.members if (why := self.pending.ineligible_reason(index, flavor))), "")

    def _contradiction(self, flavor: ResourceFlavor) -> str:
        """A label of the flavor that has another value in a flavor of another resource: no node has both."""
        for other in dict.fromkeys(choice.flavor for choice in self.served.values()):
            labels = self.options.flavors[other].node_labels if other in self.options.flavors else {}
            for key, value in flavor.node_labels.items():
                if labels.get(key, value) != value:
                    self._contradicted = other
                    return f"flavor {flavor.name} has {key}={value}, and flavor {other} has {key}={labels[key]}"
        return ""

    def _try_flavor(self, name: str, wanted: dict[str, int]) -> tuple[dict[str, FlavorAssignment], GranularMode]:
        """The flavor is as good as the worst of its resources."""
        served = {}
        fitness = BEST
        for resource, amount in wanted.items():
            mode, borrowing = self._fit((name, resource), amount)
            granular_mode = GranularMode(mode, borrowing)
            if is_preferred(fitness, granular_mode, self.node.spec.fungibility):
                fitness = granular_mode
            if fitness.preemption_mode != PreemptionMode.NO_FIT:
                served[resource] = FlavorAssignment(name, mode, borrowing, -1)
        return served, fitness

    def _fit(self, cell: FlavorResource, request: int) -> tuple[PreemptionMode, int]:
        node, assumed = self.node, self.assumed.get(cell, 0)
        amount = assumed + request
        maximum = node.potential_available(cell)
        # First, since no preemption and no waiting can help.
        if amount > maximum:
            self._refuse([_exceeds_capacity_message(cell, assumed, request, maximum)], EXCEEDS_MAXIMUM)
            return PreemptionMode.NO_FIT, 0
        if not self.pending.workload.may_borrow and amount > node.unborrowed(cell):
            limit = format_quota(cell[1], node.quota(cell).nominal)
            self._refuse([f"non-preemptible work may use only the queue's own quota: {limit} {cell[1]}"], WAITING)
            return PreemptionMode.NO_FIT, 0
        borrowing, may_reclaim = lowest_fitting_height(node, cell, amount)
        available = node.available(cell)
        if amount <= available:
            return PreemptionMode.FIT, borrowing
        lacking = format_quota(cell[1], amount - available)
        self._refuse([f"insufficient unused quota for {_cell_name(cell)}, {lacking} more needed"], WAITING)
        if node.quota(cell).nominal >= amount or may_reclaim or self._may_preempt_while_borrowing(cell):
            return self.options.oracle(cell, amount)
        return PreemptionMode.NO_FIT, borrowing

    def _may_preempt_while_borrowing(self, cell: FlavorResource) -> bool:
        policy = self.node.spec.preemption
        if policy.borrow_within_cohort != NEVER:
            return True
        if policy.within_cluster_queue != NEVER and not self.node.quota(cell).nominal:
            # A queue without nominal quota only ever borrows: it could never preempt by priority otherwise.
            return True
        # Under fair sharing, borrowed quota may be preempted by share, and by priority within the queue.
        return self.options.config.fair_sharing and (policy.reclaim_within_cohort, policy.within_cluster_queue) != (
            NEVER,
            NEVER,
        )

    def _refuse(self, reasons: list[str], severity: int) -> None:
        self.reasons += reasons
        self.severity = severity if not self.severity else min(self.severity, severity)


def lowest_fitting_height(node: QuotaNode, cell: FlavorResource, amount: int) -> tuple[int, bool]:
    """Height of the lowest subtree whose own quota covers the amount, and whether that is below the root."""
    if node.parent is None or not node.borrows_with(cell, amount):
        return 0, node.parent is not None
    amount -= node.local_available(cell)
    for above in node.ancestors():
        if not above.borrows_with(cell, amount):
            return above.height, above.parent is not None
        amount -= above.local_available(cell)
    return node.root.height, False


def _group_of(node: QuotaNode, resource: str) -> ResourceGroup | None:
    return next((group for group in node.spec.resource_groups if resource in group.resources), None)


def _tries_next_flavor(fitness: GranularMode, when_can_preempt: str, when_can_borrow: str) -> bool:
    """Whether the next flavor is tried, too, by the queue's fungibility."""
    mode = fitness.preemption_mode
    if mode in (PreemptionMode.NO_FIT, PreemptionMode.NO_CANDIDATES):
        return True
    if mode != PreemptionMode.FIT and when_can_preempt == "TryNextFlavor":
        return True
    return fitness.borrowing_level > 0 and when_can_borrow == "TryNextFlavor"


def _cell_name(cell: FlavorResource) -> str:
    """In Kueue's words. A queue of KAI or Volcano has one flavor, which is no object that people know."""
    flavor, resource = cell
    return resource if is_shared_queue(flavor) else f"{resource} in flavor {flavor}"


def _exceeds_capacity_message(cell: FlavorResource, assumed: int, request: int, maximum: int) -> str:
    before, now, most = (format_quota(cell[1], amount) for amount in (assumed, request, maximum))
    return (
        f"insufficient quota for {_cell_name(cell)}, previously considered podsets requests "
        f"({before}) + current podset request ({now}) > maximum capacity ({most})"
    )
