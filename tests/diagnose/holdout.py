# ruff: noqa: E501  # messages as programs write them, one a line
"""Failures from public threads with their established causes, as small clusters: what each thread showed, no more.

Written before anybody looked at what `why` answers to them. Names and amounts are made up where a thread has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tests.diagnose.objects import GPU, GPU_TAINT, TOLERATES, ended, event, node, plugin, pod, thing

from windlass.model.unstructured import Unstructured

SMI = "| NVIDIA-SMI 515.48.07  Driver Version: 515.48.07  CUDA Version: 11.7 |\n|   0  NVIDIA GeForce RTX 2070 |"
PRESENT = {"nvidia.com/gpu.present": "true"}
KUEUE = "kueue.x-k8s.io/v1beta1"
QUEUE = {"kueue.x-k8s.io/queue-name": "lq"}


class Case(NamedTuple):
    code: str
    source: str
    objects: Sequence[Unstructured]
    logs: Mapping[str, str] = {}
    hosts: Mapping[str, str] = {}
    question: str = "pod/asked"
    contributing: Sequence[str] = ()


MANY = "many threads"
"""A failure that is reported in many places, in the same words."""


def github(thread: str) -> str:
    return f"https://github.com/{thread}"


def insufficient(nodes: int = 1) -> Unstructured:
    return event("Pod/asked", "FailedScheduling", f"0/{nodes} nodes are available: {nodes} Insufficient {GPU}.")


def daemon(name: str, spec: Unstructured, desired: int = 0, namespace: str = "kube-system") -> Unstructured:
    template = {"metadata": {"labels": {"name": name}}, "spec": {"containers": [{"name": "ctr"}], **spec}}
    return thing(
        "DaemonSet",
        name,
        {"template": template},
        namespace=namespace,
        status={"desiredNumberScheduled": desired},
    )


def needs_label(key: str, values: Sequence[str] = ("true",)) -> Unstructured:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    }


def crashing(reason: str, message: str, **more: Any) -> Unstructured:
    """A pod with a node whose container does not start."""
    state = {"waiting": {"reason": reason, "message": message}}
    status = {"containerStatuses": [{"name": "main", "restartCount": 4, "state": state}]}
    return pod("asked", 1, on="g1", phase="Pending", status=status, **more)


def cluster_queue(name: str, gpus: int, **more: Any) -> Unstructured:
    amounts = {"cpu": 999, "memory": "9Ti", GPU: gpus}
    flavor = {"name": more.pop("flavor", "default"), "resources": []}
    flavor["resources"] = [{"name": key, "nominalQuota": value} for key, value in amounts.items()]
    group = {"coveredResources": list(amounts), "flavors": [flavor]}
    status = more.pop("status", {})
    spec = {"namespaceSelector": {}, "resourceGroups": [group], **more}
    return thing("ClusterQueue", name, spec, KUEUE, namespace="", status=status)


def local_queue(to: str, **status: Any) -> Unstructured:
    return thing("LocalQueue", "lq", {"clusterQueue": to}, KUEUE, status=status)


def flavor(name: str = "default", **spec: Any) -> Unstructured:
    return thing("ResourceFlavor", name, spec, KUEUE, namespace="")


def job(name: str, gpus: int, **spec: Any) -> Unstructured:
    labels = spec.pop("labels", QUEUE)
    template = {"metadata": {}, "spec": pod("x", gpus)["spec"]}
    made = thing("Job", name, {"suspend": True, "template": template, **spec}, "batch/v1", labels=labels)
    made["metadata"]["creationTimestamp"] = "2026-03-01T10:00:00Z"
    return made


def condition(kind: str, status: str, reason: str, message: str) -> Unstructured:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def workload(owner: str, *conditions: Unstructured, **status: Any) -> Unstructured:
    return thing(
        "Workload",
        f"job-{owner}-1",
        {"queueName": "lq"},
        KUEUE,
        owner=("Job", owner),
        status={"conditions": list(conditions), **status},
    )


def admitted(owner: str) -> Unstructured:
    return workload(
        owner,
        condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue cq"),
        condition("Admitted", "True", "Admitted", "The workload is admitted"),
    )


def preempted(owner: str) -> Unstructured:
    return workload(
        owner,
        condition("QuotaReserved", "False", "Pending", "Preempted to accommodate a higher priority Workload"),
        condition("Evicted", "True", "Preempted", "Preempted to accommodate a higher priority Workload"),
    )


PLUGIN_LOG = "kube-system/nvidia-device-plugin-x"


def with_log(*lines: str) -> dict[str, str]:
    return {PLUGIN_LOG: "\n".join(lines)}


CASES = {
    # The device plugin is not there, or does not register
    "plugin-kept-off-a-control-plane": Case(
        "DEVICE_PLUGIN_ABSENT",
        github("NVIDIA/k8s-device-plugin/issues/315"),
        [
            node("g1", taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]),
            daemon("nvidia-device-plugin-daemonset", {"tolerations": TOLERATES}),
            pod("asked", 1, spec={"tolerations": [{"operator": "Exists"}]}),
            insufficient(),
        ],
        hosts={"g1": SMI},
        contributing=["TAINT_NOT_TOLERATED"],
    ),
    "feature-discovery-writes-another-label": Case(
        "DEVICE_PLUGIN_ABSENT",
        github("NVIDIA/k8s-device-plugin/issues/1213"),
        [
            node("g1", labels={"feature.node.kubernetes.io/pci-0300_10de.present": "true"}),
            daemon("nvidia-device-plugin", needs_label("feature.node.kubernetes.io/pci-10de.present")),
            pod("asked", 1),
            insufficient(),
        ],
    ),
    "chart-wants-a-label-that-nobody-set": Case(
        "DEVICE_PLUGIN_ABSENT",
        github("NVIDIA/nvkind/issues/20"),
        [
            node("worker"),
            node("control", taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]),
            daemon("nvidia-device-plugin", needs_label("nvidia.com/gpu.present"), namespace="nvidia"),
            pod("asked", 1),
            insufficient(2),
        ],
        hosts={"worker": SMI},
    ),
    "plugin-can-not-register": Case(
        "DEVICE_PLUGIN_FAILING",
        github("NVIDIA/k8s-device-plugin/issues/82"),
        [node("g1", labels=PRESENT), *plugin("g1", 7), pod("asked", 1), insufficient()],
        with_log("Starting to serve on nvidia.sock", "Could not register device plugin: context deadline exceeded"),
    ),
    "plugin-finds-nothing-after-a-reboot": Case(
        "DEVICE_PLUGIN_FAILING",
        github("NVIDIA/k8s-device-plugin/issues/414"),
        [node("g1", labels=PRESENT), *plugin("g1"), pod("asked", 1), insufficient()],
        with_log("Loading NVML", "Retreiving plugins.", "No devices found. Waiting indefinitely."),
    ),
    "plugin-runs-under-runc": Case(
        "RUNTIME_NOT_CONFIGURED",
        github("NVIDIA/k8s-device-plugin/issues/1134"),
        [node("g1"), *plugin("g1"), pod("asked", 1), insufficient()],
        with_log(
            'factory.go:112] "Incompatible strategy detected" strategy="auto"',
            "If this is a GPU node, did you configure the NVIDIA Container Toolkit?",
            "No devices found. Waiting indefinitely.",
        ),
    ),
    "plugin-waits-for-the-toolkit": Case(
        "RUNTIME_NOT_CONFIGURED",
        github("NVIDIA/gpu-operator/issues/161"),
        [
            node("g1", labels=PRESENT),
            daemon("nvidia-device-plugin-daemonset", {}, 1, "gpu-operator"),
            pod(
                "nvidia-device-plugin-daemonset-9w58x",
                on="g1",
                phase="Pending",
                namespace="gpu-operator",
                status={
                    "initContainerStatuses": [
                        {"name": "toolkit-validation", "state": {"running": {}}, "restartCount": 0}
                    ]
                },
            ),
            pod(
                "nvidia-container-toolkit-daemonset-1",
                on="g1",
                phase="Running",
                namespace="gpu-operator",
                status={
                    "containerStatuses": [
                        {"name": "main", "restartCount": 9, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
                    ]
                },
            ),
            pod("asked", 1),
            insufficient(),
        ],
        {
            "gpu-operator/nvidia-container-toolkit-daemonset-1": "Error: unable to setup runtime: unable to restart "
            "containerd: unable to dial: dial unix /run/containerd/containerd.sock: no such file or directory"
        },
    ),
    "new-node-whose-plugin-starts": Case(
        "GPU_NOT_YET_ADVERTISED",
        github("NVIDIA/k8s-device-plugin/issues/1746"),
        [
            node("g1", created="2026-03-01T11:58:40Z", labels={"karpenter.k8s.aws/instance-gpu-count": "1"}),
            daemon("nvidia-device-plugin-daemonset", {}, 1),
            pod("nvidia-device-plugin-daemonset-1", on="g1", phase="Pending", namespace="kube-system"),
            pod("asked", 1),
            insufficient(),
        ],
    ),
    # The driver
    "operands-paused-for-a-driver-upgrade": Case(
        "DRIVER_UPGRADE_BLOCKED",
        github("NVIDIA/gpu-operator/issues/316"),
        [
            node(
                "g1",
                labels=PRESENT
                | {
                    "nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade",
                    "nvidia.com/gpu.deploy.container-toolkit": "paused-for-driver-upgrade",
                    "nvidia.com/gpu.deploy.driver": "true",
                },
            ),
            daemon(
                "nvidia-device-plugin-daemonset", {"nodeSelector": {"nvidia.com/gpu.deploy.device-plugin": "true"}}
            ),
            pod("asked", 1),
            insufficient(),
        ],
    ),
    "driver-can-not-be-unloaded": Case(
        "DRIVER_UPGRADE_BLOCKED",
        github("NVIDIA/gpu-operator/issues/2509"),
        [
            node("g1", labels=PRESENT | {"nvidia.com/gpu-driver-upgrade-state": "upgrade-required"}),
            pod("nvidia-driver-daemonset-8xk2p", on="g1", phase="Pending", namespace="gpu-operator"),
            pod("asked", 1),
            insufficient(),
        ],
        {"gpu-operator/nvidia-driver-daemonset-8xk2p": "Could not unload NVIDIA driver kernel modules, driver is in use"},
    ),
    "module-is-not-signed": Case(
        "DRIVER_MISSING",
        MANY,
        [
            node("g1", labels={"feature.node.kubernetes.io/pci-10de.present": "true"}),
            pod("nvidia-driver-daemonset-a", on="g1", namespace="gpu-operator"),
            pod("asked", 1),
            insufficient(),
        ],
        {"gpu-operator/nvidia-driver-daemonset-a": "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"},
    ),
    "validator-does-not-reach-the-driver": Case(
        "DRIVER_MISSING",
        github("NVIDIA/gpu-operator/issues/487"),
        [
            node("g1", labels=PRESENT),
            pod(
                "nvidia-operator-validator-q",
                on="g1",
                phase="Pending",
                namespace="gpu-operator",
                status={
                    "initContainerStatuses": [
                        {
                            "name": "driver-validation",
                            "restartCount": 30,
                            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        }
                    ]
                },
            ),
            pod("asked", 1),
            insufficient(),
        ],
        {
            "gpu-operator/nvidia-operator-validator-q": "NVIDIA-SMI has failed because it couldn't communicate with the "
            "NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running."
        },
    ),
    "image-needs-a-newer-driver": Case(
        "CUDA_DRIVER_TOO_OLD",
        github("NVIDIA/nvidia-docker/issues/1442"),
        [
            node("g1", 1, labels=PRESENT),
            crashing(
                "RunContainerError",
                "failed to create shim task: OCI runtime create failed: error running hook #0: exit status 1, stderr: "
                "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your driver",
            ),
        ],
    ),
    "program-finds-the-driver-too-old": Case(
        "CUDA_DRIVER_TOO_OLD",
        MANY,
        [node("g1", 1), ended()],
        {"team/asked": "RuntimeError: The NVIDIA driver on your system is too old (found version 11040)."},
    ),
    # Preemption and queues
    "eight-gpus-freed-two-a-node": Case(
        "GPU_FRAGMENTED",
        github("kubernetes-sigs/kueue/issues/5243"),
        [
            *(node(f"g{number}", 8) for number in range(4)),
            *(pod(f"high-{n}-{i}", 1, on=f"g{n}") for n in range(4) for i in range(6)),
            *(preempted(f"low-{i}") for i in range(8)),
            *(job(f"low-{i}", 1) for i in range(8)),
            job("big", 8, suspend=False),
            admitted("big"),
            pod("asked", 8, owner=("Job", "big")),
            insufficient(4),
        ],
        contributing=["PREEMPTION_INEFFECTIVE"],
    ),
    "two-gpus-freed-on-two-machines": Case(
        "GPU_FRAGMENTED",
        github("kubernetes-sigs/kueue/issues/1309"),
        [
            node("g1", 2),
            node("g2", 2),
            pod("a", 1, on="g1"),
            pod("b", 1, on="g2"),
            event("Workload/job-x-1", "Preempted", "Preempted to reclaim quota within the cohort", "kueue"),
            event("Workload/job-y-1", "Preempted", "Preempted to reclaim quota within the cohort", "kueue"),
            job("two", 2, suspend=False),
            admitted("two"),
            pod("asked", 2, owner=("Job", "two")),
        ],
        contributing=["PREEMPTION_INEFFECTIVE"],
    ),
    "victims-are-still-going": Case(
        "WAITING_FOR_PREEMPTION",
        MANY,
        [
            node("g1", 1),
            {
                **pod("low", 1, on="g1"),
                "metadata": {
                    **pod("low", 1)["metadata"],
                    "deletionTimestamp": "2026-03-01T11:59:50Z",
                },
            },
            pod("asked", 1, status={"nominatedNodeName": "g1"}),
        ],
    ),
    "queue-names-flavors-that-do-not-exist": Case(
        "KUEUE_QUEUE_MISSING",
        github("headlamp-k8s/plugins/issues/1191"),
        [
            node("g1", 4),
            flavor("other"),
            cluster_queue(
                "team-a",
                8,
                status={
                    "conditions": [
                        condition(
                            "Active",
                            "False",
                            "FlavorNotFound",
                            "Can't admit new workloads: references missing ResourceFlavor(s): default.",
                        )
                    ]
                },
            ),
            local_queue(
                "team-a",
                conditions=[condition("Active", "False", "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue")],
            ),
            job("asked", 1),
            workload("asked", condition("QuotaReserved", "False", "Inadmissible", "ClusterQueue team-a is inactive")),
        ],
        question="job/asked",
    ),
    "queue-names-flavors-that-do-not-exist-and-nobody-says-so": Case(
        "KUEUE_QUEUE_MISSING",
        github("headlamp-k8s/plugins/issues/1191"),
        [node("g1", 4), flavor("other"), cluster_queue("team-a", 8), local_queue("team-a"), job("asked", 1)],
        question="job/asked",
    ),
    "quota-above-the-hardware": Case(
        "KUEUE_QUOTA_MISCONFIGURED",
        github("kubernetes-sigs/kueue/issues/3210"),
        [
            node("g1", 8),
            flavor(),
            cluster_queue("one", 8, cohort="all"),
            cluster_queue("two", 8, cohort="all"),
            local_queue("one"),
            pod("busy", 8, on="g1"),
            job("big", 4, suspend=False),
            admitted("big"),
            pod("asked", 4, owner=("Job", "big")),
            insufficient(),
        ],
        contributing=["GPU_FULL"],
    ),
    "flavor-is-tainted": Case(
        "KUEUE_FLAVOR_MISMATCH",
        github("kubernetes-sigs/kueue/issues/189"),
        [
            node("g1", 8, taints=[GPU_TAINT]),
            flavor(nodeTaints=[GPU_TAINT]),
            cluster_queue("cq", 8),
            local_queue("cq"),
            job("asked", 1),
        ],
        question="job/asked",
    ),
    "gang-waits-for-a-sibling-that-fits-nowhere": Case(
        "CPU_MEM_INSUFFICIENT",
        github("volcano-sh/volcano/issues/4116"),
        [
            node("g1", 4, cpu="16"),
            thing("PodGroup", "pg", {"minMember": 2}, "scheduling.volcano.sh/v1beta1"),
            pod("asked", 1, annotations={"scheduling.k8s.io/group-name": "pg"}, spec={"schedulerName": "volcano"}),
            pod(
                "large",
                1,
                cpu="64",
                annotations={"scheduling.k8s.io/group-name": "pg"},
                spec={"schedulerName": "volcano"},
            ),
            pod("volcano-scheduler-1", on="g1", namespace="volcano-system"),
        ],
        contributing=["GANG_INCOMPLETE"],
    ),
    # Placement
    "cpu-jobs-sit-on-the-gpu-nodes": Case(
        "GPU_STRANDED",
        github("marin-community/marin/issues/8247"),
        [
            *(node(f"g{n}", 4, cpu="144") for n in range(3)),
            *(pod(f"veri-{n}", on=f"g{n}", cpu="120") for n in range(3)),
            pod("asked", 4, cpu="32"),
        ],
    ),
    "disk-in-another-zone": Case(
        "STORAGE_INSUFFICIENT",
        github("opendatahub-io/odh-manifests/issues/259"),
        [
            node("g1", 1, labels={"topology.kubernetes.io/zone": "b"}),
            node("c1", labels={"topology.kubernetes.io/zone": "a"}),
            thing("PersistentVolumeClaim", "home", {"volumeName": "pv1", "storageClassName": "gp2"}, "v1", status={"phase": "Bound"}),
            thing(
                "PersistentVolume",
                "pv1",
                {
                    "claimRef": {"namespace": "team", "name": "home"},
                    "storageClassName": "gp2",
                    "nodeAffinity": {
                        "required": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}
                                    ]
                                }
                            ]
                        }
                    },
                },
                "v1",
                namespace="",
                status={"phase": "Bound"},
            ),
            pod("asked", 1, spec={"volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}]}),
        ],
    ),
    "claim-that-nothing-binds": Case(
        "STORAGE_INSUFFICIENT",
        github("kubernetes/kubernetes/issues/81020"),
        [
            node("g1", 1),
            thing("StorageClass", "gone", {}, "storage.k8s.io/v1", namespace=""),
            thing("PersistentVolumeClaim", "data", {"storageClassName": "gone"}, "v1", status={"phase": "Pending"}),
            pod("asked", 1, spec={"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}),
            event("Pod/asked", "FailedScheduling", "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."),
        ],
    ),
    "disk-asked-for-is-larger-than-any": Case(
        "EPHEMERAL_STORAGE",
        MANY,
        [
            node("g1", 1),
            {
                **pod("asked", 1),
                "spec": {
                    "containers": [
                        {"name": "main", "resources": {"limits": {GPU: "1", "ephemeral-storage": "900Gi"}}}
                    ]
                },
            },
        ],
    ),
    "no-address-left": Case(
        "POD_COUNT_LIMIT",
        MANY,
        [
            node("g1", 1),
            pod("asked", 1, on="g1", phase="Pending"),
            event(
                "Pod/asked",
                "FailedCreatePodSandBox",
                'Failed to create pod sandbox: plugin type="aws-cni" failed (add): add cmd: failed to assign an IP address to container',
                "kubelet",
            ),
        ],
    ),
    "selector-for-a-gpu-that-the-cluster-has-not": Case(
        "SELECTOR_MISMATCH",
        github("nebius/nebius-physical-ai/pull/642"),
        [
            node("g1", 8, labels={"nvidia.com/gpu.product": "NVIDIA-B200"}),
            pod("asked", 1, spec={"nodeSelector": {"nvidia.com/gpu.product": "L40S"}}),
        ],
    ),
    "numa-blind": Case(
        "TOPOLOGY_MANAGER_REFUSED",
        github("pytorch/ci-infra/issues/696"),
        [
            node("g1", 8),
            pod(
                "asked",
                4,
                on="g1",
                phase="Failed",
                status={
                    "reason": "TopologyAffinityError",
                    "message": "Pod was rejected: Resources cannot be allocated with Topology locality",
                },
            ),
        ],
    ),
    # Autoscaling and cloud
    "machines-of-the-pool-are-too-small": Case(
        "AUTOSCALER_NO_MATCHING_GROUP",
        github("aws/karpenter-provider-aws/issues/8064"),
        [
            node("c1"),
            pod("asked", 2, cpu="17"),
            event(
                "Pod/asked",
                "FailedScheduling",
                'Failed to schedule pod, incompatible with nodepool "gpu", daemonset overhead={"cpu":"185m"}, no instance '
                'type satisfied resources {"cpu":"17185m","nvidia.com/gpu":"2"} and requirements instance-type In '
                "[g4dn.2xlarge g4dn.4xlarge] (no instance type has enough resources)",
                "karpenter",
            ),
        ],
    ),
    "pool-is-at-its-limit": Case(
        "AUTOSCALER_MAX_SIZE",
        MANY,
        [
            node("g1", 1),
            pod("busy", 1, on="g1"),
            pod("asked", 1),
            event(
                "Pod/asked",
                "FailedScheduling",
                "Failed to schedule pod, all available instance types exceed limits for nodepool (NodePool=gpu)",
                "karpenter",
            ),
        ],
        contributing=["GPU_FULL"],
    ),
    "provider-is-out-of-machines": Case(
        "CLOUD_CAPACITY",
        github("kubernetes-sigs/karpenter/issues/1212"),
        [
            node("c1"),
            pod("asked", 1),
            thing(
                "NodeClaim",
                "gpu-x1",
                {},
                "karpenter.sh/v1",
                namespace="",
                status={
                    "conditions": [
                        condition(
                            "Launched",
                            "False",
                            "LaunchFailed",
                            "creating instance, insufficient capacity, with fleet error(s), InsufficientInstanceCapacity: We "
                            "currently do not have sufficient p5.48xlarge capacity",
                        )
                    ]
                },
            ),
            event(
                "Pod/asked",
                "FailedScheduling",
                'Failed to schedule pod, incompatible with nodepool "gpu", no instance type which had enough resources and '
                "the required offering met the scheduling requirements",
                "karpenter",
            ),
        ],
    ),
    "account-has-no-quota": Case(
        "CLOUD_CAPACITY",
        github("huggingface/Google-Cloud-Containers/issues/126"),
        [
            node("c1"),
            pod("asked", 1),
            event("Pod/asked", "TriggeredScaleUp", "pod triggered scale-up: [{gpu-pool 0->1 (max: 4)}]", "cluster-autoscaler"),
            event(
                "Pod/asked",
                "FailedScaleUp",
                "Node scale up in zones us-central1-c associated with this pod failed: GCE quota exceeded. Pod is at risk "
                "of not being scheduled.",
                "cluster-autoscaler",
            ),
        ],
    ),
    "only-the-autoscalers-status-tells": Case(
        "CLOUD_CAPACITY",
        github("vanvalenlab/kiosk-console/issues/238"),
        [
            node("c1"),
            thing(
                "ConfigMap",
                "cluster-autoscaler-status",
                {},
                "v1",
                namespace="kube-system",
            )
            | {
                "data": {
                    "status": "nodeGroups:\n- name: gpu-pool\n  scaleUp:\n    status: Backoff\n    backoffInfo:\n"
                    "      errorCode: OUT_OF_RESOURCES\n      errorMessage: ZONE_RESOURCE_POOL_EXHAUSTED\n"
                }
            },
            pod("asked", 1),
            event("Pod/asked", "TriggeredScaleUp", "pod triggered scale-up: [{gpu-pool 0->1 (max: 4)}]", "cluster-autoscaler"),
        ],
    ),
    # Sharing, MIG, MPS
    "time-slicing-that-is-not-in-force": Case(
        "SHARING_CONFIG_NOT_APPLIED",
        github("NVIDIA/k8s-device-plugin/issues/990"),
        [
            node("g1", 1, labels={"nvidia.com/device-plugin.config": "config0", "nvidia.com/gpu.count": "1"}),
            thing("ConfigMap", "nvdp-configs", {}, "v1", namespace="kube-system")
            | {
                "data": {
                    "config0": "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 4\n"
                }
            },
            *plugin("g1"),
            pod("first", 1, on="g1"),
            pod("asked", 1),
            insufficient(),
        ],
        contributing=["GPU_FULL"],
    ),
    "mig-on-and-no-instances": Case(
        "MIG_CONFIG_NOT_APPLIED",
        MANY,
        [node("g1", labels=PRESENT | {"nvidia.com/mig.strategy": "single"}), *plugin("g1", 12), pod("asked", 1), insufficient()],
        with_log(
            "error starting plugins: error getting plugins: failed to construct NVML resource managers: error building "
            "device map: invalid MIG configuration: At least one device with migEnabled=true was not configured correctly"
        ),
    ),
    "mps-server-does-not-answer": Case(
        "MPS_NOT_READY",
        MANY,
        [node("g1", {"nvidia.com/gpu.shared": 10}), {**ended(), "spec": pod("x", 1, on="g1", resource="nvidia.com/gpu.shared")["spec"]}],
        {"team/asked": "CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server"},
    ),
    # In the container
    "cdi-device-node-is-missing": Case(
        "DEVICE_NODES_MISSING",
        github("kubernetes-sigs/dra-driver-nvidia-gpu/issues/1380"),
        [
            node("g1", 1),
            crashing(
                "RunContainerError",
                'failed to inject devices: failed to stat CDI host device "/dev/nvidia-uvm": no such file or directory',
            ),
        ],
    ),
    "ebpf-filter-may-not-be-read": Case(
        "DEVICE_PERMISSION",
        MANY,
        [
            node("g1", 1),
            crashing(
                "RunContainerError",
                "nvidia-container-cli: mount error: failed to add device rules: unable to find any existing device filters "
                "attached to the cgroup: bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted",
            ),
        ],
    ),
    "ecc-error-in-the-program": Case(
        "GPU_HW_FAULT",
        MANY,
        [node("g1", 8), ended()],
        {"team/asked": "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"},
    ),
    "one-gpu-is-gone-from-the-node": Case(
        "GPU_HW_FAULT",
        github("akash-network/support/issues/249"),
        [
            node("g1", 7, labels=PRESENT | {"nvidia.com/gpu.count": "8"}),
            pod("asked", 8),
            insufficient(),
        ],
        hosts={"g1": "NVRM: Xid (PCI:0000:a1:00): 79, pid='<unknown>', GPU has fallen off the bus."},
    ),
    "the-programs-own-bug": Case(
        "APP_ERROR",
        MANY,
        [node("g1", 1), ended()],
        {"team/asked": "RuntimeError: CUDA error: an illegal memory access was encountered"},
        {"g1": "NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python, Ch 00000008, MMU Fault: ENGINE GRAPHICS"},
    ),
    "nccl-without-infiniband": Case(
        "NCCL_TRANSPORT_FALLBACK",
        MANY,
        [node("g1", 8), pod("asked", 8, on="g1")],
        {"team/asked": "worker-0:79:79 [0] NCCL INFO NET/IB : No device found."},
    ),
    "shared-gpu-is-full": Case(
        "GPU_OOM",
        github("NVIDIA/k8s-device-plugin/issues/461"),
        [node("g1", 16), ended()],
        {"team/asked": "tensorflow.python.framework.errors_impl.InternalError: failed to allocate memory: CUDA_ERROR_OUT_OF_MEMORY: out of memory"},
    ),
    "fabric-manager-of-another-version": Case(
        "FABRIC_NOT_READY",
        MANY,
        [node("g1", 8), ended()],
        {"team/asked": "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"},
        {"g1": "nv-fabricmanager: fabric manager NVIDIA GPU driver interface version 535.104 don't match with driver version 535.129"},
    ),
    "workers-out-of-shared-memory": Case(
        "SHM_TOO_SMALL",
        MANY,
        [node("g1", 1), ended()],
        {"team/asked": "RuntimeError: unable to mmap 1024 bytes from file </torch_45_1>: Cannot allocate memory (12)"},
    ),
    "sees-everybodys-gpus": Case(
        "GPU_VISIBLE_UNREQUESTED",
        MANY,
        [
            node("g1", 4),
            {
                **pod("asked", on="g1"),
                "spec": {
                    "nodeName": "g1",
                    "containers": [{"name": "main", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}],
                },
            },
        ],
    ),
    # Nobody has made the pod
    "runtime-class-does-not-exist": Case(
        "RUNTIME_NOT_CONFIGURED",
        MANY,
        [
            node("g1", 1),
            thing("ReplicaSet", "asked", {"replicas": 1, "template": {"spec": pod("x", 1)["spec"]}}),
            event(
                "ReplicaSet/asked",
                "FailedCreate",
                'Error creating: pods "asked-" is forbidden: pod rejected: RuntimeClass "nvidia" not found',
                "replicaset-controller",
            ),
        ],
        question="rs/asked",
    ),
    "policy-speaks-through-a-condition": Case(
        "POLICY_DENIED",
        MANY,
        [
            node("g1", 1),
            thing(
                "Deployment",
                "asked",
                {"replicas": 1, "template": {"spec": pod("x", 1)["spec"]}},
                status={
                    "conditions": [
                        condition(
                            "ReplicaFailure",
                            "True",
                            "FailedCreate",
                            'admission webhook "validate.kyverno.svc-fail" denied the request: resource Pod was blocked',
                        )
                    ]
                },
            ),
        ],
        question="deploy/asked",
    ),
    "training-job-that-is-suspended": Case(
        "JOB_SUSPENDED",
        MANY,
        [
            node("g1", 8),
            thing(
                "PyTorchJob",
                "asked",
                {
                    "runPolicy": {"suspend": True},
                    "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": pod("x", 1)["spec"]}}},
                },
                "kubeflow.org/v1",
            ),
        ],
        question="pytorchjob/asked",
    ),
    "quota-key-without-requests": Case(
        "QUOTA_KEY_INVALID",
        github("loft-sh/kiosk/issues/69"),
        [
            node("g1", 8),
            thing("ResourceQuota", "gpus", {"hard": {"limits.nvidia.com/gpu": "2"}}, "v1", status={"hard": {}, "used": {}}),
            pod("many", 8, on="g1"),
        ],
        question="resourcequota/gpus",
    ),
    "node-went-away-under-a-running-pod": Case(
        "NODE_UNSCHEDULABLE",
        MANY,
        [
            node("g1", 8, taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]),
            pod(
                "asked",
                1,
                on="g1",
                status={"conditions": [condition("Ready", "False", "NodeNotReady", "")], "reason": "NodeLost"},
            ),
        ],
    ),
    "resource-class-of-an-older-api": Case(
        "DRA_CLASS_MISSING",
        MANY,
        [
            node("g1"),
            pod("asked", spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}),
            event(
                "Pod/asked",
                "FailedScheduling",
                'running PreFilter plugin "DynamicResources": resourceclass.resource.k8s.io "gpu.nvidia.com" not found',
            ),
        ],
    ),
    "rollout-waits-for-its-own-predecessor": Case(
        "GPU_FULL",
        MANY,
        [
            node("g1", 1),
            thing("Deployment", "server", {"replicas": 1, "template": {"spec": pod("x", 1)["spec"]}}),
            thing("ReplicaSet", "server-old", {"replicas": 1}, owner=("Deployment", "server")),
            thing("ReplicaSet", "server-new", {"replicas": 1}, owner=("Deployment", "server")),
            pod("server-old-1", 1, on="g1", owner=("ReplicaSet", "server-old")),
            pod("asked", 1, owner=("ReplicaSet", "server-new")),
            insufficient(),
        ],
    ),
}  # fmt: skip


def refused(message: str, reason: str = "UnexpectedAdmissionError") -> Unstructured:
    return pod("asked", 1, on="g1", phase="Failed", status={"reason": reason, "message": message})


MORE = {
    "plugin-crashes-and-the-node-says-zero": Case(
        "DEVICE_PLUGIN_FAILING",
        github("open-edge-platform/geti_v2/issues/1501"),
        [node("g1", {GPU: 0}, labels={"nvidia.com/gpu": "true"}), *plugin("g1", 9295), pod("asked", 1), insufficient()],
        with_log("Failed to create FS watcher: too many open files"),
    ),
    "mixed-strategy-offers-slices-only": Case(
        "RESOURCE_NAME_MISMATCH",
        MANY,
        [node("g1", {GPU: 0, "nvidia.com/mig-1g.10gb": 7}, labels=PRESENT), *plugin("g1"), pod("asked", 1), insufficient()],
    ),
    "operator-sees-no-gpu-node": Case(
        "GFD_LABELS_MISSING",
        github("NVIDIA/gpu-operator/issues/149"),
        [
            node("g1"),
            node("c1"),
            pod("gpu-operator-6f8", on="c1", namespace="gpu-operator"),
            pod("asked", 1),
            insufficient(2),
        ],
        {"gpu-operator/gpu-operator-6f8": "INFO controllers.ClusterPolicy No GPU node can be found in the cluster."},
        {"g1": SMI},
    ),
    "kubelet-restarted-and-the-plugin-did-not-notice": Case(
        "DEVICE_PLUGIN_FAILING",
        MANY,
        [node("g1", 1), refused("Pod was rejected: Allocate failed due to can't allocate unregistered device nvidia.com/gpu, which is unexpected")],
    ),
    "socket-of-the-plugin-is-gone": Case(
        "DEVICE_PLUGIN_FAILING",
        MANY,
        [
            node("g1", 1),
            refused(
                "Allocate failed due to rpc error: code = Unavailable desc = connection error: desc = transport: Error while "
                "dialing: dial unix /var/lib/kubelet/device-plugins/nvidia-gpu.sock: connect: connection refused, which is unexpected"
            ),
        ],
    ),
    "groups-without-gpus-and-one-that-is-full": Case(
        "AUTOSCALER_MAX_SIZE",
        github("kubernetes/autoscaler/issues/1607"),
        [
            node("c1"),
            node("g1", 1),
            pod("busy", 1, on="g1"),
            pod("asked", 1),
            event("Pod/asked", "NotTriggerScaleUp", f"pod didn't trigger scale-up: 2 Insufficient {GPU}, 1 max node group size reached", "cluster-autoscaler"),
        ],
        contributing=["GPU_FULL"],
    ),
    "cordoned-for-a-driver-upgrade": Case(
        "DRIVER_UPGRADE_BLOCKED",
        github("NVIDIA/gpu-operator/issues/2820"),
        [
            node("g1", 8, cordoned=True, labels=PRESENT | {"nvidia.com/gpu-driver-upgrade-state": "pod-deletion-required"}),
            pod("asked", 1),
        ],
        contributing=["NODE_UNSCHEDULABLE"],
    ),
    "volume-is-attached-elsewhere": Case(
        "STORAGE_INSUFFICIENT",
        MANY,
        [
            node("g1", 1),
            pod("asked", 1, on="g1", phase="Pending"),
            event("Pod/asked", "FailedAttachVolume", 'Multi-Attach error for volume "pvc-1" Volume is already exclusively attached to one node', "attachdetach-controller"),
        ],
    ),
    "evicted-for-the-nodes-disk": Case(
        "EPHEMERAL_STORAGE",
        MANY,
        [node("g1", 1), refused("The node had condition: [DiskPressure]. ", "Evicted")],
    ),
    "node-short-of-disk-takes-nothing": Case(
        "EPHEMERAL_STORAGE",
        MANY,
        [node("g1", 1, taints=[{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]), pod("asked", 1)],
    ),
    "config-that-the-label-names-does-not-exist": Case(
        "SHARING_CONFIG_NOT_APPLIED",
        github("NVIDIA/gpu-operator/issues/412"),
        [
            node("g1", 1, labels={"nvidia.com/device-plugin.config": "slice-40"}),
            thing("ConfigMap", "time-slicing-config", {}, "v1", namespace="gpu-operator")
            | {"data": {"slice-4": "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 4\n"}},
            pod("first", 1, on="g1"),
            pod("asked", 1),
            insufficient(),
        ],
    ),
    "one-share-at-a-time": Case(
        "REQUEST_EXCEEDS_CLUSTER",
        MANY,
        [
            node("g1", {"nvidia.com/gpu.shared": 8}),
            refused(
                "Allocate failed due to rpc error: code = Unknown desc = request for 'nvidia.com/gpu.shared: 2' too large: maximum "
                "request size for shared resources is 1, which is unexpected"
            ),
        ],
    ),
    "limit-range-says-no": Case(
        "POLICY_DENIED",
        MANY,
        [
            node("g1", 8),
            thing("ReplicaSet", "asked", {"replicas": 1, "template": {"spec": pod("x", 8)["spec"]}}),
            event("ReplicaSet/asked", "FailedCreate", 'Error creating: pods "asked-1" is forbidden: maximum nvidia.com/gpu usage per Container is 4, but limit is 8', "replicaset-controller"),
        ],
        question="rs/asked",
    ),
    "node-problem-detector-has-seen-it": Case(
        "GPU_HW_FAULT",
        github("NVIDIA/NVSentinel/issues/714"),
        [
            node("g1", {GPU: 7}, capacity={GPU: 8}),
            event("Node/g1", "GpuXidError", "NVRM: Xid (PCI:0000:9b:00): 95, pid=1, Uncontained ECC error", "node-problem-detector"),
            pod("asked", 8),
        ],
    ),
    "replicas-keep-apart-and-nodes-run-out": Case(
        "POD_AFFINITY_CONFLICT",
        MANY,
        [
            node("g1", 8),
            pod("one", 1, on="g1", labels={"app": "llm"}),
            pod(
                "asked",
                1,
                labels={"app": "llm"},
                spec={
                    "affinity": {
                        "podAntiAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": [
                                {"labelSelector": {"matchLabels": {"app": "llm"}}, "topologyKey": "kubernetes.io/hostname"}
                            ]
                        }
                    }
                },
            ),
        ],
    ),
    "server-finds-the-shared-gpu-taken": Case(
        "GPU_OOM",
        github("vllm-project/vllm/issues/14979"),
        [node("g1", 4), ended()],
        {"team/asked": "ValueError: Free memory on device (3.2/79.1 GiB) on startup is less than desired GPU memory utilization (0.9, 71.2 GiB)."},
    ),
    "image-that-is-not-there": Case(
        "IMAGE_PULL_FAILED",
        MANY,
        [
            node("g1", 1),
            crashing("ImagePullBackOff", 'Back-off pulling image "registry.example/train:v9": manifest unknown'),
        ],
    ),
    "killed-for-its-memory": Case(
        "CONTAINER_OOM",
        MANY,
        [
            node("g1", 1),
            pod(
                "asked",
                1,
                on="g1",
                status={
                    "containerStatuses": [
                        {
                            "name": "main",
                            "restartCount": 6,
                            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}},
                            "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
                        }
                    ]
                },
            ),
        ],
    ),
    "crash-loop-whose-last-words-are-in-the-log-before": Case(
        "DRIVER_LIB_MISMATCH",
        MANY,
        [
            node("g1", 1),
            crashing("CrashLoopBackOff", "back-off 5m0s restarting failed container"),
        ],
        {"team/asked": "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.54"},
    ),
    "job-that-has-used-up-its-retries": Case(
        "APP_ERROR",
        MANY,
        [
            node("g1", 1),
            job("train", 1, labels={}, suspend=False),
            {**ended(), "metadata": {**ended()["metadata"], "ownerReferences": [{"kind": "Job", "name": "train", "controller": True}]}},
        ],
        {"team/asked": "ModuleNotFoundError: No module named 'flash_attn'"},
        question="job/train",
    ),
    "finished-as-it-should": Case(
        "NONE",
        MANY,
        [
            node("g1", 1),
            thing("Job", "train", {"template": {"spec": pod("x", 1)["spec"]}}, "batch/v1", status={"conditions": [condition("Complete", "True", "", "")], "succeeded": 1}),
            pod("asked", 1, on="g1", phase="Succeeded", owner=("Job", "train")),
        ],
        question="job/train",
    ),
    "behind-the-head-and-nobody-says-so": Case(
        "QUEUE_BEHIND_HEAD",
        github("kubernetes-sigs/kueue/issues/2833"),
        [
            node("g1", 8),
            flavor(),
            cluster_queue("cq", 8, queueingStrategy="StrictFIFO"),
            local_queue("cq"),
            pod("busy", 4, on="g1"),
            {**job("head", 8), "metadata": {**job("head", 8)["metadata"], "creationTimestamp": "2026-03-01T08:00:00Z"}},
            job("asked", 1),
        ],
        question="job/asked",
    ),
    "host-port-is-taken": Case(
        "HOST_PORT_CONFLICT",
        MANY,
        [
            node("g1", 2),
            pod("one", 1, on="g1", spec={"containers": [{"name": "main", "ports": [{"containerPort": 29500, "hostPort": 29500}]}]}),
            {
                **pod("asked", 1),
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "resources": {"limits": {GPU: "1"}},
                            "ports": [{"containerPort": 29500, "hostPort": 29500}],
                        }
                    ]
                },
            },
        ],
    ),
    "claim-without-a-claim-name": Case(
        "DRA_CLAIM_INVALID",
        MANY,
        [
            node("g1"),
            thing(
                "Deployment",
                "asked",
                {
                    "replicas": 1,
                    "template": {
                        "spec": {
                            "containers": [{"name": "main", "resources": {"claims": [{"name": "gpu"}]}}],
                            "resourceClaims": [{"name": "gpu", "source": {"resourceClaimTemplateName": "one"}}],
                        }
                    },
                },
            ),
        ],
        question="deploy/asked",
    ),
}  # fmt: skip
MORE |= {
    "mig-manager-gave-up": Case(
        "MIG_CONFIG_NOT_APPLIED",
        github("NVIDIA/gpu-operator/issues/2833"),
        [
            node(
                "g1",
                {GPU: 0},
                labels=PRESENT
                | {
                    "nvidia.com/mig.strategy": "mixed",
                    "nvidia.com/mig.config": "all-1g.5gb",
                    "nvidia.com/mig.config.state": "pending",
                    "nvidia.com/gpu.deploy.device-plugin": "paused-for-mig-change",
                },
            ),
            daemon("nvidia-device-plugin-daemonset", {"nodeSelector": {"nvidia.com/gpu.deploy.device-plugin": "true"}}),
            pod("asked", 1, resource="nvidia.com/mig-1g.5gb"),
        ],
    ),
    "gpu-is-lost-says-the-plugin": Case(
        "GPU_HW_FAULT",
        github("kubernetes/kubernetes/issues/97131"),
        [
            node("g1", 8),
            refused(
                "Pod Allocate failed due to device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Unknown desc "
                "= Unable to retrieve list of available devices: error creating nvml.Device 5: nvml: GPU is lost, which is unexpected"
            ),
        ],
    ),
    "reboot-before-the-plugin-was-up": Case(
        "KUBELET_ADMISSION_RACE",
        github("kubernetes/kubernetes/issues/125579"),
        [
            node("g1", 8),
            refused(f"Allocate failed due to no healthy devices present; cannot allocate unhealthy devices {GPU}, which is unexpected"),
        ],
    ),
    "flavor-selects-what-no-node-is": Case(
        "KUEUE_FLAVOR_MISMATCH",
        github("kubernetes-sigs/kueue/issues/425"),
        [
            node("g1", 8),
            flavor(nodeLabels={"app.kubernetes.io/managed-by": "Helm"}),
            cluster_queue("cq", 8),
            local_queue("cq"),
            job("train", 1, suspend=False),
            admitted("train"),
            pod("asked", 1, owner=("Job", "train"), spec={"nodeSelector": {"app.kubernetes.io/managed-by": "Helm"}}),
        ],
        contributing=["SELECTOR_MISMATCH"],
    ),
    "helper-without-a-gpu-of-its-own": Case(
        "TAINT_NOT_TOLERATED",
        github("vllm-project/aibrix/pull/909"),
        [
            node("g1", 1, taints=[{"key": GPU, "value": "present", "effect": "NoSchedule"}], labels={"pool": "gpu"}),
            node("c1"),
            pod("asked", spec={"nodeSelector": {"pool": "gpu"}}),
        ],
    ),
}  # fmt: skip
MORE |= {
    "plugins-daemonset-asked-about": Case(
        "DEVICE_PLUGIN_ABSENT",
        github("NVIDIA/k8s-device-plugin/issues/708"),
        [
            node("g1"),
            node("c1"),
            daemon("nvdp-nvidia-device-plugin", needs_label("nvidia.com/gpu.present"), namespace="nvidia-device-plugin"),
        ],
        hosts={"g1": SMI},
        question="ds/nvdp-nvidia-device-plugin",
    ),
    "exporter-is-kept-off-by-a-taint": Case(
        "TAINT_NOT_TOLERATED",
        MANY,
        [
            node("g1", 8, taints=[GPU_TAINT]),
            node("c1"),
            daemon("dcgm-exporter", {"nodeSelector": {"kubernetes.io/hostname": "g1"}}, namespace="monitoring"),
        ],
        question="ds/dcgm-exporter",
    ),
    "nvidia-smi-is-not-in-the-container": Case(
        "RUNTIME_NOT_CONFIGURED",
        MANY,
        [
            node("g1", 1),
            crashing(
                "RunContainerError",
                'failed to create containerd task: failed to create shim task: OCI runtime create failed: exec: "nvidia-smi": '
                "executable file not found in $PATH",
            ),
        ],
    ),
    "torch-finds-no-driver-where-the-plugin-does": Case(
        "RUNTIME_NOT_CONFIGURED",
        MANY,
        [node("g1", 1), ended()],
        {"team/asked": "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"},
    ),
    "tensorflow-finds-no-device": Case(
        "RUNTIME_NOT_CONFIGURED",
        MANY,
        [node("g1", 1), ended()],
        {"team/asked": "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"},
    ),
    "only-the-autoscalers-log-tells-of-the-stock": Case(
        "CLOUD_CAPACITY",
        MANY,
        [
            node("c1"),
            pod("cluster-autoscaler-7d9", on="c1", namespace="kube-system"),
            pod("asked", 1),
            event("Pod/asked", "TriggeredScaleUp", "pod triggered scale-up: [{gpu-asg 0->1 (max: 8)}]", "cluster-autoscaler"),
        ],
        {"kube-system/cluster-autoscaler-7d9": "W1 aws: Launching a new EC2 instance. Status Reason: We currently do not have sufficient p4d.24xlarge capacity in zones with support for 'gp3' volumes. InsufficientInstanceCapacity"},
    ),
    "new-nodes-would-be-tainted": Case(
        "AUTOSCALER_NO_MATCHING_GROUP",
        github("vanvalenlab/kiosk-console/pull/81"),
        [
            node("c1"),
            pod("asked", 1),
            event("Pod/asked", "NotTriggerScaleUp", "pod didn't trigger scale-up: 1 node(s) had untolerated taint {nvidia.com/gpu: present}, 2 Insufficient memory", "cluster-autoscaler"),
        ],
        contributing=["TAINT_NOT_TOLERATED"],
    ),
    "local-disks-are-too-full-for-the-claim": Case(
        "STORAGE_INSUFFICIENT",
        github("topolvm/topolvm/issues/194"),
        [
            node("g1", 1),
            pod("asked", 1, spec={"volumes": [{"name": "d", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "topolvm"}}}}]}),
            thing("StorageClass", "topolvm", {}, "storage.k8s.io/v1", namespace="") | {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "topolvm.io"},
            thing("PersistentVolumeClaim", "asked-d", {"storageClassName": "topolvm", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "9Ti"}}}, "v1", owner=("Pod", "asked"), status={"phase": "Pending"}),
            event("Pod/asked", "FailedScheduling", "0/1 nodes are available: 1 node(s) did not have enough free storage."),
        ],
    ),
}  # fmt: skip
DRA = "resource.k8s.io/v1"
CLAIMS_ONE = {
    "containers": [{"name": "main", "resources": {"claims": [{"name": "gpu"}]}}],
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
}


def claims_scene(*more: Unstructured, template: str = "one") -> list[Unstructured]:
    """A pod that claims a device of the class gpu.nvidia.com."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    return [
        node("g1"),
        thing("DeviceClass", "gpu.nvidia.com", {}, DRA, namespace=""),
        thing("ResourceClaimTemplate", template, spec, DRA),
        pod("asked", spec=CLAIMS_ONE),
        *more,
    ]


