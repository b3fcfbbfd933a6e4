"""Hypothesis strategies: small trees of queues with every policy, and workloads for them."""

from __future__ import annotations

from hypothesis import strategies as st
from tests.queueing.builders import cell, queue, system, waiting

from windlass.model.queue import Cohort, FlavorResourceQuota, Fungibility, PreemptionPolicy, QueueSystem
from windlass.model.workload import Workload
from windlass.queueing.config import FINAL_SHARE, INITIAL_SHARE, QueueConfig

LIMITS = st.one_of(st.none(), st.integers(0, 4))
COHORTS = ("", "left", "right", "root")


@st.composite
def quotas(draw: st.DrawFn, in_cohort: bool) -> FlavorResourceQuota:
    nominal = draw(st.integers(0, 6))
    if not in_cohort:
        return cell(nominal)
    return cell(nominal, draw(LIMITS), draw(LIMITS))


@st.composite
def policies(draw: st.DrawFn) -> PreemptionPolicy:
    reclaim = draw(st.sampled_from(["Never", "LowerPriority", "Any"]))
    borrow = draw(st.sampled_from(["Never", "LowerPriority"])) if reclaim != "Never" else "Never"
    return PreemptionPolicy(
        within_cluster_queue=draw(st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"])),
        reclaim_within_cohort=reclaim,
        borrow_within_cohort=borrow,
        max_priority_threshold=draw(st.sampled_from([None, 0, 1])) if borrow != "Never" else None,
    )


@st.composite
def systems(draw: st.DrawFn) -> QueueSystem:
    flavors = ["one", "two"][: draw(st.integers(1, 2))]
    queues = []
    for index in range(draw(st.integers(1, 4))):
        cohort = draw(st.sampled_from(COHORTS))
        fungibility = Fungibility(
            when_can_borrow=draw(st.sampled_from(["MayStopSearch", "TryNextFlavor"])),
            when_can_preempt=draw(st.sampled_from(["MayStopSearch", "TryNextFlavor"])),
        )
        queues.append(
            queue(
                f"q{index}",
                {flavor: draw(quotas(bool(cohort))) for flavor in flavors},
                cohort=cohort,
                preemption=draw(policies()),
                fungibility=fungibility,
                strategy=draw(st.sampled_from(["BestEffortFIFO", "StrictFIFO"])),
                weight_milli=draw(st.sampled_from([1000, 1000, 2000, 0])),
            )
        )
    parents = {"left": "root", "right": draw(st.sampled_from(["root", ""])), "root": ""}
    return system(queues, [Cohort(name, parent) for name, parent in parents.items()])


@st.composite
def crowds(draw: st.DrawFn, queues: QueueSystem, most: int = 9) -> list[Workload]:
    names = sorted(queues.queues)
    return [
        waiting(
            f"w{index}",
            draw(st.sampled_from(names)),
            draw(st.integers(1, 3)),
            count=(count := draw(st.integers(1, 2))),
            min_count=draw(st.sampled_from([None, 1])) if count == 2 else None,
            priority=draw(st.integers(0, 2)),
            created=draw(st.integers(1, 5)),
        )
        for index in range(draw(st.integers(1, most)))
    ]


CONFIGS = st.sampled_from(
    [
        QueueConfig(),
        QueueConfig(fair_sharing=True),
        QueueConfig(fair_sharing=True, preemption_strategies=(FINAL_SHARE,)),
        QueueConfig(fair_sharing=True, preemption_strategies=(INITIAL_SHARE,)),
    ]
)
