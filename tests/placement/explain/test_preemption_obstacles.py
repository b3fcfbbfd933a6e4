"""A hold says why nothing is preempted for it."""

from __future__ import annotations

from typing import Any

from tests.invariants.objects import EPOCH, stamp
from tests.peers.test_own_cases import NOW, node, pod, queues

from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import EngineConfig, decide
from windlass.model.codec import decode_object
from windlass.model.decision import Hold
from windlass.model.hold_document import hold_document, parse_hold
from windlass.model.unstructured import Unstructured
from windlass.model.verdict import Verdict
from windlass.queueing.config import QueueConfig

STARTED = EPOCH + 600


def held(name: str, *objects: Unstructured, **queues: Any) -> Verdict:
    store = Store()
    store.apply([Put(decode_object(tree)) for tree in objects])
    config = EngineConfig(queues=QueueConfig(**queues), max_explained_holds=8)
    plan = decide(store.snapshot(NOW), config, NOW)
    assert not plan.evicts
    return next(hold.verdict for hold in plan.holds if hold.workload == f"team/{name}")


def kinds(verdict: Verdict) -> list[str]:
    return [obstacle.kind for obstacle in verdict.obstacles]


def budget(name: str) -> Unstructured:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"selector": {}, "maxUnavailable": 0},
        "status": {"disruptionsAllowed": 0, "observedGeneration": 1},
    }


def test_equal_priorities() -> None:
    verdict = held("b", node("n1"), pod("a", 8, on="n1", priority=5), pod("b", 1, priority=5))
    assert kinds(verdict) == ["priority"]
    assert "all pods on nodes that suit it have priority 5 or higher" in verdict.message


def test_where_nobody_uses_priorities_nothing_is_said() -> None:
    assert not held("b", node("n1"), pod("a", 8, on="n1"), pod("b", 1)).obstacles


def test_the_preemption_policy_of_the_pod() -> None:
    verdict = held("b", node("n1"), pod("a", 8, on="n1"), pod("b", 1, priority=5, preemptionPolicy="Never"))
    assert kinds(verdict) == ["policy"]
    assert "it preempts nothing: its preemptionPolicy is Never" in verdict.public_message


def test_the_minimum_run_time_and_when_it_ends() -> None:
    verdict = held("b", node("n1"), pod("a", 8, on="n1"), pod("b", 1, priority=5), min_run_seconds=7200)
    assert kinds(verdict) == ["minRunTime"]
    until = f"until {stamp(STARTED + 7200)}"
    assert f"minRunTime protects 1 running workload from preemption, {until}: team/a" in verdict.message
    assert "team/a" not in verdict.public_message
    assert until in verdict.public_message


def test_work_that_may_not_be_preempted() -> None:
    running = pod("a", 8, on="n1", annotations={"volcano.sh/preemptable": "false"})
    verdict = held("b", node("n1"), running, pod("b", 1, priority=5))
    assert kinds(verdict) == ["protected"]
    assert "marked volcano.sh/preemptable: false: team/a" in verdict.message


def test_no_gain() -> None:
    verdict = held("b", node("n1"), pod("a", 7, on="n1", priority=9), pod("low", 1, on="n1"), pod("b", 8, priority=5))
    assert kinds(verdict) == ["noGain"]


def test_a_protection_that_makes_no_difference_is_not_named() -> None:
    low = pod("low", 1, on="n1", annotations={"volcano.sh/preemptable": "false"})
    verdict = held("b", node("n1"), pod("a", 7, on="n1", priority=9), low, pod("b", 8, priority=5))
    assert kinds(verdict) == ["noGain"]


def test_a_queue_that_never_preempts() -> None:
    objects = [node("n1", 16), *queues("q", gpus=8)]
    verdict = held("b", *objects, pod("a", 8, on="n1", queue="q"), pod("b", 1, queue="q", priority=5))
    assert kinds(verdict) == ["policy"]
    assert "ClusterQueue q has withinClusterQueue Never and reclaimWithinCohort Never" in verdict.message


LOWER = {"withinClusterQueue": "LowerPriority"}


def test_a_queue_whose_work_has_the_same_priority() -> None:
    objects = [node("n1", 16), *queues("q", gpus=8, preemption=LOWER)]
    verdict = held("b", *objects, pod("a", 8, on="n1", queue="q", priority=5), pod("b", 1, queue="q", priority=5))
    assert kinds(verdict) == ["priority"]


def test_a_queue_whose_work_is_protected() -> None:
    objects = [node("n1", 16), *queues("q", gpus=8, preemption=LOWER)]
    waiting = pod("b", 1, queue="q", priority=5)
    young = held("b", *objects, pod("a", 8, on="n1", queue="q"), waiting, min_run_seconds=7200)
    assert kinds(young) == ["minRunTime"]
    excluded = pod("a", 8, on="n1", queue="q", annotations={"volcano.sh/preemptable": "false"})
    assert kinds(held("b", *objects, excluded, waiting)) == ["protected"]


def test_a_quota_hold_names_the_budget_of_what_would_be_preempted() -> None:
    objects = [node("n1", 16), *queues("q", gpus=8, preemption=LOWER), budget("careful")]
    verdict = held("b", *objects, pod("a", 8, on="n1", queue="q"), pod("b", 1, queue="q", priority=5))
    assert [refusal.budget for refusal in verdict.refusals] == ["team/careful"]


def test_a_plan_document_keeps_the_obstacles() -> None:
    verdict = held("b", node("n1"), pod("a", 8, on="n1"), pod("b", 1, priority=5), min_run_seconds=7200)
    assert parse_hold(hold_document(Hold("team/b", verdict))).verdict == verdict
