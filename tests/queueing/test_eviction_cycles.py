"""Workloads that would evict each other for ever under Kueue's fair sharing: the limit of preemptions ends it."""

from __future__ import annotations

import pytest
from tests.queueing.builders import NOW, carry_out, cell, decide, queue, running, system, waiting

from windlass.model.queue import Cohort, Fungibility, PreemptionPolicy
from windlass.model.workload import Workload
from windlass.queueing.config import FINAL_SHARE, QueueConfig
from windlass.queueing.outcome import Held

POLICY = PreemptionPolicy(
    within_cluster_queue="LowerPriority", reclaim_within_cohort="Any", borrow_within_cohort="LowerPriority"
)
FLAVORS = Fungibility(when_can_borrow="TryNextFlavor", when_can_preempt="MayStopSearch")
QUOTAS = {
    "q0": {"one": cell(3, lending=3), "two": cell(6)},
    "q1": {"one": cell(4, lending=1), "two": cell(4, lending=1)},
}


def crowd() -> list[Workload]:
    """(queue, CPUs, pods, priority, created, flavor where it runs already), found by a random search."""
    rows = [
        ("w0", "q1", 2, 1, 0, 2, ""),
        ("w1", "q0", 2, 2, 0, 3, "two"),
        ("w2", "q1", 2, 1, 2, 2, "one"),
        ("w3", "q1", 3, 2, 1, 4, ""),
        ("w4", "q1", 2, 1, 2, 3, "one"),
        ("w5", "q1", 2, 1, 2, 3, "two"),
        ("w0-late", "q1", 2, 1, 0, 5, ""),
        ("w1-late", "q0", 2, 2, 0, 6, ""),
        ("w2-late", "q1", 2, 1, 2, 5, ""),
        ("w3-late", "q1", 3, 2, 1, 7, ""),
        ("w4-late", "q1", 2, 1, 2, 6, ""),
        ("w5-late", "q1", 2, 1, 2, 6, ""),
    ]
    made = []
    for name, local, cpus, count, priority, created, flavor in rows:
        more = {"count": count, "priority": priority, "created": created}
        if flavor:
            made.append(running(name, local, cpus, flavor=flavor, **more))  # type: ignore[arg-type]
        else:
            made.append(waiting(name, local, cpus, **more))  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize(("patience", "rests"), [(3, True), (10**9, False)])
def test_only_patience_ends_this_circle(patience: int, rests: bool) -> None:
    queues = system(
        [
            queue(
                name,
                quota,
                cohort="left",
                preemption=POLICY,
                fungibility=FLAVORS,
                strategy="StrictFIFO",
                weight_milli=2000,
            )
            for name, quota in QUOTAS.items()
        ],
        [Cohort("left", "root"), Cohort("root", "")],
    )
    config = QueueConfig(
        fair_sharing=True, preemption_strategies=(FINAL_SHARE,), max_preemptions_while_borrowing=patience
    )
    workloads = crowd()
    for turn in range(60):
        outcomes = decide(queues, workloads, config, now=NOW + turn)
        if all(isinstance(outcome, Held) for outcome in outcomes):
            assert rests
            return
        workloads = carry_out(workloads, outcomes, NOW + turn)
    assert not rests
