"""Victims by share: whose workloads go, which strategy allows it, and when it stops."""

from __future__ import annotations

import msgspec
import pytest
from tests.queueing.builders import NOW, admitted, cell, decide, evicted, queue, running, system, waiting
from tests.queueing.first_fit_placement import FirstFitPlacement
from tests.queueing.test_classical_preemption import CPU, busy

from windlass.model.disruption import BudgetMeta, Budgets, BudgetSpec, DisruptionTracker, PodDisruptionBudget
from windlass.model.meta import LabelSelector, ObjectMeta
from windlass.model.pod import Pod, PodSpec
from windlass.model.queue import Cohort, PreemptionPolicy, QueueSystem
from windlass.model.workload import Workload
from windlass.queueing.admit import admit
from windlass.queueing.admitted_workload import EvictionCosts, make_admitted_workload
from windlass.queueing.config import FINAL_SHARE, INITIAL_SHARE, QueueConfig
from windlass.queueing.fair_sharing_preemption import find_victims
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.placement_interface import UnlimitedPlacement
from windlass.queueing.preemption_common import PreemptionContext, PreemptionRequest
from windlass.queueing.quota_tree import QuotaTree

ANY = PreemptionPolicy(reclaim_within_cohort="Any")
BOTH = PreemptionPolicy("LowerPriority", "Any")
SHARE, RECLAIM, OWN = "InCohortFairSharing", "InCohortReclamation", "InClusterQueue"


def victims(
    queues: QueueSystem,
    work: list[Workload],
    asks: Workload,
    strategies: tuple[str, ...] = (FINAL_SHARE, INITIAL_SHARE),
) -> dict[str, str]:
    config = QueueConfig(fair_sharing=True, preemption_strategies=strategies)
    tree = QuotaTree(queues)
    for workload in work:
        assert workload.admission is not None
        node = tree.queues[workload.admission.cluster_queue]
        make_admitted_workload(workload, node, EvictionCosts(config, NOW)).add_to_tree()
    pending = PendingWorkload(asks, tree.queues[asks.queue_name], UnlimitedPlacement())
    usage = {CPU: pending.requests[0]["cpu"] * asks.pod_sets[0].count}
    before = {node.name: dict(node.usage) for node in tree.nodes()}
    members = {name: sorted(node.admitted) for name, node in tree.queues.items()}
    found = find_victims(PreemptionRequest(pending, usage, frozenset([CPU]), PreemptionContext(config, NOW)))
    after = {
        node.name: {at: n for at, n in node.usage.items() if n or at in before[node.name]} for node in tree.nodes()
    }
    assert after == before, "the tree is left as it was"
    assert members == {name: sorted(node.admitted) for name, node in tree.queues.items()}
    return {target.victim.workload.name: target.reason for target in found}


def flat(policy: PreemptionPolicy = ANY, **nominal: int) -> QueueSystem:
    return system([queue(name, cell(quota), cohort="c", preemption=policy) for name, quota in nominal.items()])


def several(name: str, count: int, cpus: int = 1, **more: object) -> list[Workload]:
    return [running(f"{name}{number}", name, cpus, reserved_at=NOW - number, **more) for number in range(count)]


def test_the_largest_borrower_loses_again_and_again_until_it_fits() -> None:
    """`a` borrows five, `b` four: both end at three, and the newcomer gets three."""
    queues = flat(a=0, b=0, w=0, pool=9)
    work = [*several("a", 5), *several("b", 4)]
    assert victims(queues, work, waiting("x", "w", 3)) == {"a0": SHARE, "a1": SHARE, "b0": SHARE}
    assert victims(queues, work, waiting("x", "w", 1)) == {"a0": SHARE}


def test_the_preemptor_must_not_end_above_the_one_that_loses() -> None:
    queues = flat(a=0, w=0, pool=4)
    work = several("a", 4)
    assert victims(queues, work, waiting("x", "w", 2), (FINAL_SHARE,)) == {"a0": SHARE, "a1": SHARE}
    assert victims(queues, work, waiting("x", "w", 3), (FINAL_SHARE,)) == {}


