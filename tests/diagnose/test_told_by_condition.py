"""`why` of suspended work whose Workload has Windlass's own, short condition: the engine is asked again."""

from __future__ import annotations

import pytest
from tests.diagnose.objects import GPU, ask, event, node, plugin, pod, thing
from tests.diagnose.test_outlook import FULL, job, queues

from windlass.diagnose.finding import Diagnosis
from windlass.model.names.windlass import UNHEALTHY_DEVICES_ANNOTATION
from windlass.model.unstructured import Unstructured

NODES = [node("g1", 8), node("g2", 8)]
HALVES = [pod("busy-1", 4, on="g1"), pod("busy-2", 4, on="g2")]
PREEMPTOR = "5d3a0000-0000-4000-8000-000000000001"


def condition(kind: str, status: str, reason: str, message: str) -> Unstructured:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def told(
    gpus: int, message: str, *objects: Unstructured, queue: str = "q", more: Unstructured | None = None
) -> Diagnosis:
    """The answer about a Job of which Windlass has said this."""
    owner = job("asked", gpus, FULL, {"kueue.x-k8s.io/queue-name": queue})
    pods = [{"name": "main", "count": 1, "template": owner["spec"]["template"]}]
    conditions = [condition("QuotaReserved", "False", "Pending", message), *([more] if more else [])]
    spec, status = {"queueName": queue, "podSets": pods}, {"conditions": conditions}
    version = "kueue.x-k8s.io/v1beta2"
    workload = thing("Workload", "job-asked", spec, version, status=status, owner=("Job", "asked"))
    return ask("job/asked", *objects, owner, workload)


SHORT = "0/2 nodes are available: its queue has too little quota left; `windlass why` has the numbers"
MISSING = "0/2 nodes are available: its queue is missing, inactive or stopped (KUEUE_QUEUE_MISSING)"


def test_the_numbers_of_the_quota_are_the_engines() -> None:
    busy = pod("busy", 8, on="g1", labels={"kueue.x-k8s.io/queue-name": "q"})
    found = told(4, f"{SHORT} (KUEUE_QUOTA_INSUFFICIENT)", *NODES, *queues(), busy)
    words = "Over quota: ClusterQueue cq has 0 nvidia.com/gpu left in flavor f, 4 requested"
    assert found.headline.startswith(words)
    assert found.state == "waiting"


def test_work_that_never_gets_enough_quota_needs_a_person() -> None:
    found = told(4, f"{SHORT} (KUEUE_QUOTA_INSUFFICIENT)", *NODES, *queues(gpus=2))
    assert found.headline.startswith("It never starts: ClusterQueue cq can have at most 2 nvidia.com/gpu")
    assert "waiting does not help" in found.headline
    assert found.state == "blocked"
    assert found.outlook is None


def test_a_missing_queue_is_named() -> None:
    found = told(4, MISSING, *NODES, *queues(), queue="nope")
    assert found.headline.startswith("LocalQueue nope doesn't exist")
    assert found.patches


def test_what_is_free_and_where_is_said_of_fragments() -> None:
    message = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. (GPU_FRAGMENTED)"
    found = told(8, message, *NODES, *queues(64), *HALVES)
    assert found.headline.startswith("8 GPUs are free, but spread over 2 nodes (4, 4)")
    assert len(found.nodes) == 2
    assert [patch.what for patch in found.patches] == ["ask for 4 nvidia.com/gpu"]


def test_the_node_and_the_gpu_that_is_unhealthy_are_named() -> None:
    ill = node("g1", {GPU: 7}, capacity={GPU: 8})
    ill["metadata"]["annotations"] = {UNHEALTHY_DEVICES_ANNOTATION: "3"}
    message = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. (DEVICE_UNHEALTHY)"
    found = told(8, message, ill, *plugin("g1"), *queues(64))
    assert "node g1" in found.headline
    assert "node g1 would take a pod if its GPU 3 were healthy" in found.evidence


def test_the_work_that_preempted_it_is_named() -> None:
    message = f"Preempted to accommodate a workload (UID: {PREEMPTOR}, JobUID: UNKNOWN)"
    preemptor = thing("Workload", "boss", {"queueName": "q"}, "kueue.x-k8s.io/v1beta2")
    preemptor["metadata"]["uid"] = PREEMPTOR
    evicted = condition("Evicted", "True", "Preempted", message)
    found = told(8, f"{SHORT} (KUEUE_QUOTA_INSUFFICIENT)", *NODES, *queues(2), preemptor, more=evicted)
    assert f"Workload team/job-asked: {message}: Workload team/boss" in found.evidence


def test_that_victims_are_about_to_go_is_what_the_condition_alone_says() -> None:
    message = "0/2 nodes are available: waiting for preempted pods on g1 to terminate (WAITING_FOR_PREEMPTION)"
    found = told(8, message, *NODES, *queues(64), *HALVES)
    assert found.headline.startswith("Waiting for preempted pods on g1 to terminate")


@pytest.mark.parametrize("objects", [[], [*NODES, *queues()]])
def test_without_a_hold_of_the_engine_the_condition_is_told_without_its_frame(objects: list[Unstructured]) -> None:
    """No nodes are in the evidence, or the engine would start it now."""
    found = told(4, f"{SHORT} (KUEUE_QUOTA_INSUFFICIENT)", *objects, event("Job/asked", "Suspended", "Job suspended"))
    assert found.code == "KUEUE_QUOTA_INSUFFICIENT"
    assert found.headline.startswith("Its queue has too little quota left; `windlass why` has the numbers — ")
