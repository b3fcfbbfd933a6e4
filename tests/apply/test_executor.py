"""A plan carried out: gangs whole or not at all, nothing of Kueue's, refusals as facts, and pods told why they wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.apply.objects import (
    admission,
    budget,
    condition,
    custom,
    gang_pod,
    job,
    node,
    pod,
    queues,
    workload,
)
from tests.apply.scene import Scene
from tests.kube.fake_api import refused
from tests.kube.memory_client import lost_answer
from tests.kube.virtual_time import START, in_virtual_time, settle

from windlass.kube.errors import ApiError
from windlass.kube.events import Event, EventRegarding
from windlass.kube.request import Request
from windlass.model.decision import Bind, DeviceGrant, Evict, Hold, Reserve
from windlass.model.names.kubernetes import SELECTED_NODE_ANNOTATION
from windlass.model.plan import Plan
from windlass.model.refusal import Refusal
from windlass.model.unstructured import Unstructured
from windlass.model.verdict import ReasonCount, Verdict

NODES = (node("n1"), node("n2"))
FULL = Verdict("GPU_FULL", 2, counts=(ReasonCount("GPU_FULL", "Insufficient nvidia.com/gpu", 2),))
FULL_MESSAGE = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. (GPU_FULL)"


def binds(**nodes: str) -> Plan:
    return Plan(binds=tuple(Bind(f"team/{name.replace('_', '-')}", on) for name, on in nodes.items()))


def bound(scene: Scene) -> dict[str, str]:
    """Pod → node, of every bind that was sent."""
    sent = (request for request in scene.client.writes() if request.path.endswith("/binding"))
    return {request.path.split("/")[-2]: request.body["target"]["name"] for request in sent}


def evictions(scene: Scene) -> list[str]:
    """Pods that were evicted, without dry runs."""
    sent = (request for request in scene.client.writes() if request.path.endswith("/eviction"))
    return [request.path.split("/")[-2] for request in sent if not request.query]


def refusals(scene: Scene) -> list[Refusal]:
    found = scene.snapshot().refusals
    return [*found.evictions.values(), *(refusal for kept in found.binds.values() for refusal in kept)]


def told(scene: Scene, name: str) -> tuple[str, str]:
    """Reason and message of the pod's condition; empty if it has none."""
    found = condition(scene.get("pods", name), "PodScheduled")
    return found.get("reason", ""), found.get("message", "")


def condition_writes(scene: Scene) -> list[Request]:
    return [request for request in scene.client.writes(of="PATCH") if request.path.endswith("/status")]


async def carry_out(scene: Scene, plan: Plan) -> None:
    scene.execute(plan)
    await scene.executor.drain()


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
    scene.cache.kueue_is_live = is_live
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


# Evictions


def evict(workload_key: str, *pods: str, preemptor: str = "team/urgent", reason: str = "Priority") -> Evict:
    return Evict(workload_key, tuple(f"team/{name}" for name in pods), preemptor, reason)


@in_virtual_time
async def test_victims_are_evicted_and_counted() -> None:
    async with Scene(*NODES, pod("a", on="n1"), pod("b", on="n2")).running() as scene:
        await carry_out(scene, Plan(evicts=(evict("team/a", "a"), evict("team/b", "b"))))
        assert evictions(scene) == ["a", "b"]
        assert scene.metric("windlass_evicted_pods_total") == 2
        await settle()
        assert [event["reason"] for event in scene.events()] == ["Preempted", "Preempted"]


@in_virtual_time
async def test_the_victims_of_one_preemptor_go_together_and_those_of_another_by_themselves() -> None:
    trees = [pod(name, on="n1", labels={"app": name}) for name in "abc"]
    scene = Scene(*NODES, *trees, budget("keeps", {"app": "a"}))
    plan = Plan(evicts=(evict("team/a", "a"), evict("team/b", "b"), evict("team/c", "c", preemptor="team/second")))
    await carry_out(scene, plan)
    assert evictions(scene) == ["c"]


