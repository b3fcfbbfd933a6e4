"""What stands behind a pod that no scheduler looks at, whose queue is full, or that waits for a sibling."""

from __future__ import annotations

from typing import Any

import pytest
from tests.diagnose.objects import GPU, ask, event, node, pod, thing

from windlass.model.unstructured import Unstructured

CRASHING: Unstructured = {
    "containerStatuses": [
        {
            "name": "main",
            "restartCount": 41,
            "ready": False,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 2}},
        }
    ]
}


def untouched(scheduler: str = "") -> Unstructured:
    """A pod of the cluster that no scheduler has said anything about, two hours old."""
    found = pod("asked", 1, spec={"schedulerName": scheduler} if scheduler else {})
    found["metadata"]["uid"] = "u-asked"
    return found


def scheduler_pod(status: Unstructured, name: str = "volcano-scheduler-5f6c-abcde") -> Unstructured:
    return pod(name, on="g1", namespace="batch-system", status=status)


def lease(name: str, renewed: str) -> Unstructured:
    spec = {"holderIdentity": "x", "renewTime": renewed, "leaseDurationSeconds": 15}
    return thing("Lease", name, spec, "coordination.k8s.io/v1", namespace="batch-system")


# Schedulers that do not work


def test_the_crashing_scheduler_of_a_pod_is_named_with_its_state_and_its_last_complaint() -> None:
    logs = {"batch-system/volcano-scheduler-5f6c-abcde": "starting\nfatal: no such file: /etc/sched.conf\nbye"}
    found = ask("pod/asked", node("g1", 4), untouched("volcano"), scheduler_pod(CRASHING), logs=logs)
    assert (found.code, found.confidence) == ("WRONG_SCHEDULER", "high")
    assert "volcano-scheduler-5f6c-abcde: main is in CrashLoopBackOff and has restarted 41 times" in found.headline
    assert "fatal: no such file" in found.evidence[0]


def test_one_working_replica_of_the_scheduler_is_enough() -> None:
    replicas = [scheduler_pod(CRASHING), scheduler_pod({}, "volcano-scheduler-5f6c-fghij")]
    assert ask("pod/asked", node("g1", 4), untouched("volcano"), *replicas).code != "WRONG_SCHEDULER"


def test_a_scheduler_without_replicas_does_not_run() -> None:
    owner = thing("Deployment", "yunikorn-scheduler", {"replicas": 0}, namespace="yk")
    found = ask("pod/asked", node("g1", 4), untouched("yunikorn"), owner, pod("yunikorn-admission", on="g1"))
    assert found.code == "WRONG_SCHEDULER"
    assert "Deployment yk/yunikorn-scheduler has no ready pod, and wants 0" in found.headline


@pytest.mark.parametrize(
    ("renewed", "code"), [("2026-03-01T09:00:00Z", "WRONG_SCHEDULER"), ("2026-03-01T11:59:55Z", "UNKNOWN")]
)
def test_a_lease_that_is_no_longer_renewed_shows_a_scheduler_that_is_gone(renewed: str, code: str) -> None:
    found = ask("pod/asked", node("g1", 4), untouched("volcano"), lease("volcano", renewed))
    assert found.code == code, found.headline


def test_nothing_is_wrong_is_not_said_of_a_pod_that_no_scheduler_has_touched_for_long() -> None:
    found = ask("pod/asked", node("g1", 4), untouched())
    assert (found.code, found.confidence) == ("UNKNOWN", "low")
    assert "no scheduler has said anything about it in 2h" in found.headline


def test_a_young_pod_may_still_be_decided_about() -> None:
    young = untouched()
    young["metadata"]["creationTimestamp"] = "2026-03-01T11:59:00Z"
    assert ask("pod/asked", node("g1", 4), young).code == "NONE"


def test_a_name_that_is_nearly_windlass_is_taken_for_it_also_before_it_has_placed_anything() -> None:
    found = ask("pod/asked", node("g1", 4), untouched("windlas"), lease("other", "2026-03-01T11:59:55Z"))
    assert found.code == "WRONG_SCHEDULER"
    assert found.headline.endswith("— use schedulerName: windlass.")
    assert found.patches[0].what == "use the scheduler windlass"


