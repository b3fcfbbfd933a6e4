"""Victims by nominal quota and priority (Kueue's classical preemption, with hierarchical cohorts).

`nominator` calls it when a workload fits only if others are evicted. Candidates are removed from the quota tree in
order until the workload fits; then, in reverse order, those that aren't needed are put back. With and without borrowing
are two attempts, since more candidates are allowed without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from windlass.queueing.victims_by_place import (
    TakenVictims,
    VictimCosts,
    by_usage,
    find_cheapest,
    is_cost_reducible,
    remove_followers,
)


def find_victims(request: PreemptionRequest, *, cheapest: bool = True) -> list[Target]:
    """Empty where no candidate may be evicted or it wouldn't help. The quota tree is left as it was.

    `cheapest=False` skips the search for cheaper victims, for callers that only ask whether there are any.
    """
    return find_within_budgets(request, lambda: _find(request, cheapest))


def _find(request: PreemptionRequest, cheapest: bool) -> list[Target]:
    candidates = Candidates(request)
    if request.placement_trial is not None and request.placement_trial.is_hopeless(candidates.ordered):
        return []
    modes = _borrowing_attempts(request, candidates)
    targets = _first(_attempt(request, candidates, allow_borrowing) for allow_borrowing in modes)
    if targets and (not cheapest or not is_cost_reducible(request, targets)):
        return targets
    if targets or request.placement_trial is not None:
        targets = _find_cheapest(request, candidates, modes, targets)
    if targets or request.placement_trial is None or len(candidates.ordered) > MAX_CANDIDATES:
        return targets
    return _first(
        find_sparing(partial(_remove_all_but, request, candidates, allow_borrowing)) for allow_borrowing in modes
    )


def _first(attempts: Iterable[list[Target]]) -> list[Target]:
    return next(filter(None, attempts), [])


def _find_cheapest(
    request: PreemptionRequest, candidates: Candidates, modes: Sequence[bool], targets: list[Target]
) -> list[Target]:
    """Removing the cheapest candidates first doesn't always give the cheapest set, nor one that makes a place."""
    costs = VictimCosts(candidates.ordered, candidates.class_of)
    for allow_borrowing in modes if request.would_borrow else modes[:1]:
        eligible = [running for running in candidates.ordered if candidates.is_eligible(running, allow_borrowing)]
        take = partial(_take, request, candidates, allow_borrowing)
        targets = find_cheapest(request, eligible, costs, take, targets, allow_borrowing=allow_borrowing)
    return targets


def _take(
    request: PreemptionRequest,
    candidates: Candidates,
    allow_borrowing: bool,
    chosen: Sequence[AdmittedWorkload],
    followers: Sequence[AdmittedWorkload],
) -> TakenVictims:
    """Removes exactly these, if the rules allow all of the chosen ones."""
    targets: list[Target] = []
    for running in by_usage(chosen, request):
        reason = candidates.reason(running)
        if not candidates.is_valid(running, allow_borrowing) or request.breaks_budget(running, reason, targets):
            restore(targets)
            return TakenVictims(False, [])
        running.remove_from_tree()
        targets.append(Target(running, reason))
    targets += remove_followers(followers, targets)
    fits = bool(targets) and request.fits_unthrottled(targets, allow_borrowing)
    if fits and not followers:
        targets = fill_back(request, targets, allow_borrowing, last_is_needed=False)
    restore(targets)
    return TakenVictims(True, targets if fits else [])


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


def _attempt(request: PreemptionRequest, candidates: Candidates, allow_borrowing: bool) -> list[Target]:
    """Removes candidates in their order until the preemptor fits."""
    targets: list[Target] = []
    for running in candidates.ordered:
        if not candidates.is_valid(running, allow_borrowing):
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
