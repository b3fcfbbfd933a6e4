"""The same visible text, different causes: each has its own evidence, and `why` tells them apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from tests.diagnose.objects import GPU, GPU_TAINT, TOLERATES, YOUNG, ask, event, node, plugin, pod, thing

from windlass.model.unstructured import Unstructured

INSUFFICIENT = event("Pod/asked", "FailedScheduling", f"0/2 nodes are available: 2 Insufficient {GPU}.")
PRESENT = {"nvidia.com/gpu.present": "true"}
T4 = {"nvidia.com/gpu.product": "Tesla-T4"}


class Puzzle(NamedTuple):
    code: str
    objects: Sequence[Unstructured]
    logs: dict[str, str] = {}
    hosts: dict[str, str] = {}
    question: str = "pod/asked"


def check(puzzle: Puzzle) -> None:
    found = ask(puzzle.question, *puzzle.objects, logs=puzzle.logs, hosts=puzzle.hosts)
    assert found.code == puzzle.code, found.headline


def failed(reason: str, message: str) -> Unstructured:
    return pod("asked", 1, on="g1", phase="Failed", status={"reason": reason, "message": message})


def exited() -> Unstructured:
    status = {"containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 1}}}]}
    return pod("asked", 1, on="g1", phase="Failed", status=status)


SILENT = node("g1", labels=PRESENT)
LOG = "kube-system/nvidia-device-plugin-x"
SCALE = "cluster-autoscaler"


@pytest.mark.parametrize(
    "puzzle",
    [
        Puzzle("GPU_FULL", [node("g1", 1), pod("busy", 1, on="g1"), pod("asked", 1)]),
        Puzzle(
            "GPU_FRAGMENTED",
            [node("g1", 8), node("g2", 8), pod("a", 4, on="g1"), pod("b", 4, on="g2"), pod("asked", 8)],
        ),
        Puzzle("REQUEST_EXCEEDS_CLUSTER", [node("g1", 4), pod("asked", 8)]),
        Puzzle("DEVICE_UNHEALTHY", [node("g1", 1, capacity={GPU: 2}), pod("busy", 1, on="g1"), pod("asked", 1)]),
        Puzzle("DEVICE_UNHEALTHY", [node("g1", {GPU: 0}, capacity={GPU: 8}), pod("asked", 1)]),
        Puzzle("DEVICE_PLUGIN_ABSENT", [SILENT, pod("asked", 1)]),
        Puzzle("DEVICE_PLUGIN_FAILING", [SILENT, *plugin("g1", 3), pod("asked", 1)]),
        Puzzle(
            "GPU_NOT_YET_ADVERTISED",
            [node("g1", labels=PRESENT, created=YOUNG), *plugin("g1"), pod("asked", 1)],
        ),
        Puzzle("RESOURCE_NAME_MISMATCH", [node("g1", {"nvidia.com/gpu.shared": 4}), pod("asked", 1)]),
        Puzzle("RESOURCE_NAME_MISMATCH", [node("g1", {"nvidia.com/mig-1g.10gb": 7}), pod("asked", 1)]),
        Puzzle(
            "MIG_CONFIG_NOT_APPLIED",
            [
                node("g1", labels=PRESENT | {"nvidia.com/mig.config.state": "pending"}),
                *plugin("g1"),
                pod("asked", 1),
            ],
        ),
        Puzzle(
            "DRIVER_UPGRADE_BLOCKED",
            [
                node("g1", labels=PRESENT | {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}),
                pod("asked", 1),
            ],
        ),
        Puzzle(
            "DRIVER_MISSING",
            [SILENT, *plugin("g1", 9), pod("asked", 1)],
            hosts={"g1": "modprobe: FATAL: Module nvidia not found"},
        ),
        Puzzle(
            "RUNTIME_NOT_CONFIGURED",
            [SILENT, *plugin("g1"), pod("asked", 1)],
            {LOG: "If this is a GPU node, did you configure the NVIDIA Container Toolkit?"},
        ),
        Puzzle(
            "DRIVER_LIB_MISMATCH",
            [SILENT, *plugin("g1", 5), pod("asked", 1)],
            {LOG: "nvml error: driver/library version mismatch"},
        ),
        Puzzle(
            "MPS_NOT_READY",
            [SILENT, *plugin("g1", 5), pod("asked", 1)],
            {LOG: "error checking MPS daemon health"},
        ),
        Puzzle(
            "GPU_HW_FAULT",
            [SILENT, *plugin("g1", 5), pod("asked", 1)],
            hosts={"g1": "NVRM: Xid (PCI:0000:a1:00): 79, GPU has fallen off the bus."},
        ),
        Puzzle("TAINT_NOT_TOLERATED", [node("g1", 8, taints=[GPU_TAINT]), node("c1"), pod("asked", 1)]),
        Puzzle("NODE_UNSCHEDULABLE", [node("g1", 8, cordoned=True), node("c1"), pod("asked", 1)]),
        Puzzle(
            "AUTOSCALER_MAX_SIZE",
            [
                node("g1", 1),
                pod("busy", 1, on="g1"),
                pod("asked", 1),
                event(
                    "Pod/asked",
                    "NotTriggerScaleUp",
                    "pod didn't trigger scale-up: 1 max node group size reached",
                    SCALE,
                ),
            ],
        ),
        Puzzle(
            "CLOUD_CAPACITY",
            [
                node("g1", 1),
                pod("busy", 1, on="g1"),
                pod("asked", 1),
                event(
                    "Pod/asked",
                    "NotTriggerScaleUp",
                    "pod didn't trigger scale-up: 1 in backoff after failed scale-up",
                    SCALE,
                ),
            ],
        ),
    ],
    ids=lambda puzzle: puzzle.code,
)
def test_insufficient_gpu(puzzle: Puzzle) -> None:
    check(puzzle._replace(objects=[*puzzle.objects, INSUFFICIENT]))


ADMISSION = "Allocate failed due to {}, which is unexpected"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (
            f"requested number of devices unavailable for {GPU}. Requested: 1, Available: 0",
            "KUBELET_ADMISSION_RACE",
        ),
        (f"no healthy devices present; cannot allocate unhealthy devices {GPU}", "DEVICE_UNHEALTHY"),
        (
            f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {GPU}",
            "DEVICE_UNHEALTHY",
        ),
        ("device plugin GetPreferredAllocation rpc failed with err: rpc error", "DEVICE_PLUGIN_FAILING"),
        ("rpc error: code = Unknown desc = unknown device id: GPU-1", "DEVICE_ID_STALE"),
    ],
)
def test_unexpected_admission_error(message: str, code: str) -> None:
    sick = {"capacity": {GPU: 2}} if code == "DEVICE_UNHEALTHY" else {}
    check(Puzzle(code, [node("g1", 1, **sick), failed("UnexpectedAdmissionError", ADMISSION.format(message))]))


@pytest.mark.parametrize(
    ("line", "kernel", "code"),
    [
        ("Failed to initialize NVML: Unknown Error", "", "CGROUP_DEVICE_ACCESS_LOST"),
        (
            "Failed to initialize NVML: Unknown Error",
            "NVRM: Xid (PCI:0000:a1:00): 79, GPU has fallen off the bus.",
            "GPU_HW_FAULT",
        ),
        (
            "Failed to initialize NVML: Unknown Error",
            "NVRM: API mismatch: the client has the version 570",
            "DRIVER_LIB_MISMATCH",
        ),
        ("Failed to initialize NVML: Driver/library version mismatch", "", "DRIVER_LIB_MISMATCH"),
        ("Failed to initialize NVML: Insufficient Permissions", "", "DEVICE_PERMISSION"),
        ("Failed to initialize NVML: Driver Not Loaded", "", "DRIVER_MISSING"),
    ],
)
def test_failed_to_initialize_nvml(line: str, kernel: str, code: str) -> None:
    check(Puzzle(code, [node("g1", 1), exited()], {"team/asked": line}, {"g1": kernel} if kernel else {}))


SELECTOR = event(
    "Pod/asked",
    "FailedScheduling",
    "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.",
)
WANTS_T4: dict[str, Any] = {"spec": {"nodeSelector": T4}}


@pytest.mark.parametrize(
    "puzzle",
    [
        Puzzle("SELECTOR_MISMATCH", [node("g1", 1, labels={"nvidia.com/gpu.product": "A100"}), pod("asked", 1, **WANTS_T4)]),
        Puzzle("SELECTOR_MISMATCH", [node("g1", 1, labels={"nvidia.com/gpu.product": "Tesla-T4-SHARED"}), pod("asked", 1, **WANTS_T4)]),
        Puzzle("GFD_LABELS_MISSING", [node("g1", 1), pod("asked", 1, **WANTS_T4)]),
        Puzzle("NODE_UNSCHEDULABLE", [node("g1", 1, labels=T4, cordoned=True), node("g2", 1, labels={"nvidia.com/gpu.product": "A100"}), pod("asked", 1, **WANTS_T4)]),
        Puzzle("CPU_MEM_INSUFFICIENT", [node("g1", 1, labels=T4, cpu="4"), node("g2", 1, labels={"nvidia.com/gpu.product": "A100"}), pod("asked", 1, cpu="8", **WANTS_T4)]),
        Puzzle("GPU_FULL", [node("g1", 1, labels=T4), pod("busy", 1, on="g1"), node("g2", 1, labels={"nvidia.com/gpu.product": "A100"}), pod("asked", 1, **WANTS_T4)]),
        Puzzle(
            "AUTOSCALER_NO_MATCHING_GROUP",
            [
                node("c1"),
                pod("asked", spec={"nodeSelector": {"pool": "x"}}),
                event("Pod/asked", "NotTriggerScaleUp", "pod didn't trigger scale-up: 3 node(s) didn't match Pod's node affinity/selector", SCALE),
            ],
        ),
    ],
    ids=lambda puzzle: puzzle.code,
)  # fmt: skip
def test_did_not_match_node_affinity(puzzle: Puzzle) -> None:
    check(puzzle._replace(objects=[*puzzle.objects, SELECTOR]))


def waiting_workload(message: str, reason: str = "Pending") -> list[Unstructured]:
    job = thing(
        "Job",
        "asked",
        {"suspend": True, "template": {"spec": pod("x", 1)["spec"]}},
        "batch/v1",
        labels={"kueue.x-k8s.io/queue-name": "q"},
    )
    condition = {"type": "QuotaReserved", "status": "False", "reason": reason, "message": message}
    work = thing(
        "Workload",
        "job-asked",
        {"queueName": "q"},
        "kueue.x-k8s.io/v1beta1",
        owner=("Job", "asked"),
        status={"conditions": [condition]},
    )
    return [job, work]


def gang(name: str, running: int, waiting: int, minimum: int) -> list[Unstructured]:
    label = {"scheduling.x-k8s.io/pod-group": name}
    group = thing("PodGroup", name, {"minMember": minimum}, "scheduling.x-k8s.io/v1alpha1")
    members = [pod(f"{name}-{i}", 1, on="g1" if i < running else "", labels=label) for i in range(running + waiting)]
    return [group, *members]


@pytest.mark.parametrize(
    "puzzle",
    [
        Puzzle("GPU_FRAGMENTED", [node("g1", 4), node("g2", 4), pod("a", 2, on="g1"), pod("b", 2, on="g2"), pod("asked", 4)]),
        Puzzle("GPU_STRANDED", [node("g1", 4, cpu="8"), pod("web", on="g1", cpu="7"), pod("asked", 1, cpu="4")]),
        Puzzle("CPU_MEM_INSUFFICIENT", [node("g1", 4, cpu="8"), pod("train", 1, on="g1", cpu="7"), pod("asked", 1, cpu="4")]),
        Puzzle("POD_COUNT_LIMIT", [node("g1", 4, pods="1"), pod("web", on="g1"), pod("asked", 1)]),
        Puzzle("TAINT_NOT_TOLERATED", [node("g1", 4, taints=[GPU_TAINT]), pod("asked", 1)]),
        Puzzle("SCHEDULING_GATED", [node("g1", 4), pod("asked", 1, spec={"schedulingGates": [{"name": "wait"}]})]),
        Puzzle("WRONG_SCHEDULER", [node("g1", 4), pod("asked", 1, spec={"schedulerName": "volcano"})]),
        Puzzle("HOST_PORT_CONFLICT", [node("g1", 4), pod("web", on="g1", spec={"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}), pod("asked", spec={"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]})]),
        Puzzle("POD_SPREAD_CONFLICT", [node("g1", 4, labels={"zone": "a"}), node("c1", labels={"zone": "b"}), pod("one", 1, on="g1", labels={"app": "x"}), pod("asked", 1, labels={"app": "x"}, spec={"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "x"}}}]})]),
        Puzzle("GANG_INCOMPLETE", [node("g1", 4), *gang("team-a", 0, 2, 4)], question="pod/team-a-1"),
        Puzzle("GANG_DEADLOCK", [node("g1", 4), *gang("team-a", 2, 2, 4), *gang("team-b", 2, 2, 4)], question="pod/team-a-3"),
        Puzzle("KUEUE_QUOTA_INSUFFICIENT", [node("g1", 4), *waiting_workload("couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor f, 1 more needed")], question="job/asked"),
        Puzzle("KUEUE_QUOTA_MISCONFIGURED", [node("g1", 4), *waiting_workload("couldn't assign flavors to pod set main: resource cpu unavailable in ClusterQueue")], question="job/asked"),
        Puzzle("KUEUE_FLAVOR_MISMATCH", [node("g1", 4), *waiting_workload("couldn't assign flavors to pod set main: untolerated taint {gpu true} in flavor f")], question="job/asked"),
        Puzzle("TAINT_NOT_TOLERATED", [node("g1", 4), *waiting_workload("0/1 nodes are available: 1 node(s) had untolerated taint(s). (TAINT_NOT_TOLERATED)")], question="job/asked"),
        Puzzle("KUEUE_QUEUE_MISSING", [node("g1", 4), *waiting_workload("LocalQueue q doesn't exist", "Inadmissible")], question="job/asked"),
        Puzzle("KUEUE_TOPOLOGY_NOFIT", [node("g1", 4), *waiting_workload('topology "t" doesn\'t allow to fit any of 2 pod(s)')], question="job/asked"),
        Puzzle("JOB_SUSPENDED", [node("g1", 4), thing("Job", "asked", {"suspend": True, "template": {"spec": pod("x", 1)["spec"]}}, "batch/v1")], question="job/asked"),
        Puzzle("RESOURCE_QUOTA_EXCEEDED", [node("g1", 4), thing("ReplicaSet", "asked", {"template": {"spec": pod("x", 1)["spec"]}}), event("ReplicaSet/asked", "FailedCreate", 'Error creating: pods "asked-1" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=4, limited: requests.nvidia.com/gpu=4', "replicaset-controller")], question="rs/asked"),
        Puzzle("POLICY_DENIED", [node("g1", 4), thing("ReplicaSet", "asked", {"template": {"spec": pod("x", 1)["spec"]}}), event("ReplicaSet/asked", "FailedCreate", 'Error creating: admission webhook "validate.kyverno.svc" denied the request: no', "replicaset-controller")], question="rs/asked"),
        Puzzle("NONE", [node("g1", 4), pod("asked", 1)]),
        Puzzle("NONE", [node("g1", 4, taints=[GPU_TAINT]), pod("asked", 1, spec={"tolerations": TOLERATES})]),
    ],
    ids=lambda puzzle: puzzle.code,
)  # fmt: skip
def test_free_gpus_but_pending(puzzle: Puzzle) -> None:
    check(puzzle)


TAINT_TEXTS = {
    "1.24": "0/1 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: true}. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
    "1.34": "0/1 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: true}. no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
    "1.35": "0/1 nodes are available: 1 node(s) had untolerated taint(s). no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
    "1.37": "0/1 nodes are available: 1 node(s) had untolerated taint(s). preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
}  # fmt: skip


@pytest.mark.parametrize("release", TAINT_TEXTS)
def test_the_releases_wording_of_an_event_changes_nothing(release: str) -> None:
    found = ask(
        "pod/asked",
        node("g1", 1, taints=[GPU_TAINT]),
        pod("asked", 1),
        event("Pod/asked", "FailedScheduling", TAINT_TEXTS[release]),
    )
    assert found.code == "TAINT_NOT_TOLERATED"
    assert "nvidia.com/gpu=true:NoSchedule" in found.headline
    assert found.patches[0].runs_after


def test_without_nodes_it_says_what_is_missing() -> None:
    found = ask("pod/asked", pod("asked", 1), INSUFFICIENT)
    assert found.code == "UNKNOWN"
    assert any("nodes" in missing.what and missing.command.startswith("kubectl") for missing in found.missing_evidence)
