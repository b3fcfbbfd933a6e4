"""Words of layers beside the GPU's: the node's memory, provisioners, services that are waited for, queues."""

from __future__ import annotations

import pytest
from tests.diagnose.objects import ask, ended, event, node, pod, thing

from windlass.model.unstructured import Unstructured

HERE = node("g1", 4)


# Memory


def killed(at: str, code: int = 137) -> Unstructured:
    last = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": at}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    status = {"containerStatuses": [{"name": "main", "restartCount": 3, "state": waiting, "lastState": last}]}
    return pod("asked", 1, on="g1", status=status)


OUT_OF_MEMORY = event("Node/g1", "SystemOOM", "System OOM encountered, victim process: python3", "kubelet")


def test_a_container_that_was_killed_when_its_node_ran_out_of_memory() -> None:
    found = ask("pod/asked", HERE, killed("2026-03-01T11:00:20Z"), OUT_OF_MEMORY)
    assert found.code == "CONTAINER_OOM"
    assert "ode g1 ran out of memory, and the kernel killed container main" in found.headline


@pytest.mark.parametrize(("at", "code"), [("2026-03-01T08:00:00Z", 137), ("2026-03-01T11:00:20Z", 1)])
def test_another_time_or_another_end_is_another_cause(at: str, code: int) -> None:
    assert ask("pod/asked", HERE, killed(at, code), OUT_OF_MEMORY).code != "CONTAINER_OOM"


# CUDA's own error codes


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("Error 803: system has unsupported display driver / cuda driver combination", "DRIVER_LIB_MISMATCH"),
        ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "DRIVER_LIB_MISMATCH"),
        ("CUDA_ERROR_ECC_UNCORRECTABLE", "GPU_HW_FAULT"),
        ("CUDA_ERROR_SYSTEM_NOT_READY", "FABRIC_NOT_READY"),
        ("CUDA_ERROR_ILLEGAL_ADDRESS", "APP_ERROR"),
    ],
)
def test_the_codes_of_cuda_name_the_layer(line: str, code: str) -> None:
    assert ask("pod/asked", HERE, ended(), logs={"team/asked": line}).code == code


# Claims


CLAIM = {"storageClassName": "s", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def claim(message: str, **status: str) -> list[Unstructured]:
    said = event("PersistentVolumeClaim/data", "ProvisioningFailed", message, "disk.example.com")
    store = thing("StorageClass", "s", {}, "storage.k8s.io/v1") | {
        "provisioner": "disk.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    store["metadata"]["namespace"] = ""
    return [
        thing("PersistentVolumeClaim", "data", CLAIM, "v1", status={"phase": "Pending", **status}),
        store,
        said | {"type": "Warning"},
    ]


MOUNTS = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}


def test_what_the_provisioner_says_is_why_a_pod_that_would_fit_waits() -> None:
    found = ask(
        "pod/asked", HERE, *claim("create volume: the quota of disks is used up for good"), pod("asked", 1, spec=MOUNTS)
    )
    assert found.code == "STORAGE_INSUFFICIENT"
    assert "laim data gets no volume: the quota of disks is used up for good" in found.headline


def test_where_no_gpu_is_free_its_old_words_are_no_cause() -> None:
    full = pod("busy", 4, on="g1")
    found = ask("pod/asked", HERE, full, *claim("create volume: too late"), pod("asked", 1, spec=MOUNTS))
    assert found.code == "GPU_FULL"


# What an init container waits for


def test_an_init_container_waits_for_a_service_whose_pods_fail() -> None:
    init = {"initContainers": [{"name": "wait"}]}
    running = {"name": "wait", "state": {"running": {"startedAt": "2026-03-01T10:00:00Z"}}}
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-03-01T10:00:00Z"}
    asked = pod(
        "asked",
        1,
        on="g1",
        phase="Pending",
        spec=init,
        status={"initContainerStatuses": [running], "conditions": [bound]},
    )
    template = {"template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c"}]}}}
    crash = {"name": "main", "restartCount": 5, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    parts = (
        thing("Service", "db", {"selector": {"app": "db"}}, "v1"),
        thing("Deployment", "db", template),
        pod("db-1", on="g1", owner=("Deployment", "db"), status={"containerStatuses": [crash]}),
    )
    found = ask("pod/asked", HERE, asked, *parts, logs={"team/asked": "waiting for db:5432"})
    assert found.code in ("APP_ERROR", "UNKNOWN")
    assert "Deployment team/db" not in found.headline  # the log is the main container's
    named = _with_log_of("wait", asked, *parts)
    assert "Deployment team/db" in named


def _with_log_of(container: str, *objects: Unstructured) -> str:
    from tests.diagnose.objects import NOW, evidence

    from windlass.diagnose.why import why

    known = evidence([HERE, *objects])
    known.add_pod_log("team", "asked", container, ["waiting for db:5432"])
    return why(known, "pod/asked", "team", NOW).headline


# Queues


def admitted(state: str) -> list[Unstructured]:
    checks = [{"name": "remote", "state": state, "message": "no cluster is reachable"}]
    reserved = {"type": "QuotaReserved", "status": "True"}
    status = {"admission": {"clusterQueue": "q"}, "admissionChecks": checks, "conditions": [reserved]}
    spec = {"queueName": "q", "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]}
    workload = thing("Workload", "w", spec, "kueue.x-k8s.io/v1beta1", owner=("Job", "j"), status=status)
    check = thing("AdmissionCheck", "remote", {"controllerName": "example.com/remote"}, "kueue.x-k8s.io/v1beta1")
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    return [HERE, thing("Job", "j", {"suspend": True}, "batch/v1", labels=labels), workload, check]


def test_quota_alone_admits_nothing_while_a_check_is_pending() -> None:
    found = ask("job/j", *admitted("Pending"))
    assert found.code == "UNKNOWN"
    assert "no cluster is reachable" in found.headline


def test_with_all_checks_ready_it_is_admitted() -> None:
    assert ask("job/j", *admitted("Ready")).code == "JOB_SUSPENDED"


def volcano_job(state: str) -> list[Unstructured]:
    queue = thing("Queue", "night", {"weight": 1}, "scheduling.volcano.sh/v1beta1", status={"state": state})
    containers = {"containers": [{"name": "c"}]}
    spec = {"queue": "night", "tasks": [{"replicas": 1, "template": {"spec": containers}}]}
    return [HERE, queue, thing("Job", "j", spec, "batch.volcano.sh/v1alpha1")]


def test_a_closed_queue_takes_nothing() -> None:
    found = ask("vcjob/j", *volcano_job("Closed"))
    assert found.code == "KUEUE_QUEUE_MISSING"
    assert "queue night is closed" in found.headline
    assert ask("vcjob/j", *volcano_job("Open")).code != "KUEUE_QUEUE_MISSING"


SPECIFY = 'pods "p" is forbidden: failed quota: q: must specify cpu for: a,b; memory for: a'


def test_a_quota_that_wants_numbers_is_not_used_up() -> None:
    job = thing("Job", "j", {"template": {"spec": {"containers": [{"name": "a"}]}}}, "batch/v1")
    found = ask("job/j", HERE, job, event("Job/j", "FailedCreate", SPECIFY, "job-controller") | {"type": "Warning"})
    assert found.code == "RESOURCE_QUOTA_EXCEEDED"
    assert "ResourceQuota q is on cpu and memory, and container a, b states none" in found.headline
    assert "used up" not in found.headline
    assert found.changed_by == "you, in the manifest"
