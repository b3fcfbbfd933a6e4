"""Disruption budgets limit the victims of a queue: singly, over a whole decision, and when they yield."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.queueing.builders import NOW, cell, evicted, queue, running, system, waiting

from windlass.model.disruption import BudgetMeta, Budgets, BudgetSpec, DisruptionTracker, PodDisruptionBudget
from windlass.model.meta import LabelSelector, ObjectMeta
from windlass.model.pod import Pod, PodSpec
from windlass.model.queue import PreemptionPolicy
from windlass.model.workload import Workload
from windlass.queueing.admit import admit
from windlass.queueing.config import QueueConfig
from windlass.queueing.outcome import Outcome
from windlass.queueing.placement_interface import UnlimitedPlacement

LOWER = PreemptionPolicy(within_cluster_queue="LowerPriority")
RECLAIM = PreemptionPolicy(reclaim_within_cohort="Any")


def on_node(workload: Workload) -> Workload:
    """The workload with one pod of its own name."""
    (one,) = workload.pod_sets
    return msgspec.structs.replace(workload, pod_sets=(msgspec.structs.replace(one, pod_keys=(workload.key,)),))


def pods(*names: str) -> list[Pod]:
    meta = [ObjectMeta(name=name, namespace="team", labels={"app": "kept"}) for name in names]
    return [Pod(metadata=one, spec=PodSpec(node_name="n")) for one in meta]


def budget(minimum: int) -> PodDisruptionBudget:
    selector = LabelSelector(match_labels={"app": "kept"})
    spec = BudgetSpec(min_available=minimum, selector=selector)
    return PodDisruptionBudget(BudgetMeta(name="b", namespace="team"), spec)


def decide(
    queues: Any,
    workloads: Sequence[Workload],
    disruptions: DisruptionTracker,
    config: QueueConfig | None = None,
) -> list[Outcome]:
    return admit(queues, workloads, config or QueueConfig(), NOW, UnlimitedPlacement(), disruptions)


@pytest.mark.parametrize("fair", [False, True], ids=["by quota", "by share"])
def test_a_covered_workload_stays_and_another_goes(fair: bool) -> None:
    queues = system([queue("q", cell(2), preemption=LOWER)])
    work = [on_node(running(name, "q", 1)) for name in ("kept", "other")]
    urgent = waiting("urgent", "q", 1, priority=5)
    config = QueueConfig(fair_sharing=fair)
    free = DisruptionTracker(Budgets([budget(0)], pods("kept")))
    assert evicted(decide(queues, [*work, urgent], free, config)).keys() == {"kept"}
    kept = DisruptionTracker(Budgets([budget(1)], pods("kept")))
    assert evicted(decide(queues, [*work, urgent], kept, config)).keys() == {"other"}


def test_where_the_budget_covers_all_of_them_nobody_goes() -> None:
    queues = system([queue("q", cell(1), preemption=LOWER)])
    work = [on_node(running("kept", "q", 1)), waiting("urgent", "q", 1, priority=5)]
    assert evicted(decide(queues, work, DisruptionTracker(Budgets([budget(1)], pods("kept"))))) == {}


def test_victims_of_one_workload_add_up() -> None:
    queues = system([queue("q", cell(3), preemption=LOWER)])
    names = ("a", "b", "c")
    work = [*(on_node(running(name, "q", 1)) for name in names), waiting("urgent", "q", 3, priority=5)]
    assert evicted(decide(queues, work, DisruptionTracker(Budgets([budget(1)], pods(*names))))) == {}
    gone = evicted(decide(queues, work, DisruptionTracker(Budgets([budget(0)], pods(*names)))))
    assert gone.keys() == set(names)


def test_victims_of_several_workloads_in_one_decision_add_up() -> None:
    """Two queues preempt in the same cycle; each alone would respect the budget."""
    one, two = (queue(name, cell(1), preemption=LOWER) for name in ("one", "two"))
    names = ("a", "b")
    work = [on_node(running("a", "one", 1)), on_node(running("b", "two", 1))]
    work += [waiting("urgent-one", "one", 1, priority=5), waiting("urgent-two", "two", 1, priority=5)]
    gone = evicted(decide(system([one, two]), work, DisruptionTracker(Budgets([budget(1)], pods(*names)))))
    assert len(gone) == 1


@pytest.mark.parametrize(
    ("yields", "gone"),
    [((), set()), (("priority",), set()), (("reclaim",), {"lent"}), (("fairShare",), set())],
)
def test_a_policy_says_to_what_budgets_yield(yields: tuple[str, ...], gone: set[str]) -> None:
    owner = queue("owner", cell(1), cohort="all", preemption=RECLAIM)
    guest = queue("guest", cell(0), cohort="all")
    work = [on_node(running("lent", "guest", 1)), waiting("mine", "owner", 1)]
    kept = DisruptionTracker(Budgets([budget(1)], pods("lent")))
    found = decide(system([owner, guest]), work, kept, QueueConfig(budgets_yield_to=yields))
    assert evicted(found).keys() == gone


def test_budgets_yield_only_where_nothing_else_helps() -> None:
    owner = queue("owner", cell(2), cohort="all", preemption=RECLAIM)
    guest = queue("guest", cell(0), cohort="all")
    work = [
        on_node(running("kept", "guest", 1)),
        on_node(running("other", "guest", 1)),
        waiting("mine", "owner", 1),
    ]
    kept = DisruptionTracker(Budgets([budget(1)], pods("kept")))
    config = QueueConfig(budgets_yield_to=("reclaim",))
    assert evicted(decide(system([owner, guest]), work, kept, config)).keys() == {"other"}


def test_what_is_leaving_already_needs_no_budget() -> None:
    queues = system([queue("q", cell(1), preemption=LOWER)])
    leaving = on_node(running("kept", "q", 1, evicting=True))
    found = decide(
        queues,
        [leaving, waiting("urgent", "q", 1, priority=5)],
        DisruptionTracker(Budgets([budget(1)], pods("kept"))),
    )
    assert evicted(found) == {}
    assert [outcome.workload for outcome in found if type(outcome).__name__ == "Admitted"] == ["team/urgent"]
