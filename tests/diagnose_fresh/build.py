"""Writes the cases: `python tests/diagnose_fresh/build.py` (the folder `cases` is its output).

Each function builds one cluster after a public report, in names and words of its own. Its argument is the variant: "" the case,
"c" the decisive evidence removed, "d" the fault repaired. Variants "a" (other names, versions and wording) and "b" (noise) are derived."""

# ruff: noqa: E501, E731
from __future__ import annotations

import pathlib
import shutil
from collections.abc import Callable
from typing import Any

from world import Obj, World, days, ts, uid

GH = "https://github.com/"
CASES: list[tuple[str, Callable[[str], World], Obj, list[tuple[str, str]] | None]] = []
ANY_GPU = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
FEW = "preemption: 0/{n} nodes are available: {n} No preemption victims found for incoming pod."


def case(
    id: str,
    target: str,
    code: str,
    cause: str,
    source: str,
    also: list[str] | None = None,
    accept: list[str] | None = None,
    shallow: list[str] | None = None,
    other: list[tuple[str, str]] | None = None,
) -> Callable[[Callable[[str], World]], Callable[[str], World]]:
    def take(f: Callable[[str], World]) -> Callable[[str], World]:
        CASES.append(
            (
                id,
                f,
                {
                    "id": id,
                    "target": target,
                    "code": code,
                    "accept": accept or [],
                    "also": also or [],
                    "cause": cause,
                    "source": source,
                    **({"shallow": shallow} if shallow else {}),
                },
                other,
            )
        )
        return f

    return take


def operator(
    w: World, node: str, ns: str = "gpu-operator", broken: dict[str, str] | None = None, version: str = "v24.9.2"
) -> dict[str, str]:
    """The GPU operator's operands on one node; `broken` has the states of those that don't run."""
    w.add(
        "nvidia.com/v1",
        "ClusterPolicy",
        "cluster-policy",
        spec={
            "driver": {"enabled": True, "version": "550.144.03"},
            "toolkit": {"enabled": True},
            "devicePlugin": {"enabled": True},
        },
        status={"state": "notReady" if broken else "ready", "namespace": ns},
    )
    names = {}
    for part, c, image in (
        ("nvidia-driver-daemonset", "nvidia-driver-ctr", "nvcr.io/nvidia/driver:550.144.03-ubuntu22.04"),
        (
            "nvidia-container-toolkit-daemonset",
            "nvidia-container-toolkit-ctr",
            "nvcr.io/nvidia/k8s/container-toolkit:v1.17.4-ubuntu20.04",
        ),
        ("nvidia-device-plugin-daemonset", "nvidia-device-plugin", "nvcr.io/nvidia/k8s-device-plugin:v0.17.0"),
        ("gpu-feature-discovery", "gpu-feature-discovery", "nvcr.io/nvidia/k8s-device-plugin:v0.17.0"),
    ):
        bad = (broken or {}).get(part)
        w.ds(ns, part, 1, 0 if bad else 1, image, c, tolerations=ANY_GPU)
        pod = f"{part}-{uid(node, part)[:5]}"
        names[part] = pod
        kw: Obj = {
            "node": node,
            "owner": ("DaemonSet", part),
            "image": image,
            "container": c,
            "labels": {"app": part},
            "cpu": "50m",
            "mem": "64Mi",
            "age": days(1),
            "spec": {"tolerations": [{"operator": "Exists"}], "priorityClassName": "system-node-critical"},
        }
        if bad == "crash":
            w.pod(ns, pod, state="crash", restarts=57, **kw)
        elif bad == "init":
            w.pod(
                ns,
                pod,
                state="init",
                init=[
                    {
                        "name": "wait-for-driver",
                        "image": "nvcr.io/nvidia/cloud-native/gpu-operator-validator:" + version,
                    }
                ],
                init_status=[
                    {
                        "name": "wait-for-driver",
                        "ready": False,
                        "restartCount": 0,
                        "state": {"running": {"startedAt": ts(days(1) - 1)}},
                    }
                ],
                **kw,
            )
        elif bad:
            raise ValueError(bad)
        else:
            w.pod(ns, pod, **kw)
    w.deploy(
        ns,
        "gpu-operator",
        1,
        1,
        "6f9c7b5d4",
        {"containers": [{"name": "gpu-operator", "image": "nvcr.io/nvidia/gpu-operator:" + version}]},
        age=days(30),
    )
    w.pod(
        ns,
        "gpu-operator-6f9c7b5d4-k2m8q",
        node=node,
        owner=("ReplicaSet", "gpu-operator-6f9c7b5d4"),
        container="gpu-operator",
        age=days(1),
        cpu="200m",
        mem="100Mi",
    )
    return names


# ------------------------------------------------------------------------------------------------------------ node stack
@case(
    "F01",
    "pod/render/blender-7d5c9-x2v4k",
    "SHARING_CONFIG_NOT_APPLIED",
    "The node's label nvidia.com/device-plugin.config names a configuration that the plugin's ConfigMap does not contain, so the plugin exits at its start.",
    GH + "nebuly-ai/nos/issues/57",
    also=["DEVICE_PLUGIN_FAILING"],
)
def plugin_config_label(v: str) -> World:
    w = World()
    w.node(
        "cp-1", cpu="8", mem="31Gi", taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
    )
    w.node(
        "l4-a",
        gpu=4,
        alloc={"nvidia.com/gpu": "0"},
        product="NVIDIA-L4",
        labels={"nvidia.com/device-plugin.config": "l4-shared-8x"},
    )
    w.add(
        "v1",
        "ConfigMap",
        "plugin-configs",
        "gpu-plugin",
        data={
            "l4-shared-4x": "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 4\n",
            "plain": "version: v1\n",
        },
    )
    w.ds(
        "gpu-plugin",
        "nvidia-plugin",
        1,
        0,
        "nvcr.io/nvidia/k8s-device-plugin:v0.16.2",
        "nvidia-device-plugin-ctr",
        tolerations=ANY_GPU,
    )
    w.pod(
        "gpu-plugin",
        "nvidia-plugin-qk7rw",
        node="l4-a",
        owner=("DaemonSet", "nvidia-plugin"),
        container="nvidia-device-plugin-ctr",
        state="init",
        age=95,
        image="nvcr.io/nvidia/k8s-device-plugin:v0.16.2",
        labels={"app": "nvidia-plugin"},
        spec={"tolerations": [{"operator": "Exists"}]},
        init=[
            {
                "name": "nvidia-device-plugin-init",
                "image": "nvcr.io/nvidia/k8s-device-plugin:v0.16.2",
                "command": ["config-manager"],
            }
        ],
        init_status=[
            {
                "name": "nvidia-device-plugin-init",
                "ready": False,
                "restartCount": 23,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": ts(2)}},
            }
        ],
    )
    w.log(
        "gpu-plugin",
        "nvidia-plugin-qk7rw",
        "nvidia-device-plugin-init",
        """
W0310 09:58:01.220981       1 client_config.go:659] Neither --kubeconfig nor --master was specified.  Using the inClusterConfig.
time="2026-03-10T09:58:01Z" level=info msg="Waiting for change to 'nvidia.com/device-plugin.config' label"
time="2026-03-10T09:58:01Z" level=info msg="Label change detected: nvidia.com/device-plugin.config=l4-shared-8x"
time="2026-03-10T09:58:01Z" level=error msg="Error: specified config l4-shared-8x does not exist" """,
    )
    w.event(
        "gpu-plugin",
        "Pod",
        "nvidia-plugin-qk7rw",
        "BackOff",
        "Back-off restarting failed container nvidia-device-plugin-init in pod nvidia-plugin-qk7rw",
        count=88,
        source="kubelet",
    )
    w.pending(
        "render",
        "blender-7d5c9-x2v4k",
        "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }.",
        gpu=1,
        age=90,
    )
    return w


@case(
    "F02",
    "pod/research/diffusion-train-0",
    "DRIVER_MISSING",
    "Secure Boot refuses the driver's unsigned kernel modules, so the driver container can't load them and nothing advertises the GPUs.",
    GH + "NVIDIA/gpu-operator/issues/1726",
    also=["DEVICE_PLUGIN_FAILING", "DEVICE_PLUGIN_ABSENT"],
    shallow=["DEVICE_PLUGIN_ABSENT", "RESOURCE_NAME_MISMATCH"],
    other=[
        ("gb-node-1", "rack4-blade7"),
        ("research", "lab-physics"),
        ("diffusion-train-0", "plasma-sim-0"),
        ("550.144.03", "580.82.07"),
        ("gpu-operator", "nv-operands"),
        (
            "Loading of unsigned module is rejected",
            "module verification failed: signature and/or required key missing - refused",
        ),
        ("Key was rejected by service", "Operation not permitted"),
        ("6.8.0-55-generic", "6.11.0-19-generic"),
        ("v24.9.2", "v25.3.1"),
        ("Could not load the kernel module", "Loading the kernel module failed"),
    ],
)
def secure_boot(v: str) -> World:
    w = World("v1.33.2")
    w.node("sys-1", cpu="8", mem="31Gi")
    w.node(
        "gb-node-1",
        cpu="64",
        mem="480Gi",
        gpu=4 if v == "d" else None,
        product="NVIDIA-H100-PCIe" if v == "d" else "",
        kernel="6.8.0-55-generic",
        labels={"feature.node.kubernetes.io/pci-10de.present": "true", "nvidia.com/gpu.present": "true"},
    )
    if v != "c":
        rest = (
            {}
            if v == "d"
            else {
                "nvidia-driver-daemonset": "crash",
                "nvidia-container-toolkit-daemonset": "init",
                "nvidia-device-plugin-daemonset": "init",
                "gpu-feature-discovery": "init",
            }
        )
        names = operator(w, "gb-node-1", broken=rest)
        if v != "d":
            w.log(
                "gpu-operator",
                names["nvidia-driver-daemonset"],
                "nvidia-driver-ctr",
                """
Installing NVIDIA driver 550.144.03 for kernel 6.8.0-55-generic
Building kernel modules ... done
Kernel module build complete.
Could not load the kernel module 'nvidia.ko'
modprobe: ERROR: could not insert 'nvidia': Key was rejected by service
Unloading and removing NVIDIA driver, exit 1""",
            )
            w.host(
                "gb-node-1",
                "dmesg",
                """
[    0.000000] secureboot: Secure boot enabled
[    1.204410] Kernel is locked down from EFI Secure Boot mode; see man kernel_lockdown.7
[ 5121.880301] Loading of unsigned module is rejected
[ 5423.120977] Loading of unsigned module is rejected""",
            )
            w.event(
                "gpu-operator",
                "Pod",
                names["nvidia-driver-daemonset"],
                "BackOff",
                "Back-off restarting failed container nvidia-driver-ctr",
                count=300,
                source="kubelet",
            )
    kw: Obj = {"gpu": 1, "age": 300, "cpu": "8", "mem": "64Gi", "image": "registry.lab/diffusion:4"}
    if v == "d":
        w.pod("research", "diffusion-train-0", node="gb-node-1", since=12, **kw)
        w.event(
            "research",
            "Pod",
            "diffusion-train-0",
            "FailedScheduling",
            "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
            last=14,
            first=300,
            count=60,
        )
    else:
        w.pending(
            "research",
            "diffusion-train-0",
            "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. " + FEW.format(n=2),
            **kw,
        )
    return w


@case(
    "F03",
    "pod/notebooks/nb-alma-0",
    "MIG_CONFIG_NOT_APPLIED",
    "The node was reinstalled and joined again under its name; it is labelled with a MIG layout, but the MIG manager is not deployed to it, so no MIG device exists.",
    GH + "NVIDIA/gpu-operator/issues/873",
    also=["RESOURCE_NAME_MISMATCH", "DEVICE_PLUGIN_ABSENT"],
)
def mig_manager_not_deployed(v: str) -> World:
    w = World()
    w.node(
        "m-1", cpu="8", mem="31Gi", taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
    )
    mig = {"nvidia.com/mig.strategy": "mixed", "nvidia.com/mig.capable": "true", "nvidia.com/mig.config": "all-1g.10gb"}
    w.node(
        "dgx-1",
        gpu=0,
        res={"nvidia.com/mig-1g.10gb": "56"},
        product="NVIDIA-H100-80GB-HBM3",
        cpu="112",
        mem="1000Gi",
        labels={**mig, "nvidia.com/mig.config.state": "success", "nvidia.com/gpu.deploy.mig-manager": "true"},
    )
    w.node("dgx-2", gpu=8, product="NVIDIA-H100-80GB-HBM3", cpu="112", mem="1000Gi", labels=mig, age=days(2))
    operator(w, "dgx-2")
    w.ds(
        "gpu-operator",
        "nvidia-mig-manager",
        1,
        1,
        "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.10.0",
        "nvidia-mig-manager",
        selector={"nvidia.com/gpu.deploy.mig-manager": "true"},
    )
    w.pod(
        "gpu-operator",
        "nvidia-mig-manager-t6z2p",
        node="dgx-1",
        owner=("DaemonSet", "nvidia-mig-manager"),
        container="nvidia-mig-manager",
        age=days(20),
        cpu="50m",
        mem="64Mi",
    )
    w.host(
        "dgx-2", "nvidia-smi", "GPU 0: NVIDIA H100 80GB HBM3\nMIG Mode\n    Current : Disabled\n    Pending : Disabled"
    )
    for i in range(8):
        w.pod("batch", f"fold-{i}", node="dgx-1", res={"nvidia.com/mig-1g.10gb": "7"}, cpu="1", mem="4Gi", age=700)
    w.pending(
        "notebooks",
        "nb-alma-0",
        "0/3 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 2 Insufficient nvidia.com/mig-1g.10gb.",
        res={"nvidia.com/mig-1g.10gb": "1"},
        age=150,
        owner=("StatefulSet", "nb-alma"),
    )
    return w


