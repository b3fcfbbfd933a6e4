"""Writes to Workloads and owners: one at a time per object, in order, and not again at once after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.apply.objects import job, local_queue, reference, workload
from tests.apply.scene import Scene
from tests.kube.fake_api import refused
from tests.kube.memory_client import lost_answer
from tests.kube.virtual_time import in_virtual_time, run_in_virtual_time, settle

from windlass.apply.workload_writer import WorkloadWriter
from windlass.kube.errors import ApiError, Conflict, LeaseLost, ServerUnavailable
from windlass.kube.resources import KUEUE_API_GROUP
from windlass.model.kueue import WorkloadObject

Action = Callable[[], Awaitable[None]]


def writer_of(scene: Scene) -> WorkloadWriter:
    return WorkloadWriter(scene.client, scene.cache, lambda: scene.leads, scene.client.resource_for)


class Steps:
    """Actions that say when they begin and end, and end when they are told to."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}

    def action(self, name: str, error: Exception | None = None) -> Action:
        self._ends[name] = asyncio.Event()

        async def run() -> None:
            self.said.append(f"{name} begins")
            await self._ends[name].wait()
            self.said.append(f"{name} ends")
            if error is not None:
                raise error

        return run

    def quick(self, name: str, error: Exception | None = None) -> Action:
        action = self.action(name, error)
        self._ends[name].set()
        return action

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await settle()


# Order


@in_virtual_time
async def test_a_write_under_way_is_not_started_again() -> None:
    writer, steps = writer_of(Scene()), Steps()
    assert writer.start_once("w", steps.action("first"))
    assert writer.is_busy("w")
    assert not writer.start_once("w", steps.action("second"))
    assert writer.start_once("other", steps.quick("other"))
    await settle()
    assert steps.said == ["first begins", "other begins", "other ends"]
    await steps.end("first")
    assert not writer.is_busy("w")
    assert writer.start_once("w", steps.quick("third"))
    await writer.drain()
    assert steps.said[-1] == "third ends"


@in_virtual_time
async def test_writes_to_one_object_follow_one_another_in_the_order_of_their_start() -> None:
    writer, steps = writer_of(Scene()), Steps()
    for name in ("first", "second", "third"):
        writer.start_after_previous("w", steps.action(name))
    await settle()
    assert steps.said == ["first begins"]
    assert writer.is_busy("w")
    await steps.end("first")
    await steps.end("second")
    assert steps.said[-2:] == ["second ends", "third begins"]
    assert writer.is_busy("w"), "until the last one has ended"
    await steps.end("third")
    assert not writer.is_busy("w")


@in_virtual_time
async def test_a_write_that_fails_does_not_stop_the_next_one() -> None:
    writer, steps = writer_of(Scene()), Steps()
    failing = writer.start_after_previous("w", steps.quick("first", refused(422, "no")))
    writer.start_after_previous("w", steps.quick("second"))
    await writer.drain()
    assert steps.said == ["first begins", "first ends", "second begins", "second ends"]
    with pytest.raises(ApiError):
        failing.result()


@in_virtual_time
async def test_draining_waits_for_everything_that_was_started() -> None:
    writer, steps = writer_of(Scene()), Steps()

    async def slow() -> None:
        await asyncio.sleep(100)
        writer.start_after_previous("later", steps.quick("later"))

    writer.start_after_previous("w", slow)
    await writer.drain()
    assert steps.said == ["later begins", "later ends"]


@in_virtual_time
async def test_a_bug_in_one_write_keeps_nothing_from_ending() -> None:
    writer, steps = writer_of(Scene()), Steps()
    writer.start_once("w", steps.quick("broken", ZeroDivisionError()))
    writer.start_once("other", steps.quick("other"))
    await writer.drain()
    assert "other ends" in steps.said
    assert writer.start_once("w", steps.quick("again"))
    await writer.drain()


@given(plan=st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([0.0, 1.0, 3.0])), max_size=12))
def test_no_two_writes_to_one_object_overlap_whatever_they_take(plan: list[tuple[str, float]]) -> None:
    async def main() -> None:
        writer, running, order = writer_of(Scene()), set[str](), list[tuple[str, int]]()

        def action(name: str, number: int, seconds: float) -> Action:
            async def run() -> None:
                assert name not in running
                running.add(name)
                await asyncio.sleep(seconds)
                running.remove(name)
                order.append((name, number))

            return run

        for number, (name, seconds) in enumerate(plan):
            writer.start_after_previous(name, action(name, number, seconds))
        await writer.drain()
        for name in "ab":
            assert [number for key, number in order if key == name] == [
                number for number, (key, _) in enumerate(plan) if key == name
            ]

    run_in_virtual_time(main())


# Failures


