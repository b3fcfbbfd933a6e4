"""Work that no rule about gangs, schedulers or owners should call ill: plain Jobs, stopped Deployments, quotas."""

from __future__ import annotations

import pytest
from tests.diagnose.objects import GPU, NOW, YOUNG, ask, event, evidence, node, pod, thing

from windlass.diagnose.doctor.cluster import examine_cluster
from windlass.diagnose.survey import survey
from windlass.model.unstructured import Unstructured

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
    assert "wants no pods (replicas: 0)" in found.headline


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


@pytest.mark.parametrize(
    ("said", "code", "headline"),
    [
        (
            'pods "x" is forbidden: failed quota: compute: must specify requests.cpu for: main',
            "RESOURCE_QUOTA_EXCEEDED",
            "compute: must specify requests.cpu for: main — set what the message names",
        ),
        (
            'pods "x" is forbidden: pod rejected: RuntimeClass "nvidia" not found',
            "RUNTIME_NOT_CONFIGURED",
            'untimeClass "nvidia" not found — create what the message names',
        ),
    ],
)
def test_a_refusal_is_said_in_its_own_words(said: str, code: str, headline: str) -> None:
    job = thing("Job", "x", {"template": TEMPLATE}, version="batch/v1")
    found = ask("job/x", node("n", 1), job, event("Job/x", "FailedCreate", f"Error creating: {said}"))
    assert found.code == code
    assert headline in found.headline