@pytest.mark.parametrize(
    ("strategies", "cpus", "goes"),
    [
        ((FINAL_SHARE,), 2, False),
        ((INITIAL_SHARE,), 2, True),
        ((FINAL_SHARE, INITIAL_SHARE), 2, True),
        ((), 2, True),
        ((INITIAL_SHARE,), 3, False),
        ((INITIAL_SHARE,), 4, False),
    ],
)
def test_the_second_strategy_asks_for_the_share_before_the_eviction(
    strategies: tuple[str, ...], cpus: int, goes: bool
) -> None:
    """One large workload of three: without it nothing is left to `a`."""
    queues = flat(a=0, w=0, pool=3)
    found = victims(queues, [running("a0", "a", 3)], waiting("x", "w", cpus), strategies)
    assert found == ({"a0": SHARE} if goes else {})


def test_by_the_second_strategy_each_queue_loses_one_workload_at_most() -> None:
    queues = flat(a=0, b=0, w=0, pool=12)
    work = [*several("a", 2, 3), *several("b", 2, 3)]
    # Five need two victims of three: the second one would leave `a` with nothing, so that `b` loses one, too.
    assert victims(queues, work, waiting("x", "w", 5)) == {"a0": SHARE, "b0": SHARE}
    assert victims(queues, work, waiting("x", "w", 7)) == {}


def test_a_queue_within_its_own_quota_takes_it_back_whatever_the_shares_are() -> None:
    queues = flat(a=0, w=3, pool=0)
    assert victims(queues, several("a", 3), waiting("x", "w", 3)) == dict.fromkeys(("a0", "a1", "a2"), RECLAIM)
    assert victims(queues, several("a", 3), waiting("x", "w", 2)) == dict.fromkeys(("a0", "a1"), RECLAIM)


def test_the_own_queue_loses_by_priority_if_it_is_the_largest() -> None:
    queues = flat(BOTH, a=0, w=0, pool=4)
    work = [*several("w", 3), *several("a", 1)]
    assert victims(queues, work, waiting("x", "w", 1, priority=1)) == {"w0": OWN}
    assert victims(queues, work, waiting("x", "w", 1)) == {}, "not for the same priority"


def test_a_lone_queue_loses_by_priority() -> None:
    queues = system([queue("w", cell(3), preemption=BOTH)])
    work = [*several("w", 2), running("high", "w", 1, priority=9)]
    assert victims(queues, work, waiting("x", "w", 2, priority=1)) == {"w0": OWN, "w1": OWN}
    assert victims(queues, work, waiting("x", "w", 3, priority=1)) == {}


def test_who_borrows_nothing_loses_nothing() -> None:
    queues = flat(a=2, b=0, w=0, pool=1)
    work = [*several("a", 2), *several("b", 1)]
    assert victims(queues, work, waiting("x", "w", 1)) == {}
    assert (
        victims(flat(PreemptionPolicy("LowerPriority"), a=0, w=0, pool=4), several("a", 4), waiting("x", "w", 1)) == {}
    )


def test_weights_divide_the_shares() -> None:
    def made(weight: int) -> QueueSystem:
        queues = [
            queue(name, cell(0), cohort="c", preemption=ANY, weight_milli=heavy)
            for name, heavy in (("a", weight), ("b", 1000), ("w", 1000))
        ]
        return system([*queues, queue("pool", cell(7), cohort="c")])

    work = [*several("a", 4), *several("b", 3)]
    assert victims(made(1000), work, waiting("x", "w", 1)) == {"a0": SHARE}
    assert victims(made(2000), work, waiting("x", "w", 1)) == {"b0": SHARE}
    assert victims(made(0), [*several("a", 2), *several("b", 5)], waiting("x", "w", 1)) == {"a0": SHARE}


