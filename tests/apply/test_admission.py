"""Admissions and evictions of Workloads: written once, in the right order, whatever the server answers or doesn't."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from tests.apply.objects import admission, condition, custom, job, local_queue, node, pod, queues, workload
from tests.apply.scene import Scene
from tests.kube.fake_api import refused
from tests.kube.memory_client import lost_answer
from tests.kube.virtual_time import in_virtual_time, settle

from windlass.kube.errors import ApiError
from windlass.kube.request import Request
from windlass.kube.resources import KUEUE_API_GROUP
from windlass.model.decision import Admit, AdmittedPodSet, Evict, Hold
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.pod import Pod
from windlass.model.unstructured import Unstructured
from windlass.model.verdict import Verdict
from windlass.model.workload import PodSet, Workload
from windlass.queueing.outcome import QUEUE_EVICTION_REASONS

TRAIN = job("train")
PENDING = workload("w", owner=TRAIN)
RUNNING = workload("w", owner=job("train", suspend=False), status={"admission": admission()})
ADMIT = Admit("team/w", "Workload", "cluster", (AdmittedPodSet("main", 1, {GPU_RESOURCE: "default"}, {"n1": 1}),))
EVICT = Evict("team/w", (), "team/urgent", "InClusterQueue")
FINISHED = {"type": "Finished", "status": "True", "reason": "Succeeded"}
STATUS = "PATCH workloads/w/status"


def scene_of(*trees: Unstructured, **options: Any) -> Scene:
    return Scene(*queues(), node("n1", labels={"kubernetes.io/hostname": "host-1"}), *trees, **options)


def begin(scene: Scene, *admits: Admit) -> None:
    scene.executor.admissions.execute(admits or (ADMIT,), scene.snapshot())


async def admit(scene: Scene) -> None:
    begin(scene)
    await scene.executor.admissions.drain()


def writes(scene: Scene) -> list[str]:
    """Kind of object and name of everything that was written, in order."""
    paths = (request.path.removesuffix("/status").split("/") for request in scene.client.writes())
    return [f"{path[-2]}/{path[-1]}" for path in paths]


def status_writes(scene: Scene) -> list[Request]:
    return [request for request in scene.client.sent if request.path.endswith("/workloads/w/status")]


def is_admitted(scene: Scene) -> bool:
    return bool(scene.get("workloads", "w").get("status", {}).get("admission"))


def is_assumed_admitted(scene: Scene) -> bool:
    """As the next decision sees it."""
    scene.cache.drain_inbox()
    return scene.cache.get("Workload", "team/w", KUEUE_API_GROUP).status.admission is not None


# Admission


@in_virtual_time
async def test_the_job_is_started_after_its_admission_is_written() -> None:
    scene = scene_of(TRAIN, PENDING)
    version = scene.get("workloads", "w")["metadata"]["resourceVersion"]
    await admit(scene)
    assert writes(scene) == ["workloads/w", "jobs/train"]
    assert scene.get("jobs", "train")["spec"]["suspend"] is False
    written = scene.get("workloads", "w")["status"]
    assert written["admission"]["clusterQueue"] == "cluster"
    (assignment,) = written["admission"]["podSetAssignments"]
    assert assignment["topologyAssignment"]["slices"][0]["valuesPerLevel"] == [{"individual": {"roots": ["host-1"]}}], (
        "nodes go by their hostname label"
    )
    reserved = condition(scene.get("workloads", "w"), "QuotaReserved")
    assert (reserved["status"], reserved["lastTransitionTime"]) == ("True", "2026-01-01T00:06:40Z")
    (sent,) = status_writes(scene)
    assert sent.body["metadata"] == {"resourceVersion": version}, "only if it is as it was decided on"


@in_virtual_time
async def test_an_admission_counts_from_when_it_is_sent() -> None:
    scene = scene_of(TRAIN, PENDING)
    held = scene.client.hold(STATUS)
    begin(scene)
    assert is_assumed_admitted(scene)
    await settle()
    begin(scene)
    await settle()
    assert len(held.requests) == 1, "and is not sent again"
    held.release()
    await scene.executor.admissions.drain()
    assert is_assumed_admitted(scene), "until the watch shows it"
    scene.watch()
    assert is_assumed_admitted(scene)


@in_virtual_time
async def test_other_changes_on_the_watch_end_no_admission_under_way() -> None:
    scene = scene_of(TRAIN, PENDING)
    held = scene.client.hold(STATUS)
    begin(scene)
    await settle()
    scene.put(workload("w", owner=TRAIN, labels={"new": "label"}))
    scene.watch()
    assert is_assumed_admitted(scene), "its quota is not free for others"
    held.release()
    await scene.executor.admissions.drain()
    assert is_assumed_admitted(scene)


@pytest.mark.parametrize("code", [400, 422, 499])
@in_virtual_time
async def test_a_refused_admission_counts_no_more_and_rests_for_five_seconds(code: int) -> None:
    scene = scene_of(TRAIN, PENDING)
    scene.client.fail(STATUS, refused(code, "no"))
    await admit(scene)
    assert not is_assumed_admitted(scene)
    assert scene.get("jobs", "train")["spec"]["suspend"] is True
    assert scene.cache.changed.is_set(), "its quota is free for the next decision"
    await asyncio.sleep(4.9)
    await admit(scene)
    assert len(status_writes(scene)) == 1
    await asyncio.sleep(0.2)
    await admit(scene)
    assert len(status_writes(scene)) == 2


@pytest.mark.parametrize(
    "tree",
    [
        workload("w", status={"admission": admission()}),
        workload("w", active=False),
        workload("w", status={"conditions": [FINISHED]}),
    ],
    ids=["admitted", "deactivated", "finished"],
)
@in_virtual_time
async def test_a_workload_that_has_changed_since_the_decision_is_not_admitted(tree: Unstructured) -> None:
    scene = scene_of(PENDING)
    snapshot = scene.snapshot()
    scene.put(tree)
    scene.watch()
    scene.executor.admissions.execute((ADMIT,), snapshot)
    await scene.executor.admissions.drain()
    assert writes(scene) == []


@in_virtual_time
async def test_a_workload_that_is_deleted_since_the_decision_is_not_admitted() -> None:
    scene = scene_of(PENDING)
    snapshot = scene.snapshot()
    scene.api.remove("workloads", "team/w")
    scene.watch()
    scene.executor.admissions.execute((ADMIT,), snapshot)
    await scene.executor.admissions.drain()
    assert writes(scene) == []


@in_virtual_time
async def test_admissions_of_groups_without_a_workload_are_not_written() -> None:
    scene = scene_of(PENDING)
    begin(scene, Admit("team/group", "PodGroup", "", ()))
    await scene.executor.admissions.drain()
    assert writes(scene) == []


@pytest.mark.parametrize(("take_over", "written"), [(frozenset(), 0), (frozenset({"team/main"}), 1)])
@in_virtual_time
async def test_a_live_kueue_admits_in_its_queues(take_over: frozenset[str], written: int) -> None:
    scene = scene_of(take_over=take_over)
    scene.cache.kueue_is_live = True
    scene.put(workload("w"))
    scene.watch()
    decided = Workload("team/w", "Workload", (PodSet("main", 1, Pod()),))
    snapshot = msgspec.structs.replace(scene.snapshot(), workloads=(decided,))
    scene.executor.admissions.execute((ADMIT,), snapshot)
    await scene.executor.admissions.drain()
    assert len(status_writes(scene)) == written


@in_virtual_time
async def test_an_admission_is_based_on_our_own_last_write_where_the_watch_is_behind() -> None:
    scene = scene_of(TRAIN, PENDING)
    scene.executor.admissions.report_pending(Hold("team/w", Verdict("GPU_FULL", 1, detail="x")))
    await scene.executor.admissions.drain()
    version = scene.get("workloads", "w")["metadata"]["resourceVersion"]
    await admit(scene)
    sent = status_writes(scene)
    assert [request.method for request in sent] == ["PATCH", "PATCH"]
    assert sent[1].body["metadata"] == {"resourceVersion": version}
    assert is_admitted(scene), "without a conflict first"


@in_virtual_time
async def test_messages_under_way_delay_an_admission_and_drop_it_not() -> None:
    scene = scene_of(TRAIN, PENDING)
    held = scene.client.hold(STATUS)
    scene.executor.admissions.report_pending(Hold("team/w", Verdict("GPU_FULL", 1, detail="x")))
    await settle()
    begin(scene)
    await settle()
    assert len(held.requests) == 1
    held.release()
    await scene.executor.admissions.drain()
    assert is_admitted(scene)


# Conflicts and lost answers


FAILURES = [
    pytest.param(refused(409, "changed"), id="409"),
    pytest.param(refused(500, "etcd"), id="500"),
    pytest.param(refused(503, "overloaded"), id="503"),
    pytest.param(lost_answer(), id="no answer"),
]


@pytest.mark.parametrize("error", FAILURES)
@in_virtual_time
async def test_an_admission_without_effect_is_written_on_the_newest_version(error: Exception) -> None:
    scene = scene_of(TRAIN, PENDING)
    scene.put(workload("w", owner=TRAIN, labels={"new": "label"}))  # the watch has not shown it
    newest = scene.get("workloads", "w")["metadata"]["resourceVersion"]
    scene.client.fail(STATUS, error, times=1)
    await admit(scene)
    first, second = status_writes(scene)
    assert second.body["metadata"] == {"resourceVersion": newest}
    assert int(first.body["metadata"]["resourceVersion"]) < int(newest)
    assert writes(scene)[-1] == "jobs/train"
    assert is_assumed_admitted(scene)


@pytest.mark.parametrize("error", FAILURES[1:])
@in_virtual_time
async def test_an_admission_that_took_effect_without_an_answer_is_not_written_twice(error: Exception) -> None:
    scene = scene_of(TRAIN, PENDING)
    scene.client.fail(STATUS, error, times=1, is_applied=True)
    await admit(scene)
    assert writes(scene) == ["workloads/w", "jobs/train"]
    assert is_assumed_admitted(scene)
    scene.watch()
    assert is_assumed_admitted(scene)


@pytest.mark.parametrize("error", FAILURES)
@pytest.mark.parametrize(
    "tree",
    [
        None,
        workload("w", owner=TRAIN, active=False),
        workload("w", owner=TRAIN, status={"conditions": [FINISHED]}),
        workload("w", owner=TRAIN, gpus=4),
        workload("w", owner=TRAIN, uid="another"),
    ],
    ids=["deleted", "deactivated", "finished", "changed", "replaced"],
)
@in_virtual_time
async def test_an_admission_of_what_has_changed_on_the_server_is_given_up(
    error: Exception, tree: Unstructured | None
) -> None:
    scene = scene_of(TRAIN, PENDING)
    scene.api.remove("workloads", "team/w")
    if tree is not None:
        scene.put(tree)
    scene.client.fail(STATUS, error, times=1)
    await admit(scene)
    assert writes(scene) == ["workloads/w"]
    scene.cache.drain_inbox()
    assert not is_assumed_admitted(scene)
    assert scene.get("jobs", "train")["spec"]["suspend"] is True


@in_virtual_time
async def test_a_server_without_answers_is_asked_less_and_less_often() -> None:
    scene = scene_of(TRAIN, PENDING)
    scene.client.fail(STATUS, lost_answer(), times=60)
    await admit(scene)
    times = scene.client.times(STATUS)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[0] == 0, "the first time it is asked again at once"
    assert 0 < pauses[1] <= 0.5
    assert 4.0 < max(pauses) <= 5.0
    assert is_admitted(scene)


@pytest.mark.parametrize("error", [refused(500, "etcd"), refused(429, "busy"), refused(401, "who?"), lost_answer()])
@in_virtual_time
async def test_the_workload_is_read_until_the_server_can_say(error: Exception) -> None:
    scene = scene_of(TRAIN, PENDING)
    scene.client.fail(STATUS, lost_answer(), times=1)
    scene.client.fail("GET workloads", error, times=3)
    await admit(scene)
    assert is_admitted(scene)
    assert len(status_writes(scene)) == 2


@in_virtual_time
async def test_a_workload_that_may_not_be_read_is_given_up() -> None:
    scene = scene_of(TRAIN, PENDING)
    scene.client.fail(STATUS, lost_answer(), times=1)
    scene.client.fail("GET workloads", refused(403, "no"))
    await admit(scene)
    assert not is_assumed_admitted(scene)
    assert len(status_writes(scene)) == 1


@in_virtual_time
async def test_a_workload_that_can_no_longer_be_decoded_is_given_up() -> None:
    scene = scene_of(TRAIN, PENDING)
    broken = workload("w", owner=TRAIN)
    broken["spec"]["podSets"] = "none"
    scene.put(broken)
    scene.client.fail(STATUS, refused(409, "changed"), times=1)
    begin(scene)
    await scene.executor.admissions.drain()
    assert len(status_writes(scene)) == 1
    assert not is_assumed_admitted(scene)


@in_virtual_time
async def test_an_admission_is_taken_back_if_the_lease_is_lost() -> None:
    scene = scene_of(TRAIN, PENDING)
    snapshot = scene.snapshot()
    scene.executor.admissions.execute((ADMIT,), snapshot)
    scene.leads = False
    await scene.executor.admissions.drain()
    assert writes(scene) == []
    assert not is_assumed_admitted(scene)


# Eviction


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
    scene.cache.kueue_is_live = is_live
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
    scene.cache.kueue_is_live = is_live
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
    evicted = Workload("team/g", "PodGroup", (), uid="uid-g")
    record = scene.executor.admissions.eviction_record_action(Evict("team/g", (), "", "DurationExceeded"), evicted)
    assert record is not None
    await record()
    (sent,) = scene.client.writes()
    assert sent.body["metadata"]["annotations"] == {"windlass.dev/requeued-at": "2026-01-01T00:06:40Z"}


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


# Messages of what waits


def hold(code: str = "KUEUE_QUOTA_INSUFFICIENT", key: str = "team/w") -> Hold:
    return Hold(key, Verdict(code, 3, detail="x"))


async def report(scene: Scene, *holds: Hold) -> None:
    for held in holds or (hold(),):
        scene.executor.admissions.report_pending(held)
    await scene.executor.admissions.drain()


@in_virtual_time
async def test_a_workload_says_why_it_waits() -> None:
    scene = scene_of(PENDING)
    version = scene.get("workloads", "w")["metadata"]["resourceVersion"]
    await report(scene)
    reserved = condition(scene.get("workloads", "w"), "QuotaReserved")
    assert (reserved["status"], reserved["reason"]) == ("False", "Pending")
    assert reserved["message"].endswith("(KUEUE_QUOTA_INSUFFICIENT)")
    assert reserved["lastTransitionTime"] == "2026-01-01T00:06:40Z"
    (sent,) = status_writes(scene)
    assert sent.body["metadata"] == {"resourceVersion": version}, "never over an admission"


@in_virtual_time
async def test_the_same_message_is_not_written_again_and_a_new_one_after_five_seconds() -> None:
    scene = scene_of(PENDING)
    await report(scene)
    scene.watch()
    scene.cache.drain_inbox()
    await asyncio.sleep(60)
    await report(scene)
    assert len(status_writes(scene)) == 1
    await report(scene, hold("GPU_FULL"))
    scene.watch()
    scene.cache.drain_inbox()
    await report(scene, hold("GANG_INCOMPLETE"))
    assert len(status_writes(scene)) == 2
    await asyncio.sleep(5.1)
    await report(scene, hold("GANG_INCOMPLETE"))
    assert len(status_writes(scene)) == 3


@pytest.mark.parametrize(
    "tree",
    [
        workload("w", status={"admission": admission()}),
        workload("w", status={"conditions": [FINISHED]}),
        workload("other"),
    ],
    ids=["admitted", "finished", "missing"],
)
@in_virtual_time
async def test_these_workloads_get_no_message(tree: Unstructured) -> None:
    scene = scene_of(tree)
    await report(scene)
    assert writes(scene) == []


@in_virtual_time
async def test_a_live_kueue_writes_the_messages_of_its_queues() -> None:
    scene = scene_of(PENDING)
    scene.cache.kueue_is_live = True
    await report(scene)
    assert writes(scene) == []


@in_virtual_time
async def test_a_message_gives_way_to_an_admission_that_was_written_meanwhile() -> None:
    scene = scene_of(PENDING)
    scene.put(workload("w", status={"admission": admission()}))  # the watch has not shown it
    await report(scene)
    assert is_admitted(scene)
    assert condition(scene.get("workloads", "w"), "QuotaReserved") == {}


# Gates


@pytest.mark.parametrize(
    ("gates", "kept"),
    [
        (["kueue.x-k8s.io/admission"], []),
        (["kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"], []),
        (
            ["example.com/b", "kueue.x-k8s.io/elastic-job", "example.com/a"],
            ["example.com/b", "example.com/a"],
        ),
        (["example.com/a"], None),
        ([], None),
    ],
)
@in_virtual_time
async def test_only_kueues_gates_are_removed(gates: list[str], kept: list[str] | None) -> None:
    scene = Scene(pod("p", gates=gates))
    scene.executor.admissions.remove_gates(scene.cache.pods["team/p"])
    await scene.executor.admissions.drain()
    if kept is None:
        assert writes(scene) == []
    else:
        assert writes(scene) == ["pods/p"]
        assert scene.get("pods", "p")["spec"]["schedulingGates"] == [{"name": name} for name in kept]
        assert scene.client.writes()[0].body["metadata"] == {"uid": "uid-p"}


@pytest.mark.parametrize(
    ("queue", "take_over", "removed"),
    [("main", (), 0), ("main", ("team/main",), 1), ("", ("team/main",), 0)],
)
@in_virtual_time
async def test_a_live_kueue_removes_the_gates_of_its_queues(
    queue: str, take_over: tuple[str, ...], removed: int
) -> None:
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else None
    gated = pod("p", gates=["kueue.x-k8s.io/admission"], labels=labels)
    scene = Scene(local_queue("main"), gated, take_over=frozenset(take_over))
    scene.cache.kueue_is_live = True
    scene.executor.admissions.remove_gates(scene.cache.pods["team/p"])
    await scene.executor.admissions.drain()
    assert len(writes(scene)) == removed


@in_virtual_time
async def test_gates_are_removed_once_at_a_time() -> None:
    scene = Scene(pod("p", gates=["kueue.x-k8s.io/admission"]))
    held = scene.client.hold("PATCH pods/p")
    for _ in range(2):
        scene.executor.admissions.remove_gates(scene.cache.pods["team/p"])
        await settle()
    assert len(held.requests) == 1
    held.release()
    await scene.executor.admissions.drain()