@case(
    "F04",
    "pod/speech/asr-9f7c6b-qq2lp",
    "GPU_HW_FAULT",
    "GPU 1 has uncorrectable ECC errors; the plugin still counts it as healthy, so pods land on it and fail with a CUDA error that reads like memory shortage.",
    GH + "NVIDIA/k8s-device-plugin/issues/267",
    also=["GPU_OOM", "DEVICE_UNHEALTHY"],
    shallow=["GPU_OOM", "APP_ERROR"],
    other=[
        ("v100-07", "sxm2-host-c"),
        ("speech", "voice-team"),
        ("asr-9f7c6b", "wake-5b4d8f"),
        ("qq2lp", "8hhtw"),
        ("535.216.01", "565.57.01"),
        ("CUDA error: out of memory", "cuMemAlloc_v2 returned CUDA_ERROR_OUT_OF_MEMORY"),
        ("GPU-1f0d", "GPU-77ab"),
        ("DBE (double bit error) ECC Error", "An uncorrectable double bit error (DBE) has been detected on GPU"),
        ("Tesla-V100-SXM2-32GB", "Quadro-GV100"),
        ("Tesla V100-SXM2-32GB", "Quadro GV100"),
    ],
)
def ecc(v: str) -> World:
    w = World("v1.29.8")
    w.node("v100-07", gpu=4, product="Tesla-V100-SXM2-32GB", cpu="40", mem="375Gi")
    w.plugin(["v100-07"])
    rs = w.deploy(
        "speech",
        "asr",
        1,
        1 if v == "d" else 0,
        "9f7c6b",
        {"containers": [{"name": "main", "image": "registry.lab/asr:2"}]},
    )
    kw: Obj = {
        "node": "v100-07",
        "gpu": 1,
        "owner": ("ReplicaSet", rs),
        "age": 260,
        "cpu": "4",
        "mem": "16Gi",
        "image": "registry.lab/asr:2",
        "labels": {"app": "asr"},
    }
    for _i, free in enumerate(("tts", "vad")):
        w.pod("speech", f"{free}-0", node="v100-07", gpu=1, age=days(6), cpu="2", mem="8Gi")
    if v == "d":
        w.pod("speech", "asr-9f7c6b-qq2lp", since=35, restarts=3, exit_code=1, **kw)
        w.event("", "Node", "v100-07", "Rebooted", "Node v100-07 has been rebooted", last=60, source="kubelet")
    else:
        w.pod("speech", "asr-9f7c6b-qq2lp", state="crash", restarts=31, **kw)
        w.event(
            "speech",
            "Pod",
            "asr-9f7c6b-qq2lp",
            "BackOff",
            "Back-off restarting failed container main in pod asr-9f7c6b-qq2lp",
            count=140,
            source="kubelet",
        )
    if v != "d":
        w.log(
            "speech",
            "asr-9f7c6b-qq2lp",
            "main",
            """
loading acoustic model (1.3 GiB) on cuda:0
visible device: GPU-1f0d22c4-5f0e-0c8b-9a57-77cf2b1d4e90
Traceback (most recent call last):
  File "/srv/asr/server.py", line 41, in <module>
    model = model.to("cuda:0")
RuntimeError: CUDA error: out of memory""",
        )
    if v == "":
        w.host(
            "v100-07",
            "dmesg",
            """
[812201.553120] NVRM: Xid (PCI:0000:1a:00): 48, pid=90211, name=python3, DBE (double bit error) ECC Error
[812201.553901] NVRM: Xid (PCI:0000:1a:00): 63, pid='<unknown>', Row Remapper: row remap pending
[819977.410033] NVRM: Xid (PCI:0000:1a:00): 48, pid=118801, name=python3, DBE (double bit error) ECC Error""",
        )
        w.host(
            "v100-07",
            "nvidia-smi",
            """
| NVIDIA-SMI 535.216.01   Driver Version: 535.216.01   CUDA Version: 12.2 |
| GPU  Name                  Bus-Id           Memory-Usage        Volatile Uncorr. ECC |
|   0  Tesla V100-SXM2-32GB  00000000:18:00.0   4120MiB / 32768MiB        0 |
|   1  Tesla V100-SXM2-32GB  00000000:1A:00.0      0MiB / 32768MiB        2 |
|   2  Tesla V100-SXM2-32GB  00000000:3B:00.0   2954MiB / 32768MiB        0 |
|   3  Tesla V100-SXM2-32GB  00000000:86:00.0      0MiB / 32768MiB        0 |
GPU 1: Tesla V100-SXM2-32GB (UUID: GPU-1f0d22c4-5f0e-0c8b-9a57-77cf2b1d4e90)""",
        )
    return w


@case(
    "F05",
    "pod/qa/answerer-6b8f7-zzk4c",
    "GPU_OOM",
    "The GPU is time-sliced between services without memory isolation; the neighbour holds 9 GiB of 15, so this one runs out of GPU memory and restarts.",
    GH + "NVIDIA/k8s-device-plugin/issues/323",
)
def sliced_oom(v: str) -> World:
    w = World()
    w.node(
        "t4-0",
        gpu=4,
        product="Tesla-T4-SHARED",
        cpu="16",
        mem="62Gi",
        labels={"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"},
    )
    w.plugin(["t4-0"])
    w.pod("qa", "vision-5c9d4-hh2sd", node="t4-0", gpu=1, age=days(2), cpu="2", mem="8Gi")
    w.pod(
        "qa",
        "answerer-6b8f7-zzk4c",
        node="t4-0",
        gpu=1,
        state="crash",
        restarts=19,
        age=900,
        cpu="2",
        mem="8Gi",
        container="api",
        limits={"memory": "16Gi"},
    )
    w.log(
        "qa",
        "answerer-6b8f7-zzk4c",
        "api",
        """
INFO serving on :8080
ERROR request 8841 failed
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 24.00 MiB. GPU 0 has a total capacity of 14.58 GiB of which 11.62 MiB is free.
process exits with 1""",
    )
    w.host(
        "t4-0",
        "nvidia-smi",
        "|   0  Tesla T4  00000000:00:1E.0   14902MiB / 15360MiB  |\n|    0   N/A  N/A    41120      C   python   9216MiB |\n|    0   N/A  N/A    52011      C   python   5680MiB |",
    )
    return w


@case(
    "F06",
    "pod/nvidia-gpu-operator/gpu-operator-5d8c9f7b6-tx9mm",
    "CONTAINER_OOM",
    "The operator's own container needs more than its memory limit of 100 MiB while it lists the nodes and is killed in a loop.",
    GH + "NVIDIA/gpu-operator/issues/208",
)
def operator_oom(v: str) -> World:
    w = World("v1.20.0")
    for i in range(6):
        w.node(f"ocp-{i}", gpu=2 if i > 3 else None, product="Tesla-T4" if i > 3 else "")
    rs = w.deploy(
        "nvidia-gpu-operator",
        "gpu-operator",
        1,
        0,
        "5d8c9f7b6",
        {"containers": [{"name": "gpu-operator", "image": "nvcr.io/nvidia/gpu-operator:v1.7.0"}]},
    )
    w.pod(
        "nvidia-gpu-operator",
        "gpu-operator-5d8c9f7b6-tx9mm",
        node="ocp-1",
        owner=("ReplicaSet", rs),
        container="gpu-operator",
        state="crash",
        reason="OOMKilled",
        exit_code=137,
        restarts=44,
        cpu="200m",
        mem="50Mi",
        limits={"memory": "100Mi"},
        age=500,
        image="nvcr.io/nvidia/gpu-operator:v1.7.0",
    )
    w.log(
        "nvidia-gpu-operator",
        "gpu-operator-5d8c9f7b6-tx9mm",
        "gpu-operator",
        'INFO setup starting manager\nINFO controllers.ClusterPolicy Number of nodes with GPU label {"NodeCount": 2}',
    )
    w.event(
        "nvidia-gpu-operator",
        "Pod",
        "gpu-operator-5d8c9f7b6-tx9mm",
        "BackOff",
        "Back-off restarting failed container",
        count=210,
        source="kubelet",
    )
    return w


