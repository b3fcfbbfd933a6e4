"""Parts of a cluster that several scenes have: a device plugin, the GPU operator's operands, Kueue and a queued Job."""

# ruff: noqa: E501
from __future__ import annotations

from tests.diagnose_fresh.world import Obj, World, days, ts, uid

ANY_GPU = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def plugin(
    w: World,
    nodes: list[str],
    ns: str = "nvidia-device-plugin",
    name: str = "nvdp-nvidia-device-plugin",
    version: str = "v0.17.1",
    age: float = days(9),
    resource: str = "nvidia.com/gpu",
) -> None:
    """A device plugin that works on these nodes."""
    image = f"nvcr.io/nvidia/k8s-device-plugin:{version}"
    w.ds(
        ns,
        name,
        len(nodes),
        len(nodes),
        image,
        "nvidia-device-plugin-ctr",
        tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    )
    for n in nodes:
        pod = f"{name}-{uid(n)[:5]}"
        w.pod(
            ns,
            pod,
            node=n,
            owner=("DaemonSet", name),
            image=image,
            container="nvidia-device-plugin-ctr",
            age=age,
            cpu="50m",
            mem="64Mi",
            labels={"app": name},
            spec={"tolerations": [{"operator": "Exists"}], "priorityClassName": "system-node-critical"},
        )
        w.log(
            ns,
            pod,
            "nvidia-device-plugin-ctr",
            f"""
I0301 09:58:02.114420       1 main.go:235] "Starting NVIDIA Device Plugin" version={version}
I0301 09:58:02.301177       1 main.go:245] Starting OS watcher.
I0301 09:58:02.644903       1 server.go:195] Starting GRPC server for '{resource}'
I0301 09:58:02.650311       1 server.go:139] Starting to serve '{resource}' on /var/lib/kubelet/device-plugins/nvidia-gpu.sock
I0301 09:58:02.655086       1 server.go:146] Registered device plugin for '{resource}' with Kubelet""",
        )


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
