"""What should exist and does not: pods that a controller does not make, plugins that no node selects, groups in part.

Each also with the fault repaired, or without the evidence that decides.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.diagnose.causal_scenes import PRESENT, crashing, running
from tests.diagnose.objects import GPU, ask, event, node, pod, thing

from windlass.model.unstructured import Unstructured

LWS = "leaderworkerset.sigs.k8s.io/"
CONTAINERS: Unstructured = {"containers": [{"name": "c", "resources": {"limits": {GPU: "1"}}}]}
TEMPLATE: Unstructured = {"template": {"spec": CONTAINERS}}
OLD = "2026-03-01T09:00:00Z"


def made(kind: str, name: str, spec: Unstructured, version: str, uid: str = "", **more: Any) -> Unstructured:
    found = thing(kind, name, spec, version, **more)
    found["metadata"] |= {"creationTimestamp": OLD, "uid": uid or f"u-{kind}-{name}"}
    return found


# Groups of a LeaderWorkerSet


def groups(count: int, waiting: bool, labels: bool = True) -> list[Unstructured]:
    """A LeaderWorkerSet of groups of two, whose workers wait or are ready."""
    status = {"replicas": count, "readyReplicas": 0 if waiting else count}
    spec = {"replicas": count, "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": CONTAINERS}}}
    found = [made("LeaderWorkerSet", "llm", spec, "leaderworkerset.x-k8s.io/v1", status=status)]
    ready = {"name": "main", "ready": True, "state": {"running": {"startedAt": OLD}}}
    for group in range(count):
        for index, name in enumerate((f"llm-{group}", f"llm-{group}-1")):
            is_placed = index == 0 or not waiting
            marks = {f"{LWS}group-index": str(group), f"{LWS}worker-index": str(index)} if labels else {}
            state = {"containerStatuses": [ready]} if is_placed else {}
            more = {"labels": marks, "annotations": {f"{LWS}size": "2"}, "owner": ("LeaderWorkerSet", "llm")}
            found.append(pod(name, 1, on="g1" if is_placed else "", status=state, **more))
    return found


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("question", ["lws/llm", "pod/llm-0-1"])
def test_leaders_that_hold_what_their_workers_need_are_a_deadlock(question: str, labels: bool) -> None:
    found = ask(question, node("g1", 3), *groups(3, True, labels))
    assert found.code == "GANG_DEADLOCK"
    assert "llm-0 has 1 of 2" in found.headline
    assert found.chain[0].code != "GANG_DEADLOCK"  # the engine's own words come first


def test_groups_for_which_there_is_room_wait_for_nobody() -> None:
    assert ask("lws/llm", node("g1", 8), *groups(3, True)).code != "GANG_DEADLOCK"


@pytest.mark.parametrize("labels", [True, False])
def test_nothing_is_wrong_with_a_set_that_serves_on_all_gpus(labels: bool) -> None:
    assert ask("lws/llm", node("g1", 4), *groups(2, False, labels)).code == "NONE"


# What a queue has admitted, and what stays suspended


def ray_job(admitted: str, suspended: bool) -> list[Unstructured]:
    workload = made("Workload", "w", {"queueName": "q"}, "kueue.x-k8s.io/v1beta1", owner=("RayJob", "r"))
    workload["status"] = {"conditions": [{"type": "Admitted", "status": admitted}]}
    job = made("RayJob", "r", {"suspend": False}, "ray.io/v1", labels={"kueue.x-k8s.io/queue-name": "q"})
    groups = {"headGroupSpec": TEMPLATE}
    spec = {"suspend": suspended, **groups}
    return [node("g1", 4), job, workload, made("RayCluster", "r-c", spec, "ray.io/v1", owner=("RayJob", "r"))]


def test_a_cluster_that_stays_suspended_after_its_job_was_admitted_is_named() -> None:
    found = ask("rayjob/r", *ray_job("True", True))
    assert found.code == "JOB_SUSPENDED"
    assert "admitted it, but RayCluster team/r-c is still suspended" in found.headline
    assert ask("rayjob/r", *ray_job("True", False)).code != "JOB_SUSPENDED"
    assert ask("rayjob/r", *ray_job("False", True)).code != "JOB_SUSPENDED"


# Controllers that make no pods


def training(args: list[str], ready: int = 1) -> list[Unstructured]:
    spec = {"replicas": 1, "template": {"spec": {"containers": [{"name": "c", "args": args}]}}}
    operator = made("Deployment", "training-operator", spec, "apps/v1", namespace="kubeflow")
    operator["status"] = {"readyReplicas": ready}
    job = made("PyTorchJob", "big-job", {"pytorchReplicaSpecs": {"Worker": TEMPLATE}}, "kubeflow.org/v1")
    return [node("g1", 4), job, operator]


NO_API = 'Reconcile PyTorchJob team/big-job error: no matches for kind "PodGroup" in version "scheduling.volcano.sh/v1"'
OPERATOR = running("training-operator-1", "g1", OLD)


@pytest.mark.parametrize(
    ("args", "log", "confidence"),
    [
        (["--gang-scheduler-name=volcano"], "", "high"),
        ([], f"{NO_API}\n{NO_API}", "high"),
        ([], NO_API, "low"),  # one line, and nothing else for it
    ],
)
def test_an_operator_that_wants_a_scheduler_that_is_not_there_makes_no_pods(
    args: list[str], log: str, confidence: str
) -> None:
    logs = {"gpu-operator/training-operator-1": log} if log else {}
    lease = thing("Lease", "other", {}, "coordination.k8s.io/v1")
    found = ask("pytorchjob/big-job", *training(args), OPERATOR, lease, logs=logs)
    assert (found.code, found.confidence) == ("WRONG_SCHEDULER", confidence)
    assert found.changed_by == "a cluster administrator"
    assert bool(found.next_commands) == (confidence == "low")


def test_an_operator_without_a_working_pod_is_why_there_are_no_pods() -> None:
    pulled = crashing("training-operator-1", "g1", owner=("Deployment", "training-operator"))
    pulled["metadata"]["namespace"] = "kubeflow"
    pulled["status"]["containerStatuses"][0]["state"]["waiting"] = {"reason": "ImagePullBackOff"}
    found = ask("pytorchjob/big-job", *training([], 0), pulled)
    assert (found.code, found.changed_by) == ("IMAGE_PULL_FAILED", "a cluster administrator")
    assert "Deployment kubeflow/training-operator, which makes the pods of every PyTorchJob" in found.headline
    assert ask("pytorchjob/big-job", *training([])).code == "UNKNOWN"


# Plugins that run nowhere, or find nothing


def dra(selector: dict[str, str]) -> list[Unstructured]:
    """A pod with a claim whose driver selects these labels; the node has one of another form."""
    spec = {"template": {"spec": {"nodeSelector": selector, "containers": [{"name": "c"}]}}}
    driver = thing("DaemonSet", "dra-driver-kubelet-plugin", spec, namespace="dra")
    asked = pod("asked", spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]})
    requests = {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
    claim = thing("ResourceClaimTemplate", "one", {"spec": requests}, "resource.k8s.io/v1")
    labels = {"feature.node.kubernetes.io/pci-0302_10de.present": "true"}
    return [node("g1", labels=labels), driver, claim, asked]


def test_a_driver_that_selects_a_label_in_another_form_runs_nowhere() -> None:
    found = ask("pod/asked", *dra({"feature.node.kubernetes.io/pci-10de.present": "true"}))
    assert found.code == "DEVICE_PLUGIN_ABSENT"
    assert "pci-10de.present is absent" in found.headline
    assert "the node has feature.node.kubernetes.io/pci-0302_10de.present=true" in found.headline
    assert ask("pod/asked", *dra({"feature.node.kubernetes.io/pci-0302_10de.present": "true"})).code == "UNKNOWN"


RDMA = "rdma/hca_shared_devices_a"


def rdma(log: str) -> Any:
    daemon = thing("DaemonSet", "rdma-shared-dp-ds", TEMPLATE, namespace="kube-system")
    agent = running("rdma-shared-dp-ds-1", "g1", OLD)
    agent["metadata"] |= {"namespace": "kube-system"}
    agent["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "rdma-shared-dp-ds", "controller": True}]
    logs = {"kube-system/rdma-shared-dp-ds-1": log}
    return ask("pod/asked", node("g1", 4), daemon, agent, pod("asked", 1, resource=RDMA), logs=logs)


def test_a_plugin_that_runs_and_finds_no_device_is_not_a_wrong_name() -> None:
    found = rdma("Warning: no devices in device pool, creating empty resource server for hca_shared_devices_a")
    assert (found.code, found.confidence) == ("DEVICE_PLUGIN_FAILING", "high")
    assert (unsure := rdma("serving hca_shared_devices_a")).code == found.code
    assert unsure.confidence == "low"
    assert rdma("serving something else").code == "RESOURCE_NAME_MISMATCH"


# Domains, checks and lines of logs


def spread(tainted: bool) -> Any:
    """Two nodes, of which one is full of the pod's own kind, and one may not be used."""
    taints = [{"key": "team", "value": "other", "effect": "NoSchedule"}] if tainted else []
    rule = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }
    asked = pod("asked", 1, labels={"app": "a"}, spec={"topologySpreadConstraints": [rule]})
    return ask(
        "pod/asked", node("g1", 4), node("g2", 4, taints=taints), pod("first", 1, "g1", labels={"app": "a"}), asked
    )