@case(
    "F07",
    "pod/genomics/variant-call-3",
    "IMAGE_PULL_FAILED",
    "The toolkit DaemonSet pins an init image by a digest that its registry has removed; without the toolkit the plugin waits and no GPU is advertised.",
    GH + "NVIDIA/gpu-operator/issues/407",
    also=["DEVICE_PLUGIN_FAILING", "RUNTIME_NOT_CONFIGURED"],
    shallow=["DEVICE_PLUGIN_FAILING", "DEVICE_PLUGIN_ABSENT", "RESOURCE_NAME_MISMATCH"],
    other=[
        ("a30-n1", "edge-gpu-north"),
        ("genomics", "proteomics"),
        ("variant-call-3", "docking-11"),
        ("sha256:77b2", "sha256:c0fe"),
        ("gpu-operator", "nvidia-stack"),
        ("not found", "manifest unknown: manifest unknown"),
        ("cuda-base", "base-runtime"),
        ("550.144.03", "470.256.02"),
    ],
)
def toolkit_image_gone(v: str) -> World:
    w = World("v1.30.6")
    w.node(
        "a30-n1",
        gpu=2 if v == "d" else None,
        cpu="48",
        mem="250Gi",
        product="NVIDIA-A30" if v == "d" else "",
        labels={"feature.node.kubernetes.io/pci-10de.present": "true", "nvidia.com/gpu.present": "true"},
    )
    w.node("a30-cpu", cpu="16", mem="62Gi")
    bad = (
        {}
        if v == "d"
        else {
            "nvidia-device-plugin-daemonset": "init",
            "gpu-feature-discovery": "init",
            "nvidia-container-toolkit-daemonset": "init",
        }
    )
    if v != "c":
        names = operator(w, "a30-n1", broken=bad)
        if v == "":
            kit = names["nvidia-container-toolkit-daemonset"]
            image = "nvcr.io/nvidia/cuda-base@sha256:77b2a91e0c3d5f84a1be09d2a7f04c55d1be4f3d2ccf4f9b1b6a7e0f4b5c6d7e"
            pod = next(o for o in w.items if o["metadata"]["name"] == kit)
            pod["spec"]["initContainers"] = [{"name": "driver-validation", "image": image}]
            pod["status"]["initContainerStatuses"] = [
                {
                    "name": "driver-validation",
                    "image": image,
                    "ready": False,
                    "restartCount": 0,
                    "state": {
                        "waiting": {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}"'}
                    },
                }
            ]
            w.event(
                "gpu-operator",
                "Pod",
                kit,
                "Failed",
                f'Failed to pull image "{image}": failed to resolve reference "{image}": not found',
                count=31,
                source="kubelet",
            )
            w.event(
                "gpu-operator",
                "Pod",
                kit,
                "BackOff",
                f'Back-off pulling image "{image}"',
                count=120,
                source="kubelet",
                type="Normal",
            )
    kw: Obj = {"gpu": 1, "age": 400, "cpu": "4", "mem": "16Gi"}
    if v == "d":
        w.pod("genomics", "variant-call-3", node="a30-n1", since=25, **kw)
    else:
        w.pending("genomics", "variant-call-3", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.", **kw)
    return w


@case(
    "F08",
    "pod/serving/llama-replica-0",
    "RESOURCE_QUOTA_EXCEEDED",
    "The DRA driver's DaemonSet runs at system-node-critical; its namespace has no quota for that priority class, so its pods are refused and no device is published.",
    GH + "modelplaneai/modelplane/issues/202",
    also=["DEVICE_PLUGIN_ABSENT", "POLICY_DENIED"],
)
def dra_priority_quota(v: str) -> World:
    w = World("v1.34.1")
    w.node("gke-gpu-1", cpu="24", mem="96Gi", labels={"cloud.google.com/gke-accelerator": "nvidia-l4"})
    w.add(
        "resource.k8s.io/v1",
        "DeviceClass",
        "gpu.nvidia.com",
        spec={"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]},
    )
    w.ds(
        "dra-nvidia",
        "dra-gpu-kubelet-plugin",
        1,
        0,
        "registry.lab/dra-driver:0.4",
        "gpus",
        current=0,
        spec={"priorityClassName": "system-node-critical"},
    )
    w.event(
        "dra-nvidia",
        "DaemonSet",
        "dra-gpu-kubelet-plugin",
        "FailedCreate",
        "Error creating: insufficient quota to match these scopes: [{PriorityClass In [system-node-critical system-cluster-critical]}]",
        count=41,
        first=300,
        source="daemonset-controller",
    )
    w.add(
        "resource.k8s.io/v1",
        "ResourceClaimTemplate",
        "one-gpu",
        "serving",
        spec={"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}},
    )
    w.add(
        "resource.k8s.io/v1",
        "ResourceClaim",
        "llama-replica-0-gpu-7fjq2",
        "serving",
        age=200,
        owner=("Pod", "llama-replica-0"),
        spec={
            "devices": {
                "requests": [
                    {
                        "name": "gpu",
                        "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1},
                    }
                ]
            }
        },
        status={},
    )
    w.pending(
        "serving",
        "llama-replica-0",
        "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
        age=200,
        cpu="4",
        mem="16Gi",
        spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]},
        status={"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "llama-replica-0-gpu-7fjq2"}]},
    )
    return w


@case(
    "F09",
    "deployment/chat/decoder",
    "RUNTIME_NOT_CONFIGURED",
    "A webhook puts runtimeClassName nvidia into every GPU pod, but no RuntimeClass of that name exists, so the API server refuses the pods.",
    GH + "aws-samples/aws-do-eks/pull/96",
    also=["POLICY_DENIED"],
)
def runtimeclass_missing(v: str) -> World:
    w = World("v1.32.3")
    w.node("b200-1", gpu=8, product="NVIDIA-B200", cpu="192", mem="1900Gi")
    w.plugin(["b200-1"])
    msg = 'pods "decoder-66c7d9b5f8-" is forbidden: pod rejected: RuntimeClass "nvidia" not found'
    cond = [
        {
            "type": "ReplicaFailure",
            "status": "True",
            "reason": "FailedCreate",
            "message": msg,
            "lastTransitionTime": ts(70),
        }
    ]
    w.deploy(
        "chat",
        "decoder",
        2,
        0,
        "66c7d9b5f8",
        {
            "containers": [
                {"name": "main", "image": "registry.lab/decoder:9", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
            ]
        },
        age=70,
        current=0,
        updated=0,
        conditions=[
            *cond,
            {
                "type": "Available",
                "status": "False",
                "reason": "MinimumReplicasUnavailable",
                "message": "Deployment does not have minimum availability.",
            },
        ],
        rs_conditions=cond,
    )
    w.event(
        "chat",
        "ReplicaSet",
        "decoder-66c7d9b5f8",
        "FailedCreate",
        "Error creating: " + msg,
        count=18,
        first=70,
        source="replicaset-controller",
    )
    w.add(
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        "gpu-runtime-enforcement",
        webhooks=[
            {
                "name": "runtime.gpu.lab",
                "failurePolicy": "Fail",
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
                "clientConfig": {"service": {"namespace": "kai-scheduler", "name": "admission"}},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
            }
        ],
    )
    return w


@case(
    "F10",
    "pod/media/encode-1",
    "POLICY_DENIED",
    "The namespace of the device plugin enforces a pod security level that forbids host paths, so the plugin's DaemonSet can't create its pods.",
    GH + "intel/intel-device-plugins-for-kubernetes/issues/1909",
    also=["DEVICE_PLUGIN_ABSENT"],
)
def pod_security(v: str) -> World:
    w = World("v1.31.4")
    w.namespace("gpu-plugins", {"pod-security.kubernetes.io/enforce": "baseline"})
    w.node(
        "talos-g1",
        cpu="16",
        mem="62Gi",
        labels={"feature.node.kubernetes.io/pci-10de.present": "true"},
        os="Talos (v1.9.1)",
    )
    w.ds("gpu-plugins", "nvidia-plugin", 1, 0, "nvcr.io/nvidia/k8s-device-plugin:v0.17.1", "plugin", current=0)
    w.event(
        "gpu-plugins",
        "DaemonSet",
        "nvidia-plugin",
        "FailedCreate",
        'Error creating: pods "nvidia-plugin-b7jqt" is forbidden: violates PodSecurity "baseline:latest": hostPath volumes (volume "device-plugin")',
        count=27,
        first=180,
        source="daemonset-controller",
    )
    w.pending("media", "encode-1", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", gpu=1, age=170)
    return w


@case(
    "F11",
    "pod/evals/judge-0",
    "SELECTOR_MISMATCH",
    "The pod selects gpu.product=NVIDIA-T4; feature discovery labels these nodes Tesla-T4, after the device's own name.",
    GH + "METR/hawk/pull/1643",
    accept=["AUTOSCALER_NO_MATCHING_GROUP"],
    shallow=["GPU_FULL"],
    other=[
        ("judge-0", "grader-7"),
        ("evals", "bench"),
        ("g4-", "worker-t4-"),
        ("NVIDIA-T4", "NVIDIA-T4-16GB"),
        ("v1.32.3", "v1.28.9"),
    ],
)
def product_label(v: str) -> World:
    w = World("v1.32.3")
    for i in range(3):
        if v != "c":
            w.node(
                f"g4-{i}",
                gpu=1,
                product="Tesla-T4",
                cpu="8",
                mem="31Gi",
                taints=[{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}],
            )
    w.node("gen-0", cpu="16", mem="62Gi") if v != "c" else None
    if v != "c":
        w.plugin([f"g4-{i}" for i in range(3)])
        w.pod("evals", "judge-older", node="g4-0", gpu=1, spec={"tolerations": ANY_GPU}, age=days(1))
    spec = {"nodeSelector": {"nvidia.com/gpu.product": "Tesla-T4" if v == "d" else "NVIDIA-T4"}, "tolerations": ANY_GPU}
    if v == "d":
        w.pod("evals", "judge-0", node="g4-1", gpu=1, spec=spec, age=30)
    elif v == "c":
        w.pod("evals", "judge-0", gpu=1, spec=spec, age=60, state="unseen")
    else:
        w.pending(
            "evals",
            "judge-0",
            "0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector.",
            gpu=1,
            spec=spec,
            age=60,
        )
    return w


@case(
    "F12",
    "pod/share/notebook-frac",
    "RUNTIME_NOT_CONFIGURED",
    "KAI reserves a GPU for fractions by a pod that asks NVML; it runs with the default runtime runc, has no NVIDIA libraries and fails, so the fractional pod is never bound.",
    GH + "kai-scheduler/KAI-Scheduler/issues/261",
    shallow=["GPU_FULL", "GPU_FRAGMENTED"],
    other=[
        ("notebook-frac", "ide-slice"),
        ("share", "students"),
        ("l4-x1", "ada-box"),
        ("v0.6.3", "v0.5.5"),
        ("gpu-reservation-l4-x1-8v2sn", "gpu-reservation-ada-box-ppl0c"),
        ("ERROR_LIBRARY_NOT_FOUND", "libnvidia-ml.so.1: cannot open shared object file"),
        ("kai-resource-reservation", "runai-reservation"),
    ],
)
def kai_reservation(v: str) -> World:
    w = World("v1.32.4")
    w.node("l4-x1", gpu=1, product="NVIDIA-L4", cpu="16", mem="62Gi", labels={"nvidia.com/gpu.memory": "23034"})
    w.plugin(["l4-x1"])
    for part in ("scheduler", "binder"):
        rs = w.deploy(
            "kai-scheduler",
            part,
            1,
            1,
            "7c5f8",
            {"containers": [{"name": part, "image": f"ghcr.io/nvidia/kai-scheduler/{part}:v0.6.3"}]},
        )
        w.pod(
            "kai-scheduler",
            f"{part}-7c5f8-aaaaa",
            node="l4-x1",
            owner=("ReplicaSet", rs),
            container=part,
            age=days(2),
            cpu="100m",
            mem="128Mi",
        )
    w.add(
        "scheduling.run.ai/v2",
        "Queue",
        "default",
        spec={"resources": {r: {"quota": -1, "limit": -1} for r in ("cpu", "gpu", "memory")}},
    )
    w.add(
        "scheduling.run.ai/v2alpha2",
        "PodGroup",
        "pg-notebook-frac",
        "share",
        owner=("Pod", "notebook-frac"),
        spec={"minMember": 1, "queue": "default"},
        status={},
    )
    if v != "c":
        w.add("node.k8s.io/v1", "RuntimeClass", "nvidia", handler="nvidia")
    if v == "":
        r = "gpu-reservation-l4-x1-8v2sn"
        w.pod(
            "kai-resource-reservation",
            r,
            node="l4-x1",
            gpu=1,
            state="crash",
            restarts=7,
            age=25,
            container="resource-reservation",
            labels={"app": "kai-resource-reservation", "runai-gpu-group": uid("group", "l4-x1")},
            cpu="1m",
            mem="10Mi",
            image="ghcr.io/nvidia/kai-scheduler/resourcereservation:v0.6.3",
        )
        w.log(
            "kai-resource-reservation",
            r,
            "resource-reservation",
            "starting resource reservation\nError while running the app: unable to initialize NVML: ERROR_LIBRARY_NOT_FOUND",
        )
        w.log(
            "kai-scheduler",
            "binder-7c5f8-aaaaa",
            "binder",
            'ERROR failed to bind pod {"pod": "share/notebook-frac", "node": "l4-x1", "error": "failed waiting for GPU reservation pod '
            'kai-resource-reservation/gpu-reservation-l4-x1-8v2sn to report its device"}',
        )
        w.event(
            "share",
            "Pod",
            "notebook-frac",
            "BindingError",
            "Failed to bind pod share/notebook-frac to node l4-x1: timed out waiting for the reservation pod gpu-reservation-l4-x1-8v2sn",
            count=6,
            source="binder",
        )
    ann, lab = {"gpu-fraction": "0.5", "pod-group-name": "pg-notebook-frac"}, {"kai.scheduler/queue": "default"}
    sp = {"schedulerName": "kai-scheduler", "runtimeClassName": "nvidia"}
    if v == "d":
        w.pod(
            "kai-resource-reservation",
            "gpu-reservation-l4-x1-zz9ab",
            node="l4-x1",
            gpu=1,
            age=20,
            cpu="1m",
            mem="10Mi",
            container="resource-reservation",
            labels={"app": "kai-resource-reservation", "runai-gpu-group": uid("group", "l4-x1")},
        )
        w.pod("share", "notebook-frac", node="l4-x1", annotations=ann, labels=lab, spec=sp, age=40, since=18)
    else:
        w.pod(
            "share",
            "notebook-frac",
            annotations=ann,
            labels=lab,
            spec=sp,
            age=40,
            state="unschedulable",
            message="Pod binding is retried" if v == "" else "",
        )
    return w


@case(
    "F13",
    "pod/cfd-team/solver-x7",
    "POLICY_DENIED",
    "A policy denies the binding of the pod on every attempt (CPU request and limit differ); the GPUs of the node are free.",
    GH + "kai-scheduler/KAI-Scheduler/issues/2075",
    shallow=["GPU_FULL", "SCHEDULING_GATED"],
    other=[
        ("solver-x7", "wing-run-2"),
        ("cfd-team", "aero"),
        ("hgx-b", "pool3-n9"),
        ("kyverno", "gatekeeper"),
        ("require-equal-cpu", "cpu-guaranteed-only"),
        ("CPU requests must equal CPU limits", "containers must set identical cpu request and limit"),
        ("validate.gatekeeper.svc-fail", "validation.gatekeeper.sh"),
    ],
)
def bind_denied(v: str) -> World:
    w = World("v1.33.0")
    w.node("hgx-b", gpu=8, product="NVIDIA-H100-80GB-HBM3", cpu="128", mem="1000Gi")
    w.plugin(["hgx-b"])
    for name, part in (("kai-scheduler-default", "scheduler"), ("binder", "binder")):
        rs = w.deploy(
            "kai-scheduler",
            name,
            1,
            1,
            "59d7b",
            {"containers": [{"name": part, "image": f"ghcr.io/nvidia/kai-scheduler/{part}:v0.13.0"}]},
        )
        w.pod(
            "kai-scheduler",
            f"{name}-59d7b-bbbbb",
            node="hgx-b",
            owner=("ReplicaSet", rs),
            container=part,
            age=days(2),
            cpu="100m",
            mem="128Mi",
        )
    w.add(
        "scheduling.run.ai/v2",
        "Queue",
        "cfd",
        spec={"resources": {r: {"quota": 8 if r == "gpu" else -1, "limit": -1} for r in ("cpu", "gpu", "memory")}},
    )
    w.add(
        "scheduling.run.ai/v2alpha2",
        "PodGroup",
        "pg-solver-x7",
        "cfd-team",
        owner=("Pod", "solver-x7"),
        spec={"minMember": 1, "queue": "cfd"},
        status={},
    )
    deny = (
        'admission webhook "validate.kyverno.svc-fail" denied the request: resource Pod/cfd-team/solver-x7 was blocked due to the following policies '
        "require-equal-cpu: CPU requests must equal CPU limits"
    )
    if v == "":
        w.log(
            "kai-scheduler",
            "binder-59d7b-bbbbb",
            "binder",
            f'ERROR failed to bind pod {{"pod": "cfd-team/solver-x7", "node": "hgx-b", "error": "{deny}"}}'.replace(
                'webhook "validate.kyverno.svc-fail"', "webhook 'validate.kyverno.svc-fail'"
            ),
        )
        w.event(
            "cfd-team",
            "Pod",
            "solver-x7",
            "BindingError",
            f"Failed to bind pod cfd-team/solver-x7 to node hgx-b: {deny}",
            count=212,
            first=60,
            source="binder",
        )
    if v != "c":
        w.add(
            "kyverno.io/v1",
            "ClusterPolicy",
            "require-equal-cpu",
            spec={
                "validationFailureAction": "Enforce",
                "rules": [{"name": "require-equal-cpu", "validate": {"message": "CPU requests must equal CPU limits"}}],
            },
        )
    kw: Obj = {
        "gpu": 2,
        "cpu": "8",
        "mem": "64Gi",
        "limits": {"cpu": "8" if v == "d" else "16"},
        "spec": {"schedulerName": "kai-scheduler"},
        "labels": {"kai.scheduler/queue": "cfd"},
        "annotations": {"pod-group-name": "pg-solver-x7"},
        "age": 60,
    }
    if v == "d":
        w.pod("cfd-team", "solver-x7", node="hgx-b", since=9, **kw)
    else:
        w.pod("cfd-team", "solver-x7", state="unschedulable", message="binding failed" if v == "" else "", **kw)
    return w


@case(
    "F14",
    "pod/batch/pair-train",
    "REQUEST_EXCEEDS_CLUSTER",
    "HAMi splits one physical card into ten virtual ones; several virtual GPUs of one pod must be on different cards, so a pod with two never fits a node with one card.",
    GH + "Project-HAMi/HAMi/issues/444",
    also=["GPU_FRAGMENTED", "GPU_FULL"],
)
def hami_two_vgpus(v: str) -> World:
    w = World("v1.29.5")
    w.node(
        "one-card",
        gpu=10,
        product="NVIDIA-GeForce-RTX-3090",
        cpu="24",
        mem="125Gi",
        labels={"gpu": "on"},
        annotations={
            "hami.io/node-nvidia-register": "GPU-5ad1c2f0-2222-3333-4444-5fd0f0c0a001,10,24576,100,NVIDIA-NVIDIA GeForce RTX 3090,0,true:",
            "hami.io/node-handshake": "Reported 2026-03-10 09:59:31",
        },
    )
    for part in ("hami-scheduler", "hami-device-plugin"):
        w.pod(
            "kube-system",
            f"{part}-4kk2d",
            node="one-card",
            container=part.replace("hami-", ""),
            age=days(3),
            cpu="100m",
            mem="128Mi",
            labels={"app.kubernetes.io/component": part},
        )
    w.log(
        "kube-system",
        "hami-scheduler-4kk2d",
        "scheduler",
        """
I0310 09:58:11.003112       1 score.go:210] "calculate node score" pod="batch/pair-train" node="one-card" request nums=2
I0310 09:58:11.003401       1 score.go:233] "request devices nums cannot exceed the total number of devices on the node" pod="batch/pair-train" request=2 cards=1
I0310 09:58:11.003911       1 event.go:307] "Event occurred" object="batch/pair-train" reason="FilteringFailed" message="no available node, all node scores do not meet" """,
    )
    w.event(
        "batch",
        "Pod",
        "pair-train",
        "FilteringFailed",
        "no available node, all node scores do not meet",
        count=20,
        source="hami-scheduler",
    )
    w.pending(
        "batch",
        "pair-train",
        "0/1 nodes are available: 1 node unregistered or NodeInsufficientDevice",
        gpu=2,
        res={"nvidia.com/gpumem": "4000"},
        spec={"schedulerName": "hami-scheduler"},
        source="hami-scheduler",
    )
    return w


@case(
    "F15",
    "pod/lab/infer-raw",
    "KUBELET_ADMISSION_RACE",
    "After a node reboot the kubelet admitted the bare pod again before the device plugin had registered: no healthy devices, the pod is failed for good.",
    GH + "kubernetes/kubernetes/issues/125579",
)
def reboot_admission(v: str) -> World:
    w = World("v1.30.1")
    w.node("gpu-r1", gpu=2, product="Tesla-T4")
    w.plugin(["gpu-r1"])
    msg = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu, which is unexpected"
    w.pod(
        "lab",
        "infer-raw",
        node="gpu-r1",
        gpu=1,
        state="rejected",
        reason="UnexpectedAdmissionError",
        message="Pod was rejected: " + msg,
        age=days(2),
    )
    w.event("lab", "Pod", "infer-raw", "UnexpectedAdmissionError", msg, last=31, first=31, source="kubelet")
    w.event(
        "",
        "Node",
        "gpu-r1",
        "Rebooted",
        "Node gpu-r1 has been rebooted, boot id: " + uid("boot", "gpu-r1"),
        last=33,
        first=33,
        source="kubelet",
    )
    return w


@case(
    "F16",
    "pod/hpc/cfd-rank0",
    "TOPOLOGY_MANAGER_REFUSED",
    "With policy single-numa-node the kubelet finds no NUMA node with 26 free exclusive CPUs beside the GPU (an init container has pinned the other one).",
    GH + "kubernetes/kubernetes/issues/123816",
)
def numa(v: str) -> World:
    w = World("v1.28.7")
    w.node("numa-1", gpu=4, product="NVIDIA-A100-SXM4-40GB", cpu="64", mem="250Gi")
    w.plugin(["numa-1"])
    w.pod("hpc", "cfd-old", node="numa-1", gpu=1, cpu="26", mem="32Gi", limits={"cpu": "26", "memory": "32Gi"}, age=500)
    msg = "Pod was rejected: Resources cannot be allocated with Topology locality"
    w.pod(
        "hpc",
        "cfd-rank0",
        node="numa-1",
        gpu=1,
        cpu="26",
        mem="32Gi",
        limits={"cpu": "26", "memory": "32Gi"},
        state="rejected",
        reason="TopologyAffinityError",
        message=msg,
        age=20,
    )
    w.event(
        "hpc",
        "Pod",
        "cfd-rank0",
        "TopologyAffinityError",
        "Resources cannot be allocated with Topology locality",
        last=20,
        first=20,
        source="kubelet",
    )
    return w


@case(
    "F17",
    "job/infer/seven-g",
    "RESOURCE_NAME_MISMATCH",
    "The job asks for nvidia.com/mig-7g.79gb; the plugin registers the same slice as nvidia.com/mig-7g.80gb.",
    GH + "nebuly-ai/nos/issues/51",
)
def mig_name(v: str) -> World:
    w = World()
    w.node(
        "h100-m",
        gpu=0,
        res={"nvidia.com/mig-7g.80gb": "2", "nvidia.com/mig-1g.10gb": "7"},
        product="NVIDIA-H100-PCIe",
        cpu="48",
        labels={
            "nvidia.com/mig.strategy": "mixed",
            "nvidia.com/mig.config": "custom",
            "nvidia.com/mig.config.state": "success",
        },
    )
    w.plugin(["h100-m"], resource="nvidia.com/mig-7g.80gb")
    pod = {
        "containers": [
            {
                "name": "main",
                "image": "registry.lab/x:1",
                "resources": {
                    "limits": {"nvidia.com/mig-7g.79gb": "1"},
                    "requests": {"nvidia.com/mig-7g.79gb": "1", "cpu": "1", "memory": "2Gi"},
                },
            }
        ],
        "restartPolicy": "Never",
    }
    w.add(
        "batch/v1",
        "Job",
        "seven-g",
        "infer",
        age=35,
        spec={"parallelism": 1, "completions": 1, "template": {"spec": pod}},
        status={"active": 1, "ready": 0, "startTime": ts(35)},
    )
    w.pending(
        "infer",
        "seven-g-c7vkk",
        "0/1 nodes are available: 1 Insufficient nvidia.com/mig-7g.79gb.",
        res={"nvidia.com/mig-7g.79gb": "1"},
        owner=("Job", "seven-g"),
        age=35,
        labels={"batch.kubernetes.io/job-name": "seven-g", "job-name": "seven-g"},
        spec={"restartPolicy": "Never"},
    )
    return w


@case(
    "F18",
    "pod/pretrain/rank-0",
    "NCCL_TRANSPORT_FALLBACK",
    "The container can't open the InfiniBand device, so NCCL falls back to TCP sockets and the job is an order of magnitude slower.",
    GH + "NVIDIA/nccl/issues/451",
)
def nccl(v: str) -> World:
    w = World()
    for i in range(2):
        w.node(
            f"ib-{i}",
            gpu=8,
            product="NVIDIA-A100-SXM4-80GB",
            cpu="128",
            mem="1000Gi",
            res={"rdma/hca": "8"},
            labels={"feature.node.kubernetes.io/rdma.available": "true"},
        )
        w.pod("pretrain", f"rank-{i}", node=f"ib-{i}", gpu=8, cpu="64", mem="500Gi", age=90, container="trainer")
        w.log(
            "pretrain",
            f"rank-{i}",
            "trainer",
            f"""
rank-{i}:71:71 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 0.
rank-{i}:71:71 [0] ibvwrap.cc:88 NCCL WARN Call to ibv_open_device failed
rank-{i}:71:71 [0] net_ib.cc:190 NCCL WARN NET/IB : Unable to open device mlx5_0
rank-{i}:71:71 [0] NCCL INFO NET/IB : No device found.
rank-{i}:71:71 [0] NCCL INFO NET/Socket : Using [0]eth0:10.2.0.{i + 11}<0>
rank-{i}:71:71 [0] NCCL INFO Using network Socket
step 40 time/step 61.8 s""",
        )
    w.plugin(["ib-0", "ib-1"])
    return w


# ------------------------------------------------------------------------------------------------------------ queues, gangs, operators
def kueue(
    w: World,
    cq: str,
    flavor: str,
    resources: Obj,
    ns: str,
    lq: str = "main",
    strategy: str = "BestEffortFIFO",
    active: Obj | None = None,
    usage: Obj | None = None,
    flavors: bool = True,
) -> None:
    w.deploy(
        "kueue-system",
        "kueue-controller-manager",
        1,
        1,
        "6d7c",
        {"containers": [{"name": "manager", "image": "registry.k8s.io/kueue/kueue:v0.13.4"}]},
    )
    node = next(o["metadata"]["name"] for o in w.items if o["kind"] == "Node")
    w.pod(
        "kueue-system",
        "kueue-controller-manager-6d7c-jjjjj",
        node=node,
        owner=("ReplicaSet", "kueue-controller-manager-6d7c"),
        container="manager",
        cpu="100m",
        mem="256Mi",
        age=days(2),
    )
    if flavors:
        w.add("kueue.x-k8s.io/v1beta1", "ResourceFlavor", flavor, spec={})
    ok = active or {"type": "Active", "status": "True", "reason": "Ready", "message": "Can admit new workloads"}
    w.add(
        "kueue.x-k8s.io/v1beta1",
        "ClusterQueue",
        cq,
        spec={
            "namespaceSelector": {},
            "queueingStrategy": strategy,
            "preemption": {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"},
            "resourceGroups": [
                {
                    "coveredResources": list(resources),
                    "flavors": [
                        {"name": flavor, "resources": [{"name": k, "nominalQuota": q} for k, q in resources.items()]}
                    ],
                }
            ],
        },
        status={
            "conditions": [{**ok, "lastTransitionTime": ts(days(1))}],
            "flavorsReservation": [
                {"name": flavor, "resources": [{"name": k, "total": (usage or {}).get(k, "0")} for k in resources]}
            ],
        },
    )
    w.add(
        "kueue.x-k8s.io/v1beta1",
        "LocalQueue",
        lq,
        ns,
        spec={"clusterQueue": cq},
        status={
            "conditions": [
                {
                    "type": "Active",
                    "status": ok["status"],
                    "reason": ok["reason"],
                    "message": ok["message"],
                    "lastTransitionTime": ts(days(1)),
                }
            ]
        },
    )


def queued(
    w: World,
    ns: str,
    job: str,
    cq: str,
    flavor: str,
    requests: Obj,
    age: float,
    admitted: bool = False,
    message: str = "",
    lq: str = "main",
    pods: int = 1,
    priority: int = 0,
    more: list[Obj] | None = None,
    requeue: Obj | None = None,
    reason: str = "Pending",
    finished: bool = False,
) -> None:
    tpl = {
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "main",
                    "image": "registry.lab/train:3",
                    "resources": {"requests": requests, "limits": {k: q for k, q in requests.items() if "/" in k}},
                }
            ],
        }
    }
    w.add(
        "batch/v1",
        "Job",
        job,
        ns,
        age=age,
        labels={"kueue.x-k8s.io/queue-name": lq},
        spec={"suspend": not admitted, "parallelism": pods, "completions": pods, "template": tpl},
        status={"active": pods, "ready": pods, "startTime": ts(age - 1)}
        if admitted
        else {
            "conditions": [
                {
                    "type": "Suspended",
                    "status": "True",
                    "reason": "JobSuspended",
                    "message": "Job suspended",
                    "lastTransitionTime": ts(age),
                }
            ]
        },
    )
    wl = f"job-{job}-{uid(ns, job)[:5]}"
    spec = {
        "queueName": lq,
        "priority": priority,
        "active": True,
        "podSets": [{"name": "main", "count": pods, "template": tpl}],
    }
    st: Obj = {}
    if admitted:
        st["admission"] = {
            "clusterQueue": cq,
            "podSetAssignments": [
                {"name": "main", "count": pods, "flavors": dict.fromkeys(requests, flavor), "resourceUsage": requests}
            ],
        }
        st["conditions"] = [
            {
                "type": "QuotaReserved",
                "status": "True",
                "reason": "QuotaReserved",
                "message": "Quota reserved in ClusterQueue " + cq,
                "lastTransitionTime": ts(age - 1),
            },
            {
                "type": "Admitted",
                "status": "True",
                "reason": "Admitted",
                "message": "The workload is admitted",
                "lastTransitionTime": ts(age - 1),
            },
        ]
    elif message:
        st["conditions"] = [
            {
                "type": "QuotaReserved",
                "status": "False",
                "reason": reason,
                "message": message,
                "lastTransitionTime": ts(age),
            }
        ]
        w.event(ns, "Workload", wl, "Pending", message, count=9, source="kueue-admission")
    st.setdefault("conditions", []).extend(more or [])
    if requeue:
        st["requeueState"] = requeue
    w.add("kueue.x-k8s.io/v1beta1", "Workload", wl, ns, age=age, owner=("Job", job), spec=spec, status=st)


@case(
    "F19",
    "job/team-a/etl-gpu",
    "KUEUE_QUOTA_MISCONFIGURED",
    "A LimitRange gives every container an ephemeral-storage request; the ClusterQueue does not cover that resource, so it admits nothing of the namespace.",
    GH + "kubernetes-sigs/kueue/issues/4848",
    also=["KUEUE_QUOTA_INSUFFICIENT"],
    shallow=["KUEUE_QUOTA_INSUFFICIENT", "JOB_SUSPENDED"],
    other=[
        ("team-a", "climate"),
        ("etl-gpu", "regrid"),
        ("cq-shared", "cluster-wide"),
        ("default-flavor", "ondemand"),
        ("v0.13.4", "v0.10.2"),
        ("w-1", "node-east-3"),
        (
            "couldn't assign flavors to pod set main: resource ephemeral-storage unavailable in ClusterQueue",
            "couldn't assign flavors to pod set main: resource ephemeral-storage is not covered by any resource group of the ClusterQueue",
        ),
    ],
)
def not_covered(v: str) -> World:
    w = World()
    w.node("w-1", gpu=4, product="NVIDIA-A10", cpu="64")
    w.plugin(["w-1"])
    res = {"cpu": "100", "memory": "400Gi", "nvidia.com/gpu": "4"} | ({"ephemeral-storage": "1Ti"} if v == "d" else {})
    kueue(w, "cq-shared", "default-flavor", res, "team-a")
    w.add(
        "v1",
        "LimitRange",
        "defaults",
        "team-a",
        spec={
            "limits": [
                {
                    "type": "Container",
                    "defaultRequest": {"cpu": "100m", "ephemeral-storage": "200Mi"},
                    "default": {"ephemeral-storage": "1Gi"},
                }
            ]
        },
    )
    req = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1", "ephemeral-storage": "200Mi"}
    if v == "d":
        queued(w, "team-a", "etl-gpu", "cq-shared", "default-flavor", req, 40, admitted=True)
        w.pod(
            "team-a",
            "etl-gpu-m4v7t",
            node="w-1",
            gpu=1,
            owner=("Job", "etl-gpu"),
            age=39,
            labels={"job-name": "etl-gpu", "batch.kubernetes.io/job-name": "etl-gpu"},
            spec={"restartPolicy": "Never"},
        )
    else:
        queued(
            w,
            "team-a",
            "etl-gpu",
            "cq-shared",
            "default-flavor",
            req,
            40,
            message=""
            if v == "c"
            else "couldn't assign flavors to pod set main: resource ephemeral-storage unavailable in ClusterQueue",
        )
        if v == "c":
            w.items = [o for o in w.items if o["kind"] not in ("ClusterQueue", "ResourceFlavor")]
    return w


@case(
    "F20",
    "job/sim/orbit",
    "KUEUE_QUEUE_MISSING",
    "The ClusterQueue is inactive because it refers to ResourceFlavors that don't exist.",
    GH + "headlamp-k8s/plugins/issues/1191",
    also=["KUEUE_QUOTA_MISCONFIGURED", "KUEUE_FLAVOR_MISMATCH"],
)
def flavor_missing(v: str) -> World:
    w = World()
    w.node("w-1", gpu=8, product="NVIDIA-L40S", cpu="64")
    w.plugin(["w-1"])
    kueue(
        w,
        "cq-sim",
        "spot",
        {"cpu": "60", "memory": "400Gi", "nvidia.com/gpu": "8"},
        "sim",
        flavors=False,
        active={
            "type": "Active",
            "status": "False",
            "reason": "FlavorNotFound",
            "message": "Can't admit new workloads: references missing ResourceFlavor(s): spot.",
        },
    )
    queued(
        w,
        "sim",
        "orbit",
        "cq-sim",
        "spot",
        {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "2"},
        25,
        message="ClusterQueue cq-sim is inactive",
        reason="Inadmissible",
    )
    return w


@case(
    "F21",
    "job/train/llm-ft",
    "KUEUE_QUOTA_INSUFFICIENT",
    "What the Volcano queue has allocated plus this job's request exceeds the queue's capability, so its PodGroup is not enqueued and no pod is created.",
    GH + "volcano-sh/volcano/issues/3198",
    also=["GANG_INCOMPLETE", "RESOURCE_QUOTA_EXCEEDED"],
)
def volcano_queue(v: str) -> World:
    w = World("v1.27.9")
    w.node("a800-1", gpu=8, product="NVIDIA-A800-80GB", cpu="96", mem="900Gi")
    w.plugin(["a800-1"])
    for part in ("scheduler", "controllers", "admission"):
        rs = w.deploy(
            "volcano-system",
            f"volcano-{part}",
            1,
            1,
            "7f9",
            {"containers": [{"name": f"volcano-{part}", "image": f"volcanosh/vc-{part}:v1.9.0"}]},
        )
        w.pod(
            "volcano-system",
            f"volcano-{part}-7f9-ccccc",
            node="a800-1",
            owner=("ReplicaSet", rs),
            container=f"volcano-{part}",
            cpu="100m",
            mem="128Mi",
            age=days(2),
        )
    w.add(
        "scheduling.volcano.sh/v1beta1",
        "Queue",
        "nlp",
        spec={"weight": 1, "reclaimable": True, "capability": {"cpu": "40", "memory": "400Gi", "nvidia.com/gpu": "4"}},
        status={
            "state": "Open",
            "running": 1,
            "pending": 1,
            "allocated": {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "3"},
        },
    )
    tpl = {
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "registry.lab/ft:1",
                    "resources": {
                        "requests": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "2"},
                        "limits": {"nvidia.com/gpu": "2"},
                    },
                }
            ]
        }
    }
    w.add(
        "batch.volcano.sh/v1alpha1",
        "Job",
        "llm-old",
        "train",
        age=500,
        spec={
            "queue": "nlp",
            "minAvailable": 1,
            "schedulerName": "volcano",
            "tasks": [{"name": "w", "replicas": 1, "template": tpl}],
        },
        status={"state": {"phase": "Running"}, "running": 1, "minAvailable": 1},
    )
    w.add(
        "scheduling.volcano.sh/v1beta1",
        "PodGroup",
        "llm-old-pg",
        "train",
        age=500,
        spec={"minMember": 1, "queue": "nlp"},
        status={"phase": "Running", "running": 1},
    )
    w.pod(
        "train",
        "llm-old-w-0",
        node="a800-1",
        gpu=3,
        cpu="16",
        mem="64Gi",
        age=500,
        annotations={"scheduling.k8s.io/group-name": "llm-old-pg"},
        spec={"schedulerName": "volcano"},
    )
    w.add(
        "batch.volcano.sh/v1alpha1",
        "Job",
        "llm-ft",
        "train",
        age=45,
        spec={
            "queue": "nlp",
            "minAvailable": 1,
            "schedulerName": "volcano",
            "tasks": [{"name": "w", "replicas": 1, "template": tpl}],
        },
        status={
            "state": {"phase": "Pending", "lastTransitionTime": ts(45)},
            "minAvailable": 1,
            "conditions": [{"status": "Pending", "lastTransitionTime": ts(45)}],
        },
    )
    pg = "llm-ft-" + uid("x")
    w.add(
        "scheduling.volcano.sh/v1beta1",
        "PodGroup",
        pg,
        "train",
        age=45,
        owner=("VolcanoJob", "llm-ft"),
        spec={"minMember": 1, "queue": "nlp", "minResources": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "2"}},
        status={
            "phase": "Pending",
            "conditions": [
                {
                    "type": "Unschedulable",
                    "status": "True",
                    "reason": "NotEnoughResources",
                    "message": "queue resource quota insufficient: insufficient nvidia.com/gpu",
                    "lastTransitionTime": ts(44),
                }
            ],
        },
    )
    w.event(
        "train",
        "PodGroup",
        pg,
        "Unschedulable",
        "queue resource quota insufficient: insufficient nvidia.com/gpu",
        count=88,
        source="volcano",
        type="Normal",
    )
    w.event(
        "train",
        "Job",
        "llm-ft",
        "PodGroupPending",
        f"PodGroup train:{pg} unschedule,reason: 1/0 tasks in gang unschedulable: pod group is not ready, 1 minAvailable",
        source="vc-controller-manager",
        api="batch.volcano.sh/v1alpha1",
    )
    return w


