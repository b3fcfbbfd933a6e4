"""What both ways of choosing victims share: the request, the order of candidates, and when enough were removed.

`classical_preemption` (by nominal quota and priority) and `fair_sharing_preemption` (by share) remove admitted
workloads from the quota tree until the preemptor fits, then put back those that it doesn't need. With a
`PlacementTrial`, fitting means that quota suffices *and* the pods fit on nodes: quota is checked first, being cheaper.

Order of candidates, as in Kueue: already evicting, other queues before the own, heavier users first (usage-based queues
only), lower priority first. Among equals: the least work lost, the fewest pods, the newest reservation, the UID.

Why evictions come to an end: a workload within its queue's own quota is evicted only for a higher priority, or for an
older workload of the same priority, in that very queue; such exchanges follow a strict order and can't form a cycle. A
borrowing workload can be evicted for other reasons, and shares, positions and priorities together can form a cycle
(kueue #7101, #14543). So a workload preempted `config.max_preemptions_while_borrowing` times may evict others only if
its queue stays within its own quota. To evict again it has to be pending again, hence preempted: each workload does it
at most that often, and for a fixed set of workloads the evictions left only decrease. The whole argument, with
preemption outside queues, is in docs/decisions/0011-evictions-and-rest.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from windlass.model.disruption import DisruptionTracker
from windlass.model.workload import Workload
from windlass.queueing.admitted_workload import may_be_evicted
from windlass.queueing.config import QueueConfig
from windlass.queueing.outcome import BUDGET_OVERRIDE_BY_REASON
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.placement_interface import PlacementInterface, PlacementResult, PodSetChoice
from windlass.queueing.quota_node import AdmittedWorkload, FlavorResource, QuotaNode, Usage
from windlass.queueing.usage_history import LocalQueueUsage
from windlass.queueing.victim_room import VictimRoom

CandidateSortKey = tuple[bool, bool, int, int, int, int, int, str]
MAX_CANDIDATES = 64
"""With more candidates there is no `find_sparing`."""
MAX_TRIALS = 64
_UNTHROTTLED_ATTEMPTS = 16
"""So many times placement is tried after every removal; from then on twice as many removals lie between two tries."""


class Target(NamedTuple):
    """A victim, and why it may be one."""

    victim: AdmittedWorkload
    reason: str
    least_lost: int = 0
    """Milli-GPU-seconds that any victims for the same preemptor lose together; 0: nothing is known."""


UnqueuedCandidates = Callable[[Workload], list[AdmittedWorkload]]
"""What is in no queue and may be evicted for a workload by priority; on a node outside of the quota tree."""


class PreemptionContext(NamedTuple):
    """What every victim search of one decision has in common."""

    config: QueueConfig
    now: int
    local_queue_usage: LocalQueueUsage | None = None
    disruptions: DisruptionTracker | None = None
    """Of the budgets that cover admitted workloads; None where there are none."""
    unqueued_candidates: UnqueuedCandidates | None = None
    """None: what is in no queue is not evicted."""
    evict_nothing: Collection[str] = ()
    """Workloads that may not preempt in this decision."""


class PlacementTrial:
    """Whether the preemptor's pods fit on nodes, tried on the overlay without the victims chosen so far."""

    def __init__(
        self,
        placement: PlacementInterface,
        pending: PendingWorkload,
        choices: tuple[PodSetChoice, ...],
        failure: PlacementResult | None = None,
    ) -> None:
        """`failure`: why it doesn't fit with no victim removed, where that was tried."""
        self._placement = placement
        self._pending = pending
        self._choices = choices
        self._checkpoint = placement.checkpoint()
        self._removed: dict[AdmittedWorkload, None] = {}
        self._attempts_to_skip = 0
        self._attempts = 0
        self.has_untried_removals = False
        """Placement was not tried after the last removals."""
        self.last_removal_is_needed = True
        """Placement was tried before the last removal, too, and failed: not so where throttling skipped that try."""
        self.placed_nodes: frozenset[str] = frozenset()
        """Nodes of the last successful placement."""
        self.failure: PlacementResult | None = failure
        self._failure_is_known = failure is not None

    def is_hopeless(self, candidates: Iterable[AdmittedWorkload]) -> bool:
        """Whether free amounts alone rule out that the pods fit with all candidates removed."""
        removed = (running.workload for running in candidates)
        if self._placement.could_place(self._pending.workload, self._choices, removed):
            return False
        # Only for the message: why it does not fit with nothing removed.
        if self.failure is None:
            self.fits([])
        return True

    def reset_throttle(self) -> None:
        """At the start of a new search."""
        self._attempts_to_skip = self._attempts = 0

    def fits_throttled(self, targets: Sequence[Target]) -> bool:
        """As `fits`, but after many failed attempts most calls return False without trying."""
        if self._attempts_to_skip:
            self._attempts_to_skip -= 1
            self.has_untried_removals = True
            return False
        self.last_removal_is_needed = not self.has_untried_removals
        self._attempts += 1
        if self._attempts > _UNTHROTTLED_ATTEMPTS:
            self._attempts_to_skip = 1 << min(20, self._attempts - _UNTHROTTLED_ATTEMPTS)
        return self.fits([target.victim for target in targets])

    def fits(self, removed: Sequence[AdmittedWorkload]) -> bool:
        self.has_untried_removals = False
        self._remove_exactly(removed)
        before = self._placement.checkpoint()
        result = self._placement.place(self._pending.workload, self._choices)
        self._placement.rollback(before)
        if result.ok:
            self.placed_nodes = frozenset(name for part in result.nodes for name in part)
        # A failure without any removal says more about the hold than one in the middle of a search.
        elif not self._failure_is_known:
            self.failure = result
        return result.ok

    def still_fits(self, removed: Sequence[AdmittedWorkload]) -> bool:
        """As `fits`, for callers that need no failure message: the quick check on free amounts comes first."""
        self._remove_exactly(removed)
        return self._placement.could_place(self._pending.workload, self._choices, ()) and self.fits(removed)

    def room(self, units: Sequence[Sequence[AdmittedWorkload]]) -> VictimRoom | None:
        """How much room the removal of each unit makes."""
        self._remove_exactly(())
        removed = [[running.workload for running in unit] for unit in units]
        return self._placement.room(self._pending.workload, self._choices, removed)

    def _remove_exactly(self, removed: Sequence[AdmittedWorkload]) -> None:
        """Removes exactly these from the overlay; only the difference to the last call is applied."""
        wanted = dict.fromkeys(removed)
        for running in [known for known in self._removed if known not in wanted]:
            self._placement.restore(running.workload)
            del self._removed[running]
        for running in removed:
            if running not in self._removed:
                self._placement.remove(running.workload)
                self._removed[running] = None

    def close(self) -> None:
        self._placement.rollback(self._checkpoint)


