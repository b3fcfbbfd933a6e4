"""Conditions of pods that wait: only what has changed, only the newest, not too often, and again after a failure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.apply.objects import condition, pod
from tests.kube.fake_api import FakeApi, refused
from tests.kube.memory_client import MemoryClient, lost_answer
from tests.kube.virtual_time import in_virtual_time, run_in_virtual_time, settle

from windlass.apply.conditions import PendingCondition, PodConditionWriter
from windlass.kube.events import Event, EventRecorder, EventRegarding
from windlass.model.unstructured import Unstructured

FULL = PendingCondition("team/p", "uid-p", "Unschedulable", "no room")


def like_full(**changes: Any) -> PendingCondition:
    fields = {"key": FULL.key, "uid": FULL.uid, "reason": FULL.reason, "message": FULL.message}
    return PendingCondition(**{**fields, **changes})


class Writing:
    """A writer that runs, and its server with the pods `p` and `p0` to `p19`."""

    def __init__(self) -> None:
        self.api = FakeApi()
        for name in ("p", *(f"p{number}" for number in range(20))):
            self.api.store("pods", pod(name))
        self.client = MemoryClient(self.api)
        self.recorder = EventRecorder(self.client, "test")
        self.leads = True
        self.writer = PodConditionWriter(self.client, self.recorder, lambda: self.leads)

    async def enqueue(self, *conditions: PendingCondition) -> list[str]:
        """What is written for them without time passing."""
        before = len(self.client.sent)
        for pending in conditions:
            self.writer.enqueue(pending)
        await settle()
        return self.messages(before)

    def messages(self, since: int = 0) -> list[str]:
        patches = [request for request in self.client.sent[since:] if request.path.endswith("/status")]
        return [patch.body["status"]["conditions"][0]["message"] for patch in patches]

    def written(self, name: str = "p") -> Unstructured:
        return condition(self.api.get("pods", f"team/{name}"), "PodScheduled")

    def events(self) -> list[Unstructured]:
        return list(self.api.objects.get("events", {}).values())


@asynccontextmanager
async def writing() -> AsyncIterator[Writing]:
    scene = Writing()
    tasks = [asyncio.create_task(scene.writer.run()), asyncio.create_task(scene.recorder.run())]
    try:
        yield scene
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(task.cancelled() for task in tasks), "a worker has failed"


@in_virtual_time
async def test_a_waiting_pod_gets_its_condition_and_an_event() -> None:
    async with writing() as scene:
        assert await scene.enqueue(FULL) == ["no room"]
        assert scene.written() == {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "no room",
            "lastProbeTime": None,
            "lastTransitionTime": "2026-01-01T00:06:40Z",
        }
        (event,) = scene.events()
        assert event["regarding"] == {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "p",
            "namespace": "team",
            "uid": "uid-p",
        }
        assert (event["reason"], event["type"], event["action"]) == (
            "FailedScheduling",
            "Warning",
            "Scheduling",
        )
        assert event["note"] == "no room"


@in_virtual_time
async def test_beyond_the_rate_limit_the_condition_is_written_without_its_event() -> None:
    async with writing() as scene:
        for number in range(500):
            regarding = EventRegarding("Pod", f"team/other-{number}")
            scene.recorder.record(Event(regarding, "FailedScheduling", "x", "Scheduling"), droppable=True)
        assert await scene.enqueue(FULL) == ["no room"]
        assert scene.recorder.dropped == 1


@in_virtual_time
async def test_other_conditions_of_the_pod_stay() -> None:
    async with writing() as scene:
        known = [{"type": "PodReadyToStartContainers", "status": "False"}]
        scene.api.store("pods", pod("p", status={"conditions": known}))
        await scene.enqueue(FULL)
        assert {kind["type"] for kind in scene.api.get("pods", "team/p")["status"]["conditions"]} == {
            "PodReadyToStartContainers",
            "PodScheduled",
        }


@pytest.mark.parametrize(
    ("node", "before", "after"),
    [(None, "n2", "n2"), ("", "n2", None), ("n1", "n2", "n1"), ("n1", None, "n1")],
)
@in_virtual_time
async def test_the_nominated_node_is_left_cleared_or_set(
    node: str | None, before: str | None, after: str | None
) -> None:
    async with writing() as scene:
        scene.api.store("pods", pod("p", status={"nominatedNodeName": before} if before else None))
        await scene.enqueue(like_full(nominated_node=node))
        assert scene.api.get("pods", "team/p")["status"].get("nominatedNodeName") == after


@in_virtual_time
async def test_the_same_is_not_written_twice() -> None:
    async with writing() as scene:
        assert await scene.enqueue(FULL) == ["no room"]
        assert await scene.enqueue(FULL, FULL) == []
        await asyncio.sleep(3600)
        assert await scene.enqueue(FULL) == []
        assert len(scene.events()) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"reason": "WaitingForQuota", "message": "other"},
        {"nominated_node": "n1", "message": "other"},
        {"nominated_node": "", "message": "other"},
    ],
)
@in_virtual_time
async def test_a_new_reason_or_node_is_written_at_once(change: dict[str, str]) -> None:
    async with writing() as scene:
        await scene.enqueue(FULL)
        assert await scene.enqueue(like_full(**change)) == ["other"]


@in_virtual_time
async def test_a_new_pod_of_the_same_name_gets_its_condition_at_once() -> None:
    async with writing() as scene:
        await scene.enqueue(FULL)
        scene.api.remove("pods", "team/p")
        scene.api.store("pods", pod("p", uid="another"))
        assert await scene.enqueue(like_full(uid="another", message="other")) == ["other"]
        assert scene.written()["message"] == "other"


@in_virtual_time
async def test_a_new_message_for_the_same_reason_waits_ten_seconds() -> None:
    async with writing() as scene:
        await scene.enqueue(FULL)
        await asyncio.sleep(9.9)
        assert await scene.enqueue(like_full(message="2")) == []
        await asyncio.sleep(0.2)
        assert await scene.enqueue(like_full(message="3")) == ["3"]
        await asyncio.sleep(9.9)
        assert await scene.enqueue(like_full(message="4")) == [], "ten seconds from the last one"


@in_virtual_time
async def test_only_the_newest_is_written() -> None:
    async with writing() as scene:
        held = scene.client.hold("PATCH status")
        await scene.enqueue(*(like_full(key=f"team/p{number}", uid=f"uid-p{number}") for number in range(8)))
        assert len(held.requests) == 8, "all workers are busy"
        assert await scene.enqueue(FULL, like_full(reason="WaitingForQuota", message="newer")) == []
        held.release()
        await settle()
        assert scene.messages()[8:] == ["newer"]


@in_virtual_time
async def test_who_waits_again_for_what_is_written_already_gets_nothing_in_between() -> None:
    async with writing() as scene:
        await scene.enqueue(FULL)
        held = scene.client.hold("PATCH status")
        await scene.enqueue(*(like_full(key=f"team/p{number}", uid=f"uid-p{number}") for number in range(8)))
        await scene.enqueue(like_full(reason="WaitingForQuota", message="for a moment"), FULL)
        held.release()
        await settle()
        assert scene.messages().count("for a moment") == 0


@pytest.mark.parametrize("error", [refused(500, "etcd"), refused(403, "no"), refused(422, "no"), lost_answer()])
@in_virtual_time
async def test_what_failed_is_written_with_the_next_decision(error: Exception) -> None:
    async with writing() as scene:
        scene.client.fail("PATCH pods/p/status", error, times=1)
        assert await scene.enqueue(FULL) == ["no room"]
        assert scene.writer.failures == 1
        assert scene.events() == [], "nobody is told what isn't so"
        assert await scene.enqueue(FULL) == ["no room"]
        assert scene.written()["message"] == "no room"
        assert (scene.writer.failures, len(scene.events())) == (1, 1)


@in_virtual_time
async def test_a_server_that_fails_gets_eight_writes_in_five_seconds() -> None:
    """Each of the workers pauses after its failure."""
    async with writing() as scene:
        scene.client.fail("PATCH status", refused(500, "etcd"))
        await scene.enqueue(*(like_full(key=f"team/p{number}", uid=f"uid-p{number}") for number in range(20)))
        assert len(scene.messages()) == 8
        await asyncio.sleep(4.9)
        assert len(scene.messages()) == 8
        await asyncio.sleep(0.2)
        assert len(scene.messages()) == 16
        assert scene.writer.failures == 16


@pytest.mark.parametrize("error", [refused(404, "gone"), refused(409, "replaced")])
@in_virtual_time
async def test_a_pod_that_has_gone_is_left_alone(error: Exception) -> None:
    async with writing() as scene:
        scene.client.fail("PATCH pods/p/status", error)
        await scene.enqueue(FULL)
        assert (scene.writer.failures, scene.events()) == (0, [])
        assert await scene.enqueue(FULL) == [], "until the watch shows what became of it"
        assert await scene.enqueue(like_full(key="team/p0", uid="uid-p0")) == ["no room"], "without a pause"


@in_virtual_time
async def test_without_the_lease_nothing_is_written_and_with_it_again_everything() -> None:
    async with writing() as scene:
        scene.leads = False
        assert await scene.enqueue(FULL) == []
        assert (scene.writer.failures, scene.events()) == (0, [])
        scene.leads = True
        assert await scene.enqueue(FULL) == ["no room"]


@in_virtual_time
async def test_a_new_leader_trusts_nothing_that_it_wrote_in_an_earlier_term() -> None:
    """Another leader may have written something else meanwhile."""
    async with writing() as scene:
        await scene.enqueue(FULL)
        other = {"type": "PodScheduled", "status": "False", "reason": "WaitingForQuota", "message": "theirs"}
        scene.api.store("pods", pod("p", status={"conditions": [other]}))
        scene.writer.start_leading()
        assert await scene.enqueue(FULL) == ["no room"]
        assert scene.written()["message"] == "no room"


@in_virtual_time
async def test_a_pod_that_is_forgotten_starts_anew() -> None:
    async with writing() as scene:
        await scene.enqueue(FULL)
        scene.writer.forget("team/p")
        assert await scene.enqueue(like_full(message="other")) == ["other"], "no ten seconds are waited"
        scene.writer.forget("team/unknown")


@in_virtual_time
async def test_what_is_forgotten_before_it_was_written_is_never_written() -> None:
    async with writing() as scene:
        held = scene.client.hold("PATCH status")
        await scene.enqueue(*(like_full(key=f"team/p{number}", uid=f"uid-p{number}") for number in range(8)))
        await scene.enqueue(FULL)
        scene.writer.forget("team/p")
        held.release()
        await settle()
        assert len(scene.messages()) == 8


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["p0", "p1"]),
        st.sampled_from(["Unschedulable", "WaitingForQuota"]),
        st.sampled_from("abc"),
        st.sampled_from([0, 1, 4, 11]),
    ),
    max_size=15,
)
Steps = list[tuple[str, str, str, int]]


@given(steps=STEPS, failing=st.sets(st.integers(0, 14)))
@settings(max_examples=30)
def test_whatever_fails_the_newest_is_written_in_the_end(steps: Steps, failing: set[int]) -> None:
    async def main() -> None:
        newest: dict[str, PendingCondition] = {}
        async with writing() as scene:
            for number, (name, reason, message, pause) in enumerate(steps):
                if number in failing:
                    scene.client.fail(f"PATCH pods/{name}/status", refused(500, "etcd"), times=1)
                newest[name] = PendingCondition(f"team/{name}", f"uid-{name}", reason, message)
                await scene.enqueue(newest[name])
                await asyncio.sleep(pause)
            scene.client.recover()
            await asyncio.sleep(30)
            await scene.enqueue(*newest.values())
            for name, pending in newest.items():
                written = scene.written(name)
                assert (written["reason"], written["message"]) == (pending.reason, pending.message)

    run_in_virtual_time(main())


@given(steps=STEPS)
@settings(max_examples=30)
def test_without_failures_a_reason_is_written_at_once_and_a_message_ten_seconds_after_the_last(
    steps: Steps,
) -> None:
    async def main() -> None:
        last: dict[str, tuple[str, str, float]] = {}
        async with writing() as scene:
            for name, reason, message, pause in steps:
                written = await scene.enqueue(PendingCondition(f"team/{name}", f"uid-{name}", reason, message))
                now = time.monotonic()
                old_reason, old_message, at = last.get(name, ("", "", 0.0))
                is_due = reason != old_reason or (message != old_message and now - at >= 10)
                assert written == ([message] if is_due else [])
                if is_due:
                    last[name] = reason, message, now
                await asyncio.sleep(pause)

    run_in_virtual_time(main())