@case(
    "F22",
    "deployment/api/ranker",
    "GANG_INCOMPLETE",
    "A rolling update surges by one pod; Volcano gives the new ReplicaSet a PodGroup of its own with minMember 2, which one pod never fulfils, so the rollout hangs.",
    GH + "volcano-sh/volcano/issues/4739",
    also=["GANG_DEADLOCK"],
)
def rollout_gang(v: str) -> World:
    w = World("v1.31.4")
    w.node("g-1", gpu=8, product="NVIDIA-A10", cpu="64", mem="500Gi")
    w.plugin(["g-1"])
    w.add(
        "scheduling.volcano.sh/v1beta1",
        "Queue",
        "default",
        spec={"weight": 1, "reclaimable": True},
        status={"state": "Open"},
    )
    rs = w.deploy(
        "volcano-system",
        "volcano-scheduler",
        1,
        1,
        "7f9",
        {"containers": [{"name": "volcano-scheduler", "image": "volcanosh/vc-scheduler:v1.12.1"}]},
    )
    w.pod(
        "volcano-system",
        "volcano-scheduler-7f9-ddddd",
        node="g-1",
        owner=("ReplicaSet", rs),
        container="volcano-scheduler",
        cpu="100m",
        mem="128Mi",
        age=days(2),
    )
    tpl = {
        "schedulerName": "volcano",
        "containers": [
            {"name": "main", "image": "registry.lab/ranker:2", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        ],
    }
    old = w.deploy(
        "api",
        "ranker",
        2,
        2,
        "5df6b",
        tpl,
        updated=1,
        current=3,
        conditions=[
            {
                "type": "Progressing",
                "status": "False",
                "reason": "ProgressDeadlineExceeded",
                "message": 'ReplicaSet "ranker-84c9d" has timed out progressing.',
                "lastTransitionTime": ts(20),
            }
        ],
    )
    new = w.rs("api", "ranker", "84c9d", 1, 0, tpl, 40)
    for _i, x in enumerate("ab"):
        w.pod(
            "api",
            f"{old}-{x * 5}",
            node="g-1",
            gpu=1,
            owner=("ReplicaSet", old),
            age=days(3),
            labels={"app": "ranker"},
            annotations={"scheduling.k8s.io/group-name": "podgroup-old", "scheduling.volcano.sh/group-min-member": "2"},
            spec={"schedulerName": "volcano"},
        )
    w.add(
        "scheduling.volcano.sh/v1beta1",
        "PodGroup",
        "podgroup-old",
        "api",
        owner=("ReplicaSet", old),
        spec={"minMember": 2, "queue": "default"},
        status={"phase": "Running", "running": 2},
    )
    msg = "1/1 tasks in gang unschedulable: pod group is not ready, 1 Pending, 2 minAvailable; Pending: 1 Undetermined"
    w.add(
        "scheduling.volcano.sh/v1beta1",
        "PodGroup",
        "podgroup-new",
        "api",
        age=40,
        owner=("ReplicaSet", new),
        spec={"minMember": 2, "queue": "default"},
        status={
            "phase": "Inqueue",
            "conditions": [
                {
                    "type": "Unschedulable",
                    "status": "True",
                    "reason": "NotEnoughPods",
                    "message": msg,
                    "lastTransitionTime": ts(39),
                }
            ],
        },
    )
    w.pending(
        "api",
        f"{new}-ccccc",
        msg,
        gpu=1,
        owner=("ReplicaSet", new),
        labels={"app": "ranker"},
        annotations={"scheduling.k8s.io/group-name": "podgroup-new", "scheduling.volcano.sh/group-min-member": "2"},
        spec={"schedulerName": "volcano"},
        source="volcano",
    )
    return w


@case(
    "F23",
    "job/nightly/reindex",
    "POLICY_DENIED",
    "A mutating webhook for pods has failurePolicy Fail and its service has no endpoints (the controller behind it can't start), so no Job of the cluster can create pods.",
    GH + "kubernetes-sigs/jobset/issues/361",
    shallow=["GANG_INCOMPLETE"],
    other=[
        ("reindex", "embed-refresh"),
        ("nightly", "search-batch"),
        ("jobset-webhook-service", "mutator-svc"),
        ("jobset-system", "batch-system"),
        ("mpod.kb.io", "pods.mutate.batch.io"),
        ("no endpoints available for service", "dial tcp 10.96.14.7:443: connect: connection refused for service"),
        ("jobset-controller-manager", "batch-mutator"),
    ],
)
def webhook_down(v: str) -> World:
    w = World("v1.28.4")
    w.node("n-1", gpu=2, product="Tesla-T4")
    w.plugin(["n-1"])
    err = 'Internal error occurred: failed calling webhook "mpod.kb.io": failed to call webhook: Post "https://jobset-webhook-service.jobset-system.svc:443/mutate--v1-pod?timeout=10s": no endpoints available for service "jobset-webhook-service"'
    tpl = {
        "restartPolicy": "Never",
        "containers": [
            {"name": "main", "image": "registry.lab/reindex:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        ],
    }
    w.add(
        "batch/v1",
        "Job",
        "reindex",
        "nightly",
        age=50,
        spec={"parallelism": 1, "completions": 1, "template": {"spec": tpl}},
        status={"active": 1, "ready": 1, "startTime": ts(49)} if v == "d" else {"startTime": ts(50), "ready": 0},
    )
    if v == "d":
        w.pod(
            "nightly",
            "reindex-8x8x8",
            node="n-1",
            gpu=1,
            owner=("Job", "reindex"),
            age=12,
            labels={"job-name": "reindex", "batch.kubernetes.io/job-name": "reindex"},
            spec={"restartPolicy": "Never"},
        )
    if v != "c":
        w.event(
            "nightly",
            "Job",
            "reindex",
            "FailedCreate",
            "Error creating: " + err,
            last=14 if v == "d" else 3,
            first=50,
            count=11,
            source="job-controller",
        )
        rs = w.deploy(
            "jobset-system",
            "jobset-controller-manager",
            1,
            int(v == "d"),
            "66c",
            {"containers": [{"name": "manager", "image": "registry.k8s.io/jobset/jobset:v0.3.0"}]},
            current=int(v == "d"),
            rs_conditions=[]
            if v == "d"
            else [
                {
                    "type": "ReplicaFailure",
                    "status": "True",
                    "reason": "FailedCreate",
                    "message": err,
                    "lastTransitionTime": ts(400),
                }
            ],
        )
        if v == "d":
            w.pod(
                "jobset-system",
                "jobset-controller-manager-66c-eeeee",
                node="n-1",
                owner=("ReplicaSet", rs),
                container="manager",
                cpu="100m",
                mem="128Mi",
                age=13,
            )
        w.add(
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            "jobset-mutating-webhook-configuration",
            webhooks=[
                {
                    "name": "mpod.kb.io",
                    "failurePolicy": "Fail",
                    "rules": [
                        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                    ],
                    "clientConfig": {"service": {"namespace": "jobset-system", "name": "jobset-webhook-service"}},
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                }
            ],
        )
    return w


@case(
    "F24",
    "raycluster/rl/explorer",
    "RESOURCE_QUOTA_EXCEEDED",
    "The namespace's quota refuses the head pod; the RayCluster's status only says failed, the reason is in the operator's log.",
    GH + "ray-project/kuberay/issues/603",
)
def ray_quota(v: str) -> World:
    w = World("v1.29.3")
    w.node("w-1", gpu=4, product="NVIDIA-A10", cpu="64")
    w.plugin(["w-1"])
    w.add(
        "v1",
        "ResourceQuota",
        "rl-cap",
        "rl",
        spec={"hard": {"requests.cpu": "20", "limits.cpu": "20"}},
        status={"hard": {"requests.cpu": "20", "limits.cpu": "20"}, "used": {"requests.cpu": "14", "limits.cpu": "14"}},
    )
    w.pod("rl", "replay-buffer-0", node="w-1", cpu="14", mem="32Gi", limits={"cpu": "14"}, age=days(1))
    res = {"limits": {"cpu": "12", "memory": "24Gi"}, "requests": {"cpu": "12", "memory": "24Gi"}}
    gres = {
        "limits": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"},
        "requests": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"},
    }
    pod = lambda r: {"spec": {"containers": [{"name": "ray", "image": "rayproject/ray:2.38.0-gpu", "resources": r}]}}
    w.add(
        "ray.io/v1",
        "RayCluster",
        "explorer",
        "rl",
        age=30,
        spec={
            "rayVersion": "2.38.0",
            "headGroupSpec": {"rayStartParams": {}, "template": pod(res)},
            "workerGroupSpecs": [
                {
                    "groupName": "gpu",
                    "replicas": 2,
                    "minReplicas": 1,
                    "maxReplicas": 2,
                    "rayStartParams": {},
                    "template": pod(gres),
                }
            ],
        },
        status={"state": "failed", "head": {}},
    )
    rs = w.deploy(
        "kuberay",
        "kuberay-operator",
        1,
        1,
        "5b9",
        {"containers": [{"name": "kuberay-operator", "image": "quay.io/kuberay/operator:v1.0.0"}]},
    )
    w.pod(
        "kuberay",
        "kuberay-operator-5b9-fffff",
        node="w-1",
        owner=("ReplicaSet", rs),
        container="kuberay-operator",
        cpu="100m",
        mem="512Mi",
        age=days(3),
    )
    w.log(
        "kuberay",
        "kuberay-operator-5b9-fffff",
        "kuberay-operator",
        '2026-03-10T09:57:40.120Z\tERROR\tcontroller.raycluster-controller\tReconciler error\t{"reconciler kind": "RayCluster", "name": "explorer", "namespace": "rl", "error": '
        '"pods \\"explorer-head-x8d2m\\" is forbidden: exceeded quota: rl-cap, requested: limits.cpu=12,requests.cpu=12, used: limits.cpu=14,requests.cpu=14, limited: limits.cpu=20,requests.cpu=20"}',
    )
    return w


@case(
    "F25",
    "pod/serve/redis-cleanup-77d9f",
    "SCHEDULING_GATED",
    "The queue controller's webhook put its gate on a cleanup pod that belongs to no workload, so nothing ever lifts the gate.",
    GH + "kubernetes-sigs/kueue/issues/8443",
    accept=["KUEUE_QUEUE_MISSING"],
)
def gate_left(v: str) -> World:
    w = World("v1.33.4")
    w.node("w-1", gpu=1, product="NVIDIA-A10", cpu="64")
    w.plugin(["w-1"])
    kueue(w, "cq-serve", "any", {"cpu": "60", "memory": "100Gi", "nvidia.com/gpu": "1"}, "serve")
    w.add(
        "batch/v1",
        "Job",
        "redis-cleanup",
        "serve",
        age=30,
        spec={
            "parallelism": 1,
            "completions": 1,
            "template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "rayproject/ray:2.46.0"}]}
            },
        },
        status={"active": 1, "ready": 0, "startTime": ts(30)},
    )
    w.pod(
        "serve",
        "redis-cleanup-77d9f",
        state="gated",
        owner=("Job", "redis-cleanup"),
        age=30,
        cpu="200m",
        mem="256Mi",
        spec={"schedulingGates": [{"name": "kueue.x-k8s.io/elastic-job"}], "restartPolicy": "Never"},
        labels={"job-name": "redis-cleanup", "batch.kubernetes.io/job-name": "redis-cleanup"},
    )
    return w


# ------------------------------------------------------------------------------------------------------------ autoscalers
@case(
    "F26",
    "pod/hub/jupyter-ines",
    "CLOUD_CAPACITY",
    "The autoscaler asked for a GPU machine; the provider has no such machine in that zone, so the group is in back-off.",
    GH + "2i2c-org/infrastructure/issues/3334",
    also=["AUTOSCALER_NO_MATCHING_GROUP"],
    shallow=["AUTOSCALER_NO_MATCHING_GROUP", "RESOURCE_NAME_MISMATCH", "SELECTOR_MISMATCH"],
    other=[
        ("jupyter-ines", "notebook-omar"),
        ("hub", "campus"),
        ("nb-gpu-b", "ng-a10g-spot"),
        ("us-west-2a", "eu-central-1b"),
        ("g4dn.xlarge", "g5.2xlarge"),
        ("core-1", "base-7"),
        ("We currently do not have sufficient", "InsufficientInstanceCapacity - there is not enough"),
        ("v1.32.1", "v1.30.3"),
    ],
)
def no_machines(v: str) -> World:
    w = World("v1.32.1")
    w.node("core-1", cpu="8", mem="31Gi", labels={"hub.node": "core"})
    if v == "d":
        w.node(
            "ip-10-1-9-9",
            cpu="4",
            mem="15Gi",
            gpu=1,
            product="Tesla-T4",
            labels={"hub.node": "gpu"},
            taints=[{"key": "hub/gpu", "value": "user", "effect": "NoSchedule"}],
            age=6,
        )
        w.plugin(["ip-10-1-9-9"], age=5)
    rs = w.deploy(
        "kube-system",
        "cluster-autoscaler",
        1,
        1,
        "b6f",
        {
            "containers": [
                {"name": "cluster-autoscaler", "image": "registry.k8s.io/autoscaling/cluster-autoscaler:v1.32.1"}
            ]
        },
    )
    w.pod(
        "kube-system",
        "cluster-autoscaler-b6f-ggggg",
        node="core-1",
        owner=("ReplicaSet", rs),
        container="cluster-autoscaler",
        cpu="100m",
        mem="256Mi",
        age=days(5),
    )
    if v == "":
        w.log(
            "kube-system",
            "cluster-autoscaler-b6f-ggggg",
            "cluster-autoscaler",
            """
I0310 09:20:10.118230       1 scale_up.go:300] Final scale-up plan: [{nb-gpu-b 0->1 (max: 6)}]
I0310 09:20:10.500911       1 auto_scaling_groups.go:267] Setting asg nb-gpu-b size to 1
W0310 09:35:12.733019       1 clusterstate.go:310] Scale-up timed out for node group nb-gpu-b after 15m0s
I0310 09:35:12.733501       1 aws_manager.go:190] nb-gpu-b: launch failed: We currently do not have sufficient g4dn.xlarge capacity in the Availability Zone you requested (us-west-2a). Launching EC2 instance failed.
W0310 09:35:12.734222       1 clusterstate.go:333] Disabling scale-up for node group nb-gpu-b until 2026-03-10 10:05:12; errorClass=OutOfResources; errorCode=InsufficientInstanceCapacity
I0310 09:59:02.101877       1 scale_up.go:138] Skipping node group nb-gpu-b - in backoff after failed scale-up""",
        )
        w.add(
            "v1",
            "ConfigMap",
            "cluster-autoscaler-status",
            "kube-system",
            data={
                "status": "time: 2026-03-10 09:59:02 UTC\nautoscalerStatus: Running\nnodeGroups:\n- name: nb-gpu-b\n  health:\n    status: Healthy\n    nodeCounts: {registered: {total: 0}}\n    cloudProviderTarget: 0\n    minSize: 0\n    maxSize: 6\n"
                "  scaleUp:\n    status: Backoff\n    backoffInfo:\n      errorCode: InsufficientInstanceCapacity\n      errorMessage: We currently do not have sufficient g4dn.xlarge capacity in the Availability Zone you requested (us-west-2a).\n"
            },
        )
        w.event(
            "hub",
            "Pod",
            "jupyter-ines",
            "TriggeredScaleUp",
            "pod triggered scale-up: [{nb-gpu-b 0->1 (max: 6)}]",
            last=40,
            type="Normal",
            source="cluster-autoscaler",
        )
        w.event(
            "hub",
            "Pod",
            "jupyter-ines",
            "NotTriggerScaleUp",
            "pod didn't trigger scale-up: 1 in backoff after failed scale-up, 1 node(s) didn't match Pod's node affinity/selector",
            count=12,
            type="Normal",
            source="cluster-autoscaler",
        )
    kw: Obj = {
        "gpu": 1,
        "cpu": "2",
        "mem": "8Gi",
        "age": 42,
        "spec": {"nodeSelector": {"hub.node": "gpu"}, "tolerations": [{"key": "hub/gpu", "operator": "Exists"}]},
    }
    if v == "d":
        w.pod("hub", "jupyter-ines", node="ip-10-1-9-9", since=3, **kw)
    else:
        w.pending(
            "hub",
            "jupyter-ines",
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
            **kw,
        )
    return w


@case(
    "F27",
    "pod/tools/analyzer-0",
    "AUTOSCALER_NO_MATCHING_GROUP",
    "The pod asks for 2 GPUs, the only GPU NodePool allows machine types with one GPU each, so Karpenter has nothing to start.",
    GH + "aws/karpenter-provider-aws/issues/8064",
    also=["REQUEST_EXCEEDS_CLUSTER", "SELECTOR_MISMATCH"],
)
def karpenter_types(v: str) -> World:
    w = World("v1.30.9")
    w.node("sys-1", cpu="4", mem="15Gi", labels={"karpenter.sh/nodepool": "general"})
    w.add(
        "karpenter.sh/v1",
        "NodePool",
        "gpu-small",
        spec={
            "template": {
                "spec": {
                    "requirements": [
                        {
                            "key": "node.kubernetes.io/instance-type",
                            "operator": "In",
                            "values": ["g4dn.2xlarge", "g4dn.4xlarge"],
                        },
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    ],
                    "taints": [{"key": "tools/gpu", "value": "yes", "effect": "NoSchedule"}],
                }
            }
        },
        status={"conditions": [{"type": "Ready", "status": "True"}], "resources": {}},
    )
    w.add(
        "karpenter.sh/v1",
        "NodePool",
        "general",
        spec={
            "template": {
                "spec": {
                    "requirements": [
                        {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["m", "c"]}
                    ]
                }
            }
        },
        status={"conditions": [{"type": "Ready", "status": "True"}]},
    )
    msg = (
        'Failed to schedule pod, incompatible with nodepool "gpu-small", daemonset overhead={"cpu":"185m","memory":"240Mi","pods":"4"}, no instance type satisfied resources {"cpu":"17185m","memory":"33008Mi","nvidia.com/gpu":"2","pods":"5"} '
        'and requirements karpenter.sh/capacity-type In [on-demand], node.kubernetes.io/instance-type In [g4dn.2xlarge g4dn.4xlarge] (no instance type has enough resources); incompatible with nodepool "general", no instance type has enough resources'
    )
    w.event("tools", "Pod", "analyzer-0", "FailedScheduling", msg, count=30, source="karpenter")
    rs = w.deploy(
        "karpenter",
        "karpenter",
        1,
        1,
        "c9c",
        {"containers": [{"name": "controller", "image": "public.ecr.aws/karpenter/controller:1.3.1"}]},
    )
    w.pod(
        "karpenter",
        "karpenter-c9c-hhhhh",
        node="sys-1",
        owner=("ReplicaSet", rs),
        container="controller",
        cpu="500m",
        mem="512Mi",
        age=days(4),
    )
    w.pending(
        "tools",
        "analyzer-0",
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 Insufficient nvidia.com/gpu.",
        gpu=2,
        cpu="17",
        mem="32Gi",
        age=70,
        spec={"tolerations": [{"key": "tools/gpu", "operator": "Exists"}]},
    )
    return w


# ------------------------------------------------------------------------------------------------------------ volumes, ports, disks, claims
@case(
    "F28",
    "pod/odh/jupyter-nb-rosa",
    "STORAGE_INSUFFICIENT",
    "The notebook's volume is in zone a, the only GPU node is in zone b; a zonal disk can't be attached there.",
    GH + "opendatahub-io/odh-manifests/issues/259",
    shallow=["CPU_MEM_INSUFFICIENT", "RESOURCE_NAME_MISMATCH", "GPU_FULL"],
    other=[
        ("jupyter-nb-rosa", "lab-kenji"),
        ("odh", "ds-platform"),
        ("us-east-2a", "westeurope-1"),
        ("us-east-2b", "westeurope-2"),
        ("pvc-90be2c11", "pvc-1d7a4410"),
        ("gpu-b-1", "nc6-0003"),
        ("cpu-a-1", "d4-0001"),
        ("gp3", "managed-premium"),
        ("ebs.csi.aws.com", "disk.csi.azure.com"),
    ],
)
def zones(v: str) -> World:
    w = World("v1.29.9")
    z = lambda x: {"topology.kubernetes.io/zone": x, "topology.ebs.csi.aws.com/zone": x}
    w.node("cpu-a-1", cpu="16", mem="62Gi", labels=z("us-east-2a"))
    w.node("gpu-b-1", cpu="16", mem="62Gi", gpu=1, product="Tesla-T4", labels=z("us-east-2b"))
    w.plugin(["gpu-b-1"])
    if v == "d":
        w.node("gpu-a-1", cpu="16", mem="62Gi", gpu=1, product="Tesla-T4", labels=z("us-east-2a"), age=60)
    w.add(
        "storage.k8s.io/v1",
        "StorageClass",
        "gp3",
        provisioner="ebs.csi.aws.com",
        volumeBindingMode="Immediate",
        reclaimPolicy="Delete",
    )
    w.add(
        "v1",
        "PersistentVolumeClaim",
        "jupyter-nb-rosa-pvc",
        "odh",
        age=days(30),
        spec={
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "20Gi"}},
            "storageClassName": "gp3",
            "volumeName": "pvc-90be2c11",
        },
        status={"phase": "Bound", "capacity": {"storage": "20Gi"}, "accessModes": ["ReadWriteOnce"]},
    )
    w.add(
        "v1",
        "PersistentVolume",
        "pvc-90be2c11",
        age=days(30),
        spec={
            "capacity": {"storage": "20Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "gp3",
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "odh",
                "name": "jupyter-nb-rosa-pvc",
                "uid": uid("PersistentVolumeClaim", "odh", "jupyter-nb-rosa-pvc"),
            },
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-0aa1"},
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "topology.ebs.csi.aws.com/zone", "operator": "In", "values": ["us-east-2a"]}
                            ]
                        }
                    ]
                }
            },
        },
        status={"phase": "Bound"},
    )
    if v == "c":
        w.items = [o for o in w.items if o["kind"] != "PersistentVolume"]
    kw: Obj = {
        "gpu": 1,
        "cpu": "2",
        "mem": "8Gi",
        "age": 55,
        "spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "jupyter-nb-rosa-pvc"}}]},
        "cspec": {"volumeMounts": [{"name": "data", "mountPath": "/home"}]},
    }
    if v == "d":
        w.pod("odh", "jupyter-nb-rosa", node="gpu-a-1", since=50, **kw)
    elif v == "c":
        w.pod("odh", "jupyter-nb-rosa", state="unschedulable", message="", **kw)
    else:
        w.pending(
            "odh",
            "jupyter-nb-rosa",
            "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had volume node affinity conflict.",
            **kw,
        )
    return w