class PreemptionRequest:
    """The preemptor: a pending workload, the usage that it needs, and the cells that preemption has to free."""

    __slots__ = (
        "context",
        "least_lost",
        "may_borrow",
        "met_yielding_budget",
        "needs_preemption",
        "node",
        "overrides_budgets",
        "pending",
        "placement_trial",
        "unqueued",
        "usage",
    )

    def __init__(
        self,
        pending: PendingWorkload,
        usage: Usage,
        needs_preemption: frozenset[FlavorResource],
        context: PreemptionContext,
        trial: PlacementTrial | None = None,
        unqueued: Sequence[AdmittedWorkload] = (),
    ) -> None:
        """`unqueued`: candidates in no queue, which free nodes but no quota."""
        self.pending = pending
        self.unqueued = unqueued
        self.node: QuotaNode = pending.node
        self.usage = usage
        self.needs_preemption = needs_preemption
        self.context = context
        self.placement_trial = trial
        self.may_borrow = pending.workload.evictions < context.config.max_preemptions_while_borrowing
        self.least_lost: int | None = None
        """Milli-GPU-seconds that victims lose at least, of whatever the searches so far have found out."""
        self.overrides_budgets = False
        """Second search: disruption budgets yield to the preemptions of `config.budgets_yield_to`."""
        self.met_yielding_budget = False
        """The first search left a candidate out for a budget that may yield."""

    def breaks_budget(self, running: AdmittedWorkload, reason: str, targets: Sequence[Target]) -> bool:
        """Whether a disruption budget forbids this eviction on top of those of `targets`."""
        disruptions = self.context.disruptions
        # Neither is disrupted: one is terminating anyway, the other has not started.
        if disruptions is None or running.is_evicting or running.is_assumed:
            return False
        may_yield = BUDGET_OVERRIDE_BY_REASON[reason] in self.context.config.budgets_yield_to
        if self.overrides_budgets and may_yield:
            return False
        covered = disruptions.count_by_budget(running.workload)
        if not covered:
            return False
        others = [target.victim.workload for target in targets if not target.victim.is_evicting]
        # Counted together, since members above a minimum count with it.
        together = disruptions.count_by_budget(*others, running.workload)
        is_broken = not disruptions.allow({budget: together[budget] for budget in covered}, {})
        self.met_yielding_budget |= is_broken and may_yield
        return is_broken

    @property
    def would_borrow(self) -> bool:
        """Whether its queue would exceed its own quota if nothing were evicted; if not, borrowing makes no difference:
        all candidates of other queues are there by position."""
        return any(self.node.borrows_with(cell, amount) for cell, amount in self.usage.items())

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
        """As `fits`, however many attempts have failed."""
        trial = self.placement_trial
        if not self.quota_fits(allow_borrowing):
            return False
        return trial is None or trial.fits([target.victim for target in targets])

    def fits_at_end(self, targets: Sequence[Target], allow_borrowing: bool) -> bool:
        """After the last candidate: tries placement once more if throttling skipped the last removals."""
        trial = self.placement_trial
        if trial is None or not trial.has_untried_removals or not self.quota_fits(allow_borrowing):
            return False
        trial.last_removal_is_needed = False
        return trial.fits([target.victim for target in targets])

    def leaving(self) -> list[AdmittedWorkload]:
        """What a workload waits for that others were evicted for: whatever frees its quota, since that is going anyway.

        By the rules alone, an owner could take what went for a borrower, which could not wait for what went for the
        owner.
        """
        if not self.pending.workload.nominated:
            return []
        root = self.node.root
        queues = (root,) if root is self.node else root.subtree_queues()
        return [running for queue in queues for running in queue.admitted.values() if self.waits_for(running)]

    def waits_for(self, running: AdmittedWorkload) -> bool:
        return (
            self.pending.workload.nominated
            and running.is_evicting
            and not running.workload.is_stuck(self.context.now)
            and not self.needs_preemption.isdisjoint(running.usage)
        )

    def eviction_candidates(self, queue: QuotaNode, policy: str) -> list[AdmittedWorkload]:
        """Workloads of a queue that may be evicted, less those of `leaving`. The priority is checked first, since it
        excludes most of them."""
        members: Iterable[AdmittedWorkload] = queue.admitted.values()
        if policy == "Never" or self.pending.workload.preemption_policy == "Never":
            return []
        if policy != "Any":
            # Other policies also take equal priorities, which `may_evict` then compares by age.
            highest = self.pending.priority - (policy == "LowerPriority")
            members = [running for running in members if running.priority <= highest]
        return [running for running in members if self.may_evict(running, policy) and not self.waits_for(running)]

    def may_evict(self, running: AdmittedWorkload, policy: str) -> bool:
        """By the queue's policy and by what the candidate itself allows."""
        if policy == "Never" or self.pending.workload.preemption_policy == "Never":
            return False
        if self.needs_preemption.isdisjoint(running.usage):
            return False
        if not may_be_evicted(running, self.node, self.context.config, self.context.now):
            return False
        if policy == "Any" or running.priority < self.pending.priority:
            return True
        return (
            policy == "LowerOrNewerEqualPriority"
            and running.priority == self.pending.priority
            # Strictly older: two of the same age would evict each other in turn.
            and self.pending.queued_at < running.queued_at
        )