def test_among_equal_shares_the_first_candidate_decides() -> None:
    queues = flat(a=0, b=0, w=0, pool=4)
    for low, gone in (("a", "a0"), ("b", "b0")):
        work = [*several("a", 2, priority=-(low == "a")), *several("b", 2, priority=-(low == "b"))]
        assert victims(queues, work, waiting("x", "w", 1)) == {gone: SHARE}
    mixed = {"a": (1, 2), "b": (0, 9)}
    work = [running(f"{name}{n}", name, 1, priority=n) for name, numbers in mixed.items() for n in numbers]
    assert victims(queues, work, waiting("x", "w", 1)) == {"b0": SHARE}, "by the first, not by the last of them"


def below(**cohorts: dict[str, int]) -> QueueSystem:
    """Cohorts below one root, with their queues; a queue named `r…` is at the root."""
    queues = [
        queue(name, cell(quota), cohort="top" if name.startswith("r") else cohort, preemption=ANY)
        for cohort, members in cohorts.items()
        for name, quota in members.items()
    ]
    return system(queues, [*(Cohort(name, "top") for name in cohorts), Cohort("top")])


def test_shares_are_compared_right_below_the_lowest_common_cohort() -> None:
    """The cohort of `a` and `b` has the largest share, though the single queue of the other one has more than each."""
    queues = below(one={"a": 0, "b": 0}, two={"c": 0}, three={"w": 0, "rpool": 9})
    work = [*several("a", 3), *several("b", 2), *several("c", 4)]
    assert victims(queues, work, waiting("x", "w", 1)) == {"a0": SHARE}
    work = [*several("a", 2), *several("b", 2), *several("c", 5)]
    assert victims(queues, work, waiting("x", "w", 1)) == {"c0": SHARE}


def test_a_queue_at_the_root_competes_with_cohorts() -> None:
    queues = below(one={"a": 0, "b": 0}, two={"w": 0, "rq": 0, "rpool": 8})
    work = [*several("a", 2), *several("b", 1), *several("rq", 5)]
    assert victims(queues, work, waiting("x", "w", 1)) == {"rq0": SHARE}
    work = [*several("a", 3), *several("b", 2), *several("rq", 3)]
    assert victims(queues, work, waiting("x", "w", 1)) == {"a0": SHARE}
    even = [*several("a", 3), *several("b", 1), *several("rq", 4)]
    assert victims(queues, even, waiting("x", "w", 1)) == {"a0": SHARE}, "the cohort first among equals"


def test_in_its_own_cohort_a_queue_competes_with_its_neighbours() -> None:
    queues = below(one={"w": 0, "a": 0}, two={"c": 0}, three={"rpool": 6})
    work = [*several("a", 3), *several("c", 3)]
    # With the newcomer its cohort has four, so that its neighbour loses.
    assert victims(queues, work, waiting("x", "w", 1)) == {"a0": SHARE}
    assert victims(queues, [*several("a", 1), *several("c", 5)], waiting("x", "w", 1)) == {"c0": SHARE}


def test_cohorts_that_do_not_borrow_are_left_alone() -> None:
    queues = below(one={"a": 0, "lender": 3}, two={"c": 0}, three={"w": 0, "rpool": 2})
    work = [*several("a", 3), *several("c", 2)]
    assert victims(queues, work, waiting("x", "w", 1)) == {"c0": SHARE}


def test_a_victim_of_the_own_queue_stays_gone_if_putting_it_back_would_make_the_rest_unfair() -> None:
    """Its own queue has most and loses two CPUs; then `a` has most and loses five, which would be enough alone."""
    queues = flat(BOTH, a=0, w=0, pool=8)
    work = [running("w0", "w", 2), running("w1", "w", 1, priority=9), running("a0", "a", 5)]
    found = victims(queues, work, waiting("x", "w", 3, priority=1))
    assert found == {"w0": OWN, "a0": SHARE}, "with its own back the newcomer would have six, more than the five of `a`"