@case(
    "F29",
    "pod/jhub/jupyter-ada",
    "STORAGE_INSUFFICIENT",
    "The user's volume can be attached to one node only and is still attached where a leaked pod of the same user runs.",
    GH + "jupyterhub/zero-to-jupyterhub-k8s/issues/2981",
)
def multi_attach(v: str) -> World:
    w = World("v1.28.3")
    for i in range(2):
        w.node(f"gke-t4-{i}", cpu="8", mem="30Gi", gpu=1, product="Tesla-T4")
    w.plugin(["gke-t4-0", "gke-t4-1"])
    vol = {"volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "claim-ada"}}]}
    w.add(
        "v1",
        "PersistentVolumeClaim",
        "claim-ada",
        "jhub",
        spec={
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "10Gi"}},
            "storageClassName": "standard-rwo",
            "volumeName": "pvc-27f9",
        },
        status={"phase": "Bound", "capacity": {"storage": "10Gi"}},
    )
    w.add(
        "v1",
        "PersistentVolume",
        "pvc-27f9",
        spec={
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "standard-rwo",
            "csi": {"driver": "pd.csi.storage.gke.io", "volumeHandle": "disk-27f9"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "jhub",
                "name": "claim-ada",
                "uid": uid("PersistentVolumeClaim", "jhub", "claim-ada"),
            },
        },
        status={"phase": "Bound"},
    )
    w.add(
        "storage.k8s.io/v1",
        "VolumeAttachment",
        "csi-27f9",
        spec={
            "attacher": "pd.csi.storage.gke.io",
            "nodeName": "gke-t4-0",
            "source": {"persistentVolumeName": "pvc-27f9"},
        },
        status={"attached": True},
    )
    w.pod("jhub", "jupyter-ada-old", node="gke-t4-0", cpu="1", mem="4Gi", age=days(4), spec=vol)
    w.pod("jhub", "jupyter-ada", node="gke-t4-1", gpu=1, cpu="1", mem="4Gi", age=22, state="creating", spec=vol)
    w.event(
        "jhub",
        "Pod",
        "jupyter-ada",
        "Scheduled",
        "Successfully assigned jhub/jupyter-ada to gke-t4-1",
        last=22,
        first=22,
        type="Normal",
    )
    w.event(
        "jhub",
        "Pod",
        "jupyter-ada",
        "FailedAttachVolume",
        'Multi-Attach error for volume "pvc-27f9" Volume is already used by pod(s) jupyter-ada-old',
        last=21,
        first=21,
        source="attachdetach-controller",
    )
    return w


