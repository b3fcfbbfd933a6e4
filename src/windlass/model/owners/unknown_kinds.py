"""Kinds of other projects that make pods and that Windlass doesn't read, and those that it reads nothing of.

A manifest of one of them must not be passed over: `dump.cluster_loader` holds the first by name, and `check` says what
both mean.
"""

from __future__ import annotations

POD_MAKING_KINDS = frozenset(
    (group, kind)
    for group, kinds in (
        ("apps.nvidia.com", ("NIMService", "NIMPipeline", "NIMCache", "NIMBuild", "NemoCustomizer", "NemoEvaluator")),
        ("argoproj.io", ("Workflow", "CronWorkflow", "Rollout", "WorkflowTemplate", "ClusterWorkflowTemplate")),
        ("production-stack.vllm.ai", ("VLLMRuntime", "VLLMRouter", "CacheServer")),
        ("sparkoperator.k8s.io", ("ScheduledSparkApplication", "SparkConnect")),
        ("serving.kserve.io", ("InferenceService", "InferenceGraph", "LLMInferenceService")),
        ("serving.knative.dev", ("Service", "Configuration", "Revision")),
        ("flow.volcano.sh", ("JobFlow", "JobTemplate")),
        ("batch.volcano.sh", ("CronJob",)),
        ("training.volcano.sh", ("HyperJob",)),
        ("apps", ("DaemonSet",)),
        ("kubeflow.org", ("Notebook", "MXJob", "Experiment", "Trial", "ScheduledWorkflow")),
        ("tekton.dev", ("TaskRun", "PipelineRun")),
        ("flink.apache.org", ("FlinkDeployment", "FlinkSessionJob")),
        ("grove.io", ("PodCliqueSet", "PodClique", "PodCliqueScalingGroup")),
        ("nvidia.com", ("DynamoGraphDeployment", "DynamoComponentDeployment")),
        ("inference.networking.x-k8s.io", ("InferencePool",)),
        ("apps.kruise.io", ("CloneSet", "StatefulSet", "AdvancedCronJob", "BroadcastJob")),
        ("disaggregatedset.x-k8s.io", ("DisaggregatedSet",)),
    )
    for kind in kinds
)
"""API group and kind."""

NOT_IMPLEMENTED_KINDS = {
    ("kueue.x-k8s.io", "AdmissionCheck"): "admission checks are not implemented: a queue that names one admits nothing",
    ("kueue.x-k8s.io", "ProvisioningRequestConfig"): (
        "provisioning requests are not implemented: a queue with such an admission check admits nothing"
    ),
    ("kueue.x-k8s.io", "MultiKueueConfig"): "other clusters are not implemented: nothing is sent there",
    ("kueue.x-k8s.io", "MultiKueueCluster"): "other clusters are not implemented: nothing is sent there",
    ("autoscaling.x-k8s.io", "ProvisioningRequest"): "provisioning requests are not implemented: no nodes are kept",
    ("scheduling.k8s.io", "Workload"): (
        "a Workload of scheduling.k8s.io is a template: what counts are the PodGroups made of it, and their pods"
    ),
    ("scheduling.k8s.io", "CompositePodGroup"): "groups of groups are not implemented: their pods are held",
    ("topology.volcano.sh", "HyperNode"): "tiers of HyperNodes are not implemented: pods that demand one are held",
}
"""API group and kind → what it means that Windlass reads nothing of it."""


def makes_pods(api_version: str, kind: str) -> bool:
    return (api_version.rpartition("/")[0], kind) in POD_MAKING_KINDS


def not_implemented(api_version: str, kind: str) -> str:
    """What there is to say of an object of this kind; empty for other kinds."""
    return NOT_IMPLEMENTED_KINDS.get((api_version.rpartition("/")[0], kind), "")