def test_a_node_that_may_not_be_used_counts_as_an_empty_domain() -> None:
    found = spread(True)
    assert found.code == "POD_SPREAD_CONFLICT"
    assert found.chain[0].code == "TAINT_NOT_TOLERATED"
    assert "alone excludes g1" in found.headline
    assert spread(False).code == "NONE"


@pytest.mark.parametrize(
    ("message", "controller", "code"),
    [
        ("max node group size reached", "kueue.x-k8s.io/provisioning-request", "AUTOSCALER_MAX_SIZE"),
        ("the pool is at its maximum size", "kueue.x-k8s.io/provisioning-request", "AUTOSCALER_MAX_SIZE"),
        ("GCE out of resources", "kueue.x-k8s.io/provisioning-request", "CLOUD_CAPACITY"),
        ("not yet reviewed", "example.com/review", "UNKNOWN"),
    ],
)
def test_a_request_for_nodes_says_itself_why_none_come(message: str, controller: str, code: str) -> None:
    job = made("Job", "j", TEMPLATE | {"suspend": True}, "batch/v1", labels={"kueue.x-k8s.io/queue-name": "q"})
    workload = made("Workload", "w", {"queueName": "q"}, "kueue.x-k8s.io/v1beta1", owner=("Job", "j"))
    workload["status"] = {
        "conditions": [{"type": "QuotaReserved", "status": "True"}, {"type": "Admitted", "status": "False"}],
        "admissionChecks": [{"name": "check", "state": "Retry", "message": "it failed"}],
    }
    failed = {"conditions": [{"type": "Failed", "status": "True", "message": message}]}
    wants = made("ProvisioningRequest", "r", {}, "autoscaling.x-k8s.io/v1", owner=("Workload", "w"), status=failed)
    check = thing("AdmissionCheck", "check", {"controllerName": controller}, "kueue.x-k8s.io/v1beta1", namespace="")
    assert ask("job/j", node("g1", 4), job, workload, wants, check).code == code


