"""Victims by nominal quota and priority (Kueue's classical preemption, with hierarchical cohorts).

`planner` asks it when a workload fits only if others go. Candidates are taken off the quota tree in order until the
workload fits; then, in the reverse order, whoever isn't needed comes back. With and without borrowing are two
attempts, since without it more candidates are allowed.
"""

from __future__ import annotations

from functools import partial

from windlass.queueing.candidates import Candidates
from windlass.queueing.victims import (
    MOST_CANDIDATES,
    Ask,
    Target,
    Trial,
    fill_back,
    find_by_sparing,
    restore,
    with_budgets,
)


def find_victims(ask: Ask, *, cheapest: bool = True) -> list[Target]:
    """Empty where nobody may go or it wouldn't help. The quota tree is left as it was.

    Whoever only wants to know whether there are any doesn't have the cheapest looked for.
    """
    return with_budgets(ask, lambda: _find(ask, cheapest))


def _find(ask: Ask, cheapest: bool) -> list[Target]:
    candidates = Candidates(ask)
    if ask.overlay is not None and ask.overlay.is_hopeless(candidates.ordered):
        return []
    for allow_borrowing in _attempts(ask, candidates):
        targets = _attempt(ask, candidates, allow_borrowing)
        if targets:
            return _cheaper(ask, candidates, targets, allow_borrowing) if cheapest else targets
    if ask.overlay is None or len(candidates.ordered) > MOST_CANDIDATES:
        return []
    for allow_borrowing in _attempts(ask, candidates):
        targets = find_by_sparing(partial(_all_but, ask, candidates, allow_borrowing))
        if targets:
            return _cheaper(ask, candidates, targets, allow_borrowing) if cheapest else targets
    return []


def _cheaper(ask: Ask, candidates: Candidates, targets: list[Target], allow_borrowing: bool) -> list[Target]:
    """The same without each victim in turn, as long as that loses less.

    Taking the cheapest first is not always the cheapest set: two that are small may make room where a single larger
    one would do, or on one node where it would do on another. No class of victims is touched that was spared before.
    """
    if ask.rules.ledger is not None or len(candidates.ordered) > MOST_CANDIDATES:
        return targets
    if not any(any(target.running.loss) for target in targets):
        return targets
    spared: frozenset[str] = frozenset()
    cost = candidates.cost(targets)
    again = True
    while again:
        again = False
        for target in sorted(targets, key=lambda one: one.running.loss, reverse=True):
            if ask.overlay is not None:
                ask.overlay.start_over()
            other = _attempt(ask, candidates, allow_borrowing, spared | {target.running.key})
            if other and candidates.cost(other) < cost:
                targets, cost, again = other, candidates.cost(other), True
                spared |= {target.running.key}
                break
    return targets


def _attempts(ask: Ask, candidates: Candidates) -> tuple[bool, ...]:
    no_borrowing = ask.node.spec.preemption.borrow_within_cohort == "Never"
    if not candidates.any_of_others or (no_borrowing and not _under_nominal(ask)):
        return (True,)
    if no_borrowing and not candidates.any_by_position:
        return (False, True)
    return (True, False)


def _under_nominal(ask: Ask) -> bool:
    node = ask.node
    return all(node.quota(cell).nominal > node.usage.get(cell, 0) for cell in ask.contested)


def _attempt(
    ask: Ask, candidates: Candidates, allow_borrowing: bool, spared: frozenset[str] = frozenset()
) -> list[Target]:
    targets: list[Target] = []
    for running in candidates.ordered:
        if running.key in spared or not candidates.is_valid(running, allow_borrowing):
            continue
        reason = candidates.reason(running)
        if ask.breaks_budget(running, reason, targets):
            continue
        running.leave()
        targets.append(Target(running, reason))
        if ask.fits(targets, allow_borrowing):
            return _done(ask, targets, allow_borrowing)
    if ask.fits_after_all(targets, allow_borrowing):
        return _done(ask, targets, allow_borrowing)
    restore(targets)
    return []


def _all_but(ask: Ask, candidates: Candidates, allow_borrowing: bool, spared: frozenset[str]) -> Trial:
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
        running.leave()
        targets.append(Target(running, reason))
    taken = tuple(target.running.key for target in targets)
    if targets and ask.fits_at_once(targets, allow_borrowing):
        targets = fill_back(ask, targets, allow_borrowing, last_is_needed=False)
        restore(targets)
        return Trial(targets, taken, passed_over)
    restore(targets)
    return Trial([], taken, passed_over)


def _done(ask: Ask, targets: list[Target], allow_borrowing: bool) -> list[Target]:
    targets = fill_back(ask, targets, allow_borrowing)
    restore(targets)
    return targets
