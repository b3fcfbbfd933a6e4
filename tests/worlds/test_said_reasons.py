"""What the judge of reasons accepts and what it does not: a quota that suffices may be reserved for a blocked head."""

from __future__ import annotations

from tests.invariants.objects import EPOCH, GPU, cluster_queue, cohort, flavor, local_queue, pod_set, pod_spec, workload
from tests.worlds.judges.reasons import ReasonJudge
from tests.worlds.judges.world_state import WorldState

from windlass.model.unstructured import Unstructured

SAID = "workloads ahead of this one get it first (KUEUE_QUOTA_INSUFFICIENT)"


def waiting(name: str, queue: str, gpus: int) -> Unstructured:
    made = workload(name, queue, [pod_set("main", 1, pod_spec(1, gpus))], priority=0, created=EPOCH)
    made["status"] = {"conditions": [{"type": "QuotaReserved", "status": "False", "message": SAID}]}
    return made


def queue(name: str, gpus: int, strategy: str, reclaim: str) -> list[Unstructured]:
    cells = {"any": {"cpu": {"nominalQuota": "100"}, GPU: {"nominalQuota": str(gpus)}}}
    preemption = {"reclaimWithinCohort": reclaim}
    spec = {"cohortName": "all", "queueingStrategy": strategy, "preemption": preemption}
    return [cluster_queue(name, cells, **spec), local_queue(name, name)]


def judged(head: int, strategy: str = "StrictFIFO", reclaim: str = "LowerPriority") -> list[str]:
    """What is said of a workload that wants two of three free GPUs, beside one in another queue that wants `head`."""
    wrong: list[str] = []
    state = WorldState(lambda: EPOCH + 60.0, 15.0)
    objects = [
        flavor("any", {}),
        cohort("all", ""),
        *queue("strict", 2, strategy, reclaim),
        *queue("other", 1, "BestEffortFIFO", "Never"),
        *([waiting("head", "strict", head)] if head else []),
        waiting("asks", "other", 2),
    ]
    kinds = {"ResourceFlavor": "resourceflavors", "Cohort": "cohorts", "ClusterQueue": "clusterqueues"}
    for tree in objects:
        state.apply(kinds.get(tree["kind"], tree["kind"].lower() + "s"), "ADDED", tree)
    state.count_usage()
    ReasonJudge(state, wrong.append, lambda what: None).check()
    return [text for text in wrong if text.startswith("team/asks")]


def test_quota_that_suffices_is_no_reason() -> None:
    assert "quota of other suffices" in judged(0)[0]
    assert "quota of other suffices" in judged(4, strategy="BestEffortFIFO")[0]


def test_a_blocked_head_reserves_what_it_asks_for() -> None:
    assert judged(4) == []
    assert judged(2) == []


def test_an_owner_that_takes_back_from_anybody_reserves_nothing() -> None:
    assert "quota of other suffices" in judged(4, reclaim="Any")[0]
