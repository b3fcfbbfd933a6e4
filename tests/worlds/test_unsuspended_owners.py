"""Queued owners that nobody has suspended, with the live scheduler: their Workloads hold quota like those of others,
and no more of their pods run than were admitted."""

from __future__ import annotations

import asyncio

import pytest
from tests.scheduler.queued_jobs import QueuedJobs, on_cluster

from windlass.model.names.kueue import MIN_PARALLELISM_ANNOTATION, QUEUE_NAME_LABEL
from windlass.model.unstructured import Unstructured

LABELS = {QUEUE_NAME_LABEL: "q"}


def conditions(cluster: QueuedJobs, name: str) -> dict[str, str]:
    return {found["type"]: found["status"] for found in cluster.workload(name)["status"].get("conditions") or ()}


@pytest.mark.parametrize("pods", [1, 3])
def test_a_job_that_was_created_unsuspended_gets_its_quota_on_record(pods: int) -> None:
    @on_cluster()
    async def test(cluster: QueuedJobs) -> None:
        spec = {"suspend": False, "completions": pods}
        job = cluster.submit("train", pods, spec=spec)
        assert job["spec"]["suspend"] is False
        await asyncio.sleep(10)
        assert conditions(cluster, "train") == {"QuotaReserved": "True", "Admitted": "True"}
        assert cluster.admitted("train") == len(cluster.bound("train")) == pods

    test()


@on_cluster()
async def test_many_at_once_that_were_created_unsuspended(cluster: QueuedJobs) -> None:
    for number in range(12):
        cluster.submit(f"job-{number}", 2, spec={"suspend": False, "completions": 2})
    await asyncio.sleep(30)
    admitted = [number for number in range(12) if cluster.admitted(f"job-{number}")]
    assert len(admitted) == 4
    for number in range(12):
        name = f"job-{number}"
        assert len(cluster.bound(name)) == cluster.admitted(name), name
        assert conditions(cluster, name).get("QuotaReserved") == ("True" if number in admitted else "False"), name


def stateful_set(replicas: int, policy: str) -> Unstructured:
    container = {"name": "main", "image": "serve", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    labels = {"app": "serve", **LABELS}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "serve", "namespace": "team", "labels": LABELS},
        "spec": {
            "serviceName": "serve",
            "replicas": replicas,
            "podManagementPolicy": policy,
            "selector": {"matchLabels": {"app": "serve"}},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_all_pods_of_a_queued_stateful_set_start(policy: str) -> None:
    @on_cluster()
    async def test(cluster: QueuedJobs) -> None:
        cluster.client.create("statefulsets.apps", "team", stateful_set(3, policy))
        await asyncio.sleep(60)
        running = [
            pod["metadata"]["name"] for pod in cluster.client.list("pods") if pod["status"]["phase"] == "Running"
        ]
        assert sorted(running) == ["serve-0", "serve-1", "serve-2"]

    test()


@pytest.mark.parametrize(("others", "minimum", "admitted"), [(5, 2, 3), (6, 3, 0), (0, 2, 4)])
def test_a_job_that_was_created_unsuspended_starts_with_as_many_pods_as_were_admitted(
    others: int, minimum: int, admitted: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It was bound in part, without an admission, and its last pod waited without a word."""

    @on_cluster()
    async def test(cluster: QueuedJobs) -> None:
        if others:
            cluster.submit("other", others)
            await asyncio.sleep(5)
        annotations = {MIN_PARALLELISM_ANNOTATION: str(minimum)}
        cluster.submit("train", 4, spec={"suspend": False, "completions": 4}, annotations=annotations)
        await asyncio.sleep(20)
        assert cluster.admitted("train") == len(cluster.bound("train")) == admitted
        assert conditions(cluster, "train")["QuotaReserved"] == ("True" if admitted else "False")
        assert cluster.job("train")["spec"]["parallelism"] == len(cluster.pods("train")) == (admitted or 4)
        assert "Evicted" not in conditions(cluster, "train")

    test()
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == []
