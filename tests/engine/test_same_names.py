"""Workloads of different kinds with the same name: none is lost, none is decided twice."""

from __future__ import annotations

import pytest
from tests.engine.plain_objects import START, holds, node, planned, pod

from windlass.model.unstructured import Unstructured

KUBEFLOW = {"PyTorchJob": "pytorchReplicaSpecs", "TFJob": "tfReplicaSpecs"}
TEMPLATE = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}
META = {"name": "train", "namespace": "default", "creationTimestamp": START}
GROUPS = {
    "scheduling.x-k8s.io/v1alpha1": {"labels": {"scheduling.x-k8s.io/pod-group": "train"}},
    "scheduling.volcano.sh/v1beta1": {"annotations": {"scheduling.k8s.io/group-name": "train"}},
}


def job(kind: str) -> Unstructured:
    spec = {KUBEFLOW[kind]: {"Worker": {"replicas": 2, "template": TEMPLATE}}}
    return {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {**META, "uid": kind}, "spec": spec}


def members(kind: str, prefix: str, **metadata: Unstructured) -> list[Unstructured]:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": kind, "name": "train", "uid": kind, "controller": True}
    return [pod(f"{prefix}{i}", 1, metadata={"ownerReferences": [owner], **metadata}) for i in (0, 1)]


@pytest.mark.parametrize("api", GROUPS)
def test_a_job_and_the_pod_group_that_was_made_for_it_are_one_gang(api: str):
    group = {"apiVersion": api, "kind": "PodGroup", "metadata": META, "spec": {"minMember": 2}}
    plan, _ = planned(node("n"), job("PyTorchJob"), group, *members("PyTorchJob", "p", **GROUPS[api]))
    assert {bind.pod for bind in plan.binds} == {"default/p0", "default/p1"}
    assert not plan.holds


def test_two_jobs_of_one_name_both_start():
    jobs = [job(kind) for kind in KUBEFLOW]
    plan, _ = planned(node("n"), *jobs, *members("TFJob", "t"), *members("PyTorchJob", "p"))
    assert {bind.pod for bind in plan.binds} == {"default/t0", "default/t1", "default/p0", "default/p1"}


def test_a_pod_named_like_a_gang_that_waits_is_bound_and_not_held():
    label = {"kueue.x-k8s.io/pod-group-name": "train"}
    total = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    gang = pod("g0", 1, metadata={"labels": label, "annotations": total})
    plan, _ = planned(node("n"), gang, pod("train", 1))
    assert [bind.pod for bind in plan.binds] == ["default/train"]
    assert set(holds(plan).values()) == {"GANG_INCOMPLETE"}


def test_a_queued_pod_with_somebody_elses_gate_is_held():
    api = "kueue.x-k8s.io/v1beta2"
    quota = [{"name": "nvidia.com/gpu", "nominalQuota": 8}]
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "f", "resources": quota}]}
    queue: list[Unstructured] = [
        {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": "f"}},
        {
            "apiVersion": api,
            "kind": "ClusterQueue",
            "metadata": {"name": "q"},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        {
            "apiVersion": api,
            "kind": "LocalQueue",
            "metadata": {"name": "q", "namespace": "default"},
            "spec": {"clusterQueue": "q"},
        },
    ]
    label = {"labels": {"kueue.x-k8s.io/queue-name": "q"}}
    gates = [{"name": "kueue.x-k8s.io/admission"}, {"name": "example.com/wait"}]
    ours = pod("ours", 1, metadata=label, schedulingGates=gates[:1])
    plan, _ = planned(node("n"), *queue, ours, pod("theirs", 1, metadata=label, schedulingGates=gates))
    assert [bind.pod for bind in plan.binds] == ["default/ours"]
    assert holds(plan) == {"default/theirs": "SCHEDULING_GATED"}
