"""What both ways of choosing victims share: who asks, in which order candidates come, and when it is enough.

`preemption` (by nominal quota and priority) and `fair_preemption` (by share) take running workloads off the quota
tree until the asking one fits, then put back whom it doesn't need. Where an `Overlay` is given, fitting means that
quota suffices *and* the pods find room: quota is looked at first, since placement is dearer.

Order of candidates: already on their way out, other queues before the own, heavier users first (usage-based queues
only), lower priority first; this is Kueue's rule. Within such a class the one that loses the least work, then the
fewest pods, then the newest reservation, then the UID.

Why evictions come to an end: who runs within its queue's own quota goes only for a higher priority, or an older
workload of the same, in that very queue, so such exchanges climb an order and can't go round. Who borrows may be
evicted for other reasons, and with shares, positions and priorities at once those can form a circle (kueue #7101,
#14543). So a workload that was preempted `config.patience` times may evict others only if its queue stays within its
own quota. To evict again it has to wait again, that is, to have been preempted: so each workload does it at most
`patience` times, and for a fixed set of workloads the rights that are left only decrease. The whole argument, with
preemption outside queues, is in docs/decisions/0011-evictions-and-rest.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from windlass.model.disruption import DisruptionTracker
from windlass.queueing.admitted_workload import may_be_evicted, uses_any
from windlass.queueing.config import QueueConfig
from windlass.queueing.outcome import BUDGET_OVERRIDE_BY_REASON
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.placement_interface import PlacementInterface, PlacementResult, PodSetChoice
from windlass.queueing.quota_node import AdmittedWorkload, FlavorResource, QuotaNode, Usage
from windlass.queueing.usage_history import LocalQueueUsage

CandidateSortKey = tuple[bool, bool, int, int, int, int, int, str]
MAX_CANDIDATES = 64
"""With more of them, the first set that is found stands, and nobody is spared for the sake of others."""
MAX_TRIALS = 64
_PATIENCE = 16
"""So many times a placement is tried after every single removal; then ever more removals lie between two tries."""


class Target(NamedTuple):
    """A victim, and why it may be one."""

    victim: AdmittedWorkload
    reason: str


class PreemptionContext(NamedTuple):
    """What holds for every search of one decision."""

    config: QueueConfig
    now: int
    local_queue_usage: LocalQueueUsage | None = None
    disruptions: DisruptionTracker | None = None
    """Of the budgets that cover what runs; None where there are none."""


class PlacementTrial:
    """The placement half of fitting: the asking workload's pods on the site, with the victims so far taken off."""

    def __init__(
        self,
        placement: PlacementInterface,
        pending: PendingWorkload,
        choices: tuple[PodSetChoice, ...],
        failure: PlacementResult | None = None,
    ) -> None:
        """`failure`: why it has no room with nobody taken off, where that was tried."""
        self._site = placement
        self._pending = pending
        self._choices = choices
        self._base = placement.checkpoint()
        self._removed: dict[AdmittedWorkload, None] = {}
        self._skips = 0
        self._attempts = 0
        self.has_untried_removals = False
        """The last removals were not followed by a try."""
        self.placed_nodes: frozenset[str] = frozenset()
        """Where the last placement that succeeded went."""
        self.failure: PlacementResult | None = failure
        self._was_refused = failure is not None

    def is_hopeless(self, candidates: Iterable[AdmittedWorkload]) -> bool:
        """Whether sums alone say that the pods would have no room with all of these gone."""
        gone = (running.workload for running in candidates)
        if self._site.could_place(self._pending.workload, self._choices, gone):
            return False
        if self.failure is None:
            self.fits([])
        return True

    def reset_throttle(self) -> None:
        """A new search begins: its first tries are not skipped."""
        self._skips = self._attempts = 0

    def fits_throttled(self, targets: Sequence[Target]) -> bool:
        """Tries only now and then once many tries have failed."""
        if self._skips:
            self._skips -= 1
            self.has_untried_removals = True
            return False
        self._attempts += 1
        if self._attempts > _PATIENCE:
            self._skips = 1 << min(20, self._attempts - _PATIENCE)
        return self.fits([target.victim for target in targets])

    def fits(self, removed: Sequence[AdmittedWorkload]) -> bool:
        self.has_untried_removals = False
        self._take_off(removed)
        before = self._site.checkpoint()
        result = self._site.place(self._pending.workload, self._choices)
        self._site.rollback(before)
        if result.ok:
            self.placed_nodes = frozenset(name for part in result.nodes for name in part)
        elif not self._was_refused:
            self.failure = result
        return result.ok

    def still_fits(self, removed: Sequence[AdmittedWorkload]) -> bool:
        """As `fits`, where nobody will ask why not: sums come before the search."""
        self._take_off(removed)
        return self._site.could_place(self._pending.workload, self._choices, ()) and self.fits(removed)

    def _take_off(self, removed: Sequence[AdmittedWorkload]) -> None:
        """Exactly these; only those who differ from the last time are moved."""
        wanted = dict.fromkeys(removed)
        for running in [one for one in self._removed if one not in wanted]:
            self._site.restore(running.workload)
            del self._removed[running]
        for running in removed:
            if running not in self._removed:
                self._site.remove(running.workload)
                self._removed[running] = None

    def close(self) -> None:
        self._site.rollback(self._base)


