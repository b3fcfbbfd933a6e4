"""The cheapest victims among admitted workloads: quota and place in one search, within the rules of the caller.

`classical_preemption` and `fair_sharing_preemption` call `find_cheapest` with the victims that Kueue's order gives, if
any. Each says which sets of candidates its rules allow (`take`); `cheapest_victims` proposes the sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from windlass.model.piece_keys import is_above_minimum, workload_key
from windlass.queueing.cheapest_victims import Attempt, CheapestVictims, comparable_costs, least_gpus_lost
from windlass.queueing.preemption_common import PreemptionRequest, Target
from windlass.queueing.quota_node import AdmittedWorkload, FlavorResource, QuotaNode
from windlass.queueing.victim_room import Cap, Lack


class TakenVictims(NamedTuple):
    """What became of a set of candidates."""

    is_allowed: bool
    """False: they may not be evicted together, and no more of them either."""
    targets: list[Target]
    """Empty where the preemptor doesn't fit without them. Those that aren't needed are left out."""


class VictimCosts:
    """Sums of these numbers compare sets of victims: the class to evict last counts first, then what is lost in it."""

    def __init__(self, candidates: Sequence[AdmittedWorkload], class_of: Callable[[AdmittedWorkload], Any]) -> None:
        parts = [(*running.eviction_cost, running.pod_count) for running in candidates]
        costs = comparable_costs([class_of(running) for running in candidates], parts)
        self._of = {running.key: cost for running, cost in zip(candidates, costs, strict=True)}

    def of(self, victims: Iterable[AdmittedWorkload]) -> int:
        return sum(self._of[running.key] for running in victims)


def find_cheapest(
    request: PreemptionRequest,
    candidates: Sequence[AdmittedWorkload],
    costs: VictimCosts,
    take: Callable[[Sequence[AdmittedWorkload], Sequence[AdmittedWorkload]], TakenVictims],
    known: list[Target],
    *,
    allow_borrowing: bool = True,
) -> list[Target]:
    """Victims that cost no more than the known ones; empty where none are known or found.

    `take` gets candidates, and members above the minimum of gangs among them, which go with it.
    """
    trial = request.placement_trial
    units = _units(candidates)
    room = trial.room(units) if trial is not None else None
    if trial is not None and room is None:
        return known

    def attempt(numbers: Sequence[int]) -> Attempt[list[Target]]:
        chosen = [units[number][0] for number in numbers]
        followers = dict.fromkeys(follower for number in numbers for follower in units[number][1:])
        taken = take([running for running in chosen if running not in followers], list(followers))
        cost = costs.of(target.victim for target in taken.targets)
        return Attempt(taken.is_allowed, cost, taken.targets or None)

    search = CheapestVictims(
        [costs.of(unit) for unit in units],
        room,
        _quota_lacks(request, units, allow_borrowing),
        [*_borrowing_caps(request, candidates), *_budget_caps(request, candidates)],
        attempt,
    )
    victims = search.search(known or None, costs.of(target.victim for target in known))
    # Any mode of borrowing would do, so the lowest of their bounds holds.
    least = least_gpus_lost(victims.cost, victims.bound) if victims.found is not None else 0
    request.least_lost = least if request.least_lost is None else min(request.least_lost, least)
    return victims.found or []


def _units(candidates: Sequence[AdmittedWorkload]) -> list[list[AdmittedWorkload]]:
    """Each candidate with the members above the minimum that go with it."""
    above: dict[str, list[AdmittedWorkload]] = {}
    for running in candidates:
        if is_above_minimum(running.key):
            above.setdefault(workload_key(running.key), []).append(running)
    return [[running, *above.get(running.key, ())] for running in candidates]


def remove_followers(followers: Sequence[AdmittedWorkload], targets: Sequence[Target]) -> list[Target]:
    """Members above a minimum that goes, off the tree: no rule protects them, since they do no work without it."""
    reasons = {target.victim.key: target.reason for target in targets}
    for running in followers:
        running.remove_from_tree()
    return [Target(running, reasons[workload_key(running.key)]) for running in followers]


def _quota_lacks(
    request: PreemptionRequest, units: Sequence[Sequence[AdmittedWorkload]], allow_borrowing: bool
) -> list[Lack]:
    """What has to come free, cell by cell, at least: in the tree, and in the own queue where it may not borrow."""
    node, found = request.node, []
    for cell, amount in request.usage.items():
        freed = {number: _freed(unit, cell) for number, unit in enumerate(units)}
        lacking = amount - node.headroom(cell)
        if lacking > 0:
            found.append(Lack(lacking, freed))
        beyond = node.usage.get(cell, 0) + amount - node.subtree_quota.get(cell, 0)
        if beyond > 0 and not (allow_borrowing and request.may_borrow):
            own = {number: freed[number] for number, unit in enumerate(units) if unit[0].node is node}
            found.append(Lack(beyond, own))
    return found


def _freed(unit: Sequence[AdmittedWorkload], cell: FlavorResource) -> int:
    if len(unit) == 1:  # most
        return unit[0].usage.get(cell, 0)
    return sum(part.usage.get(cell, 0) for part in unit)


def _borrowing_caps(request: PreemptionRequest, candidates: Sequence[AdmittedWorkload]) -> list[Cap]:
    """Queues give only while they borrow. Where one borrows in several cells, the rules themselves have to tell."""
    found = []
    for queue in dict.fromkeys(running.node for running in candidates):
        borrowed = [
            (cell, beyond)
            for cell in request.needs_preemption
            if (beyond := queue.usage.get(cell, 0) - queue.subtree_quota.get(cell, 0)) > 0
        ]
        if queue is request.node or queue.queue is None or len(borrowed) != 1:
            continue
        [(cell, beyond)] = borrowed
        amounts = {i: running.usage.get(cell, 0) for i, running in enumerate(candidates) if running.node is queue}
        limit = beyond - 1 - _least_borrowed(request, candidates, queue, cell)
        found.append(Cap(limit, amounts, spares_largest=True))
    return found


def _least_borrowed(
    request: PreemptionRequest, candidates: Sequence[AdmittedWorkload], giver: QuotaNode, cell: FlavorResource
) -> int:
    """Under fair sharing: what the preemptor's queue borrows at least, even with all of its own candidates gone.

    A giver of the same weight that borrows nothing else has to borrow more than that; for any other giver it is 0.
    """
    node = request.node
    is_alike = giver.parent is node.parent and giver.weight_milli == node.weight_milli
    borrows_more = any(giver.borrows_with(other, 0) for other in giver.usage if other != cell)
    if not request.context.config.fair_sharing or not is_alike or borrows_more:
        return 0
    own = sum(running.usage.get(cell, 0) for running in candidates if running.node is node)
    return max(0, node.usage.get(cell, 0) + request.usage.get(cell, 0) - own - node.subtree_quota.get(cell, 0))


def _budget_caps(request: PreemptionRequest, candidates: Sequence[AdmittedWorkload]) -> list[Cap]:
    disruptions = request.context.disruptions
    if disruptions is None or request.overrides_budgets:
        return []
    amounts: dict[int, dict[int, int]] = {}
    for i, running in enumerate(candidates):
        if not (running.is_evicting or running.is_assumed):
            for budget, pods in disruptions.count_by_budget(running.workload).items():
                amounts.setdefault(budget, {})[i] = pods
    if any(sum(pods.values()) > disruptions.left(budget) for budget, pods in amounts.items()):
        request.met_yielding_budget |= bool(request.context.config.budgets_yield_to)
    return [Cap(disruptions.left(budget), pods) for budget, pods in amounts.items()]


def is_unqueued(running: AdmittedWorkload) -> bool:
    return running.node.queue is None


def is_cost_reducible(request: PreemptionRequest, targets: Sequence[Target]) -> bool:
    """With usage history victims go by user, not by cost; and where nothing is lost, in Kueue's order."""
    return request.context.local_queue_usage is None and any(any(target.victim.eviction_cost) for target in targets)


def by_usage(chosen: Sequence[AdmittedWorkload], request: PreemptionRequest) -> list[AdmittedWorkload]:
    """In the order in which their queues may give the most: of one queue the largest goes last, when that still
    borrows."""
    cells = request.needs_preemption
    return sorted(chosen, key=lambda running: sum(running.usage.get(cell, 0) for cell in cells))