def candidate_sort_key(running: AdmittedWorkload, preemptor_queue: QuotaNode) -> CandidateSortKey:
    """Lower keys are evicted first."""
    workload, costs = running.workload, running.eviction_costs
    gpu_seconds, share_seconds = costs.of(running) if costs is not None else (0, 0)
    return (
        not workload.evicting,
        running.node is preemptor_queue,
        running.priority,
        gpu_seconds,
        share_seconds,
        running.pod_count,
        -running.reserved_at,
        workload.uid or running.key,
    )


def sort_candidates(candidates: list[AdmittedWorkload], request: PreemptionRequest) -> list[AdmittedWorkload]:
    candidates.sort(key=lambda running: candidate_sort_key(running, request.node))
    history = request.context.local_queue_usage
    return candidates if history is None else _heavier_users_first(candidates, request.node, history)


def _heavier_users_first(
    candidates: list[AdmittedWorkload], queue: QuotaNode, history: LocalQueueUsage
) -> list[AdmittedWorkload]:
    """Sorts the candidates of each usage-based queue by usage, within the positions that they hold together."""
    indices_by_queue: dict[tuple[str, bool], list[int]] = {}
    for index, running in enumerate(candidates):
        if running.node.spec.usage_based:
            # Not across this line: those that are terminating anyway stay in front.
            indices_by_queue.setdefault((running.node.name, running.is_evicting), []).append(index)
    ordered = list(candidates)
    for indices in indices_by_queue.values():
        members = [candidates[index] for index in indices]
        members.sort(key=lambda running: (-history.usage(running.local_queue), candidate_sort_key(running, queue)))
        for index, running in zip(indices, members, strict=True):
            ordered[index] = running
    return ordered


