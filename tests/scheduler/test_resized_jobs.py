"""The size of an admitted Job changes while it runs: its quota follows, and no pod is bound above its admission."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from tests.scheduler.queued_jobs import WORKLOADS, QueuedJobs, on_cluster

from windlass.model.unstructured import Unstructured

ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}


def uids(pods: list[Unstructured]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def waits_for(pod: Unstructured) -> str:
    found = [part for part in pod["status"].get("conditions") or () if part["type"] == "PodScheduled"]
    return str(found[0]["message"]) if found else ""


@on_cluster()
async def test_a_job_that_is_made_smaller_gives_quota_back_once_its_pods_are_gone(cluster: QueuedJobs) -> None:
    cluster.submit("train", 6, pod={"terminationGracePeriodSeconds": 30})
    await asyncio.sleep(10)
    cluster.submit("next", 4)
    await asyncio.sleep(5)
    assert (cluster.admitted("train"), cluster.admitted("next")) == (6, 0)
    kept = uids(cluster.bound("train"))
    cluster.resize("train", 4)
    await asyncio.sleep(100)
    assert (cluster.admitted("train"), cluster.admitted("next")) == (4, 4)
    assert uids(cluster.bound("train")) < kept, "the pods that stay go on"
    assert cluster.usage() == 8
    (part,) = cluster.workload("train")["status"]["admission"]["podSetAssignments"]
    assert part["resourceUsage"] == {"nvidia.com/gpu": "4"}


@on_cluster()
async def test_a_job_that_is_made_larger_is_stopped_and_admitted_again_with_its_new_size(cluster: QueuedJobs) -> None:
    cluster.submit("train", 4)
    await asyncio.sleep(10)
    before = uids(cluster.bound("train"))
    cluster.resize("train", 6)
    await asyncio.sleep(30)
    assert cluster.admitted("train") == cluster.usage() == len(cluster.bound("train")) == 6
    assert not before & uids(cluster.bound("train")), "Kueue suspends a Job that doesn't match its Workload"


@on_cluster()
async def test_a_job_that_is_made_too_large_waits_with_the_reason(cluster: QueuedJobs) -> None:
    cluster.submit("other", 4)
    cluster.submit("train", 4)
    await asyncio.sleep(10)
    cluster.resize("train", 6)
    await asyncio.sleep(30)
    assert (cluster.admitted("train"), cluster.bound("train")) == (0, [])
    assert cluster.job("train")["spec"]["suspend"] is True
    conditions = cluster.workload("train")["status"]["conditions"]
    reserved = next(part for part in conditions if part["type"] == "QuotaReserved")
    assert "ClusterQueue q has 4 nvidia.com/gpu left in flavor big, 6 requested" in reserved["message"]
    cluster.resize("train", 4)
    await asyncio.sleep(30)
    assert len(cluster.bound("train")) == 4


@on_cluster()
async def test_an_elastic_job_grows_and_keeps_its_pods(cluster: QueuedJobs) -> None:
    cluster.submit("train", 4, annotations=ELASTIC)
    await asyncio.sleep(10)
    before = uids(cluster.bound("train"))
    cluster.resize("train", 6)
    await asyncio.sleep(10)
    assert before < uids(cluster.bound("train"))
    assert cluster.admitted("train") == cluster.usage() == len(cluster.bound("train")) == 6


@on_cluster()
async def test_pods_above_the_admission_of_an_elastic_job_wait_for_quota(cluster: QueuedJobs) -> None:
    cluster.submit("other", 3)
    cluster.submit("train", 4, annotations=ELASTIC)
    await asyncio.sleep(10)
    before = uids(cluster.bound("train"))
    cluster.resize("train", 7)
    await asyncio.sleep(30)
    assert cluster.admitted("train") == len(cluster.bound("train")) == 5, "as many as there is quota for"
    waiting = [pod for pod in cluster.pods("train") if not pod["spec"].get("nodeName")]
    assert [("quota" in waits_for(pod).lower()) for pod in waiting] == [True, True], waits_for(waiting[0])
    cluster.client.delete("jobs.batch", "team", "other")
    await asyncio.sleep(30)
    assert cluster.admitted("train") == len(cluster.bound("train")) == 7
    assert before < uids(cluster.bound("train"))


@on_cluster()
async def test_an_elastic_job_that_shrinks_has_to_be_admitted_to_grow_again(cluster: QueuedJobs) -> None:
    cluster.submit("train", 8, annotations=ELASTIC)
    await asyncio.sleep(10)
    cluster.submit("next", 4)
    cluster.resize("train", 4)
    await asyncio.sleep(60)
    assert (cluster.admitted("train"), cluster.admitted("next")) == (4, 4)
    cluster.resize("train", 8)
    await asyncio.sleep(30)
    assert (cluster.admitted("train"), len(cluster.bound("train"))) == (4, 4)
    cluster.resize("next", 2)
    await asyncio.sleep(60)
    assert (cluster.admitted("train"), len(cluster.bound("train")), cluster.admitted("next")) == (6, 6, 2)


@on_cluster(big=8, small=8)
async def test_an_elastic_job_stays_in_its_flavor(cluster: QueuedJobs) -> None:
    cluster.submit("train", 8, annotations=ELASTIC)
    await asyncio.sleep(10)
    cluster.resize("train", 10)
    await asyncio.sleep(30)
    assert cluster.admitted("train") == len(cluster.bound("train")) == 8


@on_cluster()
async def test_pods_that_have_ended_for_good_give_their_quota_back(cluster: QueuedJobs) -> None:
    cluster.submit("train", 4, seconds=60, spec={"completions": 6})
    cluster.submit("rest", 4)
    await asyncio.sleep(50)
    cluster.submit("next", 2)
    await asyncio.sleep(30)
    assert cluster.workload("train")["status"]["reclaimablePods"] == [{"name": "main", "count": 2}]
    assert (cluster.admitted("train"), cluster.admitted("next"), cluster.usage()) == (2, 2, 8)
    await asyncio.sleep(60)
    assert cluster.job("train")["status"]["succeeded"] == 6


@on_cluster()
async def test_a_job_that_is_evicted_asks_only_for_the_pods_that_are_left(cluster: QueuedJobs) -> None:
    cluster.submit("train", 4, seconds=60, spec={"completions": 6})
    await asyncio.sleep(80)
    assert cluster.admitted("train") == 2
    workload = cluster.workload("train")["metadata"]["name"]
    cluster.client.patch(WORKLOADS, "team", workload, {"spec": {"active": False}})
    await asyncio.sleep(20)
    assert (cluster.admitted("train"), cluster.bound("train")) == (0, [])
    cluster.client.patch(WORKLOADS, "team", workload, {"spec": {"active": True}})
    await asyncio.sleep(20)
    assert (cluster.admitted("train"), len(cluster.bound("train"))) == (2, 2)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_timing_no_more_is_bound_than_admitted(seed: int) -> None:
    """Jobs of both kinds change their sizes, on a slow network that fails, and the scheduler is killed."""

    @on_cluster(big=8, small=4)
    async def play(cluster: QueuedJobs) -> None:
        rng = Random(seed)
        names = [f"job-{number}" for number in range(5)]
        for number, name in enumerate(names):
            pods = rng.randint(1, 5)
            cluster.submit(name, pods, annotations=ELASTIC if number % 2 else {}, seconds=rng.choice((40, 100_000)))
        for _ in range(25):
            latency, watch_lag = rng.choice(((0.002, 0.0), (0.05, 0.2), (0.3, 1.0)))
            failures, decision_seconds = rng.choice((0.0, 0.0, 0.2)), rng.choice((0.0, 0.5))
            cluster.cluster.set_network(latency, failures, watch_lag, decision_seconds)
            if rng.random() < 0.15:
                await cluster.cluster.restart_scheduler(0)
            cluster.resize(rng.choice(names), rng.randint(0, 6))
            await asyncio.sleep(rng.choice((0.01, 0.3, 3.0, 20.0)))
        cluster.cluster.set_network(latency=0.002, failures=0.0, watch_lag=0.0, decision_seconds=0.0)
        await asyncio.sleep(300)
        for name in names:
            assert len(cluster.bound(name)) == cluster.admitted(name), name

    play()