def placed(node: str, workload: Workload) -> Workload:
    assert workload.admission is not None
    part = msgspec.structs.replace(workload.admission.assignments[0], nodes={node: 1})
    return msgspec.structs.replace(workload, admission=msgspec.structs.replace(workload.admission, assignments=(part,)))


def test_candidates_are_spared_in_turn_until_the_rest_makes_room_on_one_node() -> None:
    """By age one of each node would go, and a third would be unfair."""
    queues = flat(a=0, w=0, pool=4)
    work = [placed(f"default-{number % 2}", one) for number, one in enumerate(several("a", 4))]
    room = FirstFitPlacement({"default-0": 2, "default-1": 2}, work)
    outcomes = decide(queues, [*work, waiting("x", "w", 2)], QueueConfig(fair_sharing=True), room)
    assert evicted(outcomes) == {"a0": SHARE, "a2": SHARE}
    assert admitted(outcomes)["x"].nodes == ({"default-0": 1},)
    small = FirstFitPlacement({"default-0": 2, "default-1": 2}, work)
    outcomes = decide(queues, [*work, waiting("x", "w", 3)], QueueConfig(fair_sharing=True), small)
    assert evicted(outcomes) == {}


def covered(*names: str) -> DisruptionTracker:
    """A budget that lets none of these pods go."""
    metas = [ObjectMeta(name=name, namespace="team", labels={"app": "kept"}) for name in names]
    spec = BudgetSpec(max_unavailable=0, selector=LabelSelector(match_labels={"app": "kept"}))
    budget = PodDisruptionBudget(BudgetMeta(name="b", namespace="team"), spec)
    return DisruptionTracker(Budgets([budget], [Pod(metadata=meta, spec=PodSpec(node_name="n")) for meta in metas]))


@pytest.mark.parametrize("strategies", [(FINAL_SHARE,), (INITIAL_SHARE,), (FINAL_SHARE, INITIAL_SHARE)])
def test_budgets_protect_workloads_from_fair_sharing(strategies: tuple[str, ...]) -> None:
    queues = flat(BOTH, a=0, w=0, pool=4)
    work = [busy(one) for one in several("a", 4, started_at=NOW - 50)]
    config = QueueConfig(fair_sharing=True, preemption_strategies=strategies)

    def gone(*kept: str) -> set[str]:
        room = UnlimitedPlacement()
        return set(evicted(admit(queues, [*work, waiting("x", "w", 1)], config, NOW, room, covered(*kept))))

    assert gone() == {"a0"}
    assert gone("a0-0") == {"a1"}
    assert gone("a0-0", "a1-0") == {"a2"}
    assert gone(*(f"a{number}-0" for number in range(4))) == set()


def test_a_budget_protects_the_only_large_workload_from_the_second_strategy() -> None:
    queues = flat(a=0, b=0, w=0, pool=6)
    work = [busy(running("a0", "a", 3)), busy(running("b0", "b", 3))]
    config = QueueConfig(fair_sharing=True)
    for kept, gone in (((), {"a0"}), (("a0-0",), {"b0"}), (("a0-0", "b0-0"), set())):
        tracker = covered(*kept)
        outcomes = admit(queues, [*work, waiting("x", "w", 2)], config, NOW, UnlimitedPlacement(), tracker)
        assert evicted(outcomes).keys() == gone


def test_candidates_that_a_policy_spares_are_not_taken() -> None:
    policy = PreemptionPolicy(reclaim_within_cohort="LowerPriority")
    queues = flat(policy, a=0, w=0, pool=4)
    work = [running("high", "a", 1, priority=5), *several("a", 3)]
    assert victims(queues, work, waiting("x", "w", 1, priority=1)) == {"a0": SHARE}
    assert victims(queues, [running("high", "a", 4, priority=5)], waiting("x", "w", 1, priority=1)) == {}
