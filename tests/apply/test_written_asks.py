"""Asks on the server: on the owner and its pods, once, whatever is killed when; withdrawn without a trace; stamped."""

from __future__ import annotations

import asyncio
import json
import time

from tests.apply.objects import admission, condition, job, node, pod, queues, reference, workload
from tests.apply.plans import carry_out, evictions
from tests.apply.scene import Scene
from tests.kube.memory_client import lost_answer
from tests.kube.virtual_time import START, in_virtual_time, settle

from windlass.kube.request import Request
from windlass.model.decision import Ask, WithdrawAsk
from windlass.model.leaving import Answer, write
from windlass.model.plan import Plan
from windlass.model.times import format_timestamp
from windlass.model.unstructured import Unstructured

ASK, ANSWER, MOVE = "windlass.dev/ask", "windlass.dev/ask-answer", "windlass.dev/last-move"
OPTED_IN = {"windlass.dev/on-preemption": "ask"}


def training() -> list[Unstructured]:
    """A queued Job with quota and two pods, which has opted in."""
    owner = job("train", parallelism=2, suspend=False, annotations=OPTED_IN)
    status = {"admission": admission(gpus=4, count=2), "conditions": [_admitted()]}
    kueue = workload("train", gpus=4, count=2, owner=owner, status=status)
    pods = [
        pod(f"train-{index}", on="n1", gpus=4, ownerReferences=[reference(owner)], labels={"job-name": "train"})
        for index in range(2)
    ]
    return [node("n1"), *queues(preemption={"withinClusterQueue": "LowerPriority"}), owner, kueue, *pods]


def _admitted() -> Unstructured:
    return {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""}


def urgent() -> list[Unstructured]:
    owner = job("urgent", gpus=8)
    return [owner, workload("urgent", gpus=8, owner=owner, priority=10)]


def annotations(scene: Scene, plural: str, name: str) -> dict[str, str]:
    found: dict[str, str] = scene.get(plural, name)["metadata"].get("annotations") or {}
    return found


def asks_sent(scene: Scene) -> list[Request]:
    return [sent for sent in scene.client.writes(of="PATCH") if ASK in (sent.body["metadata"].get("annotations") or {})]


def ask(*pods: str, until: int = 60, preemptor: str = "team/urgent", key: str = "team/low") -> Ask:
    names = tuple(f"team/{name}" for name in pods)
    return Ask(key, names, preemptor, "Priority", "id-1", int(START), int(START) + until)


def answer(scene: Scene, name: str) -> None:
    tree = scene.get("pods", name)
    identity = json.loads(tree["metadata"]["annotations"][ASK])["id"]
    text = write(Answer(identity, format_timestamp(int(time.time()))))
    tree["metadata"]["annotations"] |= {ANSWER: text}
    scene.put(tree)
    scene.watch()


@in_virtual_time
async def test_a_queued_job_is_asked_answers_and_is_stopped() -> None:
    async with Scene(*training(), *urgent()).running() as scene:
        plan = scene.decide()
        await scene.executor.drain()
        (asked,) = plan.asks
        assert not scene.get("jobs", "train")["spec"]["suspend"]
        written = json.loads(annotations(scene, "jobs", "train")[ASK])
        assert written == {
            "id": asked.id,
            "asked": format_timestamp(int(START)),
            "until": format_timestamp(int(START) + 60),
            "cause": "InClusterQueue",
            "for": "team/urgent",
        }
        for name in ("train-0", "train-1"):
            assert json.loads(annotations(scene, "pods", name)[ASK]) == written
        await settle()
        assert [event["reason"] for event in scene.events("train")] == ["AskedForCheckpoint"]
        scene.watch()
        await asyncio.sleep(10)
        answer(scene, "train-1")
        assert scene.decide().evicts
        await scene.executor.drain()
        assert scene.get("jobs", "train")["spec"]["suspend"]
        move = json.loads(annotations(scene, "jobs", "train")[MOVE])
        stamps = [written["asked"], *(format_timestamp(int(START) + 10) for _ in range(3))]
        assert [move[name] for name in ("asked", "answered", "checkpoint", "evicted")] == stamps
        await _is_cleaned_up(scene)


async def _is_cleaned_up(scene: Scene) -> None:
    """Its pods have gone; what is left of the ask is on the Job."""
    for name in ("train-0", "train-1"):
        scene.api.remove("pods", f"team/{name}")
    for _ in range(3):
        scene.watch()
        scene.decide()
        await scene.executor.drain()
    assert ASK not in annotations(scene, "jobs", "train")
    assert MOVE in annotations(scene, "jobs", "train")


