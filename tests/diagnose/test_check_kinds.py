"""`check` says what `plan` will refuse: kinds and fields that Windlass doesn't read, and folders with odd files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from windlass.cli.main import cli
from windlass.model.unstructured import Unstructured

TEMPLATE: Unstructured = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}


def obj(api: str, kind: str, spec: Unstructured | None = None, **metadata: Any) -> Unstructured:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "x", **metadata}, "spec": spec or {}}


def check(folder: Path, *objects: Unstructured, options: tuple[str, ...] = ()) -> Result:
    for number, one in enumerate(objects):
        (folder / f"{number}.json").write_text(json.dumps(one))
    return CliRunner().invoke(cli, ["check", "-f", str(folder), "-o", "json", *options])


def findings(result: Result) -> list[tuple[str, str, str]]:
    """Rule, level and path."""
    return [(one["rule"], one["level"], one["path"]) for one in json.loads(result.stdout)["findings"]]


@pytest.mark.parametrize(
    ("api", "kind"),
    [
        ("argoproj.io/v1alpha1", "Workflow"),
        ("production-stack.vllm.ai/v1alpha1", "VLLMRuntime"),
        ("sparkoperator.k8s.io/v1beta2", "ScheduledSparkApplication"),
        ("serving.kserve.io/v1beta1", "InferenceService"),
    ],
)
def test_a_kind_that_makes_pods_and_is_not_read(api: str, kind: str, tmp_path: Path) -> None:
    result = check(tmp_path, obj(api, kind))
    assert ("understood", "error", "kind") in findings(result)
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("api", "kind"),
    [
        ("kueue.x-k8s.io/v1beta1", "AdmissionCheck"),
        ("kueue.x-k8s.io/v1beta1", "ProvisioningRequestConfig"),
        ("topology.volcano.sh/v1alpha1", "HyperNode"),
    ],
)
def test_a_kind_of_which_nothing_is_read(api: str, kind: str, tmp_path: Path) -> None:
    assert findings(check(tmp_path, obj(api, kind))) == [("understood", "warning", "kind")]


def test_a_native_workload_is_a_template(tmp_path: Path) -> None:
    made = obj("scheduling.k8s.io/v1beta1", "Workload", {"podGroupTemplates": [{"name": "a"}]})
    assert findings(check(tmp_path, made)) == [("understood", "info", "kind")]


@pytest.mark.parametrize(
    ("made", "path"),
    [
        (
            obj(
                "jobset.x-k8s.io/v1alpha2",
                "JobSet",
                {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": TEMPLATE}}}]},
                annotations={"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"},
            ),
            "metadata.annotations.alpha.jobset.sigs.k8s.io/exclusive-topology",
        ),
        (
            obj(
                "leaderworkerset.x-k8s.io/v1",
                "LeaderWorkerSet",
                {"leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}},
                annotations={"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"},
            ),
            "metadata.annotations.leaderworkerset.sigs.k8s.io/exclusive-topology",
        ),
        (
            obj(
                "batch.volcano.sh/v1alpha1",
                "Job",
                {
                    "minAvailable": 1,
                    "tasks": [{"name": "t", "replicas": 2, "template": TEMPLATE}],
                    "networkTopology": {"mode": "hard"},
                },
            ),
            "spec.networkTopology",
        ),
        (obj("batch/v1", "Job", {"parallelism": -1, "template": TEMPLATE}), "spec.parallelism"),
        (
            obj("batch/v1", "Job", {"template": {"spec": {**TEMPLATE["spec"], "resourceClaims": [{"name": "gpu"}]}}}),
            "spec.template.spec.resourceClaims",
        ),
        (
            obj("v1", "Pod", {**TEMPLATE["spec"], "workloadRef": {"name": "w", "podGroup": "g"}}),
            "spec.workloadRef",
        ),
    ],
)
def test_what_plan_will_refuse(made: Unstructured, path: str, tmp_path: Path) -> None:
    result = check(tmp_path, made)
    assert ("understood", "error", path) in findings(result)


@pytest.mark.parametrize(
    "made",
    [
        obj("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"name": "t", "replicas": 2, "template": TEMPLATE}]}),
        obj("ray.io/v1", "RayService", {"rayClusterConfig": {"headGroupSpec": {"template": TEMPLATE}}}),
        obj("batch/v1", "CronJob", {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}}),
        obj("scheduling.run.ai/v2", "Queue", {"resources": {"gpu": {"quota": 1, "limit": -1}}}),
    ],
)
def test_what_is_read_is_no_error(made: Unstructured, tmp_path: Path) -> None:
    assert not [one for one in findings(check(tmp_path, made)) if one[1] == "error"]


class TestQueues:
    def cluster_queue(self, name: str, gpus: str, **more: Any) -> Unstructured:
        cell = {"name": "nvidia.com/gpu", "nominalQuota": gpus, **more.pop("cell", {})}
        group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "f", "resources": [cell]}]}
        spec = {"resourceGroups": [group], "namespaceSelector": {}, **more}
        return {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": spec,
        }

    def others(self) -> list[Unstructured]:
        api = "kueue.x-k8s.io/v1beta2"
        local = {"apiVersion": api, "kind": "LocalQueue", "metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}}
        return [local, {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": "f"}}]

    def job(self, **annotations: str) -> Unstructured:
        labels = {"kueue.x-k8s.io/queue-name": "lq"}
        spec = {"parallelism": 4, "completions": 4, "template": TEMPLATE, "suspend": True}
        return obj("batch/v1", "Job", spec, labels=labels, annotations=annotations)

    def admits(self, folder: Path, *objects: Unstructured) -> bool:
        return "queue-admits" not in {rule for rule, _, _ in findings(check(folder, *objects))}

    def test_a_job_that_may_start_smaller(self, tmp_path: Path) -> None:
        queues = [self.cluster_queue("cq", "2"), *self.others()]
        assert not self.admits(tmp_path, self.job(), *queues)
        assert self.admits(tmp_path, self.job(**{"kueue.x-k8s.io/job-min-parallelism": "2"}), *queues)

    def test_a_cohort_that_lends_nothing(self, tmp_path: Path) -> None:
        mine = self.cluster_queue("cq", "2", cohortName="c")
        kept = self.cluster_queue("other", "8", cohortName="c", cell={"lendingLimit": "0"})
        assert not self.admits(tmp_path, self.job(), mine, kept, *self.others())
        lends = self.cluster_queue("other", "8", cohortName="c", cell={"lendingLimit": "2"})
        assert self.admits(tmp_path, self.job(), mine, lends, *self.others())

    def test_a_queue_that_only_lends_needs_no_selector(self, tmp_path: Path) -> None:
        queue = self.cluster_queue("cq", "2")
        del queue["spec"]["namespaceSelector"]
        rule = "cluster-queue-admits-namespaces"
        assert (rule, "info", "spec") in findings(check(tmp_path, queue))
        assert (rule, "warning", "spec") in findings(check(tmp_path, queue, *self.others()))


def test_a_native_group_whose_other_pods_come_from_elsewhere(tmp_path: Path) -> None:
    group = obj("scheduling.k8s.io/v1beta1", "PodGroup", {"schedulingPolicy": {"gang": {"minCount": 4}}})
    pod = obj("v1", "Pod", {**TEMPLATE["spec"], "schedulingGroup": {"podGroupName": "x"}})
    assert [one for one in findings(check(tmp_path, group, pod)) if one[0] == "gang-complete"] == [
        ("gang-complete", "warning", "spec.schedulingPolicy.gang.minCount")
    ]


def test_a_file_of_a_folder_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("{{ if .Values.x }}\nkind: Pod\n")
    result = check(tmp_path, obj("argoproj.io/v1alpha1", "Workflow"))
    assert {rule for rule, _, _ in findings(result)} == {"readable", "understood"}
    assert result.exit_code == 1


def test_a_configuration_without_a_cluster(tmp_path: Path) -> None:
    config = tmp_path.parent / f"{tmp_path.name}-config.yaml"
    config.write_text("apiVersion: windlass.dev/v1\nkind: SchedulerConfiguration\n")
    result = check(tmp_path, obj("v1", "ConfigMap"), options=("--config", str(config)))
    assert result.exit_code == 0, result.output
