"""Nothing is evicted for a workload that something else would evict at once.

Shares, quota and priorities together can go round in circles: the owner of lent quota outranks a borrower of high
priority, that one a pod in no queue, and the pod the owner's workload of low priority.
"""

from __future__ import annotations

import pytest
from tests.placement.preemption.test_queued_and_unqueued import EPOCH, FLAVOR, KUEUE, QUEUE, node, pod

from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured
from windlass.planner import plan_objects

GPU = "nvidia.com/gpu"


def queues() -> list[Unstructured]:
    found: list[Unstructured] = [FLAVOR]
    for name, nominal in (("owner", 8), ("borrower", 0)):
        flavors = [{"name": "default", "resources": [{"name": GPU, "nominalQuota": nominal}]}]
        spec = {
            "cohortName": "all",
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}],
            "preemption": {"reclaimWithinCohort": "Any"},
        }
        meta = {"name": name, "namespace": "default"}
        found.append({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec})
        found.append({"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": meta, "spec": {"clusterQueue": name}})
    return found


def decided(*trees: Unstructured, **settings: object) -> Plan:
    objects = [decode_object(tree) for tree in (*queues(), node("n"), *trees)]
    plan, _ = plan_objects(objects, Settings(**settings), EPOCH + 3600)  # type: ignore[arg-type]
    return plan


BORROWER = pod("borrower", 8, 1000, on="n", queue="borrower")
OWNER = pod("owner", 8, 0, queue="owner")


def evicted(plan: Plan) -> list[tuple[str, str]]:
    return [(evict.workload, evict.for_workload) for evict in plan.evicts]


@pytest.mark.parametrize("rivals", [1, 2], ids=["single pod", "gang"])
@pytest.mark.parametrize("fair_sharing", [False, True])
def test_an_owner_takes_nothing_back_that_it_could_not_keep(rivals: int, fair_sharing: bool) -> None:
    waiting = [pod(f"rival-{at}", 8 // rivals, 500, group=rivals if rivals > 1 else 0) for at in range(rivals)]
    plan = decided(BORROWER, OWNER, *waiting, fair_sharing=fair_sharing)
    assert evicted(plan) == []
    assert plan.binds == ()
    said = {hold.workload: hold.verdict.message for hold in plan.holds}["default/owner"]
    name = "rival" if rivals > 1 else "rival-0"
    assert f"what it could preempt would make room for default/{name} of higher priority" in said


@pytest.mark.parametrize(
    "waiting",
    [
        [],
        [pod("rival", 8, 0)],
        [pod("rival", 4, 0)],
        [{**pod("rival", 8, 500), "spec": {**pod("rival", 8, 500)["spec"], "preemptionPolicy": "Never"}}],
        [{**pod("rival", 8, 500), "spec": {**pod("rival", 8, 500)["spec"], "schedulingGates": [{"name": "a/b"}]}}],
    ],
    ids=["nothing", "equal priority", "smaller and equal", "may not preempt", "behind a gate"],
)
def test_it_takes_back_what_it_can_keep(waiting: list[Unstructured]) -> None:
    assert evicted(decided(BORROWER, OWNER, *waiting)) == [("default/borrower", "default/owner")]


def test_what_may_not_be_preempted_keeps_its_place() -> None:
    owner = pod("owner", 8, 0, queue="owner")
    owner["metadata"]["annotations"]["volcano.sh/preemptable"] = "false"
    assert evicted(decided(BORROWER, owner, pod("rival", 8, 500))) == [("default/borrower", "default/owner")]


def test_others_of_its_queue_take_back_what_rivals_have_no_use_for() -> None:
    """A second owner's workload outranks the rival, and so gets what the first may not take."""
    second = pod("second", 8, 600, queue="owner")
    assert evicted(decided(BORROWER, OWNER, second, pod("rival", 8, 500))) == [("default/borrower", "default/second")]
    assert QUEUE in second["metadata"]["labels"]
