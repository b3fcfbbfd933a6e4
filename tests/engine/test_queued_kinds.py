"""Every kind that Kueue integrates counts against its queue, whoever makes the pods: quota is never passed by."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.plain_objects import START, holds, node, planned, pod

from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured

QUEUE = "kueue.x-k8s.io/queue-name"
GPU = "nvidia.com/gpu"
IN_QUEUE = {QUEUE: "main"}


def queues(gpus: int) -> list[Unstructured]:
    resources = [{"name": name, "nominalQuota": amount} for name, amount in (("cpu", "100"), ("memory", "1Ti"))]
    resources.append({"name": GPU, "nominalQuota": str(gpus)})
    covered = [resource["name"] for resource in resources]
    group = {"coveredResources": covered, "flavors": [{"name": "all", "resources": resources}]}
    api = "kueue.x-k8s.io/v1beta2"
    return [
        {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": "all"}},
        {
            "apiVersion": api,
            "kind": "ClusterQueue",
            "metadata": {"name": "all"},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        {
            "apiVersion": api,
            "kind": "LocalQueue",
            "metadata": {"name": "main", "namespace": "default"},
            "spec": {"clusterQueue": "all"},
        },
    ]


def template(gpus: int = 1) -> Unstructured:
    return {"spec": {"containers": [{"name": "c", "resources": {"limits": {GPU: str(gpus)}}}]}}


def made(api: str, kind: str, spec: Unstructured, submitted: bool = False, **metadata: Any) -> Unstructured:
    meta = {"name": "web", "namespace": "default", "labels": IN_QUEUE, **metadata}
    if submitted:
        meta |= {"uid": "u-web", "creationTimestamp": START}
    return {"apiVersion": api, "kind": kind, "metadata": meta, "spec": spec}


def pod_of(
    name: str, kind: str, owner: str, api: str = "apps/v1", labels: dict[str, str] | None = None
) -> Unstructured:
    reference = {"apiVersion": api, "kind": kind, "name": owner, "uid": f"u-{owner}", "controller": True}
    return pod(name, 1, metadata={"labels": labels or {}, "ownerReferences": [reference]})


def bound_gpus(plan: Plan) -> int:
    return len(plan.binds) + sum(sum(part.nodes.values()) for admit in plan.admits for part in admit.pod_sets)


class TestPodsOfAQueuedController:
    """The queue's name stands on the Deployment alone, as users of Kueue write it."""

    @pytest.mark.parametrize("kind", ["StatefulSet", "ReplicaSet"])
    def test_only_as_many_as_the_quota(self, kind: str) -> None:
        owner = made("apps/v1", kind, {"replicas": 6, "template": template()}, submitted=True)
        pods = [pod_of(f"web-{index}", kind, "web") for index in range(6)]
        plan, _ = planned(node("n1"), *queues(2), owner, *pods)
        assert len(plan.binds) == 2
        assert set(holds(plan).values()) == {"KUEUE_QUOTA_INSUFFICIENT"}

    @pytest.mark.parametrize("replica_set_is_known", [True, False])
    def test_a_deployment_above_its_replica_set(self, replica_set_is_known: bool) -> None:
        owner = made("apps/v1", "Deployment", {"replicas": 6, "template": template()}, submitted=True)
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "controller": True}
        replicas = made(
            "apps/v1",
            "ReplicaSet",
            {"replicas": 6, "template": template()},
            submitted=True,
            name="web-5d4f",
            labels={},
            ownerReferences=[reference],
        )
        labels = {"pod-template-hash": "5d4f"}
        pods = [pod_of(f"web-5d4f-{index}", "ReplicaSet", "web-5d4f", labels=labels) for index in range(6)]
        between = [replicas] if replica_set_is_known else []
        plan, _ = planned(node("n1"), *queues(2), owner, *between, *pods)
        assert len(plan.binds) == 2

    def test_running_pods_hold_quota(self) -> None:
        owner = made("apps/v1", "StatefulSet", {"replicas": 2, "template": template()}, submitted=True)
        running = [pod_of(f"web-{index}", "StatefulSet", "web") for index in range(2)]
        for one in running:
            one["spec"]["nodeName"], one["status"] = "n1", {"phase": "Running", "startTime": START}
        waiting = pod("later", 1, metadata={"labels": IN_QUEUE})
        plan, _ = planned(node("n1"), *queues(2), owner, *running, waiting)
        assert holds(plan) == {"default/later": "KUEUE_QUOTA_INSUFFICIENT"}

    def test_without_a_queue_nothing_is_counted(self) -> None:
        owner = made("apps/v1", "StatefulSet", {"replicas": 6, "template": template()}, submitted=True, labels={})
        plan, _ = planned(node("n1"), *queues(2), owner, *(pod_of(f"web-{i}", "StatefulSet", "web") for i in range(6)))
        assert len(plan.binds) == 6