class PreemptionRequest:
    """One workload in need of room: how much of what, and which cells are short."""

    __slots__ = (
        "may_borrow",
        "needs_preemption",
        "node",
        "overrides_budgets",
        "pending",
        "placement_trial",
        "rules",
        "usage",
    )

    def __init__(
        self,
        pending: PendingWorkload,
        usage: Usage,
        contested: frozenset[FlavorResource],
        rules: PreemptionContext,
        overlay: PlacementTrial | None = None,
    ) -> None:
        self.pending = pending
        self.node: QuotaNode = pending.node
        self.usage = usage
        self.needs_preemption = contested
        self.rules = rules
        self.placement_trial = overlay
        self.may_borrow = pending.workload.evictions < rules.config.max_preemptions_while_borrowing
        self.overrides_budgets = False
        """Nothing else has helped: budgets yield where the policy lets them."""

    @property
    def may_override_budgets(self) -> bool:
        return self.rules.disruptions is not None and bool(self.rules.config.budgets_yield_to)

    def breaks_budget(self, running: AdmittedWorkload, reason: str, targets: Sequence[Target]) -> bool:
        """Whether a disruption budget forbids that it goes, together with those who are to go already."""
        disruptions = self.rules.disruptions
        if disruptions is None or running.is_evicting or running.is_assumed:
            return False
        if self.overrides_budgets and BUDGET_OVERRIDE_BY_REASON[reason] in self.rules.config.budgets_yield_to:
            return False
        covered = disruptions.count_by_budget(running.workload)
        if not covered:
            return False
        besides = [target.victim for target in targets if not target.victim.is_evicting]
        return not disruptions.allow(covered, disruptions.count_by_budget(*(one.workload for one in besides)))

    def quota_fits(self, allow_borrowing: bool) -> bool:
        node = self.node
        allow_borrowing = allow_borrowing and self.may_borrow
        for cell, amount in self.usage.items():
            if not allow_borrowing and node.borrows_with(cell, amount):
                return False
            if amount > node.available(cell):
                return False
        return True

    def fits(self, targets: Sequence[Target], allow_borrowing: bool) -> bool:
        if not self.quota_fits(allow_borrowing):
            return False
        return self.placement_trial is None or self.placement_trial.fits_throttled(targets)

    def fits_unthrottled(self, targets: Sequence[Target], allow_borrowing: bool) -> bool:
        """As `fits`, without regard to how many tries have failed."""
        if not self.quota_fits(allow_borrowing):
            return False
        return self.placement_trial is None or self.placement_trial.fits(
            [target.victim for target in targets]
        )

    def fits_at_end(self, targets: Sequence[Target], allow_borrowing: bool) -> bool:
        """At the end of the candidates, where the last removals were not followed by a try."""
        overlay = self.placement_trial
        if overlay is None or not overlay.has_untried_removals or not self.quota_fits(allow_borrowing):
            return False
        return overlay.fits([target.victim for target in targets])

    def eviction_candidates(self, queue: QuotaNode, policy: str) -> list[AdmittedWorkload]:
        """Whom of a queue it may evict. Most of those that run are told apart by priority alone."""
        members: Iterable[AdmittedWorkload] = queue.admitted.values()
        if policy == "Never":
            return []
        if policy != "Any":
            highest = self.pending.priority - (policy == "LowerPriority")
            members = [running for running in members if running.priority <= highest]
        return [running for running in members if self.may_evict(running, policy)]

    def may_evict(self, running: AdmittedWorkload, policy: str) -> bool:
        """By the queue's policy and by what the candidate itself allows."""
        if policy == "Never" or self.pending.workload.preemption_policy == "Never":
            return False
        if not uses_any(running, self.needs_preemption):
            return False
        if not may_be_evicted(running, self.rules.config, self.rules.now):
            return False
        if policy == "Any" or running.priority < self.pending.priority:
            return True
        return (
            policy == "LowerOrNewerEqualPriority"
            and running.priority == self.pending.priority
            and self.pending.queued_at < running.queued_at
        )