@case(
    "F30",
    "pod/tenants/comfy-7788-abcde",
    "EPHEMERAL_STORAGE",
    "The disk of the only GPU node is full of images; the kubelet reports DiskPressure and taints the node.",
    GH + "akash-network/support/issues/226",
    also=["TAINT_NOT_TOLERATED", "NODE_UNSCHEDULABLE"],
)
def disk_pressure(v: str) -> World:
    w = World("v1.28.6")
    w.node(
        "prov-cp",
        cpu="8",
        mem="31Gi",
        taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}],
    )
    w.node(
        "prov-1",
        cpu="64",
        mem="250Gi",
        gpu=4,
        product="NVIDIA-RTX-A6000",
        pressure="DiskPressure",
        taints=[{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule", "timeAdded": ts(34)}],
    )
    w.plugin(["prov-1"])
    w.event(
        "",
        "Node",
        "prov-1",
        "NodeHasDiskPressure",
        "Node prov-1 status is now: NodeHasDiskPressure",
        last=34,
        first=34,
        type="Normal",
        source="kubelet",
    )
    w.event(
        "",
        "Node",
        "prov-1",
        "FreeDiskSpaceFailed",
        "Failed to garbage collect required amount of images. Attempted to free 48122391552 bytes, but only found 0 bytes eligible to free.",
        count=7,
        source="kubelet",
    )
    w.event(
        "",
        "Node",
        "prov-1",
        "EvictionThresholdMet",
        "Attempting to reclaim ephemeral-storage",
        count=21,
        source="kubelet",
    )
    w.pod(
        "tenants",
        "comfy-7788-zzzzz",
        node="prov-1",
        gpu=1,
        state="rejected",
        reason="Evicted",
        message="The node was low on resource: ephemeral-storage. Threshold quantity: 24159191040, available: 21000100Ki. Container main was using 91Gi, request is 0.",
        age=90,
    )
    w.pending(
        "tenants",
        "comfy-7788-abcde",
        "0/2 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 1 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: }.",
        gpu=1,
        age=30,
    )
    return w


@case(
    "F31",
    "pod/monitoring/prom-node-exporter-6kqzd",
    "HOST_PORT_CONFLICT",
    "The exporter wants host port 9100 of its node, which another exporter's pod already holds.",
    GH + "dell/csm/issues/1783",
)
def host_port(v: str) -> World:
    w = World("v1.28.11")
    ports = {"ports": [{"containerPort": 9100, "hostPort": 9100, "protocol": "TCP"}]}
    for i in range(2):
        w.node(f"bm-{i}", gpu=2, product="NVIDIA-A40")
        w.pod(
            "openshift-monitoring",
            f"node-exporter-{i}aaaa",
            node=f"bm-{i}",
            cpu="10m",
            mem="32Mi",
            age=days(30),
            spec={"hostNetwork": True},
            cspec=ports,
            owner=("DaemonSet", "node-exporter"),
        )
    w.plugin(["bm-0", "bm-1"])
    w.ds("openshift-monitoring", "node-exporter", 2, 2, "quay.io/exporter:1", "main")
    w.ds("monitoring", "prom-node-exporter", 2, 0, "quay.io/prometheus/node-exporter:v1.9.0", "main")
    aff = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["bm-0"]}]}]
            }
        }
    }
    w.pending(
        "monitoring",
        "prom-node-exporter-6kqzd",
        "0/2 nodes are available: 1 node(s) didn't have free ports for the requested pod ports, 1 node(s) didn't satisfy plugin(s) [NodeAffinity].",
        cpu="10m",
        mem="32Mi",
        age=900,
        owner=("DaemonSet", "prom-node-exporter"),
        cspec=ports,
        spec={"hostNetwork": True, "affinity": aff, "tolerations": [{"operator": "Exists"}]},
    )
    return w


