"""Victims by share (Kueue's fair sharing preemption).

`planner` asks it instead of `preemption` where fair sharing is on. The queue that borrows the most gives a workload,
again and again, as long as a rule allows it: the asking queue must not end above the giving one (rule A, final share)
or must stay below what the giving one had (rule B, initial share, at most once a queue). Shares are compared where
the two paths to the root part. A queue that stays within its own quota may take back what others borrow whatever the
shares are.

Putting back a workload of the asking queue raises that queue's share, so it is done only where each remaining exchange
still satisfies its rule; otherwise the evicted could evict in turn at once (kueue #14543).
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.queueing.config import FINAL_SHARE, INITIAL_SHARE
from windlass.queueing.dominant_share import LOWEST_RANK, dominant_share
from windlass.queueing.outcome import IN_CLUSTER_QUEUE, IN_COHORT_FAIR_SHARING, IN_COHORT_RECLAMATION
from windlass.queueing.preemption_common import (
    MAX_CANDIDATES,
    PreemptionRequest,
    SparingAttempt,
    Target,
    candidate_sort_key,
    fill_back,
    find_sparing,
    find_within_budgets,
    restore,
    sort_candidates,
)
from windlass.queueing.quota_node import AdmittedWorkload, QuotaNode

ShareRank = tuple[bool, int]


def find_victims(request: PreemptionRequest) -> list[Target]:
    """Empty where nobody may go or it wouldn't help. The quota tree is left as it was."""
    return find_within_budgets(request, lambda: _find(request))


def _find(ask: PreemptionRequest) -> list[Target]:
    candidates = sort_candidates(_candidates(ask), ask)
    if ask.placement_trial is not None and ask.placement_trial.is_hopeless(candidates):
        return []
    found = _search(ask, candidates).targets
    if found or ask.placement_trial is None or len(candidates) > MAX_CANDIDATES:
        return found

    def attempt(spared: frozenset[str]) -> SparingAttempt:
        if ask.placement_trial is not None:
            ask.placement_trial.reset_throttle()
        return _search(ask, [running for running in candidates if running.key not in spared])

    return find_sparing(attempt)


def _search(ask: PreemptionRequest, candidates: list[AdmittedWorkload]) -> SparingAttempt:
    if not candidates:
        return SparingAttempt([], (), skipped_any=False)
    search = _FairSearch(ask)
    ask.node.add_usage(ask.usage)
    found = search.run(candidates)
    ask.node.remove_usage(ask.usage)
    targets = search.targets
    taken = tuple(target.victim.key for target in targets)
    if found:
        targets = fill_back(ask, targets, True, search.stays_fair)
    restore(targets)
    return SparingAttempt(targets if found else [], taken, len(taken) < len(candidates))


def _candidates(ask: PreemptionRequest) -> list[AdmittedWorkload]:
    node, policy = ask.node, ask.node.spec.preemption
    found = ask.eviction_candidates(node, policy.within_cluster_queue)
    if node.parent is None or policy.reclaim_within_cohort == "Never":
        return found
    for queue in node.root.subtree_queues():
        if queue is not node and not queue.within_nominal(ask.needs_preemption):
            found += ask.eviction_candidates(queue, policy.reclaim_within_cohort)
    return found


class _FairSearch:
    """The tree holds the asking workload's usage while this runs."""

    def __init__(self, ask: PreemptionRequest) -> None:
        self.ask = ask
        self.targets: list[Target] = []
        self._allowed: dict[str, tuple[str, ShareRank]] = {}
        """Per victim by share: the rule, and what the asking side's share must not exceed (rule B)."""

    def run(self, candidates: list[AdmittedWorkload]) -> bool:
        strategies = self.ask.rules.config.preemption_strategies or (FINAL_SHARE, INITIAL_SHARE)
        found, again = self._first_rule(candidates, strategies[0])
        if not found and len(strategies) > 1:
            found = self._initial_share(again)
        return found or self._fits(at_end=True)

    def _is_kept(self, running: AdmittedWorkload, reason: str) -> bool:
        """A disruption budget keeps it."""
        return self.ask.breaks_budget(running, reason, self.targets)

    def _take(self, running: AdmittedWorkload, reason: str) -> bool:
        running.remove_from_tree()
        self.targets.append(Target(running, reason))
        return self._fits()

    def _fits(self, at_end: bool = False) -> bool:
        """Without the asking workload's own usage, which is on the tree only for the sake of the shares."""
        ask = self.ask
        ask.node.remove_usage(ask.usage)
        fits = ask.fits_at_end(self.targets, True) if at_end else ask.fits(self.targets, True)
        ask.node.add_usage(ask.usage)
        return fits

    def _first_rule(
        self, candidates: list[AdmittedWorkload], rule: str
    ) -> tuple[bool, list[AdmittedWorkload]]:
        """Whether it fits now, and whom the rule spared."""
        ask = self.ask
        givers = _Givers(ask.node, candidates)
        spared: list[AdmittedWorkload] = []
        within_nominal = ask.node.within_nominal(ask.needs_preemption)
        for queue in givers:
            if queue is ask.node or within_nominal:
                reason = IN_CLUSTER_QUEUE if queue is ask.node else IN_COHORT_RECLAMATION
                running = givers.pop(queue)
                if not self._is_kept(running, reason) and self._take(running, reason):
                    return True, spared
                continue
            asking, giving = _parting(ask.node, queue)
            asking_rank, giving_rank = dominant_share(asking).rank, dominant_share(giving).rank
            while givers.has_any(queue):
                running = givers.pop(queue)
                if self._is_kept(running, IN_COHORT_FAIR_SHARING):
                    continue
                if not self._rule_allows(rule, asking_rank, giving_rank, running, giving):
                    spared.append(running)
                    continue
                self._allowed[running.key] = (rule, giving_rank)
                if self._take(running, IN_COHORT_FAIR_SHARING):
                    return True, spared
                break  # another queue may be the one that borrows most now
        return False, spared

    def _rule_allows(
        self, rule: str, asking: ShareRank, giving: ShareRank, running: AdmittedWorkload, giver: QuotaNode
    ) -> bool:
        if rule == INITIAL_SHARE:
            return asking < giving
        running.node.remove_usage(running.usage)
        final = dominant_share(giver).rank
        running.node.add_usage(running.usage)
        return asking <= final

    def _initial_share(self, candidates: list[AdmittedWorkload]) -> bool:
        """The rule doesn't depend on the victim, so each queue gives its first candidate, once."""
        ask = self.ask
        givers = _Givers(ask.node, candidates)
        for queue in givers:
            asking, giving = _parting(ask.node, queue)
            asking_rank, giving_rank = dominant_share(asking).rank, dominant_share(giving).rank
            running = givers.pop(queue)
            if asking_rank < giving_rank and not self._is_kept(running, IN_COHORT_FAIR_SHARING):
                self._allowed[running.key] = (INITIAL_SHARE, giving_rank)
                if self._take(running, IN_COHORT_FAIR_SHARING):
                    return True
            givers.drop(queue)
        return False

    def stays_fair(self, targets: list[Target]) -> bool:
        """Whether every exchange by share would still be allowed as the tree is now."""
        ask = self.ask
        ask.node.add_usage(ask.usage)
        fair = all(
            self._is_allowed(target.victim) for target in targets if target.reason == IN_COHORT_FAIR_SHARING
        )
        ask.node.remove_usage(ask.usage)
        return fair

    def _is_allowed(self, running: AdmittedWorkload) -> bool:
        rule, giving_rank = self._allowed[running.key]
        asking, giving = _parting(self.ask.node, running.node)
        asking_rank = dominant_share(asking).rank
        return (
            asking_rank < giving_rank if rule == INITIAL_SHARE else asking_rank <= dominant_share(giving).rank
        )