@in_virtual_time
async def test_a_workload_that_goes_on_its_own_account_is_its_own_preemptor() -> None:
    trees = [pod(name, on="n1", labels={"app": name}) for name in "ab"]
    scene = Scene(*NODES, *trees, budget("keeps", {"app": "a"}))
    own = [evict(f"team/{name}", name, preemptor="", reason="DurationExceeded") for name in "ab"]
    await carry_out(scene, Plan(evicts=tuple(own)))
    assert evictions(scene) == ["b"]
    assert [refusal.for_workload for refusal in refusals(scene)] == ["team/a"]


@in_virtual_time
async def test_pods_that_have_gone_or_are_going_are_not_evicted() -> None:
    going = pod("going", on="n1", deletionTimestamp="2026-01-01T00:00:00Z")
    scene = Scene(*NODES, going, pod("stays", on="n1"))
    await carry_out(scene, Plan(evicts=(evict("team/g", "going", "gone", "stays"), evict("team/h", "going"))))
    assert evictions(scene) == ["stays"]
    assert {request.path.split("/")[-2] for request in scene.client.writes()} == {"stays"}


@in_virtual_time
async def test_a_refused_eviction_is_a_fact_for_a_minute() -> None:
    scene = Scene(*NODES, pod("a", on="n1", labels={"app": "web"}), budget("web", {"app": "web"}))
    await carry_out(scene, Plan(evicts=(evict("team/a", "a"),)))
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    assert refusals(scene) == [
        Refusal(
            "eviction",
            "team/a",
            int(START) + 60,
            "uid-a",
            for_workload="team/urgent",
            budget="team/web",
            message=message,
        )
    ]
    assert scene.metric("windlass_refusals_total", kind="eviction") == 1
    await asyncio.sleep(59)
    assert refusals(scene)
    await asyncio.sleep(1.1)
    assert not refusals(scene)


@in_virtual_time
async def test_a_refusal_of_a_webhook_names_no_budget() -> None:
    scene = Scene(*NODES, pod("a", on="n1"), budget("web", {"app": "web"}))
    scene.client.fail("POST pods/a/eviction", refused(403, "denied"))
    await carry_out(scene, Plan(evicts=(evict("team/a", "a"),)))
    (refusal,) = refusals(scene)
    assert (refusal.budget, refusal.message) == ("", "denied")


@in_virtual_time
async def test_a_pod_that_goes_while_its_eviction_is_refused_leaves_no_fact() -> None:
    scene = Scene(*NODES, pod("a", on="n1"))
    scene.client.fail("POST pods/a/eviction", refused(403, "denied"))
    held = scene.client.hold("POST pods/a/eviction")
    scene.execute(Plan(evicts=(evict("team/a", "a"),)))
    await settle()
    scene.api.remove("pods", "team/a")
    scene.watch()
    scene.snapshot()
    held.release()
    await scene.executor.drain()
    assert refusals(scene) == []
    assert scene.metric("windlass_refusals_total", kind="eviction") == 0


@pytest.mark.parametrize(
    "error",
    [
        refused(429, "Cannot evict pod as it would violate the pod's disruption budget."),
        refused(403, "admission webhook denied the request"),
        refused(500, "This pod has more than one PodDisruptionBudget, which …"),
    ],
)
@in_virtual_time
async def test_after_a_refusal_the_next_decision_takes_another_victim(error: ApiError) -> None:
    trees = [pod(name, on=f"n{at}", gpus=8, labels={"app": name}) for at, name in ((1, "a"), (2, "b"))]
    scene = Scene(*NODES, *trees, pod("urgent", gpus=8, priority=9), budget("keeps", {"app": "a"}, allowed=1))
    scene.client.fail("POST pods/a/eviction", error)
    first = scene.decide()
    await scene.executor.drain()
    assert [decision.workload for decision in first.evicts] == ["team/a"]
    assert evictions(scene) == []
    second = scene.decide()
    await scene.executor.drain()
    assert [decision.workload for decision in second.evicts] == ["team/b"]
    assert evictions(scene) == ["b"]