@case(
    "F32",
    "pod/gpu-demo/gpu-deployment-69658-n4k2x",
    "DRA_CLAIM_INVALID",
    "The ResourceClaimTemplate that the pod names has been deleted, so its claim can't be created and the pod stays pending.",
    GH + "kubernetes/kubernetes/issues/129362",
    also=["DRA_CLASS_MISSING"],
)
def claim_template_gone(v: str) -> World:
    w = World("v1.32.0")
    w.node("dra-1", cpu="16", mem="62Gi")
    w.add(
        "resource.k8s.io/v1beta1",
        "DeviceClass",
        "gpu.nvidia.com",
        spec={"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]},
    )
    w.add(
        "resource.k8s.io/v1beta1",
        "ResourceSlice",
        "dra-1-gpu.nvidia.com-x",
        spec={
            "driver": "gpu.nvidia.com",
            "nodeName": "dra-1",
            "pool": {"name": "dra-1", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": "gpu-0",
                    "basic": {
                        "attributes": {"productName": {"string": "Tesla T4"}},
                        "capacity": {"memory": {"value": "15Gi"}},
                    },
                }
            ],
        },
    )
    rs = w.deploy(
        "gpu-demo",
        "gpu-deployment",
        1,
        0,
        "69658",
        {
            "containers": [{"name": "main", "image": "ubuntu:22.04", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "single-gpu"}],
        },
    )
    w.event(
        "gpu-demo",
        "Pod",
        "gpu-deployment-69658-n4k2x",
        "FailedResourceClaimCreation",
        'PodResourceClaim gpu: resource claim template "single-gpu": resourceclaimtemplate.resource.k8s.io "single-gpu" not found',
        count=14,
        source="resource_claim",
    )
    w.pending(
        "gpu-demo",
        "gpu-deployment-69658-n4k2x",
        '0/1 nodes are available: waiting for dynamic resource controller to create the resourceclaim "gpu". no new claims to deallocate',
        owner=("ReplicaSet", rs),
        labels={"app": "gpu-deployment"},
        age=45,
        spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "single-gpu"}]},
        cspec={"resources": {"claims": [{"name": "gpu"}], "requests": {"cpu": "100m"}}},
    )
    return w


