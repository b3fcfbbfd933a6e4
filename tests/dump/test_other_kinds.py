"""Manifests of other projects, added to a cluster as if just submitted: understood, or held by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.engine.plain_objects import NOW, node

from windlass.dump.cluster_loader import load_cluster
from windlass.model.configuration import Settings
from windlass.model.plan import Plan
from windlass.model.times import parse_timestamp
from windlass.model.unstructured import Unstructured
from windlass.planner import plan_objects

GPU = "nvidia.com/gpu"
TEMPLATE: Unstructured = {"spec": {"containers": [{"name": "c", "resources": {"limits": {GPU: "1"}}}]}}
CPU_TEMPLATE: Unstructured = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}


def obj(api: str, kind: str, spec: Unstructured, **metadata: Any) -> Unstructured:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "x", **metadata}, "spec": spec}


def submitted(folder: Path, *objects: Unstructured, gpus: int = 8) -> tuple[Plan, tuple[str, ...]]:
    dump, manifests = folder / "dump.json", folder / "manifests"
    manifests.mkdir(exist_ok=True)
    dump.write_text(json.dumps(node("n1", gpus)))
    for number, one in enumerate(objects):
        (manifests / f"{number}.json").write_text(json.dumps(one))
    loaded = load_cluster(dump, [manifests])
    plan, notes = plan_objects(loaded.objects, Settings(), parse_timestamp(NOW))
    return plan, (*loaded.notes, *notes)


def placed(plan: Plan) -> dict[str, int]:
    """Pod set → pods that start."""
    counts: dict[str, int] = {}
    for admit in plan.admits:
        for part in admit.pod_sets:
            counts[part.name] = counts.get(part.name, 0) + sum(part.nodes.values())
    return counts


@pytest.mark.parametrize(
    ("api", "kind"),
    [
        ("apps.nvidia.com/v1alpha1", "NemoCustomizer"),
        ("argoproj.io/v1alpha1", "Workflow"),
        ("production-stack.vllm.ai/v1alpha1", "VLLMRuntime"),
        ("example.com/v1", "Trainer"),
    ],
)
def test_a_kind_that_is_not_read_is_held_by_name(api: str, kind: str, tmp_path: Path) -> None:
    spec = {"template": TEMPLATE} if kind == "Trainer" else {}
    plan, notes = submitted(tmp_path, obj(api, kind, spec))
    (hold,) = plan.holds
    assert (hold.workload, hold.verdict.code) == ("default/x", "NOT_IMPLEMENTED")
    assert f"{kind} ({api})" in hold.verdict.detail
    assert any(note.startswith(f"{kind} default/x") for note in notes)


@pytest.mark.parametrize("kind", ["AdmissionCheck", "ProvisioningRequestConfig"])
def test_a_kind_of_which_nothing_is_read_is_noted(kind: str, tmp_path: Path) -> None:
    plan, notes = submitted(tmp_path, obj("kueue.x-k8s.io/v1beta1", kind, {}))
    assert not plan.holds
    assert any("not implemented" in note for note in notes)


class TestRay:
    HEAD = {"headGroupSpec": {"template": CPU_TEMPLATE}}

    def cluster(self, **group: Any) -> Unstructured:
        return {**self.HEAD, "workerGroupSpecs": [{"groupName": "w", "template": TEMPLATE, **group}]}

    def job(self, **more: Any) -> Unstructured:
        return obj("ray.io/v1", "RayJob", {"rayClusterSpec": self.cluster(replicas=4), **more})

    def test_the_pod_that_submits_a_job_counts(self, tmp_path: Path) -> None:
        plan, _ = submitted(tmp_path, self.job())
        assert placed(plan) == {"headgroup": 1, "w": 4, "submitter": 1}

    @pytest.mark.parametrize("mode", ["HTTPMode", "InteractiveMode", "SidecarMode"])
    def test_unless_there_is_none(self, mode: str, tmp_path: Path) -> None:
        plan, _ = submitted(tmp_path, self.job(submissionMode=mode))
        assert "submitter" not in placed(plan)

    def test_a_job_in_a_cluster_that_exists_has_that_pod_alone(self, tmp_path: Path) -> None:
        plan, _ = submitted(tmp_path, obj("ray.io/v1", "RayJob", {"clusterSelector": {"ray.io/cluster": "c"}}))
        assert placed(plan) == {"submitter": 1}

    @pytest.mark.parametrize(
        ("group", "workers"),
        [
            ({}, 0),
            ({"minReplicas": 2}, 2),
            ({"replicas": 1, "minReplicas": 2}, 2),
            ({"replicas": 5, "maxReplicas": 3}, 3),
            ({"replicas": 3, "suspend": True}, 0),
            ({"replicas": 2, "numOfHosts": 2}, 4),
        ],
    )
    def test_the_size_of_a_group(self, group: Unstructured, workers: int, tmp_path: Path) -> None:
        plan, _ = submitted(tmp_path, obj("ray.io/v1", "RayCluster", self.cluster(**group)))
        assert placed(plan).get("w", 0) == workers

    def test_a_service_is_the_cluster_that_it_makes(self, tmp_path: Path) -> None:
        service = obj("ray.io/v1", "RayService", {"rayClusterConfig": self.cluster(replicas=4)})
        plan, _ = submitted(tmp_path, service)
        assert placed(plan) == {"headgroup": 1, "w": 4}
        plan, _ = submitted(tmp_path, service, gpus=3)
        assert not plan.admits

    def test_with_its_cluster_it_is_not_counted_twice(self, tmp_path: Path) -> None:
        service = obj("ray.io/v1", "RayService", {"rayClusterConfig": self.cluster(replicas=4)})
        reference = {"apiVersion": "ray.io/v1", "kind": "RayService", "name": "x", "controller": True}
        made = obj("ray.io/v1", "RayCluster", self.cluster(replicas=4), name="x-abc", ownerReferences=[reference])
        plan, _ = submitted(tmp_path, service, made)
        assert [admit.workload for admit in plan.admits] == ["default/x-abc"]


class TestTrainJob:
    def runtime(self, kind: str = "ClusterTrainingRuntime") -> Unstructured:
        node_job = {
            "name": "node",
            "template": {
                "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                "spec": {"template": {"spec": {"containers": [{"name": "node"}]}}},
            },
        }
        spec = {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [node_job]}}}
        return obj("trainer.kubeflow.org/v1alpha1", kind, spec, name="torch")

    def job(self, kind: str = "ClusterTrainingRuntime", **trainer: Any) -> Unstructured:
        spec = {"runtimeRef": {"name": "torch", "kind": kind}, "trainer": trainer}
        return obj("trainer.kubeflow.org/v1alpha1", "TrainJob", spec)

    @pytest.mark.parametrize("kind", ["ClusterTrainingRuntime", "TrainingRuntime"])
    def test_has_the_pods_of_its_runtime(self, kind: str, tmp_path: Path) -> None:
        plan, _ = submitted(tmp_path, self.runtime(kind), self.job(kind))
        assert placed(plan) == {"node": 1}

    @pytest.mark.parametrize(("gpus", "starts"), [(8, 4), (7, 0)])
    def test_with_its_own_size_and_resources(self, gpus: int, starts: int, tmp_path: Path) -> None:
        trainer = {"numNodes": 4, "resourcesPerNode": {"limits": {GPU: "2"}}}
        plan, _ = submitted(tmp_path, self.runtime(), self.job(**trainer), gpus=gpus)
        assert placed(plan).get("node", 0) == starts

    def test_a_runtime_that_does_not_exist_is_named(self, tmp_path: Path) -> None:
        plan, _ = submitted(tmp_path, self.job())
        assert "ClusterTrainingRuntime torch doesn't exist" in plan.holds[0].verdict.detail

    def test_a_runtime_alone_makes_nothing(self, tmp_path: Path) -> None:
        plan, _ = submitted(tmp_path, self.runtime())
        assert (plan.admits, plan.holds) == ((), ())


class TestVolcanoJob:
    def job(self, **more: Any) -> Unstructured:
        tasks = [
            {"name": "lead", "replicas": 1, "template": TEMPLATE},
            {"name": "work", "replicas": 3, "template": TEMPLATE},
        ]
        return obj("batch.volcano.sh/v1alpha1", "Job", {"tasks": tasks, **more})

    @pytest.mark.parametrize(("gpus", "starts"), [(4, {"lead": 1, "work": 3}), (3, {})])
    def test_starts_whole(self, gpus: int, starts: dict[str, int], tmp_path: Path) -> None:
        plan, _ = submitted(tmp_path, self.job(), gpus=gpus)
        assert placed(plan) == starts

    def test_with_its_minimum(self, tmp_path: Path) -> None:
        plan, _ = submitted(tmp_path, self.job(minAvailable=2), gpus=3)
        assert sum(placed(plan).values()) == 3

    def test_in_its_queue(self, tmp_path: Path) -> None:
        queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "team"}}
        queue["spec"] = {"capability": {GPU: "3"}}
        plan, _ = submitted(tmp_path, self.job(queue="team"), queue)
        assert [hold.verdict.code for hold in plan.holds] == ["KUEUE_QUOTA_INSUFFICIENT"]

    def test_in_a_queue_that_does_not_exist(self, tmp_path: Path) -> None:
        plan, _ = submitted(tmp_path, self.job(queue="gone"))
        assert "Queue.scheduling.volcano.sh gone doesn't exist" in plan.holds[0].verdict.detail

    def test_is_not_kubernetes_own_of_the_same_name(self, tmp_path: Path) -> None:
        own = obj("batch/v1", "Job", {"parallelism": 2, "template": TEMPLATE})
        plan, _ = submitted(tmp_path, self.job(), own)
        assert sum(placed(plan).values()) == 6


def test_a_cron_job_is_the_job_that_it_makes(tmp_path: Path) -> None:
    spec = {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"parallelism": 2, "template": TEMPLATE}}}
    plan, _ = submitted(tmp_path, obj("batch/v1", "CronJob", spec))
    assert placed(plan) == {"main": 2}
    plan, _ = submitted(tmp_path, obj("batch/v1", "CronJob", {**spec, "suspend": True}))
    assert (plan.admits, plan.holds) == ((), ())


def test_a_replication_controller(tmp_path: Path) -> None:
    plan, _ = submitted(tmp_path, obj("v1", "ReplicationController", {"replicas": 2, "template": TEMPLATE}))
    assert placed(plan) == {"main": 2}


def test_a_spark_application_has_the_memory_that_its_operator_asks_for(tmp_path: Path) -> None:
    executor = {"instances": 2, "cores": 1, "memory": "100g", "gpu": {"name": GPU, "quantity": 1}}
    spec = {"type": "Python", "driver": {"cores": 1, "memory": "1g"}, "executor": executor}
    plan, _ = submitted(tmp_path, obj("sparkoperator.k8s.io/v1beta2", "SparkApplication", spec))
    assert not plan.admits, "1.4 times 200 GiB are more than the node's 256"
    plan, _ = submitted(tmp_path, obj("sparkoperator.k8s.io/v1beta2", "SparkApplication", {**spec, "type": "Scala"}))
    assert placed(plan) == {"driver": 1, "executor": 2}


class TestAppWrapper:
    def wrapper(self, *components: Unstructured) -> Unstructured:
        return obj("workload.codeflare.dev/v1beta2", "AppWrapper", {"components": list(components)})

    def test_all_that_is_in_it_starts_together(self, tmp_path: Path) -> None:
        job = obj("batch/v1", "Job", {"parallelism": 2, "template": TEMPLATE}, name="inside")
        declared = {
            "podSets": [{"replicas": 3, "path": "template.spec.pods"}],
            "template": {"apiVersion": "example.com/v1", "kind": "Own", "spec": {"pods": TEMPLATE}},
        }
        service = obj("v1", "Service", {"ports": []}, name="beside")
        wrapper = self.wrapper({"template": job}, declared, {"template": service})
        plan, _ = submitted(tmp_path, wrapper, gpus=5)
        assert sum(placed(plan).values()) == 5
        plan, _ = submitted(tmp_path, wrapper, gpus=4)
        assert not plan.admits

    @pytest.mark.parametrize(
        ("leaders", "workers", "pods"), [(2, 3, 6), (2, 4, 6), (3, 4, 7), (2, None, 6), (0, 0, 6), (3, 3, 6)]
    )
    def test_no_pod_that_its_kind_makes_is_left_out(
        self, leaders: int, workers: int | None, pods: int, tmp_path: Path
    ) -> None:
        """Two groups of three pods: what is declared may be more, but not less, or the rest would pass the quota by."""
        lead = {"spec": {"containers": [{**TEMPLATE["spec"]["containers"][0], "name": "lead"}]}}
        spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "leaderTemplate": lead, "workerTemplate": TEMPLATE}}
        inside = obj("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec, name="inside")
        counts = {"leaderTemplate": leaders, "workerTemplate": workers}
        declared = [
            {"replicas": count, "path": f"template.spec.leaderWorkerTemplate.{name}"}
            for name, count in counts.items()
            if count is not None
        ]
        wrapper = self.wrapper({"podSets": declared, "template": inside})
        plan, _ = submitted(tmp_path, wrapper, gpus=pods)
        assert sum(placed(plan).values()) == pods
        plan, _ = submitted(tmp_path, wrapper, gpus=pods - 1)
        assert not plan.admits

    def test_of_nothing_that_makes_pods(self, tmp_path: Path) -> None:
        plan, _ = submitted(tmp_path, self.wrapper({"template": obj("example.com/v1", "Own", {})}))
        assert [hold.verdict.code for hold in plan.holds] == ["NOT_IMPLEMENTED"]


@pytest.mark.parametrize(
    ("api", "kind", "annotation", "spec"),
    [
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            "alpha.jobset.sigs.k8s.io/exclusive-topology",
            {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": TEMPLATE}}}]},
        ),
        (
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            "leaderworkerset.sigs.k8s.io/exclusive-topology",
            {"leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}},
        ),
    ],
)
def test_exclusive_placement_is_refused_by_name(
    api: str, kind: str, annotation: str, spec: Unstructured, tmp_path: Path
) -> None:
    plan, _ = submitted(tmp_path, obj(api, kind, spec, annotations={annotation: "rack"}))
    assert {hold.verdict.code for hold in plan.holds} == {"NOT_IMPLEMENTED"}
    assert annotation in plan.holds[0].verdict.detail


def test_a_pod_with_a_workload_of_kubernetes_1_35(tmp_path: Path) -> None:
    spec = {**TEMPLATE["spec"], "workloadRef": {"name": "w", "podGroup": "g"}}
    plan, _ = submitted(tmp_path, obj("v1", "Pod", spec), obj("batch/v1", "Job", {"template": {"spec": spec}}))
    assert not plan.binds
    assert {hold.verdict.code for hold in plan.holds} == {"NOT_IMPLEMENTED"}


def test_a_share_for_a_container_that_does_not_exist(tmp_path: Path) -> None:
    annotations = {"gpu-fraction": "0.5", "gpu-fraction-container-name": "d"}
    plan, _ = submitted(tmp_path, obj("v1", "Pod", CPU_TEMPLATE["spec"], annotations=annotations))
    assert [hold.verdict.code for hold in plan.holds] == ["INVALID_OBJECT"]
    plan, _ = submitted(
        tmp_path,
        obj("v1", "Pod", CPU_TEMPLATE["spec"], annotations={**annotations, "gpu-fraction-container-name": "c"}),
    )
    assert len(plan.binds) == 1


class TestATemplateThatNamesAPodGroup:
    """The pods that an owner will make belong to the group that its template names."""

    def job(self) -> Unstructured:
        spec = {**TEMPLATE["spec"], "schedulingGroup": {"podGroupName": "g"}}
        return obj("batch/v1", "Job", {"parallelism": 4, "completions": 4, "template": {"spec": spec}})

    def group(self, minimum: int) -> Unstructured:
        policy = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
        return obj("scheduling.k8s.io/v1beta1", "PodGroup", policy, name="g")

    @pytest.mark.parametrize(("minimum", "gpus", "starts"), [(4, 3, 0), (4, 4, 4), (2, 3, 3), (2, 1, 0)])
    def test_starts_with_its_minimum(self, minimum: int, gpus: int, starts: int, tmp_path: Path) -> None:
        plan, _ = submitted(tmp_path, self.job(), self.group(minimum), gpus=gpus)
        assert placed(plan).get("main", 0) == starts

    def test_that_does_not_exist(self, tmp_path: Path) -> None:
        plan, _ = submitted(tmp_path, self.job())
        assert "PodGroup g (scheduling.k8s.io) doesn't exist" in plan.holds[0].verdict.detail