def _parting(asking: QuotaNode, giving: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
    """The two nodes right below the lowest cohort that both queues are in."""
    path = [asking, *asking.ancestors()]
    below = giving
    for above in giving.ancestors():
        if above in path:
            return path[path.index(above) - 1], below
        below = above
    raise AssertionError(f"{asking.name} and {giving.name} have no cohort in common")


class _Givers:
    """The queues in the order in which they have to give: from the root down, always the child with the largest share.

    The caller takes a candidate or drops the queue between two steps; nodes that can't give any more are struck out.
    """

    def __init__(self, asking: QuotaNode, candidates: list[AdmittedWorkload]) -> None:
        self._asking = asking
        self._ancestors = set(map(id, asking.ancestors()))
        self._struck: set[int] = set()
        self._left: dict[str, list[AdmittedWorkload]] = {}
        for running in reversed(candidates):
            self._left.setdefault(running.node.name, []).append(running)

    def __iter__(self) -> Iterator[QuotaNode]:
        root = self._asking.root
        if root is self._asking:
            while id(root) not in self._struck and self.has_any(root):
                yield root
            return
        while id(root) not in self._struck:
            queue = self._next_below(root)
            if queue is not None:
                yield queue

    def has_any(self, queue: QuotaNode) -> bool:
        return bool(self._left.get(queue.name))

    def pop(self, queue: QuotaNode) -> AdmittedWorkload:
        return self._left[queue.name].pop()

    def drop(self, queue: QuotaNode) -> None:
        self._struck.add(id(queue))

    def _next_below(self, cohort: QuotaNode) -> QuotaNode | None:
        """None where this step has only struck out something."""
        queue, queue_rank = self._largest_queue(cohort)
        child, child_rank = self._largest_cohort(cohort)
        if queue is None and child is None:
            self._struck.add(id(cohort))
            return None
        if child is not None and child_rank >= queue_rank:
            return self._next_below(child)
        return queue

    def _largest_queue(self, cohort: QuotaNode) -> tuple[QuotaNode | None, ShareRank]:
        best: QuotaNode | None = None
        best_rank: ShareRank = LOWEST_RANK
        for queue in cohort.queues:
            if id(queue) in self._struck:
                continue
            share = dominant_share(queue)
            if not self.has_any(queue) or not (share.is_borrowing or queue is self._asking):
                self._struck.add(id(queue))
            elif share.rank > best_rank or (
                best is not None and share.rank == best_rank and self._before(queue, best)
            ):
                best, best_rank = queue, share.rank
        return best, best_rank

    def _before(self, one: QuotaNode, other: QuotaNode) -> bool:
        first, second = self._left[one.name][-1], self._left[other.name][-1]
        return candidate_sort_key(first, self._asking) < candidate_sort_key(second, self._asking)

    def _largest_cohort(self, cohort: QuotaNode) -> tuple[QuotaNode | None, ShareRank]:
        best: QuotaNode | None = None
        best_rank: ShareRank = LOWEST_RANK
        for child in cohort.cohorts:
            if id(child) in self._struck:
                continue
            share = dominant_share(child)
            if not share.is_borrowing and id(child) not in self._ancestors:
                self._struck.add(id(child))
            elif share.rank >= best_rank:
                best, best_rank = child, share.rank
        return best, best_rank