@in_virtual_time
async def test_after_a_refusal_the_next_decision_takes_another_node() -> None:
    scene = Scene(*NODES, pod("p"))
    scene.client.fail("POST binding", refused(422, "not on this node"), times=1)
    (first,) = scene.decide().binds
    await scene.executor.drain()
    await asyncio.sleep(1.1)
    (second,) = scene.decide().binds
    await scene.executor.drain()
    assert {first.node, second.node} == {"n1", "n2"}
    assert scene.get("pods", "p")["spec"]["nodeName"] == second.node


@pytest.mark.parametrize("is_live", [False, True])
@in_virtual_time
async def test_a_queued_workload_is_stopped_by_its_workload_or_left_to_kueue(is_live: bool) -> None:
    train = job("train", suspend=False)
    running = workload("w", owner=train, status={"admission": admission()})
    scene = Scene(*NODES, *queues(), train, running, pod("a", on="n1"))
    scene.cache.kueue_is_live = is_live
    await carry_out(scene, Plan(evicts=(evict("team/w", "a", reason="InClusterQueue"),)))
    assert evictions(scene) == []
    assert scene.get("jobs", "train")["spec"]["suspend"] is not is_live
    assert scene.metric("windlass_evicted_pods_total") == (0 if is_live else 1)


@in_virtual_time
async def test_what_is_left_to_kueue_keeps_nobody_else() -> None:
    theirs = workload("w", status={"admission": admission()})
    scene = Scene(*NODES, *queues(), theirs, pod("a", on="n1"), pod("b", on="n1"))
    scene.cache.kueue_is_live = True
    await carry_out(scene, Plan(evicts=(evict("team/w", "a", reason="InClusterQueue"), evict("team/b", "b"))))
    assert evictions(scene) == ["b"]


@in_virtual_time
async def test_beside_a_live_kueue_pods_go_for_reasons_that_it_does_not_know() -> None:
    scene = Scene(*NODES, *queues(), workload("w", status={"admission": admission()}), pod("a", on="n1"))
    scene.cache.kueue_is_live = True
    await carry_out(scene, Plan(evicts=(evict("team/w", "a", reason="Priority"),)))
    assert evictions(scene) == ["a"]


@in_virtual_time
async def test_a_queued_workload_without_pods_is_stopped_too() -> None:
    train = job("train", suspend=False)
    scene = Scene(*NODES, *queues(), train, workload("w", owner=train, status={"admission": admission()}))
    await carry_out(scene, Plan(evicts=(evict("team/w", reason="InClusterQueue"),)))
    assert scene.get("jobs", "train")["spec"]["suspend"] is True


@in_virtual_time
async def test_an_eviction_of_a_group_is_counted_on_it_first() -> None:
    group = custom("scheduling.x-k8s.io/v1alpha1", "PodGroup", "g", spec={"minMember": 2})
    members = [pod(f"g-{number}", on="n1", labels={"scheduling.x-k8s.io/pod-group": "g"}) for number in range(2)]
    scene = Scene(*NODES, group, *members)
    await carry_out(scene, Plan(evicts=(evict("team/g", "g-0", "g-1"),)))
    assert scene.get("podgroups", "g")["metadata"]["annotations"] == {"windlass.dev/evictions": "1"}
    paths = [request.path for request in scene.client.writes() if not request.query]
    assert paths[0].endswith("/podgroups/g")
    assert evictions(scene) == ["g-0", "g-1"]


# Reports


@in_virtual_time
async def test_every_pod_of_a_workload_that_waits_is_told_why() -> None:
    async with Scene(*NODES, gang_pod("g-0", "g"), gang_pod("g-1", "g"), pod("p")).running() as scene:
        scene.execute(Plan(holds=(Hold("team/g", FULL), Hold("team/p", FULL))))
        await settle()
        for name in ("g-0", "g-1", "p"):
            assert told(scene, name) == ("Unschedulable", FULL_MESSAGE)
        assert scene.metric("scheduler_schedule_attempts_total", result="unschedulable", profile="windlass") == 3


