"""Work that no rule about gangs, schedulers or owners should call ill: plain Jobs, stopped Deployments, quotas."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.diagnose.objects import GPU, GPU_TAINT, NOW, YOUNG, ask, event, evidence, node, pod, thing

from windlass.cli.why_survey import survey_text
from windlass.diagnose.check.all_rules import RULES
from windlass.diagnose.check.manifest import STDIN, read_manifests
from windlass.diagnose.check.rule import CheckFinding, check_all
from windlass.diagnose.doctor.cluster import examine_cluster
from windlass.diagnose.evidence import load_evidence
from windlass.diagnose.subject import ALIASES
from windlass.diagnose.survey import survey
from windlass.dump.collect import DIAGNOSIS_KINDS
from windlass.kube.resources import WATCHED_KINDS
from windlass.model.errors import InputError
from windlass.model.unstructured import Unstructured

HOST = "kubernetes.io/hostname"
TEMPLATE = {"spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: "1"}}}]}}


def parallel_job(name: str, running: int, waiting: int, **spec: object) -> list[Unstructured]:
    count = running + waiting
    job = thing(
        "Job", name, {"parallelism": count, "completions": count, "template": TEMPLATE, **spec}, version="batch/v1"
    )
    places = ["n"] * running + [""] * waiting
    return [job, *(pod(f"{name}-{i}", 1, on=on, owner=("Job", name)) for i, on in enumerate(places))]


def test_a_parallel_job_with_more_pods_than_gpus_only_waits() -> None:
    found = ask("job/par", node("n", 4), *parallel_job("par", 4, 1))
    assert (found.code, found.state) == ("GPU_FULL", "waiting"), found.headline


def test_two_parallel_jobs_that_run_in_part_are_no_deadlock() -> None:
    found = ask("job/a", node("n", 2), *parallel_job("a", 1, 1), *parallel_job("b", 1, 1))
    assert found.code == "GPU_FULL", found.headline


def test_indexed_jobs_of_ranks_may_be_a_deadlock() -> None:
    jobs = (parallel_job(name, 1, 1, completionMode="Indexed") for name in "ab")
    assert ask("job/a", node("n", 2), *(tree for job in jobs for tree in job)).code == "GANG_DEADLOCK"


@pytest.mark.parametrize("free", [0, 1])
def test_a_scheduler_that_nobody_has_heard_of_is_no_wait_for_gpus(free: int) -> None:
    young = pod("asked", 1, spec={"schedulerName": "volcano"})
    young["metadata"] |= {"uid": "u-asked", "creationTimestamp": YOUNG}
    lease = thing("Lease", "windlass", {}, "coordination.k8s.io/v1", namespace="windlass-system")
    found = ask("pod/asked", node("n", 1), lease, *([] if free else [pod("other", 1, on="n")]), young)
    assert found.code == "WRONG_SCHEDULER", found.headline


# Deployments that want no pods


@pytest.mark.parametrize("gpus", [1, 0])
def test_a_deployment_of_no_replicas_is_well(gpus: int) -> None:
    owner = thing("Deployment", "off", {"replicas": 0, "template": TEMPLATE})
    found = ask("deploy/off", node("n", gpus), owner)
    assert found.code == "NONE", found.headline


@pytest.mark.parametrize("gpus", [1, 0])
def test_a_paused_deployment_is_resumed(gpus: int) -> None:
    owner = thing("Deployment", "off", {"replicas": 1, "paused": True, "template": TEMPLATE})
    found = ask("deploy/off", node("n", gpus), owner)
    assert "paused" in found.headline, found.headline
    assert "kubectl rollout resume -n team deployment/off" in found.headline


# Quotas

OTHER_KEYS = ("count/jobs.batch", "count/pods", "gold.storageclass.storage.k8s.io/requests.storage")


@pytest.mark.parametrize("key", OTHER_KEYS)
def test_a_quota_of_objects_or_storage_has_an_effect(key: str) -> None:
    quota = thing("ResourceQuota", "all", {"hard": {key: "1"}}, version="v1")
    assert ask("resourcequota/all", node("n", 1), quota).code == "NONE"
    assert not survey(evidence([node("n", 1), quota]), "", NOW).entries
    assert "quota-key" not in [symptom.check for symptom in examine_cluster(evidence([node("n", 1), quota]), NOW)]


def test_a_runtime_class_that_does_not_exist_is_named() -> None:
    said = 'Error creating: pods "x" is forbidden: pod rejected: RuntimeClass "nvidia" not found'
    job = thing("Job", "x", {"template": TEMPLATE}, version="batch/v1")
    found = ask("job/x", node("n", 1), job, event("Job/x", "FailedCreate", said))
    assert found.code == "RUNTIME_NOT_CONFIGURED"
    assert 'untimeClass "nvidia" not found — create what the message names' in found.headline


# CronJobs


def cron_job() -> Unstructured:
    """With an uid, as the API server gives one; without, it would be a manifest."""
    spec = {"schedule": "@daily", "jobTemplate": {"spec": {"template": TEMPLATE}}}
    found = thing("CronJob", "nightly", spec, "batch/v1")
    found["metadata"]["uid"] = "u-nightly"
    return found


def test_a_cron_job_whose_jobs_are_refused() -> None:
    said = 'Error creating job: jobs.batch "nightly-1" is forbidden: exceeded quota: jobs, used: count/jobs.batch=1'
    trees = [node("n", 1), cron_job(), event("CronJob/nightly", "FailedCreate", said)]
    trees[-1]["type"] = "Warning"
    assert ask("cronjob/nightly", *trees).code == "RESOURCE_QUOTA_EXCEEDED"
    assert [entry.subjects for entry in survey(evidence(trees), "", NOW).entries] == [("CronJob team/nightly",)]


def test_a_cron_job_between_two_runs_is_well() -> None:
    assert ask("cj/nightly", node("n"), cron_job()).code == "NONE"
    assert not survey(evidence([node("n"), cron_job(), pod("p", on="n")]), "", NOW).entries


def test_a_job_of_a_cron_job_whose_pods_are_refused() -> None:
    job = thing("Job", "nightly-1", {"template": TEMPLATE}, "batch/v1", owner=("CronJob", "nightly"))
    said = 'Error creating: pods "x" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1'
    trees = [node("n", 1), cron_job(), job, event("Job/nightly-1", "FailedCreate", said)]
    assert [entry.subjects for entry in survey(evidence(trees), "", NOW).entries] == [("Job team/nightly-1",)]


def test_every_kind_that_can_be_asked_about_by_a_short_name_is_collected() -> None:
    collected = {kind.kind for kind in (*WATCHED_KINDS, *DIAGNOSIS_KINDS)}
    assert set(ALIASES.values()) <= collected


# Evidence without objects


def test_nothing_is_known_of_no_objects() -> None:
    with pytest.raises(InputError, match="no object"):
        survey(evidence([]), "", NOW)


def test_nothing_needs_you_is_not_said_without_pods() -> None:
    found = survey(evidence([node("n", 1)]), "", NOW)
    assert not found.has_pods
    text = survey_text(found, NOW, False)
    assert "nothing that is known needs you" in text
    assert "no pods in the evidence" in text


# GPUs that an entry of the survey holds up


def held_up(*trees: Unstructured) -> int:
    (entry,) = survey(evidence(trees), "", NOW).entries
    return entry.gpus


def test_pods_of_a_deployment_that_run_are_not_held_up() -> None:
    template = {**TEMPLATE, "metadata": {"labels": {"app": "web"}}}
    owner = thing("Deployment", "web", {"replicas": 5, "template": template})
    owner["status"] = {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2}
    replicas = thing("ReplicaSet", "web-1", {"replicas": 5, "template": template}, owner=("Deployment", "web"))
    pods = [pod(f"web-1-{i}", 1, on="n", owner=("ReplicaSet", "web-1")) for i in range(2)]
    said = 'Error creating: pods "x" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1'
    ended = pod("web-1-9", 1, on="n", owner=("ReplicaSet", "web-1"), phase="Failed")
    trees = [node("n", 8), owner, replicas, *pods, ended, event("ReplicaSet/web-1", "FailedCreate", said)]
    trees[-1]["type"] = "Warning"
    assert held_up(*trees) == 3


def test_all_waiting_pods_of_a_group_are_held_up() -> None:
    labels = {"kueue.x-k8s.io/pod-group-name": "llm"}
    total = {"kueue.x-k8s.io/pod-group-total-count": "5"}
    pods = [pod(f"llm-{i}", 8, labels=labels, annotations=total) for i in range(3)]
    assert held_up(node("n", 8), *pods) == 24


# Sentences about nodes


def test_a_selector_that_matches_only_nodes_with_other_devices() -> None:
    shared = node("t4", {"nvidia.com/gpu.shared": 4})
    found = ask("pod/asked", node("h1", 8), shared, pod("asked", 1, spec={"nodeSelector": {HOST: "t4"}}))
    assert found.code == "SELECTOR_MISMATCH"
    assert "matches only nodes without nvidia.com/gpu: t4 has nvidia.com/gpu.shared" in found.headline
    assert "ask for what the selected nodes have" in found.headline


def test_nodes_that_the_pod_does_not_select_are_no_matching_nodes() -> None:
    nodes = [node("a", 8, cordoned=True), node("b", 8, cordoned=True)]
    found = ask("pod/asked", *nodes, pod("asked", 1, spec={"nodeSelector": {HOST: "a"}}))
    assert "1 matching node takes no pods: a is cordoned" in found.headline


def test_more_local_disk_than_any_node_has_is_not_used_up() -> None:
    limits = {"ephemeral-storage": "5Ti", GPU: "1"}
    asked = pod("asked", spec={"containers": [{"name": "c", "resources": {"limits": limits}}]})
    found = ask("pod/asked", node("a", 8), asked)
    assert found.code == "EPHEMERAL_STORAGE"
    assert "requested: 5Ti ephemeral-storage (the node has 500Gi) — ask for no more" in found.headline


def test_the_emptiest_of_equal_nodes_is_the_nearest_and_its_patch_comes_first() -> None:
    found = ask("pod/asked", node("a", 8), node("b", 8), pod("other", 6, on="a"), pod("asked", 16))
    assert "nearest is b" in found.headline
    assert [row.name for row in found.nodes] == ["b", "a"]
    assert found.patches[0].what == "ask for 8 nvidia.com/gpu"


def test_the_budget_that_keeps_a_pod_of_higher_priority_waiting() -> None:
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    runs = pod(
        "low", 8, on="n", spec={"priority": -1}, labels={"app": "low"}, status=status, owner=("ReplicaSet", "low")
    )
    selector = {"matchLabels": {"app": "low"}}
    budget = thing("PodDisruptionBudget", "keep", {"minAvailable": 1, "selector": selector}, "policy/v1")
    found = ask("pod/asked", node("n", 8), runs, budget, pod("asked", 8, spec={"priority": 1000}))
    assert found.code == "GPU_FULL"
    assert any(line.startswith("PodDisruptionBudget team/keep doesn't allow") for line in found.evidence), (
        found.evidence
    )


# Queues


@pytest.mark.parametrize("question", ["cq/all", "clusterqueue/all"])
def test_what_waits_in_a_queue_is_what_its_status_counts(question: str) -> None:
    queue = thing("ClusterQueue", "all", {}, "kueue.x-k8s.io/v1beta2", namespace="", status={"pendingWorkloads": 6})
    assert "6 workloads wait in it" in ask(question, node("n", 1), queue).headline


# Doctor


def test_nodes_of_a_pool_are_compared_by_model() -> None:
    def made(name: str, gpus: int, model: str) -> Unstructured:
        labels = {"nvidia.com/gpu.product": model, "nvidia.com/gpu.count": str(gpus), POOL: "lab"}
        return node(name, gpus, labels=labels)

    machines = [made("a", 8, "H100"), made("b", 8, "H100"), made("t", 4, "T4")]
    assert "gpus-per-node" not in [found.check for found in examine_cluster(evidence(machines), NOW)]
    broken = [*machines, made("c", 7, "H100")]
    found = {symptom.check: symptom for symptom in examine_cluster(evidence(broken), NOW)}
    assert (found["gpus-per-node"].where, found["gpus-per-node"].saw) == ("c", SAW)


POOL, SAW = "nvidia.com/gpu.machine", "has 7 GPUs; most nodes of its pool have 8"


# Check


def checked(tmp_path: Path, text: str, *cluster: Unstructured) -> list[CheckFinding]:
    (tmp_path / "dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": cluster}))
    return check_all(read_manifests([STDIN], text), load_evidence(tmp_path / "dump.json"), NOW, frozenset(RULES))


def test_a_group_that_can_not_start_is_reported_once(tmp_path: Path) -> None:
    labels = {"kueue.x-k8s.io/pod-group-name": "llm"}
    total = {"kueue.x-k8s.io/pod-group-total-count": "3"}
    pods = [pod(f"llm-{i}", 8, labels=labels, annotations=total) for i in range(3)]
    for tree in pods:
        del tree["status"], tree["metadata"]["creationTimestamp"]
    found = checked(tmp_path, yaml.safe_dump_all(pods), node("a", 8), node("b", 8))
    said = [finding for finding in found if finding.rule == "fits-now"]
    assert [(one.level, one.object) for one in said] == [("error", "Pod llm-0")]
    assert "only 2 of 3 pods would fit" in said[0].message


def test_a_resource_that_no_node_has_is_no_matter_of_size(tmp_path: Path) -> None:
    asked = pod("asked", 1, resource="nvidia.com/gpus")
    rules = [finding.rule for finding in checked(tmp_path, yaml.safe_dump(asked), node("a", 8))]
    assert "resource-advertised" in rules
    assert "fits-a-node" not in rules


def test_a_taint_does_not_make_nodes_too_small(tmp_path: Path) -> None:
    owner = thing("Deployment", "web", {"replicas": 1, "template": TEMPLATE})
    owner["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    owner["spec"]["template"] = {**TEMPLATE, "metadata": {"labels": {"app": "web"}}}
    found = checked(tmp_path, yaml.safe_dump(owner), node("a", 8, taints=[GPU_TAINT]), node("c"))
    (said,) = [finding for finding in found if finding.rule == "fits-now"]
    assert "TAINT_NOT_TOLERATED" in said.message
    assert "no node is large enough" not in said.message
