"""Pods that opted in to being asked are told when a drain needs their GPUs, and are left until then."""

from __future__ import annotations

import msgspec
import pytest
from tests.operator.play import CHANGE
from tests.operator.test_apply import applier
from tests.operator.test_repair import ended, started
from tests.operator.world import World

from windlass.model.names.windlass import LEAVE_ANNOTATION
from windlass.model.notices import LeaveRequest
from windlass.model.times import parse_timestamp
from windlass.operator.cache import observed_object
from windlass.operator.pods import PodView
from windlass.operator.writes import TellPods

ASKED_TO_BE = {"windlass.dev/on-preemption": "ask"}


def leave_of(world: World, key: str) -> LeaveRequest | None:
    return world.pods[key].leave if key in world.pods else None


def test_a_repair_tells_the_pod_and_evicts_it_only_when_its_time_is_over() -> None:
    world, play = started()
    world.reschedules = False
    world.fail_gpu("gpu-000", 3)
    world.add_pod("team/train", "gpu-000", {3}, ask_seconds=120)  # it holds the GPU all the same
    play.run(lambda: leave_of(world, "team/train") is not None, 600)
    told_at, told = world.now, leave_of(world, "team/train")
    assert told is not None
    assert told.cause == "repair gpu-000-3-1"
    assert 100 <= parse_timestamp(told.until) - told_at <= 120
    play.run(lambda: "team/train" not in world.pods, 600)
    assert world.now == parse_timestamp(told.until) + 30, "the scheduler has some time to evict it"
    play.run(lambda: ended(world, "gpu-000-3-1"), 3600)
    assert world.repair("gpu-000-3-1").status.phase == "Returned"


def test_what_the_scheduler_has_moved_is_not_waited_for() -> None:
    world, play = started()
    world.reschedules = False
    world.fail_gpu("gpu-000", 3)
    world.add_pod("team/train", "gpu-000", {3}, ask_seconds=120)  # it holds the GPU all the same
    play.run(lambda: leave_of(world, "team/train") is not None, 600)
    left = world.now
    del world.pods["team/train"]
    play.run(lambda: ended(world, "gpu-000-3-1"), 3600)
    assert world.now - left < 60


def test_it_is_taken_back_when_the_fault_ends_by_itself() -> None:
    world, play = started()
    world.fail_gpu("gpu-000", 3)
    world.add_pod("team/train", "gpu-000", {3}, ask_seconds=300)
    world.add_pod("team/own", "gpu-000", {5}, ask_seconds=300)
    world.pods["team/own"] = msgspec.structs.replace(
        world.pods["team/own"], leave=LeaveRequest("2030-01-01T00:00:00Z", "a person wants it")
    )
    play.run(lambda: leave_of(world, "team/train") is not None, 600)
    world.heal("gpu-000")
    play.run(lambda: ended(world, "gpu-000-3-1"), 3600)
    assert leave_of(world, "team/train") is None
    assert leave_of(world, "team/own") is not None, "what a person has written is not ours to take back"


def test_pods_that_have_not_opted_in_are_evicted_at_once() -> None:
    world, play = started()
    world.reschedules = False
    world.fail_gpu("gpu-000", 3)
    world.add_pod("team/plain", "gpu-000", {3})
    play.run(lambda: "team/plain" not in world.pods, 120)
    assert "team/plain" not in world.pods


def test_a_driver_change_gives_every_gang_its_time() -> None:
    world, play = started(3)
    told: dict[str, LeaveRequest] = {}
    for name in world.nodes:
        world.add_pod(f"team/{name}", name, set(range(8)), ask_seconds=90)
    world.reschedules = False
    world.add("FleetChange", "r590", CHANGE)

    def is_done() -> bool:
        told.update({key: leave for key in world.pods if (leave := leave_of(world, key)) is not None})
        return world.change("r590").status.phase == "Succeeded"

    play.run(is_done, 7200)
    assert is_done()
    assert sorted(told) == [f"team/{name}" for name in world.nodes]
    assert {leave.cause for leave in told.values()} == {"change r590"}


@pytest.mark.asyncio
async def test_it_is_an_annotation_of_the_pod() -> None:
    acting, client, _ = applier()
    await acting.apply(TellPods((("team/a", "1"),), '{"until":"2027-01-01T00:00:00Z"}'))
    await acting.apply(TellPods((("team/a", "1"),), None))
    bodies = [msgspec.json.decode(sent.encoded_body or b"")["metadata"] for sent in client.sent]
    assert [body["annotations"][LEAVE_ANNOTATION] for body in bodies] == ['{"until":"2027-01-01T00:00:00Z"}', None]
    assert [body["uid"] for body in bodies] == ["1", "1"], "never another pod of the same name"


@pytest.mark.parametrize(
    ("annotations", "seconds"),
    [({}, 0), (ASKED_TO_BE, 60), ({**ASKED_TO_BE, "windlass.dev/checkpoint-grace": "3h"}, 600)],
)
def test_how_long_a_pod_needs_is_read_from_it(annotations: dict[str, str], seconds: int) -> None:
    leave = '{"until": "2027-01-01T00:00:00Z", "cause": "repair x"}'
    metadata = {"name": "p", "namespace": "a", "annotations": {**annotations, LEAVE_ANNOTATION: leave}}
    spec = {"nodeName": "n", "containers": []}
    found = observed_object({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    assert isinstance(found, PodView)
    assert (found.ask_seconds, found.leave) == (seconds, LeaveRequest("2027-01-01T00:00:00Z", "repair x"))
