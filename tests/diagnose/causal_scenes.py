"""Small clusters with a fault behind the symptom, each with its repair, and with the decisive evidence taken away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tests.diagnose.objects import GPU, event, node, plugin, pod, thing

from windlass.model.unstructured import Unstructured

PRESENT = {"nvidia.com/gpu.present": "true"}
SHARED_CONFIG = {"nvidia.com/device-plugin.config": "four", "nvidia.com/gpu.count": "1"}
FOUR = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 4\n"
ARM = {"kubernetes.io/arch": "arm64"}
ON_ARM = {"nodeSelector": ARM}


class World(NamedTuple):
    objects: Sequence[Unstructured]
    logs: Mapping[str, str] = {}
    hosts: Mapping[str, str] = {}


class Scene(NamedTuple):
    code: str
    symptom: str
    """What is left to say where the decisive evidence is missing."""
    broken: World
    repaired: World
    blind: World
    """Without the decisive evidence."""
    words: Mapping[str, str] = {}
    """Words of the logs → the same in other words."""


def running(name: str, on: str, since: str, **more: Any) -> Unstructured:
    """A pod whose container runs and is ready since then."""
    status = {
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}],
        "containerStatuses": [{"name": "main", "ready": True, "state": {"running": {"startedAt": since}}, **more}],
    }
    return pod(name, on=on, namespace="gpu-operator", status=status)


def crashing(name: str, on: str, **more: Any) -> Unstructured:
    waiting = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 9}
    return pod(
        name, on=on, namespace="gpu-operator", status={"containerStatuses": [{"name": "main", **waiting}]}, **more
    )


def config(text: str = FOUR) -> Unstructured:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "slices"}, "data": {"four": text}}


def failed_start(message: str) -> Unstructured:
    waiting = {"state": {"waiting": {"reason": "RunContainerError", "message": message}}}
    return pod("asked", 1, on="g1", phase="Pending", status={"containerStatuses": [{"name": "main", **waiting}]})


def bounced(message: str) -> Unstructured:
    return pod("asked", 1, on="g1", phase="Failed", status={"reason": "UnexpectedAdmissionError", "message": message})


BUSY_SHARED = [pod("busy", 1, on="g1"), pod("asked", 1)]
ORIN = node("a1", labels=PRESENT | ARM)
ORIN_OK = node("a1", 4, labels=PRESENT | ARM)
RTX = node("x1", 4, labels=PRESENT | {"kubernetes.io/arch": "amd64"})
MPS_LOG = "error starting plugins: error getting daemons: MPS control daemon is not ready"
SELINUX = "Failed to start MPS daemon: error setting SELinux context: permission denied"
PLUGIN_LOG = "Failed to initialize NVML: could not load NVML library."
UUID_GONE = "nvidia-container-cli: device error: unknown device id: GPU-7"
NO_ADAPTER = "[ 38.7] NVRM: RmInitAdapter failed! (0x26:0xffff:1127)"
RPC = "Allocate failed due to device plugin GetPreferredAllocation rpc failed with err: rpc error: desc = {}"

SCENES: dict[str, Scene] = {
    "one-of-eight-gpus-is-sick-on-an-idle-node": Scene(
        "DEVICE_UNHEALTHY",
        "GPU_FULL",
        World([node("g1", 7, capacity={GPU: 8}), node("g2", 8), pod("busy", 8, on="g2"), pod("asked", 8)]),
        World([node("g1", 8), node("g2", 8), pod("busy", 8, on="g2"), pod("asked", 8)]),
        World([node("g1", 7), node("g2", 8), pod("busy", 8, on="g2"), pod("asked", 8)]),
    ),
    "the-sharing-configuration-is-not-applied": Scene(
        "SHARING_CONFIG_NOT_APPLIED",
        "GPU_FULL",
        World([node("g1", 1, labels=SHARED_CONFIG), config(), *BUSY_SHARED]),
        World([node("g1", 4, labels=SHARED_CONFIG), config(), *BUSY_SHARED]),
        World([node("g1", 1, labels=SHARED_CONFIG), *BUSY_SHARED]),
    ),
    "the-plugin-fails-on-the-only-node-of-the-architecture": Scene(
        "DEVICE_PLUGIN_FAILING",
        "SELECTOR_MISMATCH",
        World([ORIN, RTX, *plugin("a1", restarts=7), pod("asked", 1, spec=ON_ARM)]),
        World([ORIN_OK, RTX, *plugin("a1"), pod("asked", 1, spec=ON_ARM)]),
        World([node("a1", labels=ARM), RTX, pod("asked", 1, spec=ON_ARM)]),
    ),
    "mps-does-not-start-on-the-only-node-of-the-architecture": Scene(
        "MPS_NOT_READY",
        "SELECTOR_MISMATCH",
        World(
            [ORIN, RTX, crashing("mps-control-daemon-7", "a1"), *plugin("a1"), pod("asked", 1, spec=ON_ARM)],
            {"gpu-operator/mps-control-daemon-7": MPS_LOG},
        ),
        World(
            [ORIN_OK, RTX, running("mps-control-daemon-7", "a1", "2026-03-01T09:00:00Z"), pod("asked", 1, spec=ON_ARM)]
        ),
        World([node("a1", labels=ARM), RTX, pod("asked", 1, spec=ON_ARM)]),
        {MPS_LOG: "failed to start MPS control daemon: exit status 1"},
    ),
    "selinux-keeps-mps-from-starting": Scene(
        "DEVICE_PERMISSION",
        "MPS_NOT_READY",
        World(
            [node("g1", labels=PRESENT), crashing("mps-control-daemon-7", "g1"), *plugin("g1"), pod("asked", 1)],
            {"gpu-operator/mps-control-daemon-7": SELINUX},
        ),
        World(
            [node("g1", 4, labels=PRESENT), running("mps-control-daemon-7", "g1", ""), *plugin("g1"), pod("asked", 1)]
        ),
        World([node("g1", labels=PRESENT), crashing("mps-control-daemon-7", "g1"), *plugin("g1"), pod("asked", 1)]),
        {"permission denied": "lsetxattr /mps/pipe: operation not permitted"},
    ),
    "the-plugin-was-started-before-the-toolkit": Scene(
        "DEVICE_PLUGIN_FAILING",
        "DEVICE_PLUGIN_FAILING",
        World(
            [
                node("g1", labels=PRESENT),
                running("nvidia-device-plugin-daemonset-1", "g1", "2026-03-01T10:11:19Z"),
                running("nvidia-container-toolkit-daemonset-1", "g1", "2026-03-01T10:16:10Z"),
                pod("asked", 1),
            ],
            {"gpu-operator/nvidia-device-plugin-daemonset-1": PLUGIN_LOG},
        ),
        World([node("g1", 1, labels=PRESENT), pod("asked", 1)]),
        World(
            [
                node("g1", labels=PRESENT),
                running("nvidia-device-plugin-daemonset-1", "g1", "2026-03-01T10:11:19Z"),
                pod("asked", 1),
            ]
        ),
    ),
    "a-gpu-is-gone-and-its-id-is-unknown": Scene(
        "GPU_HW_FAULT",
        "DEVICE_ID_STALE",
        World([node("g1", 3), failed_start(UUID_GONE)], hosts={"g1": NO_ADAPTER}),
        World([node("g1", 4), pod("asked", 1, on="g1")]),
        World([node("g1", 3), failed_start(UUID_GONE)]),
        {NO_ADAPTER: "NVRM: rm_init_adapter failed for device bearing minor number 0"},
    ),
    "the-plugin-may-not-look-at-the-gpu": Scene(
        "DEVICE_PERMISSION",
        "DEVICE_PLUGIN_FAILING",
        World([node("g1", 4), bounced(RPC.format("error creating nvml.Device 5: nvml: Insufficient Permissions"))]),
        World([node("g1", 4), pod("asked", 1, on="g1")]),
        World([node("g1", 4), bounced(RPC.format("error"))]),
    ),
    "the-plugin-is-gone-and-left-a-zero": Scene(
        "DEVICE_PLUGIN_ABSENT",
        "RESOURCE_NAME_MISMATCH",
        World([node("g1", {GPU: 0}), *plugin(""), pod("asked", 1)]),
        World([node("g1", 8), *plugin("g1"), pod("asked", 1)]),
        World([node("g1"), pod("asked", 1)]),
    ),
    "the-idle-one-of-two-nodes-is-cordoned": Scene(
        "NODE_UNSCHEDULABLE",
        "GPU_FULL",
        World([node("g1", 1), node("g2", 1, cordoned=True), pod("busy", 1, on="g1"), pod("asked", 1)]),
        World([node("g1", 1), node("g2", 1), pod("busy", 1, on="g1"), pod("asked", 1)]),
        World([node("g1", 1), pod("busy", 1, on="g1"), pod("asked", 1)]),
    ),
}


def noise() -> World:
    """Fifty other pods with troubles of their own, and a fault that has healed: none has to do with the question."""
    objects: list[Unstructured] = [node(f"web-{at}", labels={"pool": "web"}, taints=[WEB]) for at in range(3)]
    logs = {}
    for at in range(50):
        killed = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-02-26T03:00:00Z"}}
        status = {"containerStatuses": [{"name": "main", "restartCount": 2, "lastState": killed, "ready": at % 2 == 0}]}
        objects.append(pod(f"shop-{at}", on=f"web-{at % 3}", namespace="shop", status=status))
        logs[f"shop/shop-{at}"] = (
            "ERROR: Failed to initialize NVML: Driver Not Loaded\npods is forbidden: exceeded quota: shop"
        )
    objects.append(
        event("Node/web-0", "XidError", "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "npd")
    )
    objects.append(event("Node/web-0", "GPUHealthy", "all GPUs are healthy", "npd"))
    quota = thing("ResourceQuota", "shop", {"hard": {"requests.nvidia.com/gpu": "0"}}, "v1", namespace="shop")
    stopped = thing("Deployment", "shop", {"replicas": 9}, namespace="shop")
    return World([*objects, quota, stopped], logs)


WEB = {"key": "shop", "value": "web", "effect": "NoSchedule"}
