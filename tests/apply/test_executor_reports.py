"""What waits is told why: pods by their condition, once; Workloads by theirs; and the metrics by the cause."""

from __future__ import annotations

import asyncio

import pytest
from tests.apply.objects import (
    admission,
    condition,
    gang_pod,
    job,
    pod,
    queues,
    workload,
)
from tests.apply.plans import (
    FULL,
    FULL_MESSAGE,
    NODES,
    binds,
    bound,
    carry_out,
    condition_writes,
    evict,
    evictions,
    told,
)
from tests.apply.scene import Scene
from tests.kube.memory_client import lost_answer
from tests.kube.virtual_time import in_virtual_time, settle

from windlass.model.decision import Bind, Hold, Reserve
from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured
from windlass.model.verdict import Verdict


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
    async with Scene(*NODES, pod("p", gates=["g"]), pod("q"), pod("r")).running() as scene:
        gated = Verdict("SCHEDULING_GATED", 2, detail="gates")
        scene.execute(Plan(holds=(Hold("team/p", gated), Hold("team/q", FULL), Hold("team/r", gated))))
        await asyncio.sleep(1)
        assert told(scene, "r")[0] == "WaitingForQuota", "it has no gate itself: the admission of its Job is gated"
        assert (told(scene, "p"), told(scene, "q")[0]) == (("", ""), "Unschedulable")
        assert scene.metric("windlass_held_workloads", code="SCHEDULING_GATED") == 2


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
        message = "0/2 nodes are available: waiting for preempted pods on n1 to terminate (WAITING_FOR_PREEMPTION)"
        assert told(scene, "p") == ("WaitingForVictims", message)
        assert scene.get("pods", "p")["status"]["nominatedNodeName"] == "n1"
        assert scene.metric("windlass_held_workloads", code="WAITING_FOR_PREEMPTION") == 1
        scene.execute(Plan(holds=(Hold("team/p", FULL),)))
        await asyncio.sleep(1)
        assert scene.metric("windlass_held_workloads", code="WAITING_FOR_PREEMPTION") == 0


@in_virtual_time
async def test_a_gang_that_waits_for_victims_is_one_workload() -> None:
    members = [gang_pod(f"g{index}", "g") for index in range(2)]
    async with Scene(*NODES, *members).running() as scene:
        scene.execute(Plan(binds=tuple(Bind(f"team/g{index}", "n1", after=("team/low",)) for index in range(2))))
        await settle()
        assert scene.metric("windlass_held_workloads", code="WAITING_FOR_PREEMPTION") == 1


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