@pytest.mark.parametrize(
    "error", [refused(422, "no"), refused(403, "no"), refused(500, "etcd"), lost_answer(), LeaseLost("lost")]
)
@in_virtual_time
async def test_after_a_failure_the_same_write_waits_five_seconds(error: Exception) -> None:
    writer, steps = writer_of(Scene()), Steps()
    writer.start_once("w", steps.quick("first", error))
    await writer.drain()
    assert writer.start_once("other", steps.quick("other")), "only the same one"
    await asyncio.sleep(4.9)
    assert not writer.may_start("w")
    assert not writer.start_once("w", steps.quick("too early"))
    await asyncio.sleep(0.2)
    assert writer.start_once("w", steps.quick("second"))
    await writer.drain()
    assert "too early begins" not in steps.said


@pytest.mark.parametrize("error", [refused(404, "gone"), refused(409, "changed")])
@in_virtual_time
async def test_an_object_that_has_changed_is_no_failure(error: Exception) -> None:
    writer, steps = writer_of(Scene()), Steps()
    writer.start_once("w", steps.quick("first", error))
    await writer.drain()
    assert writer.start_once("w", steps.quick("second"))
    await writer.drain()


@in_virtual_time
async def test_a_follower_starts_nothing() -> None:
    scene, steps = Scene(), Steps()
    writer = writer_of(scene)
    scene.leads = False
    assert not writer.may_start("w")
    assert not writer.start_once("w", steps.quick("first"))
    scene.leads = True
    assert writer.start_once("w", steps.quick("first"))
    await writer.drain()


@in_virtual_time
async def test_pauses_in_force_survive_when_there_are_many() -> None:
    writer, steps = writer_of(Scene()), Steps()
    for number in range(1_001):
        writer.start_once(f"w{number}", steps.quick(f"w{number}", refused(422, "no")))
    await writer.drain()
    assert not any(writer.may_start(f"w{number}") for number in range(1_001))
    await asyncio.sleep(5.1)
    assert all(writer.may_start(f"w{number}") for number in range(1_001))
    assert not writer._not_before, "and those that are over are forgotten"


# Messages


@in_virtual_time
async def test_messages_to_one_object_are_five_seconds_apart() -> None:
    writer, steps = writer_of(Scene()), Steps()
    assert writer.start_once("w", steps.quick("first"), rate_limited=True)
    await writer.drain()
    await asyncio.sleep(4.9)
    assert not writer.start_once("w", steps.quick("too early"), rate_limited=True)
    assert writer.start_once("w", steps.quick("urgent")), "anything else is not held up by messages"
    await writer.drain()
    await asyncio.sleep(0.2)
    assert writer.start_once("w", steps.quick("second"), rate_limited=True)
    await writer.drain()
    assert "too early begins" not in steps.said


@in_virtual_time
async def test_a_message_is_skipped_while_something_else_is_written() -> None:
    writer, steps = writer_of(Scene()), Steps()
    writer.start_once("w", steps.action("admission"))
    await settle()
    assert not writer.start_once("w", steps.quick("message"), rate_limited=True)
    await steps.end("admission")
    assert writer.start_once("w", steps.quick("message"), rate_limited=True), "the skipped one counts not"
    await writer.drain()


@in_virtual_time
async def test_a_write_that_is_not_rate_limited_leaves_messages_free() -> None:
    writer, steps = writer_of(Scene()), Steps()
    writer.start_once("w", steps.quick("first"))
    await writer.drain()
    assert writer.start_once("w", steps.quick("message"), rate_limited=True)
    await writer.drain()


# Requests


@in_virtual_time
async def test_a_status_write_returns_and_remembers_its_version() -> None:
    scene = Scene(workload("w"))
    writer = writer_of(scene)
    version = await writer.patch_workload_status("team/w", {"conditions": []})
    assert version == scene.get("workloads", "w")["metadata"]["resourceVersion"]
    assert writer.written_versions == {"team/w": version}
    (sent,) = scene.client.writes()
    assert sent.path.endswith("/namespaces/team/workloads/w/status")
    assert "metadata" not in sent.body, "on whatever there is"


@in_virtual_time
async def test_a_status_write_on_a_version_refuses_any_other() -> None:
    scene = Scene(workload("w"))
    writer = writer_of(scene)
    known = scene.get("workloads", "w")["metadata"]["resourceVersion"]
    with pytest.raises(Conflict):
        await writer.patch_workload_status("team/w", {"conditions": []}, "1")
    assert writer.written_versions == {}
    written = await writer.patch_workload_status("team/w", {"admission": {"clusterQueue": "c"}}, known)
    assert int(written) > int(known)
    with pytest.raises(Conflict):
        await writer.patch_workload_status("team/w", {"conditions": []}, known)