RAY_GROUP = {"groupName": "gpus", "replicas": 4, "template": template()}
RAY_HEAD = {"headGroupSpec": {"template": {"spec": {"containers": [{"name": "head"}]}}}}
RAY = {**RAY_HEAD, "workerGroupSpecs": [RAY_GROUP]}
JOB = {"parallelism": 4, "completions": 4, "template": template()}
SPARK_POD = {"cores": 1, "memory": "1g", "gpu": {"name": GPU, "quantity": 2}}
WRAPPED = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "inside"}, "spec": JOB}
KINDS = [
    ("batch/v1", "Job", {**JOB, "suspend": True}),
    ("batch/v1", "CronJob", {"schedule": "* * * * *", "jobTemplate": {"metadata": {"labels": IN_QUEUE}, "spec": JOB}}),
    ("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [{"name": "w", "template": {"spec": JOB}}]}),
    (
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        {"replicas": 1, "leaderWorkerTemplate": {"size": 4, "workerTemplate": template()}},
    ),
    ("ray.io/v1", "RayJob", {"rayClusterSpec": RAY, "suspend": True}),
    ("ray.io/v1", "RayCluster", {**RAY, "suspend": True}),
    ("ray.io/v1", "RayService", {"rayClusterConfig": RAY}),
    *(
        ("kubeflow.org/v1", kind, {field: {"Worker": {"replicas": 4, "template": template()}}})
        for kind, field in (
            ("PyTorchJob", "pytorchReplicaSpecs"),
            ("TFJob", "tfReplicaSpecs"),
            ("XGBoostJob", "xgbReplicaSpecs"),
            ("PaddleJob", "paddleReplicaSpecs"),
            ("JAXJob", "jaxReplicaSpecs"),
        )
    ),
    ("kubeflow.org/v2beta1", "MPIJob", {"mpiReplicaSpecs": {"Worker": {"replicas": 4, "template": template()}}}),
    ("workload.codeflare.dev/v1beta2", "AppWrapper", {"suspend": True, "components": [{"template": WRAPPED}]}),
    (
        "sparkoperator.k8s.io/v1beta2",
        "SparkApplication",
        {"suspend": True, "driver": {"cores": 1}, "executor": {**SPARK_POD, "instances": 2}},
    ),
    ("apps/v1", "Deployment", {"replicas": 4, "template": template(4)}),
    ("apps/v1", "StatefulSet", {"replicas": 4, "template": template(4)}),
    ("v1", "ReplicationController", {"replicas": 4, "template": template(4)}),
]


@pytest.mark.parametrize(("api", "kind", "spec"), KINDS, ids=[kind for _, kind, _ in KINDS])
class TestEveryKindThatIsQueued:
    """Each asks for four GPUs, or for four at a time."""

    def test_waits_for_quota(self, api: str, kind: str, spec: Unstructured) -> None:
        plan, notes = planned(node("n1"), *queues(3), made(api, kind, spec))
        assert bound_gpus(plan) == 0, notes
        assert set(holds(plan).values()) == {"KUEUE_QUOTA_INSUFFICIENT"}

    def test_starts_within_it(self, api: str, kind: str, spec: Unstructured) -> None:
        plan, _ = planned(node("n1"), *queues(4), made(api, kind, spec))
        assert plan.admits