@case(
    "F33",
    "deployment/llm/qwen-coder",
    "GPU_FULL",
    "A rolling update keeps the old pod until the new one is ready; the old one holds both GPUs of the only GPU node, so the new one can't start.",
    GH + "defilantech/LLMKube/issues/192",
)
def rollout_full(v: str) -> World:
    w = World("v1.31.2")
    w.node("shadow", cpu="24", mem="125Gi", gpu=2, product="NVIDIA-GeForce-RTX-5060-Ti")
    w.node("helper", cpu="8", mem="31Gi")
    w.plugin(["shadow"])
    tpl = {
        "containers": [
            {"name": "main", "image": "registry.lab/llama-server:b2", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
        ]
    }
    old = w.deploy(
        "llm",
        "qwen-coder",
        1,
        1,
        "5f7",
        tpl,
        updated=1,
        current=2,
        conditions=[
            {
                "type": "Available",
                "status": "True",
                "reason": "MinimumReplicasAvailable",
                "message": "Deployment has minimum availability.",
            },
            {
                "type": "Progressing",
                "status": "False",
                "reason": "ProgressDeadlineExceeded",
                "message": 'ReplicaSet "qwen-coder-9b4" has timed out progressing.',
                "lastTransitionTime": ts(60),
            },
        ],
    )
    new = w.rs("llm", "qwen-coder", "9b4", 1, 0, tpl, 75)
    w.pod(
        "llm",
        f"{old}-aaaaa",
        node="shadow",
        gpu=2,
        owner=("ReplicaSet", old),
        labels={"app": "qwen-coder"},
        age=days(3),
        cpu="4",
        mem="32Gi",
    )
    w.pending(
        "llm",
        f"{new}-bbbbb",
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. " + FEW.format(n=2),
        gpu=2,
        owner=("ReplicaSet", new),
        labels={"app": "qwen-coder"},
        age=75,
        cpu="4",
        mem="32Gi",
    )
    return w


@case(
    "F34",
    "pod/default/bert-bench",
    "NODE_UNSCHEDULABLE",
    "The GPU node is NotReady because its container network was never set up (no CNI configuration).",
    GH + "NVIDIA/deepops/issues/355",
    also=["TAINT_NOT_TOLERATED"],
)
def cni(v: str) -> World:
    w = World("v1.29.1")
    w.node("ctl", cpu="8", mem="31Gi")
    w.node(
        "ai1",
        cpu="40",
        mem="250Gi",
        gpu=8,
        product="NVIDIA-A100-SXM4-40GB",
        ready="False",
        ready_reason="KubeletNotReady",
        ready_message="container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized",
        taints=[
            {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": ts(47)},
        ],
    )
    w.pending(
        "default",
        "bert-bench",
        "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }.",
        gpu=1,
        age=40,
    )
    return w


# ------------------------------------------------------------------------------------------------------------ controls
@case(
    "C01",
    "pod/vllm/big-image-0",
    "IMAGE_PULL_SLOW",
    "Healthy: a 24 GB image is being pulled since four minutes.",
    GH + "kubeflow/mpi-operator/issues/386",
)
def pulling(v: str) -> World:
    w = World()
    w.node("h-1", gpu=2, product="NVIDIA-H100-PCIe")
    w.plugin(["h-1"])
    w.pod("vllm", "big-image-0", node="h-1", gpu=1, state="creating", age=4, image="registry.lab/vllm-full:0.9")
    w.event(
        "vllm",
        "Pod",
        "big-image-0",
        "Scheduled",
        "Successfully assigned vllm/big-image-0 to h-1",
        last=4,
        first=4,
        type="Normal",
    )
    w.event(
        "vllm",
        "Pod",
        "big-image-0",
        "Pulling",
        'Pulling image "registry.lab/vllm-full:0.9"',
        last=4,
        first=4,
        type="Normal",
        source="kubelet",
    )
    return w


@case(
    "C02",
    "pod/prod/urgent-0",
    "WAITING_FOR_PREEMPTION",
    "Healthy: a victim of lower priority has been evicted for it and still terminates (grace period of ten minutes).",
    GH + "knative-extensions/serving-progressive-rollout/issues/204",
)
def preempting(v: str) -> World:
    w = World()
    w.node("h-1", gpu=1, product="NVIDIA-A10")
    w.plugin(["h-1"])
    w.add("scheduling.k8s.io/v1", "PriorityClass", "urgent", value=100000)
    p = w.pod("batch", "low-0", node="h-1", gpu=1, age=700, spec={"terminationGracePeriodSeconds": 600})
    p["metadata"]["deletionTimestamp"], p["metadata"]["deletionGracePeriodSeconds"] = ts(-8), 600
    p["status"]["conditions"].append(
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "default-scheduler: preempting to accommodate a higher priority pod",
            "lastTransitionTime": ts(2),
        }
    )
    w.event(
        "batch",
        "Pod",
        "low-0",
        "Preempted",
        "Preempted by pod prod/urgent-0 on node h-1",
        last=2,
        first=2,
        type="Normal",
    )
    w.pending(
        "prod",
        "urgent-0",
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: not eligible due to a terminating pod on the nominated node.",
        gpu=1,
        age=2,
        count=2,
        spec={"priorityClassName": "urgent", "priority": 100000},
        status={"nominatedNodeName": "h-1"},
    )
    return w


@case(
    "C03",
    "pod/serve/ranker-0",
    "NONE",
    "Healthy: ready for a day; an Xid of two days ago was cured by a reboot, and the OOM before that led to a higher limit.",
    GH + "NVIDIA/k8s-device-plugin/issues/267",
)
def healed(v: str) -> World:
    w = World()
    w.node("h-1", gpu=4, product="NVIDIA-A10")
    w.plugin(["h-1"])
    w.pod(
        "serve",
        "ranker-0",
        node="h-1",
        gpu=1,
        age=days(4),
        since=days(1),
        restarts=6,
        reason="OOMKilled",
        exit_code=137,
        limits={"memory": "24Gi"},
        mem="16Gi",
    )
    w.event("", "Node", "h-1", "GPUUnhealthy", "GPU 2: Xid 79, marked unhealthy", last=days(2), source="node-health")
    w.event("", "Node", "h-1", "Rebooted", "Node h-1 has been rebooted", last=days(2) - 60, source="kubelet")
    w.event("", "Node", "h-1", "GPUHealthy", "GPU 2 is healthy", last=days(2) - 70, type="Normal", source="node-health")
    w.event(
        "serve",
        "Pod",
        "ranker-0",
        "BackOff",
        "Back-off restarting failed container main in pod ranker-0",
        last=days(3),
        count=30,
        source="kubelet",
    )
    w.host(
        "h-1",
        "dmesg",
        "[  120.110000] nvidia: loading out-of-tree module taints kernel.\n[  121.001200] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03",
    )
    return w


@case(
    "C04",
    "job/nightly/train-eval",
    "NONE",
    "Healthy: the Job is complete; its first pod lost a connection, the retry succeeded.",
    GH + "kubeflow/mpi-operator/issues/45",
)
def job_done(v: str) -> World:
    w = World()
    w.node("h-1", gpu=4, product="NVIDIA-A10")
    w.plugin(["h-1"])
    tpl = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "registry.lab/e:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    }
    w.add(
        "batch/v1",
        "Job",
        "train-eval",
        "nightly",
        age=300,
        spec={"parallelism": 1, "completions": 1, "backoffLimit": 4, "template": {"spec": tpl}},
        status={
            "succeeded": 1,
            "failed": 1,
            "startTime": ts(300),
            "completionTime": ts(100),
            "conditions": [
                {
                    "type": "Complete",
                    "status": "True",
                    "reason": "CompletionsReached",
                    "message": "Reached expected number of succeeded pods",
                    "lastTransitionTime": ts(100),
                }
            ],
        },
    )
    lab = {"job-name": "train-eval", "batch.kubernetes.io/job-name": "train-eval"}
    w.pod(
        "nightly",
        "train-eval-aaaaa",
        node="h-1",
        gpu=1,
        owner=("Job", "train-eval"),
        state="failed",
        exit_code=1,
        age=300,
        since=280,
        labels=lab,
        spec={"restartPolicy": "Never"},
    )
    w.log("nightly", "train-eval-aaaaa", "main", "connecting to tracking server: connection reset by peer\nexit 1")
    w.pod(
        "nightly",
        "train-eval-bbbbb",
        node="h-1",
        gpu=1,
        owner=("Job", "train-eval"),
        state="succeeded",
        age=279,
        since=100,
        labels=lab,
        spec={"restartPolicy": "Never"},
    )
    return w


@case(
    "C05",
    "job/train/sweep-9",
    "REQUEUE_BACKOFF",
    "Healthy: it was evicted since its pods were not ready in time, and is queued again in three minutes.",
    GH + "kubernetes-sigs/kueue/pull/1608",
)
def backoff(v: str) -> World:
    w = World()
    w.node("h-1", gpu=4, product="NVIDIA-A10", cpu="64")
    w.plugin(["h-1"])
    kueue(w, "cq", "any", {"cpu": "60", "memory": "100Gi", "nvidia.com/gpu": "4"}, "train")
    queued(
        w,
        "train",
        "sweep-9",
        "cq",
        "any",
        {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2"},
        40,
        message="Exceeded the PodsReady timeout train/job-sweep-9",
        requeue={"count": 2, "requeueAt": ts(-3)},
        more=[
            {
                "type": "Evicted",
                "status": "True",
                "reason": "PodsReadyTimeout",
                "message": "Exceeded the PodsReady timeout train/job-sweep-9",
                "lastTransitionTime": ts(2),
            },
            {
                "type": "Requeued",
                "status": "False",
                "reason": "PodsReadyTimeout",
                "message": "Exceeded the PodsReady timeout",
                "lastTransitionTime": ts(2),
            },
        ],
    )
    return w


@case(
    "C06",
    "job/train/small",
    "QUEUE_BEHIND_HEAD",
    "Healthy: two GPUs of the quota are free, but an older job in the StrictFIFO queue waits for four.",
    GH + "kubernetes-sigs/kueue/issues/2391",
)
def behind(v: str) -> World:
    w = World()
    w.node("h-1", gpu=6, product="NVIDIA-A10", cpu="64")
    w.plugin(["h-1"])
    kueue(
        w,
        "cq",
        "any",
        {"cpu": "60", "memory": "100Gi", "nvidia.com/gpu": "6"},
        "train",
        strategy="StrictFIFO",
        usage={"nvidia.com/gpu": "4", "cpu": "4", "memory": "8Gi"},
    )
    queued(w, "train", "runs", "cq", "any", {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "4"}, 200, admitted=True)
    w.pod(
        "train",
        "runs-aaaaa",
        node="h-1",
        gpu=4,
        cpu="4",
        mem="8Gi",
        owner=("Job", "runs"),
        age=199,
        labels={"job-name": "runs", "batch.kubernetes.io/job-name": "runs"},
        spec={"restartPolicy": "Never"},
    )
    queued(
        w,
        "train",
        "large",
        "cq",
        "any",
        {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "4"},
        90,
        message="couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor any, 2 more needed",
    )
    queued(w, "train", "small", "cq", "any", {"cpu": "1", "memory": "4Gi", "nvidia.com/gpu": "1"}, 30)
    return w


def rename(expected: Obj, pairs: list[tuple[str, str]]) -> Obj:
    out: Obj = dict(expected)
    for old, new in pairs:
        out["target"] = out["target"].replace(old, new)
    return out


def main() -> None:
    out = pathlib.Path(__file__).parent / "cases"
    shutil.rmtree(out, ignore_errors=True)
    for id, f, want, pairs in CASES:
        f("").write(out / id, want)
        if pairs is None:
            continue
        f("").renamed(pairs).write(out / f"{id}a", {**rename(want, pairs), "id": f"{id}a", "variant": "a"})
        noisy = f("")
        noisy.noise(int(id[1:]))
        noisy.write(out / f"{id}b", {**want, "id": f"{id}b", "variant": "b"})
        bare: Any = {k: x for k, x in want.items() if k not in ("accept", "also", "cause", "shallow")}
        f("c").write(
            out / f"{id}c",
            {
                **bare,
                "id": f"{id}c",
                "variant": "c",
                "code": "UNKNOWN",
                "shallow": want.get("shallow", []),
                "established": want["code"],
                "accept": [],
                "also": [],
            },
        )
        f("d").write(out / f"{id}d", {**bare, "id": f"{id}d", "variant": "d", "code": "NONE", "accept": [], "also": []})
    print(
        len(CASES),
        "cases,",
        sum(1 for _ in out.iterdir()),
        "folders,",
        sum(p.stat().st_size for p in out.rglob("*") if p.is_file()) // 1024,
        "KiB",
    )


if __name__ == "__main__":
    main()
