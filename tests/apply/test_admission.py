"""Admissions of Workloads: written once, before their Job starts, whatever the server answers or doesn't."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import msgspec
import pytest
from tests.apply.admissions import (
    ADMIT,
    FAILURES,
    FINISHED,
    PENDING,
    STATUS,
    TRAIN,
    admit,
    begin,
    is_admitted,
    is_assumed_admitted,
    scene_of,
    status_writes,
    writes,
)
from tests.apply.objects import admission, condition, queues, workload
from tests.kube.fake_api import refused
from tests.kube.memory_client import lost_answer
from tests.kube.virtual_time import in_virtual_time, settle

from windlass.model.decision import Admit, AdmittedPodSet, Bind, Hold
from windlass.model.pod import Pod
from windlass.model.unstructured import Unstructured
from windlass.model.verdict import Verdict
from windlass.model.workload import PodSet, Workload

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
    scene.cache.responsibility.kueue_is_live = True
    scene.put(*queues(stopPolicy="Hold")[1:2], workload("w"))
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


def test_pods_get_flavors_of_their_part_and_those_of_a_workload_have_them_from_its_owner() -> None:
    """Of a queued group the pods on each node get the flavors of the part there; outside of queues there are none."""
    scene = scene_of()
    sets = (AdmittedPodSet("main", 1, {"cpu": "a"}, {"n1": 1}), AdmittedPodSet("main", 1, {"cpu": "b"}, {"n2": 1}))
    keys = ("team/p0", "team/p1", "team/p2")
    pod_set = PodSet("main", 3, Pod(), pod_keys=keys)
    binds = [Bind("team/p0", "n2"), Bind("team/p1", "n1")]
    for kind, queue, expected in (
        ("PodGroup", "cluster", {"team/p0": ("b",), "team/p1": ("a",), "team/p2": ()}),
        ("PodGroup", "", {}),
        ("Workload", "cluster", {}),
    ):
        snapshot = msgspec.structs.replace(scene.snapshot(), workloads=(Workload("team/g", kind, (pod_set,)),))
        admits = [Admit("team/g", kind, queue, sets), Admit("team/other", "PodGroup", "cluster", ())]
        assert scene.executor.admissions.flavors_of_pods(admits, binds, snapshot) == expected
