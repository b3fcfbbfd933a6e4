"""The whole way on a cluster in virtual time: asked, answered by the pods, evicted, back when there is room."""

from __future__ import annotations

import asyncio
import json
import time

from tests.scheduler.queued_jobs import JOBS, PODS, WORKLOADS, QueuedJobs, on_cluster

from windlass.model.times import parse_timestamp
from windlass.model.unstructured import Unstructured

ASK, ANSWER, MOVE = "windlass.dev/ask", "windlass.dev/ask-answer", "windlass.dev/last-move"
GRACE = 40


def submit_training(cluster: QueuedJobs, answers_after: str = "") -> None:
    """Four pods with a GPU each that opt in, and answer after some seconds or never."""
    cluster.submit(
        "train",
        4,
        annotations={"windlass.dev/on-preemption": "ask", "windlass.dev/checkpoint-grace": f"{GRACE}s"},
        template={"sandbox.windlass.dev/answer-after": answers_after} if answers_after else {},
    )


def submit_urgent(cluster: QueuedJobs, seconds: int = 120) -> None:
    cluster.submit("urgent", 4, seconds=seconds, pod={"priority": 10, "priorityClassName": "high"})


def annotations(tree: Unstructured) -> dict[str, str]:
    found: dict[str, str] = tree["metadata"].get("annotations") or {}
    return found


async def until(cluster: QueuedJobs, name: str, pods: int) -> float:
    """When so many pods of the Job are bound."""
    for _ in range(600):
        if len(cluster.bound(name)) == pods:
            return time.time()
        await asyncio.sleep(1)
    raise AssertionError(f"{name} has {len(cluster.bound(name))} pods on nodes, not {pods}")


@on_cluster(big=4)
async def test_work_that_answers_goes_then_and_comes_back(cluster: QueuedJobs) -> None:
    await asked_evicted_and_back(cluster, "5s")


@on_cluster(big=4)
async def test_work_that_never_answers_goes_at_its_deadline(cluster: QueuedJobs) -> None:
    await asked_evicted_and_back(cluster, "")


async def asked_evicted_and_back(cluster: QueuedJobs, answers_after: str) -> None:
    allow_preemption(cluster)
    submit_training(cluster, answers_after)
    await until(cluster, "train", 4)
    await asyncio.sleep(30)
    asked_at = time.time()
    submit_urgent(cluster)
    await asyncio.sleep(3)
    requests = [json.loads(annotations(tree)[ASK]) for tree in (*cluster.bound("train"), cluster.job("train"))]
    assert len({request["id"] for request in requests}) == 1, "the whole gang and its Job, with one ask"
    assert cluster.admitted("train") == 4
    started = await until(cluster, "urgent", 4)
    waited = started - asked_at
    assert (5 <= waited < 25) if answers_after else (GRACE <= waited < GRACE + 20)
    move = json.loads(annotations(cluster.job("train"))[MOVE])
    assert parse_timestamp(move["evicted"]) >= parse_timestamp(move["asked"])
    assert ("answered" in move) is bool(answers_after)
    await until(cluster, "train", 4)
    assert ASK not in annotations(cluster.job("train"))
    assert not [tree for tree in cluster.bound("train") if ASK in annotations(tree) or ANSWER in annotations(tree)]


@on_cluster(big=4)
async def test_withdrawn_when_the_preemptor_goes_away(cluster: QueuedJobs) -> None:
    allow_preemption(cluster)
    submit_training(cluster)
    await until(cluster, "train", 4)
    pods = {tree["metadata"]["uid"] for tree in cluster.bound("train")}
    submit_urgent(cluster)
    await asyncio.sleep(5)
    assert all(ASK in annotations(tree) for tree in cluster.bound("train"))
    cluster.client.delete(JOBS, "team", "urgent")
    await asyncio.sleep(GRACE + 30)
    assert {tree["metadata"]["uid"] for tree in cluster.bound("train")} == pods
    traces = [tree for tree in (*cluster.bound("train"), cluster.job("train")) if ASK in annotations(tree)]
    assert traces == []


def allow_preemption(cluster: QueuedJobs) -> None:
    preemption = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    cluster.client.patch("clusterqueues.kueue.x-k8s.io", "", "q", {"spec": preemption})
    high = {"metadata": {"name": "high"}, "value": 10}
    cluster.client.create("priorityclasses.scheduling.k8s.io", "", high)
    assert cluster.client.list(PODS) == cluster.client.list(WORKLOADS) == []


@on_cluster(big=4, small=4)
async def test_a_gang_moves_off_a_node_that_goes(cluster: QueuedJobs) -> None:
    submit_training(cluster, "5s")
    await until(cluster, "train", 4)
    (leaving,) = nodes_of(cluster, "train")
    asked_at = time.time()
    taint = {"key": "aws-node-termination-handler/spot-itn", "value": "itn-1", "effect": "NoSchedule"}
    cluster.client.patch("nodes", "", leaving, {"spec": {"taints": [taint]}})
    await asyncio.sleep(3)
    requests = [json.loads(annotations(tree)[ASK]) for tree in (*cluster.bound("train"), cluster.job("train"))]
    assert {request["notice"] for request in requests} == {f"node {leaving} goes: AWS interrupts the spot instance"}
    while nodes_of(cluster, "train") in (set(), {leaving}):
        await asyncio.sleep(1)
        assert time.time() - asked_at < GRACE, "it answers after 5 s"
    await until(cluster, "train", 4)
    assert leaving not in nodes_of(cluster, "train")
    assert 5 <= time.time() - asked_at < 30
    move = json.loads(annotations(cluster.job("train"))[MOVE])
    assert parse_timestamp(move["answered"]) <= parse_timestamp(move["evicted"])


def nodes_of(cluster: QueuedJobs, name: str) -> set[str]:
    return {tree["spec"]["nodeName"] for tree in cluster.bound(name)}


@on_cluster(big=4)
async def test_a_notice_that_goes_leaves_everything_as_it_was(cluster: QueuedJobs) -> None:
    submit_training(cluster)
    await until(cluster, "train", 4)
    pods = {tree["metadata"]["uid"] for tree in cluster.bound("train")}
    (leaving,) = nodes_of(cluster, "train")
    taint = {"key": "windlass.dev/leaving", "effect": "NoSchedule"}
    cluster.client.patch("nodes", "", leaving, {"spec": {"taints": [taint]}})
    await asyncio.sleep(5)
    assert all(ASK in annotations(tree) for tree in cluster.bound("train"))
    cluster.client.patch("nodes", "", leaving, {"spec": {"taints": None}})
    await asyncio.sleep(GRACE + 30)
    assert {tree["metadata"]["uid"] for tree in cluster.bound("train")} == pods
    assert not [tree for tree in (*cluster.bound("train"), cluster.job("train")) if ASK in annotations(tree)]
