"""An owner that runs another number of pods than its Workload was admitted with: the plan says what the Workload should
hold, and why an elastic one can't grow."""

from __future__ import annotations

import pytest
from tests.invariants import objects as make
from tests.invariants.objects import EPOCH, GPU, NAMESPACE, QUEUE, stamp

from windlass.cli.plan_document import plan_document, plan_table, summary
from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import EngineConfig, decide
from windlass.model.codec import decode_object
from windlass.model.decision import PodSetResize
from windlass.model.decision_document import parse_plan
from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured
from windlass.model.workload import PodSetSize

ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}


def plan_of(*objects: Unstructured, quota: int = 8) -> Plan:
    cells = {"any": {GPU: {"nominalQuota": str(quota)}, "cpu": {"nominalQuota": "100"}}}
    ground = [
        make.node("n1", 64, 16, "a", "r1"),
        make.flavor("any", {}),
        make.cluster_queue("q", cells),
        make.local_queue("q", "q"),
    ]
    store = Store()
    store.apply([Put(decode_object(tree)) for tree in (*ground, *objects)])
    return decide(store.snapshot(EPOCH), EngineConfig(max_explained_holds=8), EPOCH)


def running(pods: int, *, admitted: int, declared: int, on_nodes: int, **job: object) -> list[Unstructured]:
    """A Job that asks for `pods`, its admitted Workload, and as many of its pods as are on nodes."""
    spec = make.pod_spec(1, 1)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train", "controller": True}
    tree = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train",
            "namespace": NAMESPACE,
            "uid": "uid-train",
            "labels": {QUEUE: "q"},
            "annotations": job.get("annotations", {}),
        },
        "spec": {"parallelism": pods, "completions": job.get("completions"), "template": {"spec": spec}},
        "status": {"succeeded": job.get("succeeded", 0)},
    }
    workload = make.workload("w", "q", [make.pod_set("main", declared, spec)], priority=0, created=EPOCH - 600)
    workload["metadata"]["ownerReferences"] = [reference]
    usage = {GPU: str(admitted), "cpu": str(admitted)}
    part = {"name": "main", "count": admitted, "flavors": {GPU: "any", "cpu": "any"}, "resourceUsage": usage}
    workload["status"] = {
        "admission": {"clusterQueue": "q", "podSetAssignments": [part]},
        "conditions": [{"type": "Admitted", "status": "True", "lastTransitionTime": stamp(EPOCH - 600)}],
    }
    members = []
    for number in range(on_nodes):
        member = make.pod(f"train-{number}", {**spec, "nodeName": "n1"}, created=EPOCH - 500)
        member["metadata"]["ownerReferences"] = [reference]
        member["status"] = {"phase": "Running", "startTime": stamp(EPOCH - 500)}
        members.append(member)
    return [tree, workload, *members]


def resized(plan: Plan) -> PodSetResize:
    (resize,) = plan.resizes
    assert resize.workload == f"{NAMESPACE}/w"
    (part,) = resize.pod_sets
    return part


def test_a_job_that_keeps_its_size_is_left_alone() -> None:
    assert plan_of(*running(4, admitted=4, declared=4, on_nodes=4)).resizes == ()


@pytest.mark.parametrize(("on_nodes", "held"), [(2, 2), (3, 3), (0, 2)])
def test_a_smaller_job_gives_quota_back_as_its_pods_leave(on_nodes: int, held: int) -> None:
    part = resized(plan_of(*running(2, admitted=4, declared=4, on_nodes=on_nodes)))
    assert (part.name, part.owner_count, part.before) == ("main", 2, PodSetSize(4, 0, 4))
    assert part.after == PodSetSize(held, 0, held)
    assert part.after.held == held


def test_pods_that_have_ended_for_good_are_reclaimable() -> None:
    trees = running(4, admitted=4, declared=4, on_nodes=2, completions=6, succeeded=4)
    assert resized(plan_of(*trees)).after == PodSetSize(4, 2, 4)


def test_partial_admission_keeps_the_size_that_is_restored() -> None:
    partial = {"kueue.x-k8s.io/job-min-parallelism": "1"}
    part = resized(plan_of(*running(2, admitted=4, declared=6, on_nodes=2, annotations=partial)))
    assert part.after == PodSetSize(6, 4, 4)


def test_an_elastic_job_grows_in_the_same_plan() -> None:
    found = plan_of(*running(6, admitted=4, declared=4, on_nodes=4, annotations=ELASTIC))
    assert resized(found).after == PodSetSize(6, 0, 4)
    (admit,) = found.admits
    assert [(part.name, part.count) for part in admit.pod_sets] == [("main", 2)]


def test_an_elastic_job_that_cannot_grow_says_why() -> None:
    found = plan_of(*running(6, admitted=4, declared=4, on_nodes=4, annotations=ELASTIC), quota=4)
    assert resized(found).after == PodSetSize(6, 0, 4), "it asks, and holds no more"
    (hold,) = found.holds
    assert (hold.workload, hold.verdict.code) == (f"{NAMESPACE}/w", "KUEUE_QUOTA_INSUFFICIENT")
    assert "ClusterQueue q has 0 nvidia.com/gpu left" in hold.verdict.public_message


def test_one_that_is_not_elastic_is_stopped_and_not_resized() -> None:
    found = plan_of(*running(6, admitted=4, declared=4, on_nodes=4))
    assert [evict.reason for evict in found.evicts] == ["NoMatchingWorkload"]
    assert found.resizes == ()


def test_a_changed_size_is_in_the_document_and_in_the_table() -> None:
    found = plan_of(*running(2, admitted=4, declared=4, on_nodes=2))
    document = plan_document(found, EPOCH)
    assert document["decisions"][0] == {
        "decision": "resize",
        "workload": f"{NAMESPACE}/w",
        "podSets": [
            {
                "name": "main",
                "ownerCount": 2,
                "before": {"declared": 4, "reclaimable": 0, "admitted": 4, "held": 4},
                "after": {"declared": 2, "reclaimable": 0, "admitted": 2, "held": 2},
            }
        ],
    }
    assert parse_plan(document) == found
    assert summary(found) == "1 resized"
    (row,) = zip(*(column.cells for column in plan_table(found).columns), strict=True)
    assert [str(cell) for cell in row] == ["resize", f"{NAMESPACE}/w", "main gives back quota: 2 pods instead of 4"]
