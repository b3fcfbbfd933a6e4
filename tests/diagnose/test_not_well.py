"""What looks well by its pods and is not: a Job that lacks one, a rollout that crashes, an object that is not ready."""

from __future__ import annotations

from typing import Any

import pytest
from tests.diagnose.objects import GPU, ask, event, node, pod, thing

from windlass.model.unstructured import Unstructured

HERE = node("g1", 8)
OLD = "2026-03-01T10:00:00Z"
TEMPLATE: Unstructured = {"template": {"spec": {"containers": [{"name": "c", "resources": {"limits": {GPU: "1"}}}]}}}
READY = {"containerStatuses": [{"name": "main", "ready": True, "state": {"running": {"startedAt": OLD}}}]}
CRASH = {
    "containerStatuses": [
        {"name": "main", "restartCount": 9, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
    ]
}


def made(kind: str, name: str, spec: Unstructured, version: str, **more: Any) -> Unstructured:
    found = thing(kind, name, spec, version, **more)
    found["metadata"]["creationTimestamp"] = OLD
    return found


# A Job with fewer pods than it wants

REFUSED = 'Error creating: pods "j-2" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1'


def job(parallelism: int, completions: int, refused: str = "") -> list[Unstructured]:
    spec = {"parallelism": parallelism, "completions": completions, **TEMPLATE}
    said = [event("Job/j", "FailedCreate", refused, "job-controller") | {"type": "Warning"}] if refused else []
    first = pod("j-1", 1, on="g1", owner=("Job", "j"), status=READY)
    return [HERE, made("Job", "j", spec, "batch/v1"), first, *said]


def test_a_job_whose_second_pod_is_refused_is_not_well() -> None:
    assert ask("job/j", *job(2, 2, REFUSED)).code == "RESOURCE_QUOTA_EXCEEDED"


@pytest.mark.parametrize("completions", [1])
def test_a_job_that_wants_no_more_pods_is_well(completions: int) -> None:
    assert ask("job/j", *job(2, completions)).code == "NONE"


def test_a_job_that_lacks_a_pod_for_no_known_reason_is_not_called_well() -> None:
    assert ask("job/j", *job(2, 2)).code == "UNKNOWN"


# A rollout that crashes while the old pods serve


def deployment(new: Unstructured) -> list[Unstructured]:
    status = {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}
    return [
        HERE,
        made("Deployment", "d", {"replicas": 1, **TEMPLATE}, "apps/v1", status=status),
        made("ReplicaSet", "d-new", {"replicas": 1}, "apps/v1", owner=("Deployment", "d")),
        made("ReplicaSet", "d-old", {"replicas": 1}, "apps/v1", owner=("Deployment", "d")),
        pod("d-old-1", 1, on="g1", owner=("ReplicaSet", "d-old"), status=READY),
        pod("d-new-1", 1, on="g1", owner=("ReplicaSet", "d-new"), status=new),
    ]


def test_a_new_version_that_crashes_is_named() -> None:
    found = ask("deploy/d", *deployment(CRASH), logs={"team/d-new-1": "KeyError: 'MODEL'"})
    assert found.code == "APP_ERROR"


def test_a_new_version_that_serves_is_well() -> None:
    assert ask("deploy/d", *deployment(READY)).code == "NONE"


# An object whose pods are ready, and that is not


def service(status: str, message: str, since: str = OLD) -> list[Unstructured]:
    ready = {"type": "Ready", "status": status, "reason": "Initializing", "lastTransitionTime": since}
    applications = {"llm": {"status": "RUNNING" if status == "True" else "DEPLOY_FAILED", "message": message}}
    state = {"conditions": [ready], "applicationStatuses": applications}
    return [
        HERE,
        made("RayService", "s", {}, "ray.io/v1", status=state),
        made("RayCluster", "s-c", {}, "ray.io/v1", owner=("RayService", "s")),
        pod("s-c-head", 1, on="g1", owner=("RayCluster", "s-c"), status=READY),
    ]


TRACE = "Deploying app failed with exception: ModuleNotFoundError: No module named 'x'"


def test_the_exception_in_its_status_is_the_programs() -> None:
    found = ask("rayservice/s", *service("False", TRACE))
    assert found.code == "APP_ERROR"
    assert "No module named 'x'" in found.headline


def test_words_that_show_no_cause_are_repeated_without_one() -> None:
    found = ask("rayservice/s", *service("False", "something is odd and could not be done"))
    assert (found.code, found.confidence) == ("UNKNOWN", "low")
    assert "something is odd" in found.headline


def test_an_object_that_is_ready_or_has_just_begun_is_well() -> None:
    assert ask("rayservice/s", *service("True", TRACE)).code == "NONE"
    assert ask("rayservice/s", *service("False", TRACE, since="2026-03-01T11:58:00Z")).code == "NONE"


# Parts of a status


def test_a_part_that_waits_says_why_though_the_whole_is_running() -> None:
    nodes = {"w-1": {"phase": "Pending", "message": REFUSED}, "w-0": {"phase": "Succeeded", "message": "exit code 3"}}
    workflow = made("Workflow", "w", {}, "argoproj.io/v1alpha1", status={"phase": "Running", "nodes": nodes})
    assert ask("workflow/w", HERE, workflow).code == "RESOURCE_QUOTA_EXCEEDED"


# A sandbox that its runtime can't start


def sandbox(message: str, handler: str) -> list[Unstructured]:
    waiting = {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": OLD}
    state = {"containerStatuses": [waiting], "conditions": [bound]}
    asked = pod("asked", 1, on="g1", phase="Pending", spec={"runtimeClassName": handler}, status=state)
    said = event("Pod/asked", "FailedCreatePodSandBox", message, "kubelet") | {"type": "Warning"}
    return [HERE, asked, said]


SHIM = "failed to create shim task: timed out connecting to the virtual machine"


def test_a_runtime_that_can_not_start_the_sandbox_is_named() -> None:
    found = ask("pod/asked", *sandbox(SHIM, "kata"))
    assert (found.code, found.confidence) == ("RUNTIME_NOT_CONFIGURED", "low")
    assert "he runtime kata of node g1" in found.headline


def test_a_network_that_can_not_be_set_up_is_no_fault_of_the_runtime() -> None:
    found = ask("pod/asked", *sandbox('plugin type="x" failed (add): no route in the network', "kata"))
    assert found.code == "UNKNOWN"
    assert "its network is not set up" in found.headline


# Attempts that failed, and have been replaced


def attempt(name: str, begun: str, ended: str = "") -> Unstructured:
    """A pod of a Job that runs, or has failed at `ended`."""
    if not ended:
        state = {"containerStatuses": [{"name": "main", "ready": True, "state": {"running": {"startedAt": begun}}}]}
        return pod(name, 1, on="g1", owner=("Job", "j"), status=state)
    terminated = {"exitCode": 1, "reason": "Error", "finishedAt": ended}
    state = {"startTime": begun, "containerStatuses": [{"name": "main", "state": {"terminated": terminated}}]}
    return pod(name, 1, on="g1", owner=("Job", "j"), phase="Failed", status=state)


def retried(begun: str, failed_after: str) -> Any:
    spec = {"parallelism": 1, "completions": 1, **TEMPLATE}
    first = attempt("j-1", "2026-03-01T09:00:00Z", failed_after)
    return ask("job/j", HERE, made("Job", "j", spec, "batch/v1"), first, attempt("j-2", begun))


def test_an_attempt_that_has_outlasted_the_failed_one_is_well() -> None:
    assert retried("2026-03-01T09:30:00Z", "2026-03-01T09:20:00Z").code == "NONE"


def test_an_attempt_that_may_still_fail_as_the_first_one_is_not() -> None:
    assert retried("2026-03-01T11:50:00Z", "2026-03-01T09:20:00Z").code != "NONE"


def test_an_evicted_pod_that_was_left_behind_does_not_matter() -> None:
    status = {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}
    evicted = {"reason": "Evicted", "message": "The node was low on resource: memory."}
    parts = (
        made("Deployment", "d", {"replicas": 1, **TEMPLATE}, "apps/v1", status=status),
        made("ReplicaSet", "d-1", {"replicas": 1}, "apps/v1", owner=("Deployment", "d")),
        pod("d-1-old", 1, on="g1", owner=("ReplicaSet", "d-1"), phase="Failed", status=evicted),
        pod("d-1-new", 1, on="g1", owner=("ReplicaSet", "d-1"), status=READY),
    )
    assert ask("deploy/d", HERE, *parts).code == "NONE"