@in_virtual_time
async def test_an_assumed_pod_is_not_told_that_it_waits() -> None:
    async with Scene(*NODES, pod("p"), pod("q")).running() as scene:
        held = scene.client.hold("POST binding")
        scene.execute(binds(p="n1"))
        await settle()
        scene.execute(Plan(holds=(Hold("team/p", FULL), Hold("team/q", FULL))))
        await asyncio.sleep(1)
        assert (told(scene, "p"), told(scene, "q")[0]) == (("", ""), "Unschedulable")
        held.release()
        await scene.executor.drain()


@pytest.mark.parametrize(
    "tree",
    [pod("p", on="n1"), pod("p", scheduler="default-scheduler")],
    ids=["bound", "another scheduler's"],
)
@in_virtual_time
async def test_these_pods_are_not_told_that_they_wait(tree: Unstructured) -> None:
    async with Scene(*NODES, tree).running() as scene:
        scene.execute(Plan(holds=(Hold("team/p", FULL), Hold("team/missing", FULL))))
        await asyncio.sleep(1)
        assert condition_writes(scene) == []
        assert scene.metric("scheduler_schedule_attempts_total", result="unschedulable", profile="windlass") == 0


@in_virtual_time
async def test_the_api_server_writes_the_condition_of_gated_pods() -> None:
    async with Scene(*NODES, pod("p"), pod("q")).running() as scene:
        gated = Verdict("SCHEDULING_GATED", 2, detail="gates")
        scene.execute(Plan(holds=(Hold("team/p", gated), Hold("team/q", FULL))))
        await asyncio.sleep(1)
        assert (told(scene, "p"), told(scene, "q")[0]) == (("", ""), "Unschedulable")
        assert scene.metric("windlass_held_workloads", code="SCHEDULING_GATED") == 1


@in_virtual_time
async def test_workloads_that_wait_say_so_too() -> None:
    async with Scene(*NODES, *queues(), workload("w")).running() as scene:
        scene.execute(Plan(holds=(Hold("team/w", Verdict("KUEUE_QUOTA_INSUFFICIENT", 2, detail="x")),)))
        await settle()
        reserved = condition(scene.get("workloads", "w"), "QuotaReserved")
        assert reserved["message"].endswith("(KUEUE_QUOTA_INSUFFICIENT)")


@in_virtual_time
async def test_who_waits_for_victims_is_told_the_node_and_nominated() -> None:
    async with Scene(*NODES, pod("p")).running() as scene:
        scene.execute(Plan(binds=(Bind("team/p", "n1", after=("team/low",)),)))
        await settle()
        message = "0/2 nodes are available: waiting for preempted pods on n1 to terminate."
        assert told(scene, "p") == ("WaitingForVictims", message)
        assert scene.get("pods", "p")["status"]["nominatedNodeName"] == "n1"


@pytest.mark.parametrize("nominated", ["n2", ""])
@in_virtual_time
async def test_a_nomination_ends_with_the_decision_that_made_it(nominated: str) -> None:
    status = {"nominatedNodeName": nominated} if nominated else None
    async with Scene(*NODES, pod("p", status=status)).running() as scene:
        scene.execute(Plan(holds=(Hold("team/p", FULL),)))
        await settle()
        (sent,) = condition_writes(scene)
        assert "nominatedNodeName" not in scene.get("pods", "p")["status"]
        assert ("nominatedNodeName" in sent.body["status"]) is bool(nominated), "only where there is one"


@in_virtual_time
async def test_only_the_newest_plan_is_reported_twice_a_second() -> None:
    async with Scene(*NODES, pod("p")).running() as scene:
        codes = ["GPU_FULL", "GPU_FRAGMENTED", "GANG_INCOMPLETE"]
        for code in codes:
            scene.execute(Plan(holds=(Hold("team/p", Verdict(code, 2)),)))
        await settle()
        assert told(scene, "p")[0] == "WaitingForGang"
        assert len(condition_writes(scene)) == 1
        scene.execute(Plan(holds=(Hold("team/p", Verdict("JOB_SUSPENDED", 2)),)))
        await asyncio.sleep(0.4)
        assert told(scene, "p")[0] == "WaitingForGang"
        await asyncio.sleep(0.2)
        assert told(scene, "p")[0] == "Suspended"
        scene.api.store("pods", pod("q"))
        await asyncio.sleep(3600)
        assert len(condition_writes(scene)) == 2, "nothing is reported without a plan"


