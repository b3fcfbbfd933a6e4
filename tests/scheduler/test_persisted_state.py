"""What the next leader reads: usage history that decays by half in a half-life, and the nodes of reservations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.apply.objects import admission, custom, local_queue, queues, workload
from tests.apply.scene import Scene
from tests.kube.fake_api import refused
from tests.kube.memory_client import lost_answer
from tests.kube.virtual_time import in_virtual_time, settle

from windlass.kube.request import Request
from windlass.model.configuration import Settings
from windlass.model.decision import Reserve
from windlass.model.plan import Plan
from windlass.model.pod import Pod
from windlass.model.queue import LocalQueue
from windlass.model.unstructured import Unstructured
from windlass.model.workload import Admission, PodSet, PodSetAssignment, Workload
from windlass.scheduler.persisted_state import PersistedStateWriter, decayed_usage, usage_by_queue

GPU = "nvidia.com/gpu"


def test_history_decays_and_grows() -> None:
    queue = LocalQueue("a/main", "team", consumed={GPU: 8_000}, consumed_at=1_000)
    assert decayed_usage(queue, {}, 100, 1_000) == {GPU: 8_000}
    assert decayed_usage(queue, {}, 100, 1_100) == {GPU: 4_000}
    assert decayed_usage(queue, {GPU: 8_000}, 100, 1_100) == {GPU: 8_000}, "steady use stays where it is"
    assert decayed_usage(queue, {GPU: 16_000}, 100, 1_100) == {GPU: 12_000}
    assert decayed_usage(queue, {"cpu": 2_000}, 100, 1_100) == {GPU: 4_000, "cpu": 1_000}
    little = LocalQueue("a/main", "team", consumed={GPU: 3}, consumed_at=1_000)
    assert decayed_usage(little, {}, 100, 1_100) == {GPU: 1}, "what is not used adds nothing"


def test_a_queue_without_history_begins_with_none() -> None:
    assert decayed_usage(LocalQueue("a/main", "team"), {GPU: 8_000}, 100, 1_000) == {GPU: 0}


def test_usage_is_what_is_held() -> None:
    held = Admission("team", (PodSetAssignment("main", 2, {GPU: "f"}, {GPU: 2_000}),))
    sets = (PodSet("main", 2, Pod()),)
    workloads = [
        Workload("a/waits", "Workload", sets, queue_name="main"),
        Workload("a/one", "Workload", sets, queue_name="main", admission=held),
        Workload("a/alone", "Workload", sets, admission=held),
        Workload("a/two", "Workload", sets, queue_name="main", admission=held),
    ]
    assert usage_by_queue(workloads) == {"a/main": {GPU: 4_000}}


@given(
    consumed=st.integers(0, 10**6),
    used=st.integers(0, 10**6),
    elapsed=st.integers(0, 10_000),
    half_life=st.integers(1, 5_000),
)
def test_history_lies_between_what_was_and_what_is_used(consumed: int, used: int, elapsed: int, half_life: int) -> None:
    queue = LocalQueue("a/main", "team", consumed={GPU: consumed}, consumed_at=1_000)
    (amount,) = decayed_usage(queue, {GPU: used}, half_life, 1_000 + elapsed).values()
    assert min(consumed, used) - 1 <= amount <= max(consumed, used)


# Writing


WEEK = Settings(usage_half_life_seconds=100, usage_sampling_seconds=60)
LAUNCH: dict[str, Any] = {
    "metadata": {"namespace": ""},
    "spec": {
        "gpus": 2,
        "from": "2026-01-01T08:00:00Z",
        "until": "2026-01-01T12:00:00Z",
        "who": {"namespaces": ["team"]},
    },
}


def reservation(nodes: dict[str, int] | None = None, name: str = "launch") -> Unstructured:
    return custom("windlass.dev/v1", "Reservation", name, **LAUNCH, status={"nodes": nodes or {}})


def reserve(nodes: dict[str, int], name: str = "launch") -> Reserve:
    return Reserve(f"reservation/{name}", "", 100, 200, nodes)


class Writing:
    def __init__(self, *trees: Unstructured, settings: Settings) -> None:
        self.scene = Scene(*trees)
        self.writer = PersistedStateWriter(
            self.scene.client,
            self.scene.cache,
            settings,
            lambda: self.scene.leads,
            self.scene.client.resource_for,
        )

    def observe(self, *reserves: Reserve) -> None:
        self.scene.watch()
        self.writer.observe(Plan(reserves=reserves), self.scene.snapshot())

    async def written(self, *reserves: Reserve) -> list[Request]:
        before = len(self.scene.client.sent)
        self.observe(*reserves)
        await settle()
        return self.scene.client.sent[before:]

    def history(self, name: str = "main") -> Unstructured:
        status = self.scene.get("localqueues", name)["status"]["fairSharing"]
        found: Unstructured = status["admissionFairSharingStatus"]
        return found


@asynccontextmanager
async def writing(*trees: Unstructured, settings: Settings | None = None) -> AsyncIterator[Writing]:
    made = Writing(*trees, settings=settings or Settings())
    task = asyncio.create_task(made.writer.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled(), "the writer has failed"


@in_virtual_time
async def test_the_nodes_of_a_reservation_are_written_when_they_change() -> None:
    async with writing(reservation()) as made:
        (sent,) = await made.written(reserve({"n1": 2}))
        assert sent.path == "/apis/windlass.dev/v1/reservations/launch/status"
        assert made.scene.api.get("reservations", "launch")["status"] == {"nodes": {"n1": 2}}
        made.scene.watch()
        made.scene.snapshot()
        assert await made.written(reserve({"n1": 2})) == []


@in_virtual_time
async def test_nodes_that_a_reservation_has_left_are_removed() -> None:
    async with writing(reservation({"n1": 1, "n2": 1})) as made:
        (sent,) = await made.written(reserve({"n2": 1, "n3": 1}))
        assert sent.body["status"] == {"nodes": {"n1": None, "n2": 1, "n3": 1}}
        assert made.scene.api.get("reservations", "launch")["status"] == {"nodes": {"n2": 1, "n3": 1}}


@in_virtual_time
async def test_only_reservations_that_exist_are_written() -> None:
    async with writing(reservation()) as made:
        others = [reserve({"n1": 1}, "missing"), Reserve("team/w", "", 100, None, {"n1": 1})]
        assert await made.written(*others) == []
        assert len(await made.written(*others, reserve({"n1": 1}))) == 1


@in_virtual_time
async def test_several_reservations_are_written_each_with_its_newest_nodes() -> None:
    async with writing(reservation(), reservation(name="demo")) as made:
        held = made.scene.client.hold("PATCH reservations/launch/status")
        await made.written(reserve({"n1": 1}))
        await made.written(reserve({"n2": 1}), reserve({"n3": 1}, "demo"))
        await made.written(reserve({"n4": 1}), reserve({"n3": 1}, "demo"))
        held.release()
        await settle()
        launch, demo = (made.scene.api.get("reservations", name) for name in ("launch", "demo"))
        assert (launch["status"]["nodes"], demo["status"]["nodes"]) == ({"n1": 1, "n4": 1}, {"n3": 1})
        assert len(held.requests) == 2


@pytest.mark.parametrize("error", [refused(500, "etcd"), refused(404, "gone"), lost_answer()])
@in_virtual_time
async def test_nodes_that_could_not_be_written_are_written_with_the_next_decision(error: Exception) -> None:
    async with writing(reservation()) as made:
        made.scene.client.fail("PATCH reservations/launch/status", error, times=1)
        assert len(await made.written(reserve({"n1": 2}))) == 1
        assert len(await made.written(reserve({"n1": 2}))) == 1
        assert made.scene.api.get("reservations", "launch")["status"] == {"nodes": {"n1": 2}}


@in_virtual_time
async def test_a_follower_writes_no_nodes() -> None:
    async with writing(reservation()) as made:
        made.scene.leads = False
        assert await made.written(reserve({"n1": 2})) == []


@in_virtual_time
async def test_a_reservation_that_goes_before_its_turn_is_no_trouble() -> None:
    async with writing(reservation({"n1": 1})) as made:
        made.observe(reserve({"n2": 1}))
        made.scene.api.remove("reservations", "launch")
        made.scene.watch()
        made.scene.cache.drain_inbox()
        await settle()
        (sent,) = made.scene.client.sent
        assert sent.body["status"] == {"nodes": {"n2": 1}}


@in_virtual_time
async def test_a_server_without_reservations_is_left_alone() -> None:
    async with writing(reservation()) as made:
        del made.scene.api.groups["windlass.dev/v1"]
        assert await made.written(reserve({"n1": 2})) == []


@in_virtual_time
async def test_usage_is_sampled_into_the_status_of_each_local_queue() -> None:
    running = workload("w", gpus=8, status={"admission": admission(gpus=8)})
    async with writing(*queues(), local_queue("idle"), running, settings=WEEK) as made:
        made.observe()
        await asyncio.sleep(59)
        assert made.scene.client.sent == []
        await asyncio.sleep(2)
        assert len(made.scene.client.sent) == 2
        assert made.history() == {
            "consumedResources": {GPU: "0"},
            "lastUpdate": "2026-01-01T00:07:40Z",
        }, "a history begins with nothing"
        assert made.history("idle") == {"consumedResources": {}, "lastUpdate": "2026-01-01T00:07:40Z"}
        made.observe()
        await asyncio.sleep(60)
        consumed = made.history()["consumedResources"][GPU]
        assert 2_000 < int(consumed.removesuffix("m")) < 4_000, "8 GPUs for 60 of 100 seconds"
        assert made.history()["lastUpdate"] == "2026-01-01T00:08:40Z"


@in_virtual_time
async def test_without_a_half_life_there_is_no_history() -> None:
    async with writing(*queues()) as made:
        made.observe()
        await asyncio.sleep(3600)
        assert made.scene.client.sent == []


@in_virtual_time
async def test_usage_is_sampled_at_most_every_second() -> None:
    often = Settings(usage_half_life_seconds=100, usage_sampling_seconds=0)
    async with writing(*queues(), settings=often) as made:
        made.observe()
        await asyncio.sleep(10.5)
        assert len(made.scene.client.sent) == 10


@pytest.mark.parametrize("reason", ["nothing was decided", "Kueue is live", "another leads"])
@in_virtual_time
async def test_usage_is_written_only_by_the_leader_that_decides(reason: str) -> None:
    async with writing(*queues(), settings=WEEK) as made:
        if reason != "nothing was decided":
            made.observe()
        made.scene.cache.responsibility.kueue_is_live = reason == "Kueue is live"
        made.scene.leads = reason != "another leads"
        await asyncio.sleep(200)
        assert made.scene.client.sent == []
        made.observe()
        made.scene.cache.responsibility.kueue_is_live, made.scene.leads = False, True
        await asyncio.sleep(60)
        assert len(made.scene.client.sent) == 1


@pytest.mark.parametrize("error", [refused(500, "etcd"), refused(404, "gone"), lost_answer()])
@in_virtual_time
async def test_a_failed_sample_does_not_stop_the_next(error: Exception) -> None:
    async with writing(*queues(), settings=WEEK) as made:
        made.scene.client.fail("PATCH localqueues/main/status", error, times=1)
        made.observe()
        await asyncio.sleep(130)
        assert made.history()["lastUpdate"] == "2026-01-01T00:08:40Z"