# Quota of a queue, and quota of a namespace


OVER = "Non-preemptible job is over quota: it requests 4 GPUs, and 6 of the 8 of blue are allocated"


def queue_of(name: str) -> Unstructured:
    spec = {"resources": {"gpu": {"quota": 8, "limit": -1}}}
    status = {"allocatedNonPreemptible": {GPU: "6"}}
    return thing("Queue", name, spec, "scheduling.run.ai/v2", status=status)


@pytest.mark.parametrize("labels", [{"kai.scheduler/queue": "blue"}, {}])
def test_a_scheduler_that_speaks_of_quota_means_its_queue(labels: dict[str, str]) -> None:
    said = event("Pod/asked", "Unschedulable", OVER, "kai-scheduler")
    found = ask("pod/asked", node("g1", 8), pod("asked", 4, labels=labels), queue_of("blue"), said)
    assert found.code == "KUEUE_QUOTA_INSUFFICIENT"
    assert "queue blue" in found.headline
    assert "preemptible priority class" in found.headline
    assert found.evidence[1].endswith(f"quota gpu 8, allocatedNonPreemptible {GPU} 6")


def test_quota_words_without_a_queue_or_a_resource_quota_name_neither() -> None:
    said = event("Pod/asked", "Unschedulable", "the job is over quota", "some-scheduler")
    assert "QUOTA" not in ask("pod/asked", node("g1", 8), pod("asked", 4), said).code


def test_the_api_servers_words_mean_the_resource_quota_also_in_a_queue() -> None:
    words = 'pods "x" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=4, used: 8, limited: 8'
    job = thing("Job", "train", {"template": {"spec": {"containers": [{"name": "c"}]}}}, "batch/v1")
    job["metadata"]["labels"] = {"kai.scheduler/queue": "blue"}
    found = ask("job/train", node("g1", 8), job, queue_of("blue"), event("Job/train", "FailedCreate", words))
    assert found.code == "RESOURCE_QUOTA_EXCEEDED"


# Pods that wait in an init container for a sibling


def cluster(head: Unstructured) -> list[Unstructured]:
    """A Ray cluster whose worker runs its init container."""
    init = {"initContainers": [{"name": "wait-for-head"}]}
    status = {
        "initContainerStatuses": [{"name": "wait-for-head", "ready": False, "state": {"running": {}}}],
        "containerStatuses": [{"name": "main", "ready": False, "state": {"waiting": {"reason": "PodInitializing"}}}],
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-03-01T10:00:00Z"}],
    }
    asked = pod("asked", 4, on="g1", phase="Pending", spec=init, status=status, **of_cluster("worker"))
    owner = thing("RayCluster", "rays", {}, "ray.io/v1")
    return [owner, node("g1", 8, cpu="8"), asked, head]


def of_cluster(role: str) -> dict[str, Any]:
    return {"owner": ("RayCluster", "rays"), "labels": {"ray.io/node-type": role, "ray.io/cluster": "rays"}}


def test_the_cause_of_the_head_is_that_of_the_worker_that_waits_for_it() -> None:
    found = ask("pod/asked", *cluster(pod("rays-head", cpu="64", **of_cluster("head"))))
    assert found.code == "CPU_MEM_INSUFFICIENT"
    assert "nit container wait-for-head of Pod team/asked waits for Pod team/rays-head" in found.headline
    assert "GANG_INCOMPLETE" in [link.code for link in found.chain]


def test_a_head_that_fails_is_named_with_why() -> None:
    killed = {"name": "main", "restartCount": 3, "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    head = pod("rays-head", on="g1", status={"containerStatuses": [killed]}, **of_cluster("head"))
    found = ask("pod/asked", *cluster(head))
    assert found.code == "CONTAINER_OOM"
    assert "rays-head" in found.headline


def test_other_workers_are_not_blamed_where_the_head_works() -> None:
    head, worker = pod("rays-head", on="g1", **of_cluster("head")), pod("rays-w2", cpu="64", **of_cluster("worker"))
    assert ask("pod/asked", *cluster(head), worker).code == "UNKNOWN"