@in_virtual_time
async def test_other_work_goes_on_while_many_holds_are_reported() -> None:
    scene = Scene(*NODES)
    turns = 0

    async def other_work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other_work())
    await asyncio.sleep(0)
    before = turns
    await scene.executor._report_holds([Hold(f"team/p{number}", FULL) for number in range(400)], {})
    assert turns - before == 4, "after every hundred"
    task.cancel()


@in_virtual_time
async def test_what_waits_is_counted_by_its_cause() -> None:
    """A cause that holds nothing any more is shown as 0, so that a graph has an end."""
    async with Scene(*NODES, pod("a"), pod("b")).running() as scene:
        missing = Verdict("KUEUE_QUEUE_MISSING", 2, detail="y")
        scene.execute(Plan(holds=(Hold("team/a", FULL), Hold("team/b", missing))))
        await asyncio.sleep(1)
        scene.execute(Plan(holds=(Hold("team/a", FULL), Hold("team/b", FULL))))
        await asyncio.sleep(1)
        assert scene.metric("windlass_held_workloads", code="GPU_FULL") == 2
        text = scene.metrics.text().decode()
        assert 'windlass_held_workloads{code="KUEUE_QUEUE_MISSING"} 0.0' in text


@in_virtual_time
async def test_a_deleted_pod_is_forgotten() -> None:
    async with Scene(*NODES, pod("p")).running() as scene:
        hold = Plan(holds=(Hold("team/p", FULL),))
        scene.execute(hold)
        await asyncio.sleep(1)
        scene.api.remove("pods", "team/p")
        scene.watch()
        scene.snapshot()
        scene.put(pod("p"))  # by the same uid, so that only forgetting it makes a difference
        scene.watch()
        scene.execute(hold)
        await asyncio.sleep(1)
        assert told(scene, "p")[0] == "Unschedulable"
        assert len(condition_writes(scene)) == 2


@in_virtual_time
async def test_a_pod_that_was_bound_and_waits_again_is_told_so_at_once() -> None:
    async with Scene(*NODES, pod("p")).running() as scene:
        scene.execute(Plan(holds=(Hold("team/p", FULL),)))
        await asyncio.sleep(1)
        scene.client.fail("POST binding", lost_answer(), times=1)  # it is not bound after all
        held = scene.client.hold("GET pods")
        scene.execute(binds(p="n1"))
        await settle()
        scene.put(pod("p", on="n1"))
        held.release()
        await scene.executor.drain()
        scene.put(pod("p"))
        scene.watch()
        scene.cache.assumed.clear()
        scene.execute(Plan(holds=(Hold("team/p", FULL),)))
        await asyncio.sleep(1)
        assert len(condition_writes(scene)) == 2


@in_virtual_time
async def test_reservations_and_holds_are_written_by_others() -> None:
    scene = Scene(*NODES)
    reserve = Reserve("reservation/launch", "", 100, None, {"n1": 1})
    await carry_out(scene, Plan(reserves=(reserve,), holds=(Hold("team/p", FULL),)))
    assert not scene.client.sent


@in_virtual_time
async def test_draining_waits_for_binds_evictions_and_admissions() -> None:
    train = job("train", suspend=False)
    running = workload("w", owner=train, status={"admission": admission()})
    scene = Scene(*NODES, *queues(), pod("p"), pod("v", on="n1"), train, running)
    slow = [
        scene.client.hold("POST binding"),
        scene.client.hold("POST eviction"),
        scene.client.hold("PATCH workloads/w/status"),
    ]
    plan = Plan(
        binds=(Bind("team/p", "n1"),),
        evicts=(evict("team/v", "v"), evict("team/w", reason="InClusterQueue", preemptor="team/second")),
    )
    scene.execute(plan)
    draining = asyncio.create_task(scene.executor.drain())
    for held in slow:
        await settle()
        assert not draining.done()
        assert held.requests
        held.release()
    await draining
    assert bound(scene) == {"p": "n1"}
    assert evictions(scene) == ["v"]
    assert scene.get("jobs", "train")["spec"]["suspend"] is True
