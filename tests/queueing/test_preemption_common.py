"""What both searches for victims share: trials on nodes, the order of candidates, budgets, and what is put back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.queueing.builders import NOW, cell, queue, running, system, waiting

from windlass.model.disruption import BudgetMeta, Budgets, BudgetSpec, DisruptionTracker, PodDisruptionBudget
from windlass.model.meta import LabelSelector, ObjectMeta
from windlass.model.pod import Pod, PodSpec
from windlass.model.queue import LocalQueue
from windlass.model.workload import Workload
from windlass.queueing.config import QueueConfig, UsageHistoryConfig
from windlass.queueing.outcome import IN_CLUSTER_QUEUE, IN_COHORT_RECLAMATION
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.placement_interface import PlacementResult, PodSetChoice, UnlimitedPlacement
from windlass.queueing.preemption_common import (
    PlacementTrial,
    PreemptionContext,
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
from windlass.queueing.quota_tree import QuotaTree
from windlass.queueing.usage_history import LocalQueueUsage

CPU = ("default", "cpu")
CONTEXT = PreemptionContext(QueueConfig(), NOW)


class Sets(UnlimitedPlacement):
    """Fits where all of one of these sets of workloads are removed; writes down what it is asked."""

    def __init__(self, *enough: Iterable[str], nodes: Sequence[str] = ()) -> None:
        self.enough = [set(names) for names in enough]
        self.nodes = tuple(nodes)
        self.removed: set[str] = set()
        self.tries: list[set[str]] = []
        self.log: list[str] = []
        self.possible = True

    def remove(self, workload: Workload) -> None:
        assert workload.name not in self.removed
        self.removed.add(workload.name)
        self.log.append(f"-{workload.name}")

    def restore(self, workload: Workload) -> None:
        self.removed.remove(workload.name)
        self.log.append(f"+{workload.name}")

    def rollback(self, checkpoint: int) -> None:
        self.log.append("rollback")

    def place(self, workload: Workload, choices: tuple[PodSetChoice, ...]) -> PlacementResult:
        self.tries.append(set(self.removed))
        if any(names <= self.removed for names in self.enough):
            return PlacementResult(True, (dict.fromkeys(self.nodes, 1),))
        return PlacementResult(False, message=f"no room without {sorted(self.removed)}")

    def could_place(self, workload: Workload, choices: tuple[PodSetChoice, ...], without: Iterable[Workload]) -> bool:
        return self.possible


class Scene:
    """One queue of so many CPUs, with admitted workloads of one CPU each."""

    def __init__(self, names: str, nominal: int = 0, **asks: object) -> None:
        spec = queue("q", cell(nominal or len(names)), cohort="c")
        self.tree = QuotaTree(system([spec, queue("lender", cell(2), cohort="c")]))
        self.node = self.tree.queues["q"]
        self.all = {name: self.admit(running(name, "q", 1)) for name in names}
        self.pending = PendingWorkload(waiting("w", "q", 1, **asks), self.node, UnlimitedPlacement())  # type: ignore[arg-type]

    def admit(self, workload: Workload, node: QuotaNode | None = None) -> AdmittedWorkload:
        made = AdmittedWorkload(workload, node or self.node, {CPU: 1000}, NOW - 100)
        made.add_to_tree()
        return made

    def targets(self, names: Iterable[str], *, off: bool = True) -> list[Target]:
        found = [Target(self.all[name], IN_CLUSTER_QUEUE) for name in names]
        for target in found:
            if off:
                target.victim.remove_from_tree()
        return found

    def request(
        self, cpus: int = 1, trial: PlacementTrial | None = None, context: PreemptionContext = CONTEXT
    ) -> PreemptionRequest:
        return PreemptionRequest(self.pending, {CPU: cpus * 1000}, frozenset([CPU]), context, trial)

    def trial(self, room: Sets, failure: PlacementResult | None = None) -> PlacementTrial:
        return PlacementTrial(room, self.pending, (), failure)


def names(targets: Iterable[Target]) -> str:
    return "".join(target.victim.workload.name for target in targets)


def test_a_trial_removes_and_puts_back_only_what_differs_from_the_last() -> None:
    scene, room = Scene("abc"), Sets("bc", nodes=["n", "m"])
    trial = scene.trial(room)
    a, b, c = (scene.all[name] for name in "abc")
    assert not trial.fits([a, b])
    assert trial.placed_nodes == frozenset()
    assert trial.fits([b, c])
    assert trial.placed_nodes == {"n", "m"}
    assert [entry for entry in room.log if entry != "rollback"] == ["-a", "-b", "+a", "-c"]
    assert room.tries == [{"a", "b"}, {"b", "c"}]
    assert room.log.count("rollback") == 2, "pods are never left where they were tried"
    trial.close()
    assert room.log.count("rollback") == 3


def test_a_trial_tells_the_first_failure_that_is_known_without_removals() -> None:
    scene = Scene("a")
    trial = scene.trial(Sets("z"))
    trial.fits([scene.all["a"]])
    assert trial.failure is not None
    assert trial.failure.message == "no room without ['a']"
    trial.fits([])
    assert trial.failure.message == "no room without []"
    first = PlacementResult(False, message="first")
    known = scene.trial(Sets("z"), first)
    known.fits([scene.all["a"]])
    assert known.failure is first


def test_what_free_amounts_rule_out_is_hopeless_and_says_why() -> None:
    scene, room = Scene("a"), Sets("z")
    trial = scene.trial(room)
    assert not trial.is_hopeless([scene.all["a"]])
    assert room.tries == []
    room.possible = False
    assert trial.is_hopeless([scene.all["a"]])
    assert trial.failure is not None
    assert trial.failure.message == "no room without []"
    assert room.tries == [set()]
    assert trial.is_hopeless([])
    assert room.tries == [set()], "the reason is known"


def test_after_sixteen_tries_more_and_more_removals_are_made_between_two_tries() -> None:
    scene, room = Scene("a"), Sets("z")
    trial = scene.trial(room)
    tried = []
    for number in range(60):
        before = len(room.tries)
        assert not trial.fits_throttled([])
        if len(room.tries) > before:
            tried.append(number)
        assert trial.has_untried_removals == (len(room.tries) == before)
    assert tried == [*range(17), 19, 24, 33, 50]
    trial.reset_throttle()
    trial.fits_throttled([])
    trial.fits_throttled([])
    assert len(room.tries) == len(tried) + 2


def test_a_quick_check_comes_before_the_placement_is_tried_again() -> None:
    scene, room = Scene("ab"), Sets("a")
    trial = scene.trial(room)
    assert trial.still_fits([scene.all["a"]])
    room.possible = False
    assert not trial.still_fits([scene.all["a"]])
    assert len(room.tries) == 1
    assert room.removed == {"a"}


def test_fitting_means_quota_and_nodes() -> None:
    scene, room = Scene("abc"), Sets("a")
    trial = scene.trial(room)
    request = scene.request(3, trial)
    assert not request.fits(scene.targets("", off=False), True)
    assert not request.fits_unthrottled([], True)
    assert room.tries == [], "quota is looked at first"
    targets = scene.targets("a")
    assert request.fits(targets, True)
    assert request.fits_unthrottled(targets, True)
    assert not request.fits(targets, False), "without borrowing one is not enough"
    assert not request.fits_unthrottled(targets, False)
    assert not scene.request(3, scene.trial(Sets("z"))).fits(targets, True)
    assert not scene.request(3, scene.trial(Sets("z"))).fits_unthrottled(targets, True)
    assert scene.request(3).fits(targets, True)
    assert scene.request(3).fits_unthrottled(targets, True)
    assert not scene.request(4).fits(targets, True)


def test_the_last_try_is_made_only_if_removals_were_not_tried() -> None:
    scene, room = Scene("ab"), Sets("a")
    trial = scene.trial(room)
    request, targets = scene.request(1, trial), scene.targets("a")
    assert not request.fits_at_end(targets, True)
    trial.has_untried_removals = True
    assert request.fits_at_end(targets, True)
    trial.has_untried_removals = True
    assert not scene.request(9, trial).fits_at_end(targets, True)
    assert not scene.request(1).fits_at_end(targets, True)


@pytest.mark.parametrize(
    ("needed", "tried_after"), [(1, 1), (17, 17), (18, 20), (20, 20), (21, 25), (30, 34), (35, 36)]
)
def test_the_last_victim_goes_only_if_it_is_needed_also_where_tries_were_skipped(needed: int, tried_after: int) -> None:
    """Placement is not tried after every removal; what was removed before the next try need not be needed."""
    every = [f"{number:02}" for number in range(36)]
    scene = Scene("", 99)
    scene.all = {name: scene.admit(on(running(name, "q", 1), "n")) for name in every}
    room = Sets(every[:needed], nodes=["n"])
    request = scene.request(1, scene.trial(room))
    targets: list[Target] = []
    for name in every:
        targets += scene.targets([name])
        if request.fits(targets, True):
            break
    else:
        assert request.fits_at_end(targets, True)
    assert len(targets) == tried_after
    assert [target.victim.workload.name for target in fill_back(request, targets, True)] == every[:needed]


@pytest.mark.parametrize(("evictions", "may"), [(0, True), (2, True), (3, False), (4, False)])
def test_who_was_preempted_too_often_borrows_nothing_by_preemption(evictions: int, may: bool) -> None:
    scene = Scene("ab", evictions=evictions)
    assert scene.request(1).quota_fits(True) == may
    assert not scene.request(1).quota_fits(False)
    assert not scene.request(3).quota_fits(True)
    scene.targets("a")
    assert scene.request(1).quota_fits(True)
    assert scene.request(1).quota_fits(False)


def test_what_is_not_needed_is_put_back_the_last_removed_first() -> None:
    for cpus, expected in ((1, "d"), (2, "ad"), (3, "abd")):
        scene = Scene("abcd")
        request = scene.request(cpus)
        kept = fill_back(request, scene.targets("abcd"), False)
        assert names(kept) == expected, "the last one was needed, since it fitted only then"
        assert sorted(scene.node.admitted) == sorted(f"team/{name}" for name in "abcd" if name not in expected)
    scene = Scene("abcd")
    assert names(fill_back(scene.request(1), scene.targets("abcd"), False, last_is_needed=False)) == "a"
    scene = Scene("abcd")
    assert names(fill_back(scene.request(1), scene.targets("abcd"), False, lambda rest: len(rest) >= 3)) == "abd"


def on(workload: Workload, *nodes: str) -> Workload:
    assert workload.admission is not None
    part = msgspec.structs.replace(workload.admission.assignments[0], nodes=dict.fromkeys(nodes, 1))
    return msgspec.structs.replace(workload, admission=msgspec.structs.replace(workload.admission, assignments=(part,)))


def test_a_victim_on_the_chosen_nodes_is_put_back_only_if_the_pods_still_fit() -> None:
    scene = Scene("", 3)
    scene.all = {
        name: scene.admit(on(running(name, "q", 1), node)) for name, node in (("a", "n"), ("b", "m"), ("c", "n"))
    }
    room = Sets("a", nodes=["n"])
    trial = scene.trial(room)
    request = scene.request(1, trial)
    targets = scene.targets("abc")
    assert request.fits(targets, True)
    assert names(fill_back(request, targets, True, last_is_needed=False)) == "a"
    assert room.tries == [{"a", "b", "c"}, {"a", "b"}, set()], "the one on another node costs no try"


def test_restoring_puts_all_of_them_back() -> None:
    scene = Scene("ab")
    targets = scene.targets("ab")
    assert scene.node.usage == {CPU: 0}
    restore(targets)
    assert scene.node.usage == {CPU: 2000}
    assert sorted(scene.node.admitted) == ["team/a", "team/b"]


def solved_by(
    targets: list[Target], wanted: frozenset[str], skipped: bool = True
) -> tuple[list[Target], list[set[str]]]:
    asked: list[set[str]] = []

    def attempt(spared: frozenset[str]) -> SparingAttempt:
        asked.append(set(spared))
        taken = tuple(key for key in "abc" if key not in spared)
        return SparingAttempt(targets if spared == wanted else [], taken, skipped)

    return find_sparing(attempt), asked


def test_as_few_candidates_are_spared_as_possible() -> None:
    targets = Scene("a").targets("a", off=False)
    assert solved_by(targets, frozenset()) == (targets, [set()])
    assert solved_by(targets, frozenset("b")) == (targets, [set(), {"a"}, {"b"}])
    found, asked = solved_by(targets, frozenset("bc"))
    assert found == targets
    assert asked == [set(), {"a"}, {"b"}, {"c"}, {"a", "b"}, {"a", "c"}, {"b", "c"}]
    found, asked = solved_by(targets, frozenset("z"))
    assert found == []
    assert len(asked) == 8, "every set once"
    assert solved_by(targets, frozenset("b"), skipped=False) == ([], [set()]), "sparing can't help"


def test_the_search_of_whom_to_spare_ends_after_64_trials() -> None:
    asked = []

    def attempt(spared: frozenset[str]) -> SparingAttempt:
        asked.append(spared)
        return SparingAttempt([], tuple(f"{len(asked)}-{number}" for number in range(3)), True)

    assert find_sparing(attempt) == []
    assert len(asked) == 64


def candidate(node: QuotaNode, name: str = "r", **more: object) -> AdmittedWorkload:
    reserved_at = more.pop("reserved_at", NOW - 100)
    pods = more.pop("pods", 0)
    made = running(name, "q", 1, **more)
    keys = tuple(f"team/{name}-{number}" for number in range(pods))  # type: ignore[call-overload]
    made = msgspec.structs.replace(made, pod_sets=(msgspec.structs.replace(made.pod_sets[0], pod_keys=keys),))
    return AdmittedWorkload(made, node, {CPU: 1000}, reserved_at)  # type: ignore[arg-type]


class Costs:
    def of(self, running: AdmittedWorkload) -> tuple[int, int]:
        return (5, 0) if running.workload.name == "dear" else (0, 5)


def test_the_order_of_candidates() -> None:
    scene = Scene("")
    own, other = scene.node, scene.tree.queues["lender"]
    ranked = [
        candidate(own, "leaving", evicting=True, priority=9),
        candidate(other, "low", priority=0, pods=9),
        candidate(other, "one-pod", priority=1, pods=1),
        candidate(other, "newer", priority=1, pods=2, reserved_at=NOW - 5),
        candidate(other, "a", priority=1, pods=2),
        candidate(other, "b", priority=1, pods=2),
        candidate(other, "cheap", priority=1),
        candidate(other, "dear", priority=1),
        candidate(other, "high", priority=2),
        candidate(own, "own", priority=0),
    ]
    for one in ranked:
        if one.workload.name in ("cheap", "dear"):
            one.eviction_costs = Costs()
    found = [ranked[place] for place in (3, 9, 0, 6, 1, 8, 4, 2, 7, 5)]
    found.sort(key=lambda one: candidate_sort_key(one, own))
    assert [one.workload.name for one in found] == [one.workload.name for one in ranked]


@given(st.lists(st.tuples(st.sampled_from("hlx"), st.booleans(), st.booleans(), st.integers(0, 2)), max_size=9))
def test_heavier_users_go_first_within_the_places_that_their_queue_holds(
    drawn: list[tuple[str, bool, bool, int]],
) -> None:
    """`h` has consumed more than `l`, and `x` nothing; only one of the two queues is usage-based."""
    queues = system([queue("by-use", cell(9), cohort="c", usage_based=True), queue("plain", cell(9), cohort="c")])
    tree = QuotaTree(queues)
    weight = {"h": 9, "l": 1, "x": 0}
    local = {f"team/{name}": LocalQueue(f"team/{name}", "q", consumed={"cpu": n}) for name, n in weight.items()}
    history = LocalQueueUsage(UsageHistoryConfig(3600), local, NOW)
    asks = PendingWorkload(waiting("w", "plain", 1), tree.queues["plain"], UnlimitedPlacement())
    context = PreemptionContext(QueueConfig(), NOW, history)
    request = PreemptionRequest(asks, {CPU: 1}, frozenset([CPU]), context)
    crowd = [
        candidate(
            tree.queues["by-use" if based else "plain"],
            f"r{number}",
            queue_name=user,
            evicting=evicting,
            priority=priority,
        )
        for number, (user, based, evicting, priority) in enumerate(drawn)
    ]
    key = lambda one: candidate_sort_key(one, request.node)  # noqa: E731
    plain = sorted(crowd, key=key)
    found = sort_candidates(list(crowd), request)
    assert sorted(one.key for one in found) == sorted(one.key for one in crowd)
    for was, now in zip(plain, found, strict=True):
        if was.node.name == "plain":
            assert was is now
        else:
            assert (was.node, was.is_evicting) == (now.node, now.is_evicting)
    for evicting in (True, False):
        mine = [one for one in found if one.node.name == "by-use" and one.is_evicting == evicting]
        assert mine == sorted(mine, key=lambda one: (-weight[one.workload.queue_name], key(one)))
    bare = PreemptionRequest(asks, {CPU: 1}, frozenset([CPU]), CONTEXT)
    assert sort_candidates(list(crowd), bare) == plain


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("Never", ""),
        ("LowerPriority", "l"),
        ("LowerOrNewerEqualPriority", "ln"),
        ("Any", "lnsoh"),
    ],
)
def test_whom_a_policy_allows_to_evict(policy: str, expected: str) -> None:
    scene = Scene("", 9, priority=1, created=5)
    for name, priority, created in (("l", 0, 1), ("n", 1, 6), ("s", 1, 5), ("o", 1, 4), ("h", 2, 9)):
        scene.admit(running(name, "q", 1, priority=priority, created=created))
    request = scene.request()
    assert "".join(one.workload.name for one in request.eviction_candidates(scene.node, policy)) == expected
    allowed = [one.workload.name for one in scene.node.admitted.values() if request.may_evict(one, policy)]
    assert "".join(allowed) == expected


def test_whom_nobody_evicts() -> None:
    scene = Scene("a", priority=1)
    assert scene.request().may_evict(scene.all["a"], "Any")
    elsewhere = PreemptionRequest(scene.pending, {CPU: 1}, frozenset([("other", "cpu")]), CONTEXT)
    assert not elsewhere.may_evict(scene.all["a"], "Any"), "it uses nothing that is needed"
    young = PreemptionContext(QueueConfig(min_run_seconds=101), NOW)
    assert not scene.request(context=young).may_evict(scene.all["a"], "Any")
    polite = Scene("a", priority=1, preemption_policy="Never")
    assert not polite.request().may_evict(polite.all["a"], "Any")


def tracker(allowed: int, *covered: str) -> DisruptionTracker:
    metas = [ObjectMeta(name=f"{name}-0", namespace="team", labels={"app": "kept"}) for name in covered]
    pods = [Pod(metadata=meta, spec=PodSpec(node_name="n")) for meta in metas]
    spec = BudgetSpec(min_available=len(pods) - allowed, selector=LabelSelector(match_labels={"app": "kept"}))
    return DisruptionTracker(Budgets([PodDisruptionBudget(BudgetMeta(name="b", namespace="team"), spec)], pods))


def test_which_evictions_break_a_budget() -> None:
    scene = Scene("")
    for name in "abcd":
        scene.all[name] = candidate(scene.node, name, pods=1)
    leaving = candidate(scene.node, "e", pods=1, evicting=True)
    assumed = candidate(scene.node, "f", pods=1)
    assumed.is_assumed = True
    context = PreemptionContext(
        QueueConfig(budgets_yield_to=("reclaim",)), NOW, disruptions=tracker(1, "a", "b", "e", "f")
    )
    request = scene.request(context=context)
    one, uncovered = scene.targets("a", off=False), scene.targets("cd", off=False)
    breaks = request.breaks_budget
    b = scene.all["b"]
    assert not breaks(b, IN_CLUSTER_QUEUE, [])
    assert not breaks(b, IN_CLUSTER_QUEUE, uncovered)
    assert not breaks(b, IN_CLUSTER_QUEUE, [Target(leaving, "")]), "it is gone already"
    assert breaks(b, IN_CLUSTER_QUEUE, one)
    assert breaks(b, IN_COHORT_RECLAMATION, one)
    assert not breaks(scene.all["c"], IN_CLUSTER_QUEUE, one), "no budget covers it"
    assert not breaks(leaving, IN_CLUSTER_QUEUE, one)
    assert not breaks(assumed, IN_CLUSTER_QUEUE, one)
    request.overrides_budgets = True
    assert not breaks(b, IN_COHORT_RECLAMATION, one)
    assert breaks(b, IN_CLUSTER_QUEUE, one)
    assert not scene.request().breaks_budget(b, IN_CLUSTER_QUEUE, one)


def test_budgets_yield_in_a_second_search_and_only_where_they_may() -> None:
    scene = Scene("a")
    found = scene.targets("a", off=False)
    full, free, yields = tracker(0, "a"), tracker(1, "a"), QueueConfig(budgets_yield_to=("reclaim",))
    for config, disruptions, searches in (
        (yields, full, [False, True]),
        (yields, free, [False]),
        (yields, None, [False]),
        (QueueConfig(), full, [False]),
    ):
        request = scene.request(context=PreemptionContext(config, NOW, disruptions=disruptions))
        asked: list[bool] = []

        def find(request: PreemptionRequest = request, asked: list[bool] = asked) -> list[Target]:
            asked.append(request.overrides_budgets)
            request.breaks_budget(candidate(scene.node, "a", pods=1), IN_COHORT_RECLAMATION, [])
            return found if request.overrides_budgets else []

        assert find_within_budgets(request, find) == (found if len(searches) == 2 else [])
        assert asked == searches
    once = scene.request(context=PreemptionContext(yields, NOW, disruptions=full))
    assert find_within_budgets(once, lambda: found) == found
    assert not once.overrides_budgets
