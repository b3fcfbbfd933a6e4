"""Objects of the queue and workload kinds for tests: complete, small, as trees that a test may change."""

from __future__ import annotations

import copy
from typing import Any

from windlass.model.codec import decode_object
from windlass.model.unstructured import Unstructured

TEMPLATE: Unstructured = {
    "metadata": {"labels": {"app": "train"}},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}, "limits": {"nvidia.com/gpu": "4"}}}]},
}

CLUSTER_QUEUE: Unstructured = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {"name": "team-a", "uid": "u1"},
    "spec": {
        "cohortName": "lab",
        "queueingStrategy": "StrictFIFO",
        "namespaceSelector": {"matchExpressions": [{"key": "dep", "operator": "In", "values": ["eng"]}]},
        "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "MayStopSearch"},
        "preemption": {
            "withinClusterQueue": "LowerPriority",
            "reclaimWithinCohort": "Any",
            "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": -3},
        },
        "fairSharing": {"weight": "1.5"},
        "stopPolicy": "None",
        "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
        "resourceGroups": [
            {
                "coveredResources": ["cpu", "memory", "nvidia.com/gpu"],
                "flavors": [
                    {
                        "name": "h100",
                        "resources": [
                            {"name": "cpu", "nominalQuota": "1500m"},
                            {"name": "memory", "nominalQuota": "2Gi", "lendingLimit": "1Gi"},
                            {"name": "nvidia.com/gpu", "nominalQuota": "8", "borrowingLimit": "500m"},
                        ],
                    },
                ],
            }
        ],
    },
}
OLD_CLUSTER_QUEUE: Unstructured = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "ClusterQueue",
    "metadata": {"name": "old"},
    "spec": {
        "cohort": "lab",
        "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"},
        "namespaceSelector": {},
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "h100", "resources": [{"name": "cpu", "nominalQuota": 4}]}],
            }
        ],
    },
}
COHORT: Unstructured = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Cohort",
    "metadata": {"name": "lab"},
    "spec": {"parentName": "company", "fairSharing": {"weight": "100m"}},
}
FLAVOR: Unstructured = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ResourceFlavor",
    "metadata": {"name": "h100"},
    "spec": {
        "nodeLabels": {"pool": "h100"},
        "nodeTaints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "topologyName": "racks",
    },
}
TOPOLOGY: Unstructured = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Topology",
    "metadata": {"name": "racks"},
    "spec": {"levels": [{"nodeLabel": "example.com/rack"}, {"nodeLabel": "kubernetes.io/hostname"}]},
}
LOCAL_QUEUE: Unstructured = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "LocalQueue",
    "metadata": {"name": "main", "namespace": "eng"},
    "spec": {"clusterQueue": "team-a", "fairSharing": {"weight": 2}},
    "status": {
        "fairSharing": {
            "admissionFairSharingStatus": {
                "consumedResources": {"cpu": "8", "nvidia.com/gpu": "1"},
                "lastUpdate": "2026-01-01T00:00:00Z",
            }
        }
    },
}
WORKLOAD: Unstructured = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Workload",
    "metadata": {
        "name": "train",
        "namespace": "eng",
        "uid": "u7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [{"kind": "Job", "name": "train-job", "controller": True, "apiVersion": "batch/v1"}],
    },
    "spec": {
        "queueName": "main",
        "priority": 7,
        "maximumExecutionTimeSeconds": 600,
        "podSets": [
            {
                "name": "workers",
                "count": 4,
                "minCount": 2,
                "template": TEMPLATE,
                "topologyRequest": {
                    "required": "example.com/rack",
                    "podSetSliceRequiredTopology": "kubernetes.io/hostname",
                    "podSetSliceSize": 2,
                    "podSetGroupName": "g",
                },
            }
        ],
    },
    "status": {},
}
ADMITTED: Unstructured = {
    **WORKLOAD,
    "status": {
        "conditions": [
            {"type": "QuotaReserved", "status": "True", "lastTransitionTime": "2026-01-01T01:00:00Z"},
            {"type": "Admitted", "status": "True", "lastTransitionTime": "2026-01-01T01:00:05Z"},
        ],
        "admission": {
            "clusterQueue": "team-a",
            "podSetAssignments": [
                {
                    "name": "workers",
                    "count": 4,
                    "flavors": {"cpu": "h100", "nvidia.com/gpu": "h100"},
                    "resourceUsage": {"cpu": "8", "nvidia.com/gpu": "16"},
                    "topologyAssignment": {
                        "levels": ["example.com/rack", "kubernetes.io/hostname"],
                        "slices": [
                            {
                                "domainCount": 2,
                                "valuesPerLevel": [
                                    {"universal": "r1"},
                                    {"individual": {"prefix": "x", "suffix": "-a", "roots": ["1", "2"]}},
                                ],
                                "podCounts": {"individual": [3, 1]},
                            }
                        ],
                    },
                }
            ],
        },
    },
}
WORKLOAD_PRIORITY_CLASS: Unstructured = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "WorkloadPriorityClass",
    "metadata": {"name": "urgent"},
    "value": 900,
}

QUEUE_OBJECTS = (
    CLUSTER_QUEUE,
    OLD_CLUSTER_QUEUE,
    COHORT,
    FLAVOR,
    TOPOLOGY,
    LOCAL_QUEUE,
    WORKLOAD_PRIORITY_CLASS,
)


def changed(tree: Unstructured, path: str, value: Any) -> Unstructured:
    """A copy with the field at a dotted path set (or removed, for None); numbers are list positions."""
    copied = copy.deepcopy(tree)
    *way, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    at: Any = copied
    for step in way:
        at = at[step] if isinstance(at, list) else at.setdefault(step, {})
    if value is None:
        del at[last]
    else:
        at[last] = value
    return copied


def decoded(*trees: Unstructured) -> list[Any]:
    return [decode_object(copy.deepcopy(tree)) for tree in trees]
