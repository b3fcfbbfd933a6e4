"""Workloads say why they wait, not too often and never over an admission; Kueue's gates go when a pod may start."""

from __future__ import annotations

import asyncio

import pytest
from tests.apply.admissions import (
    FINISHED,
    PENDING,
    is_admitted,
    scene_of,
    status_writes,
    writes,
)
from tests.apply.objects import admission, condition, local_queue, pod, workload
from tests.apply.scene import Scene
from tests.kube.virtual_time import in_virtual_time, settle

from windlass.model.decision import Hold
from windlass.model.unstructured import Unstructured
from windlass.model.verdict import Verdict

# Messages


def hold(code: str = "KUEUE_QUOTA_INSUFFICIENT", key: str = "team/w") -> Hold:
    return Hold(key, Verdict(code, 3, detail="x"))


async def report(scene: Scene, *holds: Hold) -> None:
    for held in holds or (hold(),):
        scene.executor.admissions.report_pending(held)
    await scene.executor.admissions.drain()


@in_virtual_time
async def test_a_workload_says_why_it_waits() -> None:
    scene = scene_of(PENDING)
    version = scene.get("workloads", "w")["metadata"]["resourceVersion"]
    await report(scene)
    reserved = condition(scene.get("workloads", "w"), "QuotaReserved")
    assert (reserved["status"], reserved["reason"]) == ("False", "Pending")
    assert reserved["message"].endswith("(KUEUE_QUOTA_INSUFFICIENT)")
    assert reserved["lastTransitionTime"] == "2026-01-01T00:06:40Z"
    (sent,) = status_writes(scene)
    assert sent.body["metadata"] == {"resourceVersion": version}, "never over an admission"


@in_virtual_time
async def test_the_same_message_is_not_written_again_and_a_new_one_after_five_seconds() -> None:
    scene = scene_of(PENDING)
    await report(scene)
    scene.watch()
    scene.cache.drain_inbox()
    await asyncio.sleep(60)
    await report(scene)
    assert len(status_writes(scene)) == 1
    await report(scene, hold("GPU_FULL"))
    scene.watch()
    scene.cache.drain_inbox()
    await report(scene, hold("GANG_INCOMPLETE"))
    assert len(status_writes(scene)) == 2
    await asyncio.sleep(5.1)
    await report(scene, hold("GANG_INCOMPLETE"))
    assert len(status_writes(scene)) == 3


@pytest.mark.parametrize(
    "tree",
    [
        workload("w", status={"admission": admission()}),
        workload("w", status={"conditions": [FINISHED]}),
        workload("other"),
    ],
    ids=["admitted", "finished", "missing"],
)
@in_virtual_time
async def test_these_workloads_get_no_message(tree: Unstructured) -> None:
    scene = scene_of(tree)
    await report(scene)
    assert writes(scene) == []


@in_virtual_time
async def test_a_new_message_waits_until_the_watch_shows_the_last_one() -> None:
    """It would be refused: the version is not the last any more."""
    scene = scene_of(PENDING)
    await report(scene)
    await asyncio.sleep(60)
    await report(scene, hold("GPU_FULL"))
    assert len(status_writes(scene)) == 1
    scene.watch()
    scene.cache.drain_inbox()
    await report(scene, hold("GPU_FULL"))
    assert len(status_writes(scene)) == 2


@in_virtual_time
async def test_a_live_kueue_writes_the_messages_of_its_queues() -> None:
    scene = scene_of(PENDING)
    scene.cache.responsibility.kueue_is_live = True
    await report(scene)
    assert writes(scene) == []


@in_virtual_time
async def test_a_message_gives_way_to_an_admission_that_was_written_meanwhile() -> None:
    scene = scene_of(PENDING)
    scene.put(workload("w", status={"admission": admission()}))  # the watch has not shown it
    await report(scene)
    assert is_admitted(scene)
    assert condition(scene.get("workloads", "w"), "QuotaReserved") == {}


# Gates


@pytest.mark.parametrize(
    ("gates", "kept"),
    [
        (["kueue.x-k8s.io/admission"], []),
        (["kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"], []),
        (
            ["example.com/b", "kueue.x-k8s.io/elastic-job", "example.com/a"],
            ["example.com/b", "example.com/a"],
        ),
        (["example.com/a"], None),
        ([], None),
    ],
)
@in_virtual_time
async def test_only_kueues_gates_are_removed(gates: list[str], kept: list[str] | None) -> None:
    scene = Scene(pod("p", gates=gates))
    scene.executor.admissions.remove_gates(scene.cache.pods["team/p"])
    await scene.executor.admissions.drain()
    if kept is None:
        assert writes(scene) == []
    else:
        assert writes(scene) == ["pods/p"]
        assert scene.get("pods", "p")["spec"]["schedulingGates"] == [{"name": name} for name in kept]
        assert scene.client.writes()[0].body["metadata"] == {"uid": "uid-p"}


@pytest.mark.parametrize(
    ("queue", "take_over", "removed"),
    [("main", (), 0), ("main", ("team/main",), 1), ("", ("team/main",), 0)],
)
@in_virtual_time
async def test_a_live_kueue_removes_the_gates_of_its_queues(
    queue: str, take_over: tuple[str, ...], removed: int
) -> None:
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else None
    gated = pod("p", gates=["kueue.x-k8s.io/admission"], labels=labels)
    scene = Scene(local_queue("main"), gated, take_over=frozenset(take_over))
    scene.cache.responsibility.kueue_is_live = True
    scene.executor.admissions.remove_gates(scene.cache.pods["team/p"])
    await scene.executor.admissions.drain()
    assert len(writes(scene)) == removed


@in_virtual_time
async def test_gates_are_removed_once_at_a_time() -> None:
    scene = Scene(pod("p", gates=["kueue.x-k8s.io/admission"]))
    held = scene.client.hold("PATCH pods/p")
    for _ in range(2):
        scene.executor.admissions.remove_gates(scene.cache.pods["team/p"])
        await settle()
    assert len(held.requests) == 1
    held.release()
    await scene.executor.admissions.drain()
