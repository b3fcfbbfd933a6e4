"""Events and conditions: told once, counted when they come again, and never more than the server can bear."""

from __future__ import annotations

import asyncio
from typing import cast

import msgspec
import pytest
from tests.kube.fake_server import FakeServer
from tests.kube.virtual_time import in_virtual_time

from windlass.apply import conditions as module
from windlass.apply.conditions import PendingCondition, PodConditionWriter
from windlass.apply.messages import code_of_message, condition_message, condition_reason
from windlass.kube import events
from windlass.kube.client import KubeClient
from windlass.kube.events import Event, EventRecorder, EventRegarding
from windlass.model.verdict import Limit, ReasonCount, Verdict


def waits(note: str = "no room", name: str = "p") -> Event:
    return Event(EventRegarding("Pod", f"a/{name}", "uid-1"), "FailedScheduling", note, "Scheduling", "Warning")


async def sent(recorder: EventRecorder) -> None:
    task = asyncio.create_task(recorder.run())
    await recorder.drain(5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.asyncio
async def test_repeats_are_counted(server: FakeServer, client: KubeClient) -> None:
    recorder = EventRecorder(client, "me")
    for _ in range(50):
        recorder.record(waits())
    recorder.record(waits("another note"))
    await sent(recorder)
    for _ in range(50):
        recorder.record(waits())
    await sent(recorder)
    made = sorted(server.objects["events"].values(), key=lambda one: one["note"])
    assert [one["note"] for one in made] == ["another note", "no room"]
    assert made[1]["series"]["count"] == 51, "those before it was there, and the first after"
    assert made[1]["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "a",
        "name": "p",
        "uid": "uid-1",
    }


@in_virtual_time
async def test_series_are_remembered_as_long_as_the_server_has_them() -> None:
    """One that goes on is: it is updated now and then."""
    recorder = EventRecorder(cast(KubeClient, Counting()), "me")
    for minute in range(120):
        recorder.record(waits("goes on"))
        recorder.record(waits(f"of minute {minute}"))
        await sent(recorder)
        await asyncio.sleep(60)
    assert len(recorder._sent) == 1 + 60
    assert recorder._sent[("Pod", "a/p", "FailedScheduling", "goes on")].count == 120


@in_virtual_time
async def test_of_many_series_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_REMEMBERED", 3)
    recorder = EventRecorder(cast(KubeClient, Counting()), "me")
    for number in range(5):
        recorder.record(waits(f"note {number}"))
    assert [note for *_, note in recorder._sent] == ["note 2", "note 3", "note 4"]


class Counting:
    """A server that knows how many requests it has at a time."""

    def __init__(self) -> None:
        self.now = self.most = self.done = 0

    async def send(self, request: object) -> bytes:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now, self.done = self.now - 1, self.done + 1
        return b""


@pytest.mark.asyncio
@pytest.mark.parametrize(("urgent", "queued", "most"), [(False, 100, 16), (True, 100, 4), (True, 11_000, 16)])
async def test_events_give_way_to_binds_until_they_pile_up(urgent: bool, queued: int, most: int) -> None:
    server = Counting()
    recorder = EventRecorder(cast(KubeClient, server), "me")
    recorder.should_yield = lambda: urgent
    for number in range(queued):
        recorder.record(waits(name=f"p{number}"))
    await sent(recorder)
    assert (server.most, server.done, recorder.dropped) == (most, queued, 0)


@pytest.mark.asyncio
async def test_a_flood_of_waits_is_cut_and_binds_are_not(
    server: FakeServer, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "BURST", 10.0)
    recorder = EventRecorder(client, "me")
    recorder._tokens = 10.0
    for number in range(200):
        recorder.record(waits(name=f"p{number}"), droppable=True)
        about = EventRegarding("Pod", f"a/q{number}", "u")
        recorder.record(Event(about, "Scheduled", "Successfully assigned", "Binding"))
    await sent(recorder)
    reasons = [one["reason"] for one in server.objects["events"].values()]
    assert reasons.count("Scheduled") == 200
    assert 10 <= reasons.count("FailedScheduling") <= 20
    assert recorder.dropped >= 180


@pytest.mark.asyncio
async def test_a_condition_is_written_when_it_changes(
    server: FakeServer, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.put("pods", {"metadata": {"name": "p", "namespace": "a", "uid": "u"}, "spec": {}})
    writer = PodConditionWriter(client, EventRecorder(client, "me"), lambda: True)
    task = asyncio.create_task(writer.run())

    def patches() -> int:
        return sum(method == "PATCH" for method, _, _ in server.requests)

    async def settled(count: int) -> None:
        async with asyncio.timeout(5):
            while patches() < count:
                await asyncio.sleep(0.01)

    writer.enqueue(PendingCondition("a/p", "u", "Unschedulable", "0/3 nodes", None))
    await settled(1)
    writer.enqueue(PendingCondition("a/p", "u", "Unschedulable", "0/3 nodes", None))
    writer.enqueue(PendingCondition("a/p", "u", "Unschedulable", "0/4 nodes", None))
    await asyncio.sleep(0.1)
    assert patches() == 1, "other words alone can wait"
    writer.enqueue(PendingCondition("a/p", "u", "WaitingForQuota", "0/4 nodes", "n1"))
    await settled(2)
    status = server.get("pods", "a/p")["status"]
    assert status["conditions"][0]["reason"] == "WaitingForQuota"
    assert status["nominatedNodeName"] == "n1"
    monkeypatch.setattr(module, "MESSAGE_UPDATE_SECONDS", 0.0)
    writer.enqueue(PendingCondition("a/p", "u", "WaitingForQuota", "0/5 nodes", "n1"))
    await settled(3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("GPU_FULL", "Unschedulable"),
        ("GPU_FRAGMENTED", "Unschedulable"),
        ("CPU_MEM_INSUFFICIENT", "Unschedulable"),
        ("TAINT_NOT_TOLERATED", "Unschedulable"),
        ("KUEUE_QUOTA_INSUFFICIENT", "WaitingForQuota"),
        ("QUEUE_BEHIND_HEAD", "WaitingForQuota"),
        ("GANG_INCOMPLETE", "WaitingForGang"),
        ("RESERVED_FOR_OTHERS", "WaitingBehindPlan"),
        ("NOT_IMPLEMENTED", "NotImplemented"),
        ("INVALID_OBJECT", "Misconfigured"),
        ("JOB_SUSPENDED", "Suspended"),
        ("STORAGE_INSUFFICIENT", "WaitingForVolume"),
    ],
)
def test_autoscalers_hear_their_word_only_where_capacity_is_missing(code: str, reason: str) -> None:
    assert condition_reason(Verdict(code)) == reason


def test_the_message_has_kube_schedulers_form() -> None:
    counted = Verdict("GPU_FULL", 3, (ReasonCount("GPU_FULL", "Insufficient nvidia.com/gpu", 3),))
    assert condition_message(counted).startswith("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    explained = msgspec.structs.replace(counted, limits=(Limit("gpus", "2 GPUs are free, and it asks for 8"),))
    said = condition_message(explained)
    assert said == (
        "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. 2 GPUs are free, and it asks for 8 (GPU_FULL)"
    ), "kube-scheduler's form, then our own sentence, then the code"
    long = Verdict("GPU_FULL", 3, limits=(Limit("gpus", "x" * 9000),))
    assert (len(condition_message(long)), code_of_message(condition_message(long))) == (4096, "GPU_FULL")
    full_disks = Verdict("STORAGE_INSUFFICIENT", 3, (ReasonCount("x", "node(s) exceed max volume count", 3),))
    assert condition_reason(full_disks) == "Unschedulable", "another node could bring that"
    secret = Verdict("KUEUE_QUOTA_INSUFFICIENT", 3, detail="team-b/secret-model holds all of it")
    assert condition_message(secret).startswith("0/3 nodes are available: ")
    assert "secret-model" not in condition_message(secret), "what others may not see stays out"