def candidate_sort_key(running: AdmittedWorkload, asking: QuotaNode) -> CandidateSortKey:
    """Candidates in ascending order go first."""
    return (
        not running.is_evicting,
        running.node is asking,
        running.priority,
        *running.eviction_cost,
        running.pod_count,
        -running.reserved_at,
        running.uid,
    )


def sort_candidates(candidates: list[AdmittedWorkload], request: PreemptionRequest) -> list[AdmittedWorkload]:
    candidates.sort(key=lambda running: candidate_sort_key(running, request.node))
    ledger = request.rules.local_queue_usage
    return candidates if ledger is None else _heavier_users_first(candidates, request.node, ledger)


def _heavier_users_first(
    candidates: list[AdmittedWorkload], asking: QuotaNode, ledger: LocalQueueUsage
) -> list[AdmittedWorkload]:
    """Candidates of one usage-based queue change places among themselves."""
    places: dict[tuple[str, bool], list[int]] = {}
    for place, running in enumerate(candidates):
        if running.node.spec.usage_based:
            places.setdefault((running.node.name, running.is_evicting), []).append(place)
    ordered = list(candidates)
    for own in places.values():
        members = [candidates[place] for place in own]
        members.sort(
            key=lambda running: (-ledger.usage(running.local_queue), candidate_sort_key(running, asking))
        )
        for place, running in zip(own, members, strict=True):
            ordered[place] = running
    return ordered


def find_within_budgets(request: PreemptionRequest, find: Callable[[], list[Target]]) -> list[Target]:
    """What is found with every disruption budget honoured; where the policy says so, else with none."""
    found = find()
    if not found and request.may_override_budgets:
        request.overrides_budgets = True
        found = find()
    return found


class SparingAttempt(NamedTuple):
    """What came of taking off everybody who may go, but for some who were spared."""

    targets: list[Target]
    """Empty where it doesn't fit even so."""
    taken: tuple[str, ...]
    skipped_any: bool
    """Somebody could no longer go, since others had gone before."""


def find_sparing(attempt: Callable[[frozenset[str]], SparingAttempt]) -> list[Target]:
    """The first set that fits, with the fewest spared.

    Taking candidates in their order can end in nothing though there is a way: once a queue has given what it borrows,
    or a budget is used up, the one who really stands in the way may no longer go. So those who went are spared in turn.
    """
    waiting = deque([frozenset[str]()])
    seen = set(waiting)
    for _ in range(MAX_TRIALS):
        if not waiting:
            break
        spared = waiting.popleft()
        trial = attempt(spared)
        if trial.targets:
            return trial.targets
        for key in trial.taken if trial.skipped_any else ():
            more = spared | {key}
            if more not in seen:
                seen.add(more)
                waiting.append(more)
    return []


def fill_back(
    request: PreemptionRequest,
    targets: list[Target],
    allow_borrowing: bool,
    stays_fair: Callable[[list[Target]], bool] = lambda targets: True,
    *,
    last_is_needed: bool = True,
) -> list[Target]:
    """Puts back, last removed first, whoever isn't needed; the last one is, where it made it fit."""
    for index in range(len(targets) - (2 if last_is_needed else 1), -1, -1):
        running = targets[index].victim
        running.add_to_tree()
        if request.quota_fits(allow_borrowing):
            rest = targets[:index] + targets[index + 1 :]
            if _still_placed(request, running, rest) and stays_fair(rest):
                targets = rest
                continue
        running.remove_from_tree()
    return targets


def _still_placed(ask: PreemptionRequest, back: AdmittedWorkload, rest: list[Target]) -> bool:
    """Who isn't where the pods go can't be in their way."""
    overlay = ask.placement_trial
    if overlay is None or overlay.placed_nodes.isdisjoint(back.nodes):
        return True
    return overlay.still_fits([target.victim for target in rest])


def restore(targets: Sequence[Target]) -> None:
    for target in targets:
        target.victim.add_to_tree()
