"""Binds of a plan: gangs whole or not at all, volumes first, refusals as facts, and a rest after a failure."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.apply.objects import (
    custom,
    gang_pod,
    pod,
)
from tests.apply.plans import (
    NODES,
    binds,
    bound,
    carry_out,
    refusals,
    told,
)
from tests.apply.scene import Scene
from tests.kube.fake_api import refused
from tests.kube.memory_client import lost_answer
from tests.kube.virtual_time import START, in_virtual_time, settle

from windlass.kube.events import Event, EventRegarding
from windlass.model.decision import Bind, DeviceGrant
from windlass.model.names.kubernetes import SELECTED_NODE_ANNOTATION
from windlass.model.plan import Plan
from windlass.model.refusal import Refusal
from windlass.model.unstructured import Unstructured

# Binds


@in_virtual_time
async def test_a_bind_is_assumed_before_it_is_sent() -> None:
    scene = Scene(*NODES, pod("p", gpus=2))
    held = scene.client.hold("POST binding")
    plan = Plan(binds=(Bind("team/p", "n1", (DeviceGrant(0), DeviceGrant(1))),))
    scene.execute(plan)
    assert scene.cache.assumed == {"team/p": "n1"}
    assert scene.snapshot().pods.pending().size == 0, "the next decision counts it"
    await settle()
    assert len(held.requests) == 1
    held.release()
    await scene.executor.drain()
    assert scene.get("pods", "p")["metadata"]["annotations"] == {"windlass.dev/devices": "0,1"}


@in_virtual_time
async def test_a_bound_pod_gets_an_event_and_is_counted() -> None:
    async with Scene(*NODES, pod("p")).running() as scene:
        await carry_out(scene, binds(p="n1"))
        await settle()
        (event,) = scene.events("p")
        assert (event["reason"], event["type"], event["action"]) == ("Scheduled", "Normal", "Binding")
        assert event["note"] == "Successfully assigned team/p to n1"
        assert event["regarding"]["uid"] == "uid-p"
        assert scene.metric("windlass_binds_total", end="bound") == 1
        assert scene.metric("scheduler_schedule_attempts_total", result="scheduled", profile="windlass") == 1
        assert scene.metric("scheduler_pod_scheduling_sli_duration_seconds_count") == 1
        # Created at midnight; the scene begins 400 seconds later.
        assert scene.metric("scheduler_pod_scheduling_sli_duration_seconds_sum") == pytest.approx(400)


@in_virtual_time
async def test_a_pod_from_the_future_has_waited_for_nothing() -> None:
    scene = Scene(*NODES, pod("p", creationTimestamp="2026-02-01T00:00:00Z"))
    await carry_out(scene, binds(p="n1"))
    assert scene.metric("scheduler_pod_scheduling_sli_duration_seconds_count") == 1
    assert scene.metric("scheduler_pod_scheduling_sli_duration_seconds_sum") == 0


@in_virtual_time
async def test_a_pod_that_is_deleted_as_it_is_bound_is_counted_as_a_bind_only() -> None:
    scene = Scene(*NODES, pod("p"))
    held = scene.client.hold("POST binding")
    scene.execute(binds(p="n1"))
    await settle()
    scene.cache.pods.pop("team/p")
    held.release()
    await scene.executor.drain()
    assert scene.metric("windlass_binds_total", end="bound") == 1
    assert scene.metric("scheduler_schedule_attempts_total", result="scheduled", profile="windlass") == 0


def _being_deleted(scene: Scene) -> None:
    scene.put(pod("g-0", deletionTimestamp="2026-01-01T00:00:00Z"))


def _deleted(scene: Scene) -> None:
    scene.api.remove("pods", "team/g-0")


def _bound_elsewhere(scene: Scene) -> None:
    scene.put(pod("g-0", on="n2"))


def _without_its_node(scene: Scene) -> None:
    scene.api.remove("nodes", "n2")


@pytest.mark.parametrize("change", [_being_deleted, _deleted, _bound_elsewhere, _without_its_node])
@in_virtual_time
async def test_a_gang_is_bound_whole_or_not_at_all(change: Any) -> None:
    scene = Scene(*NODES, gang_pod("g-0", "g"), gang_pod("g-1", "g"), pod("p"))
    snapshot = scene.snapshot()
    change(scene)
    scene.watch()
    scene.execute(binds(g_0="n2", g_1="n1", p="n1"), snapshot)
    await scene.executor.drain()
    assert bound(scene) == {"p": "n1"}
    assert scene.cache.assumed == {"team/p": "n1"}


@in_virtual_time
async def test_changes_of_other_pods_and_nodes_hold_nothing_up() -> None:
    scene = Scene(*NODES, gang_pod("g-0", "g"), gang_pod("g-1", "g"), pod("other"))
    snapshot = scene.snapshot()
    scene.api.remove("pods", "team/other")
    scene.api.remove("nodes", "n2")
    scene.watch()
    scene.execute(binds(g_0="n1", g_1="n1"), snapshot)
    await scene.executor.drain()
    assert bound(scene) == {"g-0": "n1", "g-1": "n1"}


@in_virtual_time
async def test_a_stale_pod_is_not_nominated_either() -> None:
    async with Scene(*NODES, pod("p"), pod("q")).running() as scene:
        snapshot = scene.snapshot()
        scene.api.remove("nodes", "n2")
        scene.watch()
        waiting = tuple(Bind(f"team/{name}", on, after=("team/low",)) for name, on in (("p", "n2"), ("q", "n1")))
        scene.execute(Plan(binds=waiting), snapshot)
        await asyncio.sleep(1)
        assert (told(scene, "p"), told(scene, "q")[0]) == (("", ""), "WaitingForVictims")


@in_virtual_time
async def test_nobody_is_bound_before_his_place_is_free() -> None:
    scene = Scene(*NODES, pod("p"), pod("q"))
    plan = Plan(binds=(Bind("team/p", "n1", after=("team/victim",)), Bind("team/q", "n2")))
    await carry_out(scene, plan)
    assert bound(scene) == {"q": "n2"}
    assert scene.cache.assumed == {"team/q": "n2"}


@pytest.mark.parametrize("is_live", [False, True])
@in_virtual_time
async def test_gates_are_removed_first_and_by_whoever_decides(is_live: bool) -> None:
    scene = Scene(*NODES, pod("p", gates=["kueue.x-k8s.io/admission", "example.com/other"]), pod("q"))
    scene.cache.responsibility.kueue_is_live = is_live
    await carry_out(scene, binds(p="n1", q="n1"))
    assert bound(scene) == {"q": "n1"}
    assert scene.cache.assumed == {"team/q": "n1"}, "a later decision binds it"
    assert scene.get("pods", "p")["spec"]["schedulingGates"] == (
        [{"name": "kueue.x-k8s.io/admission"}] * is_live + [{"name": "example.com/other"}]
    )


# Binds that fail


@in_virtual_time
async def test_a_refused_bind_is_a_fact_for_thirty_seconds() -> None:
    async with Scene(*NODES, pod("p")).running() as scene:
        scene.client.fail("POST binding", refused(422, "not on this node"))
        await carry_out(scene, binds(p="n1"))
        assert refusals(scene) == [
            Refusal("bind", "team/p", int(START) + 30, "uid-p", node="n1", message="not on this node")
        ]
        assert scene.metric("windlass_refusals_total", kind="bind") == 1
        assert scene.metric("windlass_binds_total", end="refused") == 1
        assert scene.metric("scheduler_schedule_attempts_total", result="error", profile="windlass") == 1
        await settle()
        (event,) = scene.events("p")
        assert (event["reason"], event["type"], event["action"]) == ("FailedScheduling", "Warning", "Binding")
        assert event["note"].startswith("binding to n1 failed: ")
        await asyncio.sleep(29)
        assert refusals(scene)
        await asyncio.sleep(1.1)
        assert not refusals(scene)


@in_virtual_time
async def test_beyond_the_rate_limit_events_of_failed_binds_are_dropped_and_of_binds_are_not() -> None:
    scene = Scene(*NODES, pod("p"), pod("q"))
    for number in range(500):
        other = Event(EventRegarding("Pod", f"team/other-{number}"), "FailedScheduling", "x", "Scheduling")
        scene.recorder.record(other, droppable=True)
    scene.client.fail("POST pods/p/binding", refused(422, "no"))
    await carry_out(scene, binds(p="n1"))
    assert scene.recorder.dropped == 1
    await carry_out(scene, binds(q="n1"))
    assert scene.recorder.dropped == 1


@pytest.mark.parametrize("error", [refused(404, "gone"), refused(409, "taken")])
@in_virtual_time
async def test_a_pod_that_has_gone_is_no_failure(error: Exception) -> None:
    async with Scene(*NODES, pod("p")).running() as scene:
        scene.client.fail("POST binding", error)
        await carry_out(scene, binds(p="n1"))
        await settle()
        assert scene.events() == []
        assert refusals(scene) == []
        assert scene.metric("windlass_binds_total", end="gone") == 1
        assert scene.metric("scheduler_schedule_attempts_total", result="error", profile="windlass") == 0
        assert scene.cache.assumed == {}, "what it was to use is free"


@in_virtual_time
async def test_no_answer_is_no_refusal() -> None:
    """What the server could not say tells nothing about the node."""
    scene = Scene(*NODES, pod("p"))
    scene.client.fail("POST binding", lost_answer())
    await carry_out(scene, binds(p="n1"))
    assert refusals(scene) == []
    assert scene.metric("windlass_binds_total", end="refused") == 1


@in_virtual_time
async def test_a_pod_whose_bind_failed_rests_longer_and_longer_up_to_ten_seconds() -> None:
    scene = Scene(*NODES, pod("p"))
    scene.client.fail("POST binding", refused(422, "no"))
    pauses = []
    for _ in range(40):
        await carry_out(scene, binds(p="n1"))
        began = asyncio.get_running_loop().time()
        assert scene.snapshot().pods.pending().size == 0, "it is left out of decisions"
        while not scene.snapshot().pods.pending().size:
            await asyncio.sleep(0.01)
        pauses.append(asyncio.get_running_loop().time() - began)
    assert 0.5 <= pauses[0] <= 1.02
    assert pauses[1] <= 2.02
    assert 9.0 < max(pauses) <= 10.02
    scene.client.recover()
    await carry_out(scene, binds(p="n1"))
    assert bound(scene) == {"p": "n1"}


@in_virtual_time
async def test_after_a_bind_or_a_deletion_the_rest_begins_anew() -> None:
    scene = Scene(*NODES, pod("p"))
    for change in ("bound", "deleted"):
        scene.client.fail("POST binding", refused(422, "no"))
        for _ in range(8):
            await carry_out(scene, binds(p="n1"))
            await asyncio.sleep(10.1)
        scene.client.recover()
        if change == "bound":
            await carry_out(scene, binds(p="n1"))
        scene.api.remove("pods", "team/p")
        scene.watch()
        scene.snapshot()
        scene.put(pod("p", uid=f"after it was {change}"))
        scene.watch()
        scene.snapshot()
        scene.client.fail("POST binding", refused(422, "no"), times=1)
        await carry_out(scene, binds(p="n1"))
        await asyncio.sleep(1.1)
        assert scene.snapshot().pods.pending().size == 1, "a second at most, as at first"
        scene.client.recover()


# Volumes


def claim(phase: str, node_name: str = "") -> Unstructured:
    metadata = {"annotations": {SELECTED_NODE_ANNOTATION: node_name}} if node_name else {}
    spec = {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}
    return custom("v1", "PersistentVolumeClaim", "data", metadata=metadata, spec=spec, status={"phase": phase})


STORAGE_CLASS = custom(
    "storage.k8s.io/v1",
    "StorageClass",
    "fast",
    metadata={"namespace": ""},
    provisioner="example.com/disk",
    volumeBindingMode="WaitForFirstConsumer",
)
DISK = custom(
    "v1",
    "PersistentVolume",
    "disk",
    metadata={"namespace": ""},
    spec={"capacity": {"storage": "2Gi"}, "storageClassName": "fast"},
    status={"phase": "Available"},
)
WITH_CLAIM = pod("p", spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]})


@in_virtual_time
async def test_a_pod_is_bound_after_its_claim() -> None:
    scene = Scene(*NODES, STORAGE_CLASS, claim("Pending"), WITH_CLAIM)
    scene.execute(binds(p="n1"))
    await asyncio.sleep(5)
    assert [request.path.rpartition("/")[2] for request in scene.client.writes()] == ["data"]
    scene.put(claim("Bound", "n1"))
    scene.watch()
    scene.snapshot()
    await scene.executor.drain()
    assert bound(scene) == {"p": "n1"}


@in_virtual_time
async def test_a_claim_takes_an_existing_volume_of_the_node() -> None:
    scene = Scene(*NODES, STORAGE_CLASS, DISK, claim("Pending"), WITH_CLAIM)
    scene.execute(binds(p="n1"))
    await asyncio.sleep(1)
    (written,) = scene.client.writes()
    assert written.path == "/api/v1/persistentvolumes/disk"
    assert written.body["spec"]["claimRef"]["name"] == "data"
    scene.put(claim("Bound"))
    scene.watch()
    scene.snapshot()
    await scene.executor.drain()


@in_virtual_time
async def test_a_claim_that_is_bound_already_is_not_written() -> None:
    scene = Scene(*NODES, STORAGE_CLASS, claim("Bound"), WITH_CLAIM)
    await carry_out(scene, binds(p="n1"))
    assert [request.path.rpartition("/")[2] for request in scene.client.writes()] == ["binding"]


@in_virtual_time
async def test_who_loses_the_lease_while_volumes_are_bound_binds_nothing() -> None:
    scene = Scene(*NODES, STORAGE_CLASS, claim("Pending"), WITH_CLAIM)
    scene.execute(binds(p="n1"))
    await asyncio.sleep(1)
    scene.leads = False
    await scene.executor.drain()
    assert bound(scene) == {}
