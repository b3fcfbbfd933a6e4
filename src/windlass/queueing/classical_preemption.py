"""Victims by nominal quota and priority (Kueue's classical preemption, with hierarchical cohorts).

`nominator` calls it when a workload fits only if others are evicted. Candidates are removed from the quota tree in
order until the workload fits; then, in reverse order, those that aren't needed are put back. With and without borrowing
are two attempts, since more candidates are allowed without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from windlass.queueing.classical_candidates import Candidates
from windlass.queueing.preemption_common import (
    MAX_CANDIDATES,
    PreemptionRequest,
    SparingAttempt,
    Target,
    fill_back,
    find_sparing,
    find_within_budgets,
    restore,
)
from windlass.queueing.quota_node import AdmittedWorkload
from windlass.queueing.victims_by_place import find_by_place


def find_victims(request: PreemptionRequest, *, cheapest: bool = True) -> list[Target]:
    """Empty where no candidate may be evicted or it wouldn't help. The quota tree is left as it was.

    `cheapest=False` skips the search for cheaper victims, for callers that only ask whether there are any.
    """
    return find_within_budgets(request, lambda: _find(request, cheapest))


def _find(request: PreemptionRequest, cheapest: bool) -> list[Target]:
    candidates = Candidates(request)
    if request.placement_trial is not None and request.placement_trial.is_hopeless(candidates.ordered):
        return []
    for allow_borrowing in _borrowing_attempts(request, candidates):
        targets = _attempt(request, candidates, allow_borrowing)
        if targets:
            return _reduce_cost(request, candidates, targets, allow_borrowing) if cheapest else targets
    if request.placement_trial is None:
        return []
    for allow_borrowing in _borrowing_attempts(request, candidates):
        targets = find_by_place(request, candidates, partial(_attempt, request, candidates, allow_borrowing))
        if targets:
            return _reduce_cost(request, candidates, targets, allow_borrowing) if cheapest else targets
    if len(candidates.ordered) > MAX_CANDIDATES:
        return []
    for allow_borrowing in _borrowing_attempts(request, candidates):
        targets = find_sparing(partial(_remove_all_but, request, candidates, allow_borrowing))
        if targets:
            return _reduce_cost(request, candidates, targets, allow_borrowing) if cheapest else targets
    return []


def _reduce_cost(
    request: PreemptionRequest, candidates: Candidates, targets: list[Target], allow_borrowing: bool
) -> list[Target]:
    """Searches again without each victim in turn, as long as the victims found then cost less.

    Removing the cheapest candidates first doesn't always give the cheapest set: two small victims may free what one
    larger victim on another node would have freed alone. Costs compare classes first, so a spared class stays spared.
    """
    # With usage history victims go by user, not by cost.
    if request.context.local_queue_usage is not None:
        return targets
    if not any(any(target.victim.eviction_cost) for target in targets):
        return targets
    if len(candidates.ordered) > MAX_CANDIDATES:
        if request.placement_trial is None:
            return targets
        found = find_by_place(request, candidates, partial(_attempt, request, candidates, allow_borrowing))
        return min(filter(None, (targets, found)), key=candidates.eviction_cost)
    spared: frozenset[str] = frozenset()
    cost = candidates.eviction_cost(targets)
    improved = True
    while improved:
        improved = False
        for target in sorted(targets, key=lambda target: target.victim.eviction_cost, reverse=True):
            if request.placement_trial is not None:
                request.placement_trial.reset_throttle()
            cheaper = _attempt(request, candidates, allow_borrowing, spared=spared | {target.victim.key})
            # Strictly less, so that the loop ends.
            if cheaper and candidates.eviction_cost(cheaper) < cost:
                targets, cost, improved = cheaper, candidates.eviction_cost(cheaper), True
                spared |= {target.victim.key}
                break
    return targets


def _borrowing_attempts(request: PreemptionRequest, candidates: Candidates) -> tuple[bool, ...]:
    """Values of `allow_borrowing` to try, in Kueue's order."""
    no_borrowing = request.node.spec.preemption.borrow_within_cohort == "Never"
    if not candidates.any_from_other_queues or (no_borrowing and not _under_nominal(request)):
        return (True,)
    if no_borrowing and not candidates.any_hierarchical:
        return (False, True)
    return (True, False)


def _under_nominal(request: PreemptionRequest) -> bool:
    node = request.node
    return all(node.quota(cell).nominal > node.usage.get(cell, 0) for cell in request.needs_preemption)


def _attempt(
    request: PreemptionRequest,
    candidates: Candidates,
    allow_borrowing: bool,
    ordered: Sequence[AdmittedWorkload] = (),
    spared: frozenset[str] = frozenset(),
) -> list[Target]:
    """Removes candidates, in this order or in their own, until the preemptor fits."""
    targets: list[Target] = []
    for running in ordered or candidates.ordered:
        if running.key in spared or not candidates.is_valid(running, allow_borrowing):
            continue
        reason = candidates.reason(running)
        if request.breaks_budget(running, reason, targets):
            continue
        running.remove_from_tree()
        targets.append(Target(running, reason))
        if request.fits(targets, allow_borrowing):
            return _finish(request, targets, allow_borrowing)
    # Throttling may have skipped the tries after the last removals.
    if request.fits_at_end(targets, allow_borrowing):
        return _finish(request, targets, allow_borrowing)
    restore(targets)
    return []


def _remove_all_but(
    request: PreemptionRequest, candidates: Candidates, allow_borrowing: bool, spared: frozenset[str]
) -> SparingAttempt:
    """Removes all candidates but the spared ones at once, then puts back those that aren't needed."""
    targets: list[Target] = []
    skipped_any = False
    for running in candidates.ordered:
        if running.key in spared or not candidates.is_eligible(running, allow_borrowing):
            continue
        reason = candidates.reason(running)
        is_valid = candidates.is_valid(running, allow_borrowing)
        if not is_valid or request.breaks_budget(running, reason, targets):
            skipped_any = True
            continue
        running.remove_from_tree()
        targets.append(Target(running, reason))
    taken = tuple(target.victim.key for target in targets)
    if targets and request.fits_unthrottled(targets, allow_borrowing):
        targets = fill_back(request, targets, allow_borrowing, last_is_needed=False)
        restore(targets)
        return SparingAttempt(targets, taken, skipped_any)
    restore(targets)
    return SparingAttempt([], taken, skipped_any)


def _finish(request: PreemptionRequest, targets: list[Target], allow_borrowing: bool) -> list[Target]:
    targets = fill_back(request, targets, allow_borrowing)
    restore(targets)
    return targets
