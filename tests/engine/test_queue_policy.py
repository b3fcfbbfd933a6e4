"""What a ClusterQueue allows its tenants: how far their annotations protect them, and limits of jobs and users."""

from __future__ import annotations

import pytest
from tests.engine.plain_objects import NOW, START, holds, node, planned, pod
from tests.engine.test_queued_kinds import QUEUE, queues

from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured

USER = "windlass.dev/user"


def policed(gpus: int = 8, *, strategy: str = "", preempts: bool = False, **policy: str) -> list[Unstructured]:
    """Annotations of the queue, without their prefix and with `_` for `-`."""
    objects = queues(gpus)
    queue = objects[1]
    queue["metadata"]["annotations"] = {
        f"windlass.dev/{name.replace('_', '-')}": value for name, value in policy.items()
    }
    if strategy:
        queue["spec"]["queueingStrategy"] = strategy
    if preempts:
        queue["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
    return objects


def queued(name: str, gpus: int = 1, *, user: str = "", on: str = "", at: str = START, **more: object) -> Unstructured:
    labels = {QUEUE: "main", **({USER: user} if user else {})}
    annotations = more.pop("annotations", {})
    return pod(name, gpus, on=on, at=at, metadata={"labels": labels, "annotations": annotations}, **more)


def started(plan: Plan) -> list[str]:
    return sorted(bind.pod.removeprefix("default/") for bind in plan.binds)


@pytest.mark.parametrize(
    ("policy", "limit"),
    [
        ({"max_gpus_per_user": "3"}, "allows a user 3 (windlass.dev/max-gpus-per-user)"),
        ({"max_running_jobs_per_user": "2"}, "allows a user 2 (windlass.dev/max-running-jobs-per-user)"),
        ({"max_submitted_jobs_per_user": "2"}, "allows a user 2 (windlass.dev/max-submitted-jobs-per-user)"),
    ],
)
@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
def test_a_user_has_no_more_than_its_limit_and_others_go_on(policy: dict[str, str], limit: str, strategy: str) -> None:
    running = queued("ann-0", user="ann", on="n1")
    mine = [queued(f"ann-{at}", user="ann", at=f"2026-01-01T00:00:0{at}Z") for at in (1, 2, 3)]
    others = queued("bob-0", user="bob", at=NOW)
    plan, _ = planned(node("n1"), *policed(strategy=strategy, **policy), running, *mine, others)
    most = 3 if "max_gpus_per_user" in policy else 2
    assert started(plan) == [f"ann-{at}" for at in range(1, most)] + ["bob-0"]
    assert set(holds(plan).values()) == {"QUEUE_LIMIT_REACHED"}
    assert all(limit in hold.verdict.message for hold in plan.holds)


def test_work_without_a_name_counts_to_its_namespace() -> None:
    plan, _ = planned(node("n1"), *policed(max_running_jobs_per_user="1"), queued("a"), queued("b"))
    assert len(plan.binds) == 1
    (hold,) = plan.holds
    assert hold.verdict.message.startswith("namespace default has 1 running jobs")


def test_a_job_above_the_limit_of_a_job() -> None:
    plan, _ = planned(node("n1"), *policed(max_gpus_per_job="2"), queued("small", 2), queued("large", 3))
    assert (started(plan), holds(plan)) == (["small"], {"default/large": "QUEUE_LIMIT_REACHED"})
    (hold,) = plan.holds
    assert "it asks for 3 GPUs; ClusterQueue all allows a job 2" in hold.verdict.message


@pytest.mark.parametrize(("allowed", "evicted"), [("true", []), ("false", ["default/old"])])
def test_not_preemptable_counts_where_the_queue_allows_it(allowed: str, evicted: list[str]) -> None:
    protected = {"volcano.sh/preemptable": "false"}
    old = queued("old", 8, on="n1", annotations=protected)
    new = queued("new", 8, at=NOW, priority=100)
    plan, _ = planned(node("n1"), *policed(preempts=True, allow_not_preemptable=allowed), old, new)
    assert [evict.workload for evict in plan.evicts] == evicted


def test_of_a_restart_cost_only_as_much_as_the_queue_allows() -> None:
    dear = queued("dear", 4, on="n1", annotations={"windlass.dev/restart-cost": "24h"})
    cheap = queued("cheap", 4, on="n1", annotations={"windlass.dev/restart-cost": "10m"})
    new = queued("new", 4, at=NOW, priority=100)
    free, _ = planned(node("n1"), *policed(preempts=True), dear, cheap, new)
    assert [evict.workload for evict in free.evicts] == ["default/cheap"]
    capped, _ = planned(node("n1"), *policed(preempts=True, max_restart_cost="1m"), dear, cheap, new)
    restart = free.evicts[0].lost_gpu_seconds - capped.evicts[0].lost_gpu_seconds
    assert restart == 4 * (10 - 1) * 60


def test_a_declared_run_time_ends_where_the_queue_says() -> None:
    """It has run for twelve hours."""
    old = queued("old", 1, on="n1", annotations={"windlass.dev/duration": "48h"})
    plan, _ = planned(node("n1"), *policed(), old)
    assert plan.evicts == ()
    plan, _ = planned(node("n1"), *policed(max_duration="6h"), old)
    assert [evict.reason for evict in plan.evicts] == ["DurationExceeded"]


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ({"max_gpus_per_user": "many"}, "windlass.dev/max-gpus-per-user: 'many' is not a number"),
        ({"allow_not_preemptable": "no"}, "windlass.dev/allow-not-preemptable: 'no' is neither true nor false"),
        ({"max_duration": "soon"}, "windlass.dev/max-duration: "),
    ],
)
def test_a_policy_that_cannot_be_read_stops_the_queue_and_says_so(policy: dict[str, str], why: str) -> None:
    plan, _ = planned(node("n1"), *policed(**policy), queued("a"))
    (hold,) = plan.holds
    assert why in hold.verdict.message
