"""Victims by nominal quota and priority (Kueue's classical preemption, with hierarchical cohorts).

`planner` asks it when a workload fits only if others go. Candidates are taken off the quota tree in order until the
workload fits; then, in the reverse order, whoever isn't needed comes back. With and without borrowing are two
attempts, since without it more candidates are allowed.
"""

from __future__ import annotations

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


def find_victims(request: PreemptionRequest, *, cheapest: bool = True) -> list[Target]:
    """Empty where nobody may go or it wouldn't help. The quota tree is left as it was.

    Whoever only wants to know whether there are any doesn't have the cheapest looked for.
    """
    return find_within_budgets(request, lambda: _find(request, cheapest))


def _find(ask: PreemptionRequest, cheapest: bool) -> list[Target]:
    candidates = Candidates(ask)
    if ask.placement_trial is not None and ask.placement_trial.is_hopeless(candidates.ordered):
        return []
    for allow_borrowing in _attempts(ask, candidates):
        targets = _attempt(ask, candidates, allow_borrowing)
        if targets:
            return _cheaper(ask, candidates, targets, allow_borrowing) if cheapest else targets
    if ask.placement_trial is None or len(candidates.ordered) > MAX_CANDIDATES:
        return []
    for allow_borrowing in _attempts(ask, candidates):
        targets = find_sparing(partial(_all_but, ask, candidates, allow_borrowing))
        if targets:
            return _cheaper(ask, candidates, targets, allow_borrowing) if cheapest else targets
    return []


def _cheaper(
    ask: PreemptionRequest, candidates: Candidates, targets: list[Target], allow_borrowing: bool
) -> list[Target]:
    """The same without each victim in turn, as long as that loses less.

    Taking the cheapest first is not always the cheapest set: two that are small may make room where a single larger
    one would do, or on one node where it would do on another. No class of victims is touched that was spared before.
    """
    if ask.rules.local_queue_usage is not None or len(candidates.ordered) > MAX_CANDIDATES:
        return targets
    if not any(any(target.victim.eviction_cost) for target in targets):
        return targets
    spared: frozenset[str] = frozenset()
    cost = candidates.eviction_cost(targets)
    again = True
    while again:
        again = False
        for target in sorted(targets, key=lambda one: one.victim.eviction_cost, reverse=True):
            if ask.placement_trial is not None:
                ask.placement_trial.reset_throttle()
            other = _attempt(ask, candidates, allow_borrowing, spared | {target.victim.key})
            if other and candidates.eviction_cost(other) < cost:
                targets, cost, again = other, candidates.eviction_cost(other), True
                spared |= {target.victim.key}
                break
    return targets


def _attempts(ask: PreemptionRequest, candidates: Candidates) -> tuple[bool, ...]:
    no_borrowing = ask.node.spec.preemption.borrow_within_cohort == "Never"
    if not candidates.any_from_other_queues or (no_borrowing and not _under_nominal(ask)):
        return (True,)
    if no_borrowing and not candidates.any_hierarchical:
        return (False, True)
    return (True, False)


def _under_nominal(ask: PreemptionRequest) -> bool:
    node = ask.node
    return all(node.quota(cell).nominal > node.usage.get(cell, 0) for cell in ask.needs_preemption)


def _attempt(
    ask: PreemptionRequest,
    candidates: Candidates,
    allow_borrowing: bool,
    spared: frozenset[str] = frozenset(),
) -> list[Target]:
    targets: list[Target] = []
    for running in candidates.ordered:
        if running.key in spared or not candidates.is_valid(running, allow_borrowing):
            continue
        reason = candidates.reason(running)
        if ask.breaks_budget(running, reason, targets):
            continue
        running.remove_from_tree()
        targets.append(Target(running, reason))
        if ask.fits(targets, allow_borrowing):
            return _done(ask, targets, allow_borrowing)
    if ask.fits_at_end(targets, allow_borrowing):
        return _done(ask, targets, allow_borrowing)
    restore(targets)
    return []


def _all_but(
    ask: PreemptionRequest, candidates: Candidates, allow_borrowing: bool, spared: frozenset[str]
) -> SparingAttempt:
    """Everybody who may go is taken off at once, and whoever isn't needed comes back."""
    targets: list[Target] = []
    passed_over = False
    for running in candidates.ordered:
        if running.key in spared or not candidates.is_eligible(running, allow_borrowing):
            continue
        reason = candidates.reason(running)
        if not candidates.is_valid(running, allow_borrowing) or ask.breaks_budget(running, reason, targets):
            passed_over = True
            continue
        running.remove_from_tree()
        targets.append(Target(running, reason))
    taken = tuple(target.victim.key for target in targets)
    if targets and ask.fits_unthrottled(targets, allow_borrowing):
        targets = fill_back(ask, targets, allow_borrowing, last_is_needed=False)
        restore(targets)
        return SparingAttempt(targets, taken, passed_over)
    restore(targets)
    return SparingAttempt([], taken, passed_over)


def _done(ask: PreemptionRequest, targets: list[Target], allow_borrowing: bool) -> list[Target]:
    targets = fill_back(ask, targets, allow_borrowing)
    restore(targets)
    return targets
