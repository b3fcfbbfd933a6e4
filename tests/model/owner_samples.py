"""Objects that own pods, group them or bound them, for tests."""

from __future__ import annotations

from typing import Any

from windlass.model.unstructured import Unstructured

POD_SPEC: Unstructured = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "1"}}}]}
TEMPLATE: Unstructured = {"metadata": {"labels": {"app": "a"}}, "spec": POD_SPEC}


def owner(version: str, kind: str, spec: Unstructured, name: str = "train", **metadata: Any) -> Unstructured:
    named = {
        "name": name,
        "namespace": "eng",
        "uid": f"u-{name}",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {"apiVersion": version, "kind": kind, "metadata": {**named, **metadata}, "spec": spec}


QUEUED: Unstructured = {"kueue.x-k8s.io/queue-name": "main"}
JOB = owner(
    "batch/v1",
    "Job",
    {
        "parallelism": 4,
        "completions": 10,
        "suspend": True,
        "activeDeadlineSeconds": 600,
        "template": TEMPLATE,
    },
    labels=QUEUED,
    annotations={"kueue.x-k8s.io/job-min-parallelism": "2"},
)
JOB_SET = owner(
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
    {
        "replicatedJobs": [
            {"name": "leader", "template": {"spec": {"template": TEMPLATE}}},
            {
                "name": "workers",
                "replicas": 2,
                "template": {"spec": {"parallelism": 4, "template": TEMPLATE}},
            },
        ]
    },
    labels=QUEUED,
)
PYTORCH_JOB = owner(
    "kubeflow.org/v1",
    "PyTorchJob",
    {
        "runPolicy": {"suspend": True, "activeDeadlineSeconds": 60},
        "elasticPolicy": {"minReplicas": 2},
        "pytorchReplicaSpecs": {
            "Worker": {"replicas": 4, "template": TEMPLATE},
            "Master": {"replicas": 1, "template": TEMPLATE},
        },
    },
)
MPI_JOB = owner(
    "kubeflow.org/v2beta1",
    "MPIJob",
    {
        "mpiReplicaSpecs": {
            "Worker": {"replicas": 2, "template": TEMPLATE},
            "Launcher": {"template": TEMPLATE},
        }
    },
)
TRAIN_JOB = owner("trainer.kubeflow.org/v1alpha1", "TrainJob", {"suspend": False})
RAY_SPEC: Unstructured = {
    "headGroupSpec": {"template": TEMPLATE},
    "workerGroupSpecs": [{"groupName": "gpu", "replicas": 2, "numOfHosts": 2, "template": TEMPLATE}],
}
RAY_CLUSTER = owner("ray.io/v1", "RayCluster", RAY_SPEC)
RAY_JOB = owner("ray.io/v1", "RayJob", {"rayClusterSpec": RAY_SPEC, "submitterPodTemplate": TEMPLATE})
LEADER_WORKER_SET = owner(
    "leaderworkerset.x-k8s.io/v1",
    "LeaderWorkerSet",
    {
        "replicas": 2,
        "leaderWorkerTemplate": {"size": 3, "leaderTemplate": TEMPLATE, "workerTemplate": TEMPLATE},
    },
)
DEPLOYMENT = owner("apps/v1", "Deployment", {"replicas": 3, "template": TEMPLATE})
OWNERS = (
    JOB,
    JOB_SET,
    PYTORCH_JOB,
    MPI_JOB,
    TRAIN_JOB,
    RAY_CLUSTER,
    RAY_JOB,
    LEADER_WORKER_SET,
    DEPLOYMENT,
)

COSCHEDULING = owner("scheduling.x-k8s.io/v1alpha1", "PodGroup", {"minMember": 2}, name="gang", labels=QUEUED)
VOLCANO = owner(
    "scheduling.volcano.sh/v1beta1",
    "PodGroup",
    {"minMember": 2, "minTaskMember": {"ps": 1, "worker": 3}, "priorityClassName": "system-node-critical"},
    name="gang",
)
NATIVE = owner(
    "scheduling.k8s.io/v1beta1",
    "PodGroup",
    {
        "schedulingPolicy": {"gang": {"minCount": 3}},
        "schedulingConstraints": {"topology": [{"key": "example.com/rack"}]},
        "disruptionMode": {"all": {}},
        "priority": 11,
        "preemptionPolicy": "Never",
    },
    name="gang",
)
GROUPS = (COSCHEDULING, VOLCANO, NATIVE)

BUDGET = owner("policy/v1", "PodDisruptionBudget", {"minAvailable": "50%", "selector": {"matchLabels": {"app": "a"}}})
RESOURCE_QUOTA: Unstructured = {
    **owner("v1", "ResourceQuota", {"hard": {"requests.nvidia.com/gpu": "8", "cpu": "4", "count/jobs.batch": "3"}}),
    "status": {"used": {"requests.nvidia.com/gpu": "6", "cpu": "500m"}},
}
LIMIT_RANGE = owner(
    "v1",
    "LimitRange",
    {
        "limits": [
            {"type": "Container", "max": {"cpu": "300m"}},
            {"type": "Pod", "min": {"nvidia.com/gpu": "1"}},
        ]
    },
)
KUEUE_CONFIGURATION: Unstructured = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]},
    "admissionFairSharing": {"usageHalfLifeTime": "168h", "resourceWeights": {"cpu": "0.5"}},
    "waitForPodsReady": {
        "timeout": "10m",
        "blockAdmission": True,
        "requeuingStrategy": {"timestamp": "Creation"},
    },
    "resources": {
        "excludeResourcePrefixes": ["example.com/"],
        "transformations": [{"input": "cpu", "strategy": "Retain", "outputs": {"credits": "2"}}],
    },
    "integrations": {"frameworks": ["batch/job"]},
}
SCHEDULER_CONFIGURATION: Unstructured = {
    "apiVersion": "windlass.dev/v1",
    "kind": "SchedulerConfiguration",
    "metadata": {"name": "lab"},
    "schedulerNames": ["windlass", "default-scheduler"],
    "seed": 3,
    "classes": [{"name": "serving", "selector": {"matchLabels": {"app": "a"}}, "strategy": "spread"}],
    "minRunTime": "10m",
    "restartCost": "90s",
    "lostWorkCap": "48h",
    "lostWorkCaps": {"research": "1h"},
    "backfill": {"runTimes": {"lab/gpu": "2h"}},
    "gangGrace": "1h30m",
    "defrag": {"proactive": True, "maxMoves": 4},
    "topologyLevels": ["example.com/rack", "kubernetes.io/hostname"],
    "fairSharing": {},
}
RULES = (BUDGET, RESOURCE_QUOTA, LIMIT_RANGE, KUEUE_CONFIGURATION, SCHEDULER_CONFIGURATION)