def device_slice(*devices: str) -> Unstructured:
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": "g1",
        "pool": {"name": "g1"},
        "devices": [{"name": device} for device in devices],
    }
    return thing("ResourceSlice", "g1-slice", spec, DRA, namespace="")


MORE |= {
    "template-of-another-name": Case("DRA_CLAIM_INVALID", MANY, claims_scene(template="single-gpu")),
    "container-uses-a-claim-that-is-not-listed": Case(
        "DRA_CLAIM_INVALID",
        MANY,
        [node("g1"), pod("asked", spec={**CLAIMS_ONE, "resourceClaims": [{"name": "device", "resourceClaimTemplateName": "one"}]})],
    ),
    "selector-with-an-attribute-that-no-device-has": Case(
        "DRA_CLAIM_INVALID",
        MANY,
        claims_scene(
            device_slice("gpu-0"),
            event("Pod/asked", "FailedScheduling", "0/1 nodes are available: 1 claim asked-gpu: request gpu: selector #0: runtime error: no such key: memory"),
        ),
    ),
    "no-kubelet-plugin-publishes-devices": Case(
        "DEVICE_PLUGIN_ABSENT",
        github("aws/aws-k8s-tester/pull/820"),
        claims_scene(thing("ResourceSlice", "net", {"driver": "dra.net", "pool": {"name": "g1"}, "devices": [{"name": "eth0"}]}, DRA, namespace="")),
    ),
    "all-claimed-devices-are-taken": Case(
        "GPU_FULL",
        github("kubernetes/kubernetes/issues/126320"),
        claims_scene(
            device_slice("gpu-0"),
            thing(
                "ResourceClaim",
                "other",
                {},
                DRA,
                status={"allocation": {"devices": {"results": [{"driver": "gpu.nvidia.com", "pool": "g1", "device": "gpu-0"}]}}},
            ),
        ),
    ),
    "claims-of-which-nothing-is-known": Case("UNKNOWN", MANY, [node("g1"), pod("asked", spec=CLAIMS_ONE)]),
}  # fmt: skip
CASES |= MORE