def find_within_budgets(request: PreemptionRequest, find: Callable[[], list[Target]]) -> list[Target]:
    """Victims that break no disruption budget; else, where the configuration allows it, victims that do."""
    found = find()
    if not found and request.met_yielding_budget:
        request.overrides_budgets = True
        found = find()
    return [target._replace(least_lost=request.least_lost or 0) for target in found]


class SparingAttempt(NamedTuple):
    """The result of one search in which some candidates were spared."""

    targets: list[Target]
    """Empty where the preemptor doesn't fit."""
    taken: tuple[str, ...]
    skipped_any: bool
    """A candidate could not be evicted any more, because of the removals before it."""


def find_sparing(attempt: Callable[[frozenset[str]], SparingAttempt]) -> list[Target]:
    """Victims of the first successful attempt, with as few candidates spared as possible (breadth first).

    Removing candidates in order can fail although a solution exists: once a queue is back within its quota, or a
    budget is used up, the workload on the needed nodes can't be evicted any more. So removed ones are spared in turn.
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
    """Puts back victims that aren't needed, the last removed first; `last_is_needed`: it fitted only after that one."""
    if request.placement_trial is not None and not request.placement_trial.last_removal_is_needed:
        last_is_needed = False
    for index in range(len(targets) - (2 if last_is_needed else 1), -1, -1):
        running = targets[index].victim
        running.add_to_tree()
        if request.quota_fits(allow_borrowing):
            rest = targets[:index] + targets[index + 1 :]
            if _still_fits_nodes(request, running, rest) and stays_fair(rest):
                targets = rest
                continue
        running.remove_from_tree()
    return targets


def _still_fits_nodes(request: PreemptionRequest, restored: AdmittedWorkload, rest: list[Target]) -> bool:
    trial = request.placement_trial
    # A victim on none of the chosen nodes is not needed for the placement that was found.
    if trial is None or trial.placed_nodes.isdisjoint(restored.nodes):
        return True
    return trial.still_fits([target.victim for target in rest])


def restore(targets: Sequence[Target]) -> None:
    for target in targets:
        target.victim.add_to_tree()
