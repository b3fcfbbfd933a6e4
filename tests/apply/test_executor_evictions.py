"""Evictions of a plan: by preemptor, nothing of Kueue's, refusals as facts, and other victims after them."""

from __future__ import annotations

import asyncio

import pytest
from tests.apply.objects import (
    admission,
    budget,
    custom,
    job,
    pod,
    queues,
    workload,
)
from tests.apply.plans import (
    NODES,
    carry_out,
    evict,
    evictions,
    refusals,
)
from tests.apply.scene import Scene
from tests.kube.fake_api import refused
from tests.kube.virtual_time import START, in_virtual_time, settle

from windlass.kube.errors import ApiError
from windlass.model.plan import Plan
from windlass.model.refusal import Refusal


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
    scene.cache.responsibility.kueue_is_live = is_live
    await carry_out(scene, Plan(evicts=(evict("team/w", "a", reason="InClusterQueue"),)))
    assert evictions(scene) == []
    assert scene.get("jobs", "train")["spec"]["suspend"] is not is_live
    assert scene.metric("windlass_evicted_pods_total") == (0 if is_live else 1)


@in_virtual_time
async def test_what_is_left_to_kueue_keeps_nobody_else() -> None:
    theirs = workload("w", status={"admission": admission()})
    scene = Scene(*NODES, *queues(), theirs, pod("a", on="n1"), pod("b", on="n1"))
    scene.cache.responsibility.kueue_is_live = True
    await carry_out(scene, Plan(evicts=(evict("team/w", "a", reason="InClusterQueue"), evict("team/b", "b"))))
    assert evictions(scene) == ["b"]


@in_virtual_time
async def test_beside_a_live_kueue_pods_go_for_reasons_that_it_does_not_know() -> None:
    scene = Scene(*NODES, *queues(), workload("w", status={"admission": admission()}), pod("a", on="n1"))
    scene.cache.responsibility.kueue_is_live = True
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
