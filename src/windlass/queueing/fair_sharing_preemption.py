"""Victims by share (Kueue's fair sharing preemption).

`nominator` calls it instead of `classical_preemption` where fair sharing is on. The queue that borrows the most (the
giver) loses a workload, again and again, as long as a strategy allows it: the preemptor's share must not end above the
giver's (LessThanOrEqualToFinalShare), or must stay below the share that the giver had (LessThanInitialShare, at most
once per queue). Shares are compared right below the lowest common cohort. A queue that stays within its own quota may
reclaim what others borrow, whatever the shares are.

Putting back a victim of the preemptor's own queue raises that queue's share. So it is done only where every remaining
eviction is still allowed by its strategy; otherwise the victim could evict in turn at once (kueue #14543).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from windlass.queueing.config import FINAL_SHARE, INITIAL_SHARE
from windlass.queueing.dominant_share import LOWEST_RANK, dominant_share
from windlass.queueing.outcome import IN_CLUSTER_QUEUE, IN_COHORT_FAIR_SHARING, IN_COHORT_RECLAMATION, PRIORITY
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
from windlass.queueing.victims_by_place import (
    TakenVictims,
    VictimCosts,
    by_usage,
    find_cheapest,
    is_cost_reducible,
    is_unqueued,
    remove_followers,
)

ShareRank = tuple[bool, int]


def find_victims(request: PreemptionRequest, *, cheapest: bool = True) -> list[Target]:
    """Empty where no candidate may be evicted or it wouldn't help. The quota tree is left as it was.

    `cheapest=False` skips the search for cheaper victims, for callers that only ask whether there are any.
    """
    return find_within_budgets(request, lambda: _find(request, cheapest))


def _find(request: PreemptionRequest, cheapest: bool) -> list[Target]:
    by_rules = sort_candidates(_candidates(request), request) + sort_candidates(list(request.unqueued), request)
    candidates = sort_candidates(request.leaving(), request) + by_rules
    trial = request.placement_trial
    if trial is not None and trial.is_hopeless(candidates):
        return []
    found = _run_search(request, candidates).targets
    if found and (not cheapest or not is_cost_reducible(request, found)):
        return found
    if found or trial is not None or len(candidates) <= MAX_CANDIDATES:
        costs = VictimCosts(candidates, partial(_class_of, request))
        found = find_cheapest(request, candidates, costs, partial(_take, request), found)
    if found or trial is None or len(candidates) > MAX_CANDIDATES:
        return found

    def attempt(spared: frozenset[str]) -> SparingAttempt:
        trial.reset_throttle()
        return _run_search(request, [running for running in candidates if running.key not in spared])

    return find_sparing(attempt)


def _class_of(request: PreemptionRequest, running: AdmittedWorkload) -> tuple[bool, int, int]:
    """The class to evict last is the highest: other queues before the own, and last what is in no queue."""
    number = 2 if is_unqueued(running) else int(running.node is request.node)
    return not running.is_evicting, number, running.priority


def _take(
    request: PreemptionRequest, chosen: Sequence[AdmittedWorkload], followers: Sequence[AdmittedWorkload]
) -> TakenVictims:
    """Removes exactly these, if shares allow all of the chosen ones."""
    search = _FairSearch(request)
    request.node.add_usage(request.usage)
    is_allowed = search.remove_all(by_usage(chosen, request))
    request.node.remove_usage(request.usage)
    targets = search.targets
    if is_allowed:
        targets += remove_followers(followers, targets)
    fits = is_allowed and bool(targets) and request.fits_unthrottled(targets, True)
    if fits and not followers:
        targets = fill_back(request, targets, True, search.stays_fair, last_is_needed=False)
    restore(targets)
    # What shares don't allow alone, they may allow beside more victims of the own queue.
    has_own = request.node.spec.preemption.within_cluster_queue != "Never"
    return TakenVictims(is_allowed or has_own, targets if fits else [])


def _run_search(request: PreemptionRequest, candidates: list[AdmittedWorkload]) -> SparingAttempt:
    if not candidates:
        return SparingAttempt([], (), skipped_any=False)
    search = _FairSearch(request)
    # Shares are compared as if the preemptor were admitted already.
    request.node.add_usage(request.usage)
    found = search.run(candidates)
    request.node.remove_usage(request.usage)
    targets = search.targets
    taken = tuple(target.victim.key for target in targets)
    if found:
        targets = fill_back(request, targets, True, search.stays_fair)
    restore(targets)
    return SparingAttempt(targets if found else [], taken, len(taken) < len(candidates))


def _candidates(request: PreemptionRequest) -> list[AdmittedWorkload]:
    node, policy = request.node, request.node.spec.preemption
    found = request.eviction_candidates(node, policy.within_cluster_queue)
    if node.parent is None or policy.reclaim_within_cohort == "Never":
        return found
    for queue in node.root.subtree_queues():
        if queue is not node and not queue.within_nominal(request.needs_preemption):
            found += request.eviction_candidates(queue, policy.reclaim_within_cohort)
    return found


class _FairSearch:
    """One search. The quota tree includes the preemptor's usage while it runs."""

    def __init__(self, request: PreemptionRequest) -> None:
        self.request = request
        self.targets: list[Target] = []
        self._allowed: dict[str, tuple[str, ShareRank]] = {}
        """Victim by share → the strategy that allowed it, and the giver's share before its eviction."""

    def run(self, candidates: list[AdmittedWorkload]) -> bool:
        strategies = self.request.context.config.preemption_strategies or (FINAL_SHARE, INITIAL_SHARE)
        if any(self._remove(running, IN_COHORT_RECLAMATION) for running in candidates if self._is_leaving(running)):
            return True
        candidates = [running for running in candidates if not self._is_leaving(running)]
        found, remaining = self._apply_first_strategy(candidates, strategies[0])
        if not found and len(strategies) > 1:
            found = self._apply_initial_share(remaining)
        return found or self._fits(at_end=True)

    def _is_leaving(self, running: AdmittedWorkload) -> bool:
        return self.request.waits_for(running)

    def _breaks_budget(self, running: AdmittedWorkload, reason: str) -> bool:
        return self.request.breaks_budget(running, reason, self.targets)

    def _remove(self, running: AdmittedWorkload, reason: str) -> bool:
        """Returns whether the preemptor fits now."""
        running.remove_from_tree()
        self.targets.append(Target(running, reason))
        return self._fits()

    def _fits(self, at_end: bool = False) -> bool:
        """Checked without the preemptor's own usage, which is on the tree only to compare shares."""
        request = self.request
        request.node.remove_usage(request.usage)
        fits = request.fits_at_end(self.targets, True) if at_end else request.fits(self.targets, True)
        request.node.add_usage(request.usage)
        return fits

    def remove_all(self, chosen: Sequence[AdmittedWorkload]) -> bool:
        """Whether a strategy allows all of them, one after another: the own queue's first, which lower its share."""
        request = self.request
        strategies = request.context.config.preemption_strategies or (FINAL_SHARE, INITIAL_SHARE)
        within_nominal = request.node.within_nominal(request.needs_preemption)
        by_initial_share: set[str] = set()
        for running in sorted(chosen, key=lambda running: running.node is not request.node):
            reason = self._reason(running, within_nominal)
            if self._breaks_budget(running, reason):
                return False
            is_of_others = reason in (IN_COHORT_RECLAMATION, IN_COHORT_FAIR_SHARING)
            if is_of_others and not self._is_leaving(running) and not self._is_giver(running.node):
                return False
            if reason == IN_COHORT_FAIR_SHARING:
                strategy = self._strategy_for(running, strategies)
                if not strategy or running.node.name in by_initial_share:
                    return False
                if strategy == INITIAL_SHARE and strategy != strategies[0]:
                    by_initial_share.add(running.node.name)
            running.remove_from_tree()
            self.targets.append(Target(running, reason))
        return True

    def _reason(self, running: AdmittedWorkload, within_nominal: bool) -> str:
        if is_unqueued(running):
            return PRIORITY
        if running.node is self.request.node:
            return IN_CLUSTER_QUEUE
        return IN_COHORT_RECLAMATION if within_nominal or self._is_leaving(running) else IN_COHORT_FAIR_SHARING

    def _is_giver(self, queue: QuotaNode) -> bool:
        """Whether the queue still borrows, and so does every cohort between it and the common one."""
        shared = set(map(id, self.request.node.ancestors()))
        below = [queue, *(above for above in queue.ancestors() if id(above) not in shared)]
        return all(dominant_share(node).is_borrowing for node in below)

    def _strategy_for(self, running: AdmittedWorkload, strategies: Sequence[str]) -> str:
        """The first strategy that allows this eviction now, which is noted; empty where none does."""
        preemptor, giver = _subtrees_below_common_cohort(self.request.node, running.node)
        rank, giver_rank = dominant_share(preemptor).rank, dominant_share(giver).rank
        for strategy in strategies:
            if self._strategy_allows(strategy, rank, giver_rank, running, giver):
                self._allowed[running.key] = (strategy, giver_rank)
                return strategy
        return ""

    def _apply_first_strategy(
        self, candidates: list[AdmittedWorkload], strategy: str
    ) -> tuple[bool, list[AdmittedWorkload]]:
        """Whether it fits now, and the candidates that the strategy spared."""
        request = self.request
        givers = _GiverQueues(request.node, candidates)
        spared: list[AdmittedWorkload] = []
        within_nominal = request.node.within_nominal(request.needs_preemption)
        for queue in givers:
            if queue is request.node or within_nominal:
                reason = IN_CLUSTER_QUEUE if queue is request.node else IN_COHORT_RECLAMATION
                running = givers.pop(queue)
                if not self._breaks_budget(running, reason) and self._remove(running, reason):
                    return True, spared
                continue
            preemptor, giver = _subtrees_below_common_cohort(request.node, queue)
            preemptor_rank, giver_rank = dominant_share(preemptor).rank, dominant_share(giver).rank
            while givers.has_any(queue):
                running = givers.pop(queue)
                if self._breaks_budget(running, IN_COHORT_FAIR_SHARING):
                    continue
                if not self._strategy_allows(strategy, preemptor_rank, giver_rank, running, giver):
                    spared.append(running)
                    continue
                self._allowed[running.key] = (strategy, giver_rank)
                if self._remove(running, IN_COHORT_FAIR_SHARING):
                    return True, spared
                break  # another queue may be the one that borrows most now
        return False, spared

    def _strategy_allows(
        self,
        strategy: str,
        rank: ShareRank,
        giver_rank: ShareRank,
        running: AdmittedWorkload,
        giver: QuotaNode,
    ) -> bool:
        """`rank` is the preemptor's."""
        if strategy == INITIAL_SHARE:
            return rank < giver_rank
        running.node.remove_usage(running.usage)
        final_rank = dominant_share(giver).rank
        running.node.add_usage(running.usage)
        return rank <= final_rank

    def _apply_initial_share(self, candidates: list[AdmittedWorkload]) -> bool:
        """The strategy doesn't depend on the victim, so only the first candidate of each queue is tried."""
        request = self.request
        givers = _GiverQueues(request.node, candidates)
        for queue in givers:
            preemptor, giver = _subtrees_below_common_cohort(request.node, queue)
            preemptor_rank, giver_rank = dominant_share(preemptor).rank, dominant_share(giver).rank
            running = givers.pop(queue)
            if preemptor_rank < giver_rank and not self._breaks_budget(running, IN_COHORT_FAIR_SHARING):
                self._allowed[running.key] = (INITIAL_SHARE, giver_rank)
                if self._remove(running, IN_COHORT_FAIR_SHARING):
                    return True
            # At most one victim of each queue by this strategy.
            givers.drop(queue)
        return False

    def stays_fair(self, targets: list[Target]) -> bool:
        """Whether every eviction by share would still be allowed on the current tree."""
        request = self.request
        request.node.add_usage(request.usage)
        by_share = [target for target in targets if target.reason == IN_COHORT_FAIR_SHARING]
        fair = all(self._is_allowed(target.victim) for target in by_share)
        request.node.remove_usage(request.usage)
        return fair

    def _is_allowed(self, running: AdmittedWorkload) -> bool:
        strategy, giver_rank = self._allowed[running.key]
        preemptor, giver = _subtrees_below_common_cohort(self.request.node, running.node)
        rank = dominant_share(preemptor).rank
        return rank < giver_rank if strategy == INITIAL_SHARE else rank <= dominant_share(giver).rank


