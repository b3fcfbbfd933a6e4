"""Invariants of admission for random queues and workloads."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.queueing.builders import NOW, RESOURCE, carry_out, decide
from tests.queueing.random_systems import CONFIGS, crowds, systems

from windlass.model.queue import FlavorResourceQuota, QueueSystem
from windlass.model.workload import Workload
from windlass.queueing.config import QueueConfig
from windlass.queueing.outcome import Admitted, Evicted, Held, Outcome

MANY_ROUNDS = 60
Totals = dict[tuple[str, str], int]
"""Used of a flavor by a queue."""


def used_by(workload: Workload) -> Totals:
    assert workload.admission is not None
    totals: Totals = {}
    for part in workload.admission.assignments:
        where = (workload.admission.cluster_queue, part.flavors[RESOURCE])
        totals[where] = totals.get(where, 0) + part.usage[RESOURCE]
    return totals


def total(parts: list[Totals]) -> Totals:
    sums: Totals = {}
    for part in parts:
        for where, amount in part.items():
            sums[where] = sums.get(where, 0) + amount
    return sums


class Judge:
    """Quota once more, from the definitions: nothing is shared with the code under test."""

    def __init__(self, queues: QueueSystem, usage: Totals, flavor: str) -> None:
        self.queues = queues
        self.usage = usage
        self.flavor = flavor

    def quota(self, name: str) -> FlavorResourceQuota:
        for part in self.queues.queues[name].resource_groups:
            for quotas in part.flavors:
                if quotas.flavor == self.flavor:
                    return quotas.quotas[RESOURCE]
        return FlavorResourceQuota(0)

    def kept_back(self, name: str) -> int:
        """What a queue never lends."""
        quota = self.quota(name)
        return 0 if quota.lending_limit is None else max(0, quota.nominal - quota.lending_limit)

    def problems(self) -> list[str]:
        found = []
        for name, queue in self.queues.queues.items():
            quota, used = self.quota(name), self.usage.get((name, self.flavor), 0)
            if quota.borrowing_limit is not None and used > quota.nominal + quota.borrowing_limit:
                found.append(f"{name} borrows too much")
            if not queue.cohort and used > quota.nominal:
                found.append(f"{name} uses more than it has")
        for root in {self.root(queue.cohort) for queue in self.queues.queues.values() if queue.cohort}:
            members = [name for name, queue in self.queues.queues.items() if self.root(queue.cohort) == root]
            lent = sum(self.quota(name).nominal - self.kept_back(name) for name in members)
            taken = sum(max(0, self.usage.get((name, self.flavor), 0) - self.kept_back(name)) for name in members)
            if taken > lent:
                found.append(f"cohort {root} uses more than it has")
        return found

    def root(self, cohort: str) -> str:
        while cohort and self.queues.cohorts[cohort].parent:
            cohort = self.queues.cohorts[cohort].parent
        return cohort


def over_quota(queues: QueueSystem, workloads: list[Workload]) -> list[str]:
    usage = total([used_by(workload) for workload in workloads if workload.admission is not None])
    return [problem for flavor in sorted(queues.flavors) for problem in Judge(queues, usage, flavor).problems()]


def planned(workloads: list[Workload], outcomes: list[Outcome]) -> list[Workload]:
    """After all evictions, with every admitted workload started."""
    at_once = [
        Admitted(outcome.workload, outcome.cluster_queue, outcome.choices, outcome.nodes)
        if isinstance(outcome, Admitted)
        else outcome
        for outcome in outcomes
    ]
    return carry_out(workloads, at_once, NOW)


def started(workloads: list[Workload], outcomes: list[Outcome]) -> list[Workload]:
    """Before any victim has ended."""
    return carry_out(workloads, [outcome for outcome in outcomes if isinstance(outcome, Admitted)], NOW)


@st.composite
def scenes(draw: st.DrawFn) -> tuple[QueueSystem, list[Workload], QueueConfig]:
    """Some work runs already, by the rules; new work of any kind has come."""
    queues = draw(systems())
    config = draw(CONFIGS)
    first = draw(crowds(queues))
    first = carry_out(first, decide(queues, first, config, now=NOW - 100), NOW - 100)
    late = draw(crowds(queues, most=6))
    renamed = [
        Workload(
            key=f"{workload.key}-late",
            kind=workload.kind,
            pod_sets=workload.pod_sets,
            uid=f"{workload.uid}-late",
            queue_name=workload.queue_name,
            priority=workload.priority,
            created=workload.created + 3,
            queued_at=workload.created + 3,
        )
        for workload in late
    ]
    return queues, first + renamed, config


@given(scenes())
@settings(max_examples=300)
def test_no_decision_exceeds_quota(scene: tuple[QueueSystem, list[Workload], QueueConfig]) -> None:
    queues, workloads, config = scene
    outcomes = decide(queues, workloads, config)
    assert over_quota(queues, started(workloads, outcomes)) == []
    assert over_quota(queues, planned(workloads, outcomes)) == []


@given(scenes())
@settings(max_examples=200)
def test_everybody_who_waits_gets_exactly_one_answer(
    scene: tuple[QueueSystem, list[Workload], QueueConfig],
) -> None:
    queues, workloads, config = scene
    outcomes = decide(queues, workloads, config)
    answers = [outcome.workload for outcome in outcomes if not isinstance(outcome, Evicted)]
    assert sorted(answers) == sorted(workload.key for workload in workloads if workload.admission is None)
    victims = {outcome.workload for outcome in outcomes if isinstance(outcome, Evicted)}
    assert victims <= {workload.key for workload in workloads if workload.admission is not None}
    needed = {victim for outcome in outcomes if isinstance(outcome, Admitted) for victim in outcome.after}
    assert victims == needed


@given(scenes(), st.randoms(use_true_random=False))
@settings(max_examples=150)
def test_the_order_of_the_input_does_not_matter(
    scene: tuple[QueueSystem, list[Workload], QueueConfig], chance: object
) -> None:
    queues, workloads, config = scene
    expected = decide(queues, workloads, config)
    shuffled = list(workloads)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    turned = QueueSystem(
        queues=dict(reversed(queues.queues.items())),
        cohorts=dict(reversed(queues.cohorts.items())),
        local_queues=dict(reversed(queues.local_queues.items())),
        flavors=dict(reversed(queues.flavors.items())),
    )
    assert decide(turned, shuffled, config) == expected


@given(scenes())
@settings(max_examples=300)
def test_it_comes_to_rest(scene: tuple[QueueSystem, list[Workload], QueueConfig]) -> None:
    queues, workloads, config = scene
    for turn in range(MANY_ROUNDS):
        outcomes = decide(queues, workloads, config, now=NOW + turn)
        if all(isinstance(outcome, Held) for outcome in outcomes):
            return
        workloads = carry_out(workloads, outcomes, NOW + turn)
        assert over_quota(queues, workloads) == []
    raise AssertionError("evictions go round in circles")


@given(scenes())
@settings(max_examples=150)
def test_lent_quota_comes_back_when_its_owner_asks(
    scene: tuple[QueueSystem, list[Workload], QueueConfig],
) -> None:
    """A queue that may reclaim from any priority gets what its head needs within nominal quota."""
    queues, workloads, config = scene
    outcomes = decide(queues, workloads, config)
    answers = {outcome.workload: outcome for outcome in outcomes if not isinstance(outcome, Evicted)}
    states = zip(workloads, planned(workloads, outcomes), strict=True)
    usage = total([used_by(now if now.admission else then) for now, then in states if now.admission or then.admission])
    for workload in workloads:
        queue = queues.queues[workload.queue_name]
        if workload.admission is not None or queue.preemption.reclaim_within_cohort != "Any":
            continue
        if not isinstance(answers[workload.key], Held) or "waits behind" in answers[workload.key].message:
            continue
        for quotas in queue.resource_groups[0].flavors:
            free = quotas.quotas[RESOURCE].nominal - usage.get((queue.name, quotas.flavor), 0)
            least = min(workload.pod_sets[0].min_count or 99, workload.pod_sets[0].count)
            asked = least * int(workload.pod_sets[0].template.spec.containers[0].resources.requests[RESOURCE]) * 1000
            assert asked > free, f"{workload.key} could have had {quotas.flavor} of {queue.name}"
