"""Evictions of Workloads: withdrawn before their Job stops, repeated until done, and counted once."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from tests.apply.admissions import (
    EVICT,
    FAILURES,
    PENDING,
    RUNNING,
    STATUS,
    TRAIN,
    begin,
    is_admitted,
    is_assumed_admitted,
    scene_of,
    status_writes,
    writes,
)
from tests.apply.objects import admission, condition, custom, job, workload
from tests.apply.scene import Scene
from tests.kube.fake_api import refused
from tests.kube.memory_client import lost_answer
from tests.kube.virtual_time import in_virtual_time, settle

from windlass.kube.errors import ApiError
from windlass.kube.resources import KUEUE_API_GROUP
from windlass.model.decision import Evict
from windlass.model.unstructured import Unstructured
from windlass.model.workload import Workload
from windlass.queueing.outcome import QUEUE_EVICTION_REASONS


async def evict(scene: Scene, decision: Evict = EVICT) -> None:
    stop = scene.executor.admissions.stop_action(decision)
    assert stop is not None
    await stop()


@in_virtual_time
async def test_the_job_is_stopped_after_its_admission_is_withdrawn() -> None:
    scene = scene_of(job("train", suspend=False), RUNNING)
    await evict(scene)
    assert writes(scene) == ["workloads/w", "jobs/train"]
    assert scene.get("jobs", "train")["spec"]["suspend"] is True
    assert not is_admitted(scene)
    evicted = condition(scene.get("workloads", "w"), "Evicted")
    assert (evicted["status"], evicted["reason"]) == ("True", "Preempted")
    assert evicted["lastTransitionTime"] == "2026-01-01T00:06:40Z"
    (sent,) = status_writes(scene)
    assert "metadata" not in sent.body, "an eviction is not stopped by somebody's message"


@in_virtual_time
async def test_an_eviction_uses_its_quota_until_the_watch_shows_it() -> None:
    old = [{"type": "Evicted", "status": "False", "reason": "Old"}, {"type": "PodsReady", "status": "True"}]
    running = workload("w", status={"admission": admission(), "conditions": old})
    scene = scene_of(running)
    held = scene.client.hold(STATUS)
    stopping = asyncio.ensure_future(evict(scene))
    await settle()
    scene.cache.drain_inbox()
    known = scene.cache.get("Workload", "team/w", KUEUE_API_GROUP)
    assert known.status.admission is not None
    assert [(kept.type, kept.status) for kept in known.status.conditions] == [
        ("PodsReady", "True"),
        ("Evicted", "True"),
    ]
    held.release()
    await stopping
    assert is_assumed_admitted(scene)
    scene.watch()
    assert not is_assumed_admitted(scene)


@pytest.mark.parametrize("code", [400, 422, 499])
@in_virtual_time
async def test_a_refused_eviction_is_none(code: int) -> None:
    scene = scene_of(job("train", suspend=False), RUNNING)
    scene.client.fail(STATUS, refused(code, "no"))
    with pytest.raises(ApiError):
        await evict(scene)
    scene.cache.drain_inbox()
    assert scene.cache.get("Workload", "team/w", KUEUE_API_GROUP).condition("Evicted") is None
    assert writes(scene) == ["workloads/w"], "the job goes on"


@pytest.mark.parametrize("error", FAILURES[1:])
@in_virtual_time
async def test_an_eviction_without_an_answer_is_repeated(error: Exception) -> None:
    scene = scene_of(job("train", suspend=False), RUNNING)
    scene.client.fail(STATUS, error, times=60)
    await evict(scene)
    assert not is_admitted(scene)
    assert scene.get("jobs", "train")["spec"]["suspend"] is True
    pauses = [later - earlier for earlier, later in pairwise(scene.client.times(STATUS))]
    assert pauses[0] == 0
    assert 4.0 < max(pauses) <= 5.0


@in_virtual_time
async def test_an_eviction_that_the_watch_has_shown_is_not_repeated() -> None:
    scene = scene_of(job("train", suspend=False), RUNNING)
    scene.client.fail(STATUS, lost_answer(), is_applied=True)
    stopping = asyncio.ensure_future(evict(scene))
    await asyncio.sleep(0)
    while not status_writes(scene) or is_admitted(scene):
        await asyncio.sleep(0)
    scene.watch()
    await stopping
    assert len(status_writes(scene)) == 1
    assert scene.get("jobs", "train")["spec"]["suspend"] is True


@in_virtual_time
async def test_an_eviction_waits_for_the_admission_that_it_undoes() -> None:
    scene = scene_of(TRAIN, PENDING)
    held = scene.client.hold(STATUS)
    begin(scene)
    await settle()
    stopping = asyncio.ensure_future(evict(scene))
    await settle()
    assert len(held.requests) == 1
    held.release()
    await stopping
    assert not is_admitted(scene)
    assert scene.get("jobs", "train")["spec"]["suspend"] is True


@in_virtual_time
async def test_a_workload_that_goes_before_its_eviction_is_left_alone() -> None:
    scene = scene_of(job("train", suspend=False), RUNNING)
    stop = scene.executor.admissions.stop_action(EVICT)
    scene.api.remove("workloads", "team/w")
    scene.watch()
    scene.cache.drain_inbox()
    assert stop is not None
    await stop()
    assert writes(scene) == []


@pytest.mark.parametrize(
    ("is_live", "take_over", "workload_key", "stops"),
    [
        (False, (), "team/w", True),
        (False, (), "team/missing", False),
        (True, (), "team/w", False),
        (True, ("team/main",), "team/w", True),
    ],
)
@in_virtual_time
async def test_pods_are_evicted_where_no_workload_of_ours_can_be_stopped(
    is_live: bool, take_over: tuple[str, ...], workload_key: str, stops: bool
) -> None:
    scene = scene_of(RUNNING, take_over=frozenset(take_over))
    scene.cache.responsibility.kueue_is_live = is_live
    decision = Evict(workload_key, (), "", "Priority")
    assert (scene.executor.admissions.stop_action(decision) is not None) is stops


@pytest.mark.parametrize(
    "reason", [*sorted(QUEUE_EVICTION_REASONS), "Priority", "DurationExceeded", "GangBelowMinimum"]
)
@pytest.mark.parametrize("take_over", [(), ("team/main",)])
@pytest.mark.parametrize("is_live", [False, True])
@in_virtual_time
async def test_a_live_kueue_evicts_in_its_own_queues_what_it_sees_itself(
    reason: str, take_over: tuple[str, ...], is_live: bool
) -> None:
    scene = scene_of(RUNNING, take_over=frozenset(take_over))
    scene.cache.responsibility.kueue_is_live = is_live
    left = scene.executor.admissions.is_left_to_kueue(Evict("team/w", (), "", reason))
    assert left is (is_live and not take_over and reason in QUEUE_EVICTION_REASONS)
    missing = Evict("team/missing", (), "", reason)
    assert not scene.executor.admissions.is_left_to_kueue(missing)


# The count of evictions on owners without a Workload


POD_GROUP = custom("scheduling.x-k8s.io/v1alpha1", "PodGroup", "g", spec={"minMember": 2})
LEADER_WORKER_SET = custom("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "serve", spec={"replicas": 2})
OWNED_JOB = job("j", queue="", suspend=False)


@pytest.mark.parametrize(
    ("tree", "key", "kind", "path"),
    [
        (POD_GROUP, "team/g", "PodGroup", "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups/g"),
        (OWNED_JOB, "team/j", "Job", "/apis/batch/v1/namespaces/team/jobs/j"),
        (OWNED_JOB, "team/j.job", "Job", "/apis/batch/v1/namespaces/team/jobs/j"),
        (
            POD_GROUP,
            "team/g.podgroup.scheduling.x-k8s.io",
            "PodGroup",
            "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups/g",
        ),
        (
            LEADER_WORKER_SET,
            "team/serve-1",
            "LeaderWorkerSet",
            "/apis/leaderworkerset.x-k8s.io/v1/namespaces/team/leaderworkersets/serve",
        ),
    ],
)
@in_virtual_time
async def test_an_eviction_is_counted_on_the_object_behind_the_workload(
    tree: Unstructured, key: str, kind: str, path: str
) -> None:
    scene = Scene(tree)
    uid = tree["metadata"]["uid"]
    evicted = Workload(key, kind, (), uid=uid, evictions=2)
    record = scene.executor.admissions.eviction_record_action(Evict(key, (), "", "Priority"), evicted)
    assert record is not None
    await record()
    (sent,) = scene.client.writes()
    assert sent.path == path
    assert sent.body == {"metadata": {"uid": uid, "annotations": {"windlass.dev/evictions": "3"}}}


@in_virtual_time
async def test_a_run_that_is_over_is_no_eviction_but_is_queued_again_from_now() -> None:
    scene = Scene(POD_GROUP)
    evicted = Workload("team/g", "PodGroup", (), uid="uid-g", max_run_seconds=600)
    record = scene.executor.admissions.eviction_record_action(Evict("team/g", (), "", "DurationExceeded"), evicted)
    assert record is not None
    await record()
    (sent,) = scene.client.writes()
    assert sent.body["metadata"]["annotations"] == {
        "windlass.dev/requeued-at": "2026-01-01T00:06:40Z",
        "windlass.dev/stopped-at-duration": "600",
    }


@pytest.mark.parametrize(
    "evicted",
    [
        None,
        Workload("team/g", "PodGroup", (), uid="another"),
        Workload("team/g", "Pod", (), uid="uid-g"),
        Workload("team/other", "PodGroup", (), uid="uid-g"),
    ],
    ids=["unknown", "replaced", "another kind", "another name"],
)
@in_virtual_time
async def test_without_such_an_object_nothing_is_counted(evicted: Workload | None) -> None:
    scene = Scene(POD_GROUP)
    decision = Evict("team/g", (), "", "Priority")
    assert scene.executor.admissions.eviction_record_action(decision, evicted) is None


@in_virtual_time
async def test_a_workload_object_counts_its_evictions_itself() -> None:
    scene = Scene(POD_GROUP, workload("g"))
    decision = Evict("team/g", (), "", "Priority")
    evicted = Workload("team/g", "PodGroup", (), uid="uid-g")
    assert scene.executor.admissions.eviction_record_action(decision, evicted) is None


@in_virtual_time
async def test_a_kind_that_is_no_longer_served_is_not_annotated() -> None:
    scene = Scene(POD_GROUP)
    del scene.api.groups["scheduling.x-k8s.io/v1alpha1"]
    decision = Evict("team/g", (), "", "Priority")
    evicted = Workload("team/g", "PodGroup", (), uid="uid-g")
    assert scene.executor.admissions.eviction_record_action(decision, evicted) is None