def _subtrees_below_common_cohort(preemptor: QuotaNode, giver: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
    """The two nodes right below the lowest cohort that contains both queues."""
    path = [preemptor, *preemptor.ancestors()]
    below = giver
    for above in giver.ancestors():
        if above in path:
            return path[path.index(above) - 1], below
        below = above
    raise AssertionError(f"{preemptor.name} and {giver.name} have no cohort in common")


class _GiverQueues:
    """Queues in the order in which they lose workloads: from the root down, always the child with the largest share.

    Between two steps the caller pops a candidate or drops the queue. Nodes without candidates are marked as exhausted.
    """

    def __init__(self, preemptor: QuotaNode, candidates: list[AdmittedWorkload]) -> None:
        self._preemptor_queue = preemptor
        self._ancestors = set(map(id, preemptor.ancestors()))
        self._exhausted: set[int] = set()
        self._candidates: dict[str, list[AdmittedWorkload]] = {}
        # Reversed, so that `pop` takes the first candidate from the end of the list.
        for running in reversed(candidates):
            self._candidates.setdefault(running.node.name, []).append(running)

    def __iter__(self) -> Iterator[QuotaNode]:
        root = self._preemptor_queue.root
        if root is self._preemptor_queue:
            while id(root) not in self._exhausted and self.has_any(root):
                yield root
            return
        while id(root) not in self._exhausted:
            queue = self._next_below(root)
            if queue is not None:
                yield queue

    def has_any(self, queue: QuotaNode) -> bool:
        return bool(self._candidates.get(queue.name))

    def pop(self, queue: QuotaNode) -> AdmittedWorkload:
        return self._candidates[queue.name].pop()

    def drop(self, queue: QuotaNode) -> None:
        self._exhausted.add(id(queue))

    def _next_below(self, cohort: QuotaNode) -> QuotaNode | None:
        """None where this step has only marked nodes as exhausted."""
        queue, queue_rank = self._largest_queue(cohort)
        child, child_rank = self._largest_cohort(cohort)
        if queue is None and child is None:
            self._exhausted.add(id(cohort))
            return None
        if child is not None and child_rank >= queue_rank:
            return self._next_below(child)
        return queue

    def _largest_queue(self, cohort: QuotaNode) -> tuple[QuotaNode | None, ShareRank]:
        best: QuotaNode | None = None
        best_rank: ShareRank = LOWEST_RANK
        for queue in cohort.queues:
            if id(queue) in self._exhausted:
                continue
            share = dominant_share(queue)
            # Shares only fall during a search, so that a queue which does not borrow now never will.
            if not self.has_any(queue) or not (share.is_borrowing or queue is self._preemptor_queue):
                self._exhausted.add(id(queue))
            elif share.rank > best_rank or (
                best is not None and share.rank == best_rank and self._sorts_before(queue, best)
            ):
                best, best_rank = queue, share.rank
        return best, best_rank

    def _sorts_before(self, first_queue: QuotaNode, second_queue: QuotaNode) -> bool:
        first, second = self._candidates[first_queue.name][-1], self._candidates[second_queue.name][-1]
        queue = self._preemptor_queue
        return candidate_sort_key(first, queue) < candidate_sort_key(second, queue)

    def _largest_cohort(self, cohort: QuotaNode) -> tuple[QuotaNode | None, ShareRank]:
        best: QuotaNode | None = None
        best_rank: ShareRank = LOWEST_RANK
        for child in cohort.cohorts:
            if id(child) in self._exhausted:
                continue
            share = dominant_share(child)
            if not share.is_borrowing and id(child) not in self._ancestors:
                self._exhausted.add(id(child))
            elif share.rank >= best_rank:
                best, best_rank = child, share.rank
        return best, best_rank