@in_virtual_time
async def test_an_ask_is_written_once_however_often_it_is_decided() -> None:
    scene = Scene(node("n1"), pod("low", on="n1"))
    await carry_out(scene, Plan(asks=(ask("low"),)))
    await carry_out(scene, Plan(asks=(ask("low"),)))
    assert len(asks_sent(scene)) == 1, "the watch has not shown it yet"
    scene.watch()
    await carry_out(scene, Plan(asks=(ask("low"),)))
    assert len(asks_sent(scene)) == 1


@in_virtual_time
async def test_a_pod_on_which_it_failed_is_tried_again_soon() -> None:
    scene = Scene(node("n1"), pod("low", on="n1"))
    scene.client.fail("PATCH pods/low", lost_answer())
    await carry_out(scene, Plan(asks=(ask("low"),)))
    scene.client.recover()
    await asyncio.sleep(6)
    await carry_out(scene, Plan(asks=(ask("low"),)))
    assert ASK in annotations(scene, "pods", "low")


@in_virtual_time
async def test_what_was_withdrawn_can_be_asked_again_at_once() -> None:
    scene = Scene(node("n1"), pod("low", on="n1"))
    await carry_out(scene, Plan(asks=(ask("low"),)))
    scene.watch()
    await carry_out(scene, Plan(withdrawals=(WithdrawAsk("team/low", ("team/low",), "id-1"),)))
    scene.watch()
    await carry_out(scene, Plan(asks=(ask("low"),)))
    assert ASK in annotations(scene, "pods", "low")


@in_virtual_time
async def test_the_next_leader_completes_what_the_last_one_began() -> None:
    scene = Scene(node("n1"), pod("low-0", on="n1"), pod("low-1", on="n1"))
    scene.client.fail("PATCH pods/low-1", lost_answer())
    await carry_out(scene, Plan(asks=(ask("low-0", "low-1"),)))
    scene.watch()
    next_leader = Scene(*(scene.get("pods", name) for name in ("low-0", "low-1")), node("n1"))
    await carry_out(next_leader, Plan(asks=(ask("low-0", "low-1"),)))
    assert [sent.path.split("/")[-1] for sent in asks_sent(next_leader)] == ["low-1"]


@in_virtual_time
async def test_a_withdrawn_ask_leaves_no_trace() -> None:
    async with Scene(node("n1"), pod("low", on="n1", annotations=OPTED_IN)).running() as scene:
        await carry_out(scene, Plan(asks=(ask("low"),)))
        scene.watch()
        answer(scene, "low")
        await carry_out(scene, Plan(withdrawals=(WithdrawAsk("team/low", ("team/low",), "id-1"),)))
        assert annotations(scene, "pods", "low") == OPTED_IN
        await settle()
        assert sorted(event["reason"] for event in scene.events("low")) == ["AskWithdrawn", "AskedForCheckpoint"]


@in_virtual_time
async def test_another_namespaces_work_is_not_named() -> None:
    scene = Scene(node("n1"), pod("low", on="n1"))
    await carry_out(scene, Plan(asks=(ask("low", preemptor="secret/launch"),)))
    assert json.loads(annotations(scene, "pods", "low")[ASK])["for"] == "work of higher priority"


@in_virtual_time
async def test_the_deadline_itself_is_decided_on() -> None:
    scene = Scene(node("n1"), pod("low", on="n1"))
    await carry_out(scene, Plan(asks=(ask("low"),)))
    scene.cache.flush(int(time.time()))
    scene.cache.changed.clear()
    await asyncio.sleep(59)
    assert not scene.cache.changed.is_set()
    await asyncio.sleep(2)
    assert scene.cache.changed.is_set()


@in_virtual_time
async def test_the_pod_that_waits_is_told_what_for() -> None:
    low = pod("low", on="n1", gpus=8, annotations=OPTED_IN)
    async with Scene(node("n1"), low, pod("urgent", gpus=8, priority=5)).running() as scene:
        scene.decide()
        await settle()
        told = condition(scene.get("pods", "urgent"), "PodScheduled")
        until = format_timestamp(int(START) + 60)
        waits = f"waiting until {until} for team/low to write a checkpoint, then for its pods to terminate"
        assert told["message"] == f"0/1 nodes are available: {waits} (WAITING_FOR_PREEMPTION)"
        assert evictions(scene) == []