@in_virtual_time
async def test_without_the_lease_nothing_is_sent() -> None:
    scene = Scene(workload("w"))
    writer = writer_of(scene)
    scene.leads = False
    with pytest.raises(LeaseLost):
        await writer.patch_workload_status("team/w", {"conditions": []})
    assert not scene.client.sent


@in_virtual_time
async def test_a_server_without_workloads_is_unavailable() -> None:
    scene = Scene(workload("w"))
    writer = writer_of(scene)
    assert writer.workload_resource().api_version == "kueue.x-k8s.io/v1beta2"
    del scene.api.groups["kueue.x-k8s.io/v1beta2"]
    with pytest.raises(ServerUnavailable, match="Workload"):
        writer.workload_resource()


@in_virtual_time
async def test_an_object_is_read_whole_and_only_by_its_uid() -> None:
    unread = {"backoffLimit": 3}
    scene = Scene(job("j", spec=unread))
    scene.put(job("j", spec=unread, namespace="other"), job("j2"))
    writer = writer_of(scene)
    raw = await writer.get_raw("Job", "batch", "team/j", "uid-j")
    assert (raw["apiVersion"], raw["kind"]) == ("batch/v1", "Job")
    assert raw["spec"]["backoffLimit"] == 3
    assert raw["metadata"]["namespace"] == "team"
    (request,) = scene.client.sent
    assert request.path == "/apis/batch/v1/namespaces/team/jobs", "a list, which RBAC grants"
    assert request.query == (("fieldSelector", "metadata.name=j"),)
    assert await writer.get_raw("Job", "batch", "team/j", "another") is None
    assert await writer.get_raw("Job", "batch", "team/missing", "uid-j") is None


@in_virtual_time
async def test_an_object_of_a_kind_that_is_not_served_is_none() -> None:
    scene = Scene()
    assert await writer_of(scene).get_raw("Job", "example.com", "team/j", "uid-j") is None
    assert not scene.client.sent


@pytest.mark.parametrize("suspended", [False, True])
@in_virtual_time
async def test_the_controller_of_a_workload_is_suspended_by_its_uid(suspended: bool) -> None:
    owner = job("j", suspend=not suspended)
    scene = Scene(owner, workload("w", owner=owner))
    writer = writer_of(scene)
    known = writer.workload("team/w")
    assert isinstance(known, WorkloadObject)
    await writer.suspend_owner(known, suspended)
    assert scene.get("jobs", "j")["spec"]["suspend"] is suspended
    (sent,) = scene.client.writes()
    assert sent.body["metadata"] == {"uid": "uid-j"}


@in_virtual_time
async def test_owners_that_cannot_be_suspended_are_left_alone() -> None:
    owner, replica_set = job("j"), {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
    others = [
        reference(owner, controller=False),
        reference({**replica_set, "metadata": {"name": "r", "uid": "r"}}),
        {**reference(owner), "apiVersion": "example.com/v1"},
    ]
    scene = Scene(owner, workload("w", ownerReferences=others), workload("alone"))
    writer = writer_of(scene)
    for key in ("team/w", "team/alone"):
        known = writer.workload(key)
        assert known is not None
        await writer.suspend_owner(known, True)
    assert not scene.client.sent


# Kueue


@pytest.mark.parametrize(
    ("is_live", "take_over", "queue", "managed"),
    [
        (False, (), "main", True),
        (False, (), "", True),
        (True, (), "main", False),
        (True, ("team/main",), "main", True),
        (True, ("team/main",), "other", False),
        (True, ("cluster",), "main", True),
        (True, ("another",), "main", False),
        (True, ("other/main",), "main", False),
    ],
)
@in_virtual_time
async def test_beside_a_live_kueue_only_queues_that_were_taken_over_are_managed(
    is_live: bool, take_over: tuple[str, ...], queue: str, managed: bool
) -> None:
    scene = Scene(local_queue("main"), workload("w", queue=queue), take_over=frozenset(take_over))
    scene.cache.responsibility.kueue_is_live = is_live
    writer = writer_of(scene)
    assert writer.manages_queue("team", queue) is managed
    assert writer.manages_workload("team/w") is managed
    assert not writer.manages_workload("team/missing")


@in_virtual_time
async def test_a_queue_without_a_namespace_is_in_the_default_one() -> None:
    scene = Scene(take_over=frozenset({"default/main"}))
    scene.cache.responsibility.kueue_is_live = True
    assert writer_of(scene).manages_queue("", "main")
    assert not writer_of(scene).manages_queue("team", "main")


@in_virtual_time
async def test_a_workload_is_found_as_decisions_see_it() -> None:
    scene = Scene(workload("w"))
    writer = writer_of(scene)
    assert writer.workload("team/w") is scene.cache.get("Workload", "team/w", KUEUE_API_GROUP)
    assert writer.workload("team/missing") is None
