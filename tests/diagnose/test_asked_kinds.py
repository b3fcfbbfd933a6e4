"""`why` answers about every kind that people ask about, not only pods: owners, queues, nodes, GPUs."""

from __future__ import annotations

import pytest
from tests.diagnose.objects import GPU, GPU_TAINT, ask, event, node, pod, thing

from windlass.model.errors import InputError
from windlass.model.unstructured import Unstructured

TAINTED = node("g1", 8, taints=[GPU_TAINT])
TEMPLATE = {"spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: "1"}}}]}}
OWNERS: dict[str, tuple[str, Unstructured]] = {
    "Deployment": ("apps/v1", {"replicas": 1, "template": TEMPLATE}),
    "StatefulSet": ("apps/v1", {"replicas": 1, "template": TEMPLATE}),
    "Job": ("batch/v1", {"template": TEMPLATE}),
    "JobSet": (
        "jobset.x-k8s.io/v1alpha2",
        {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": {"template": TEMPLATE}}}]},
    ),
    "RayCluster": ("ray.io/v1", {"headGroupSpec": {"template": TEMPLATE}}),
    "TrainJob": ("trainer.kubeflow.org/v1alpha1", {"runtimeRef": {"name": "torch"}}),
    "PyTorchJob": ("kubeflow.org/v1", {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": TEMPLATE}}}),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io/v1", {"leaderWorkerTemplate": {"workerTemplate": TEMPLATE}}),
}


@pytest.mark.parametrize("kind", OWNERS)
def test_an_owner_is_judged_by_its_pods(kind: str) -> None:
    version, spec = OWNERS[kind]
    found = ask(f"{kind.lower()}/run", TAINTED, thing(kind, "run", spec, version), pod("run-0", 1, owner=(kind, "run")))
    assert (found.subject, found.code) == (f"{kind} team/run", "TAINT_NOT_TOLERATED")


@pytest.mark.parametrize("kind", sorted(set(OWNERS) - {"TrainJob"}))
def test_an_owner_without_pods_is_judged_by_its_template(kind: str) -> None:
    version, spec = OWNERS[kind]
    assert ask(f"{kind.lower()}/run", TAINTED, thing(kind, "run", spec, version)).code == "TAINT_NOT_TOLERATED"


def test_a_train_job_without_pods_says_what_is_missing() -> None:
    version, spec = OWNERS["TrainJob"]
    found = ask("trainjob/run", TAINTED, thing("TrainJob", "run", spec, version))
    assert found.code == "GANG_INCOMPLETE"
    assert "torch" in found.headline


KUEUE = "kueue.x-k8s.io/v1beta1"


def test_queues() -> None:
    held = thing("ClusterQueue", "all", {"stopPolicy": "Hold"}, KUEUE)
    assert ask("clusterqueue/all", held).code == "KUEUE_QUEUE_MISSING"
    local = thing("LocalQueue", "mine", {"clusterQueue": "all"}, KUEUE)
    assert ask("localqueue/mine", held, local).code == "KUEUE_QUEUE_MISSING"
    waits = [thing("Workload", name, {"queueName": "mine"}, KUEUE) for name in ("a", "b")]
    ended = thing("Workload", "c", {"queueName": "mine"}, KUEUE)
    ended["status"] = {"conditions": [{"type": "Finished", "status": "True"}]}
    well = thing("ClusterQueue", "all", {}, KUEUE)
    for question in ("localqueue/mine", "clusterqueue/all"):
        found = ask(question, well, local, *waits, ended)
        assert (found.code, "2 workloads wait in it" in found.headline) == ("NONE", True), found.headline


def test_a_node_that_is_not_ready_is_not_well_without_gpus_either() -> None:
    assert ask("node/c1", node("c1", cordoned=True)).code == "NODE_UNSCHEDULABLE"
    assert ask("node/c1", node("c1")).code == "NONE"


# GPUs

HOLDS = pod("train", 1, on="g1", annotations={"windlass.dev/allocated-devices": "2"})


def sick(index: int) -> Unstructured:
    made = node("g1", 7, capacity={GPU: 8}, labels={"nvidia.com/gpu.product": "H100"})
    made["metadata"]["annotations"] = {"windlass.dev/unhealthy-devices": str(index)}
    return made


def test_a_gpu_that_is_well_is_free_or_used() -> None:
    assert "GPU 3 of node g1 (H100) is free" in ask("gpu/g1:3", sick(5), HOLDS).headline
    assert "is used by Pod team/train" in ask("gpu/g1:2", sick(5), HOLDS).headline


def test_a_gpu_that_is_not_well_says_what_its_node_said() -> None:
    told = event("Node/g1", "GPUUnhealthy", "GPU 5 (GPU-a): Xid 48: double bit ECC error", "node-agent")
    found = ask("gpu/g1:5", sick(5), HOLDS, told)
    assert found.code in ("DEVICE_UNHEALTHY", "GPU_HW_FAULT")
    assert any("Xid 48" in line for line in found.evidence)
    assert ask("gpu/g1:3", sick(5), HOLDS, told).code == "NONE"


def test_a_gpu_of_a_node_that_takes_no_pods() -> None:
    assert ask("gpu/g1:0", node("g1", 8, cordoned=True)).code == "NODE_UNSCHEDULABLE"


@pytest.mark.parametrize("name", ["g1:8", "g1", "g2:0", "g1:x"])
def test_gpus_that_do_not_exist(name: str) -> None:
    with pytest.raises(InputError, match="there is no gpu/"):
        ask(f"gpu/{name}", node("g1", 8))


@pytest.mark.parametrize("name", ["frist", "first-x"])
def test_similar_names_of_the_kind_are_offered(name: str) -> None:
    with pytest.raises(InputError, match=f"there is no pod/{name} in the cluster") as raised:
        ask(f"pod/{name}", node("frist", 8), pod("first-x7k2p", 1))
    assert raised.value.remedy == "did you mean pod/first-x7k2p"