def test_a_line_of_a_ready_pods_log_alone_is_no_sure_cause() -> None:
    """That it serves speaks against it; a failed pod with the same line has failed of it."""
    ready = running("asked", "g1", OLD)
    ready["metadata"]["namespace"] = "team"
    line = {"team/asked": "NCCL INFO NET/IB : No device found."}
    found = ask("pod/asked", node("g1", 4, labels=PRESENT), ready, logs=line)
    assert (found.code, found.confidence) == ("NCCL_TRANSPORT_FALLBACK", "low")
    assert len(found.next_commands) == 3


# Schedulers of tenants


def test_a_tenants_pod_does_not_stand_for_a_scheduler_that_lives_elsewhere() -> None:
    asked = pod("asked", 1, spec={"schedulerName": "volcano"})
    asked["metadata"]["uid"] = "u-asked"
    real = crashing("volcano-scheduler-1", "g1")
    real["metadata"]["namespace"] = "volcano-system"
    decoy = pod("volcano-scheduler-2", on="g1", namespace="team-b")
    found = ask("pod/asked", node("g1", 4), asked, real, decoy)
    assert (found.code, found.confidence) == ("WRONG_SCHEDULER", "high")
    assert "volcano-system/volcano-scheduler-1" in found.headline
    # Where only a namespace that may be anybody's has one, that is not sure
    real["metadata"]["namespace"] = "team-b"
    alone = ask("pod/asked", node("g1", 4), asked, real)
    assert (alone.code, alone.confidence) == ("WRONG_SCHEDULER", "low")


def test_a_device_node_that_the_writer_of_the_spec_did_not_find_explains_a_program_that_sees_no_gpu() -> None:
    toolkit = running("nvidia-container-toolkit-daemonset-1", "g1", OLD)
    failed = {"containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}
    asked = pod("asked", 1, on="g1", phase="Failed", status=failed)
    logs = {
        "team/asked": "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment",
        "gpu-operator/nvidia-container-toolkit-daemonset-1": 'level=warning msg="Could not locate /dev/nvidia-uvm"',
    }
    there = node("g1", 4, labels=PRESENT)
    assert ask("pod/asked", there, asked, toolkit, logs=logs).code == "DEVICE_NODES_MISSING"
    refused = event("Pod/asked", "Failed", "CDI device nvidia.com/gpu=0 is unknown to the runtime", "kubelet")
    assert ask("pod/asked", there, asked, refused).code == "DEVICE_NODES_MISSING"
