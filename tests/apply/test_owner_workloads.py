"""Workloads of Jobs and other owners: made once, kept in agreement, finished, and repaired after a killed leader."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.apply.objects import admission, condition, custom, job, local_queue, reference, template, workload
from tests.apply.scene import Scene
from tests.kube.fake_api import refused
from tests.kube.memory_client import lost_answer
from tests.kube.virtual_time import in_virtual_time, settle

from windlass.apply import owner_workloads
from windlass.apply.kueue import workload_name
from windlass.kube.request import Request
from windlass.model.decision import Evict
from windlass.model.names.kueue import WORKLOAD_PRIORITY_CLASS_LABEL
from windlass.model.unstructured import Unstructured
from windlass.queueing.outcome import NO_MATCHING_WORKLOAD

OURS = {"app.kubernetes.io/managed-by": "windlass"}
ENDED = {"conditions": [{"type": "Complete", "status": "True"}]}
FINISHED = {"conditions": [{"type": "Finished", "status": "True", "reason": "Succeeded"}]}
EVICTED = {"conditions": [{"type": "Evicted", "status": "True", "reason": "Preempted"}]}


async def reconcile(scene: Scene) -> list[Request]:
    """The writes of one reconciliation, with what the watch has shown so far."""
    before = len(scene.client.sent)
    scene.executor.admissions.execute((), scene.snapshot())
    await scene.executor.admissions.drain()
    return [request for request in scene.client.sent[before:] if request.method != "GET"]


async def reconcile_and_watch(scene: Scene) -> list[Request]:
    writes = await reconcile(scene)
    scene.watch()
    return writes


def name_of(tree: Unstructured) -> str:
    return workload_name(tree["kind"], tree["metadata"]["name"], tree["metadata"]["uid"])


def workload_of(scene: Scene, tree: Unstructured) -> Unstructured:
    return scene.get("workloads", name_of(tree))


# Creation


@in_virtual_time
async def test_a_queued_job_gets_a_workload_with_its_whole_template() -> None:
    train = job("train", gpus=2, parallelism=3, spec={"template": template(2, hostIPC=True)})
    scene = Scene(local_queue("main"), train)
    (created,) = await reconcile_and_watch(scene)
    assert (created.method, created.path) == (
        "POST",
        "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads",
    )
    made = workload_of(scene, train)
    (pod_set,) = made["spec"]["podSets"]
    assert (pod_set["name"], pod_set["count"]) == ("main", 3)
    assert pod_set["template"] == template(2, hostIPC=True), "with fields that Windlass doesn't read"
    assert made["spec"]["queueName"] == "main"
    assert made["metadata"]["ownerReferences"] == [reference(train)]
    assert await reconcile(scene) == [], "once"


@in_virtual_time
async def test_a_workload_is_not_made_twice_while_its_creation_is_under_way() -> None:
    scene = Scene(job("train"))
    held = scene.client.hold("POST workloads")
    for _ in range(2):
        scene.executor.admissions.execute((), scene.snapshot())
        await settle()
    assert len(held.requests) == 1
    held.release()
    await scene.executor.admissions.drain()


@in_virtual_time
async def test_a_workload_is_not_made_twice_while_the_watch_is_behind() -> None:
    scene = Scene(local_queue("main"), job("train"))
    assert len(await reconcile(scene)) == 1
    await asyncio.sleep(4.9)
    assert await reconcile(scene) == []
    await asyncio.sleep(0.2)
    assert await reconcile(scene) == [], "it is there, says the server"
    scene.api.remove("workloads", f"team/{name_of(job('train'))}")
    await asyncio.sleep(5.1)
    assert len(await reconcile_and_watch(scene)) == 1, "it was deleted, and the watch hasn't shown even its creation"
    await asyncio.sleep(5.1)
    assert await reconcile(scene) == []


@in_virtual_time
async def test_a_workload_that_another_made_for_the_job_is_the_jobs() -> None:
    train = job("train")
    scene = Scene(train, workload("by-kueue", owner=train))
    assert await reconcile(scene) == []


@in_virtual_time
async def test_a_workload_that_another_leader_has_just_made_is_no_failure() -> None:
    train = job("train")
    scene = Scene(train)
    scene.put(workload(name_of(train), owner=train))  # the watch has not shown it
    assert len(await reconcile(scene)) == 1
    scene.watch()
    assert await reconcile(scene) == []


@in_virtual_time
async def test_a_workload_that_is_refused_is_tried_again_after_five_seconds() -> None:
    scene = Scene(job("train"))
    scene.client.fail("POST workloads", refused(422, "no"))
    assert len(await reconcile(scene)) == 1
    await asyncio.sleep(4.9)
    assert await reconcile(scene) == []
    await asyncio.sleep(0.2)
    assert len(await reconcile(scene)) == 1


@pytest.mark.parametrize(
    "train",
    [
        job("train", queue=""),
        job("train", scheduler="default-scheduler"),
        job("train", status=ENDED),
        job("train", suspend=False, status={"conditions": [{"type": "Failed", "status": "True"}]}),
    ],
    ids=["no queue", "another scheduler's", "ended", "failed"],
)
@in_virtual_time
async def test_these_jobs_get_no_workload(train: Unstructured) -> None:
    assert await reconcile(Scene(train)) == []


@in_virtual_time
async def test_a_job_that_is_deleted_or_replaced_meanwhile_gets_no_workload() -> None:
    scene = Scene(job("gone"), job("replaced"))
    scene.api.remove("jobs", "team/gone")
    scene.api.remove("jobs", "team/replaced")
    scene.put(job("replaced", uid="another"))
    assert await reconcile(scene) == []


@pytest.mark.parametrize(("take_over", "made"), [(frozenset(), 0), (frozenset({"team/main"}), 1)])
@in_virtual_time
async def test_a_live_kueue_makes_the_workloads_of_its_queues(take_over: frozenset[str], made: int) -> None:
    scene = Scene(take_over=take_over)
    scene.cache.responsibility.kueue_is_live = True
    scene.put(local_queue("main"), job("train"))
    scene.watch()
    assert len(await reconcile(scene)) == made


@in_virtual_time
async def test_a_queue_of_kueue_keeps_nothing_from_those_that_were_taken_over() -> None:
    """Kueue has just appeared, and the jobs have not been looked at again."""
    scene = Scene(job("theirs", queue="other"), job("ours"), take_over=frozenset({"team/main"}))
    scene.cache.responsibility.kueue_is_live = True
    (created,) = await reconcile(scene)
    assert created.body["spec"]["queueName"] == "main"


@in_virtual_time
async def test_without_the_kind_workload_nothing_is_reconciled() -> None:
    scene = Scene(job("train"))
    del scene.api.groups["kueue.x-k8s.io/v1beta2"]
    assert await reconcile(scene) == []
    assert not scene.client.sent


@in_virtual_time
async def test_the_child_of_a_queued_owner_has_no_workload_of_its_own() -> None:
    jobs = [{"name": "w", "replicas": 1, "template": {"spec": {"parallelism": 1, "template": template()}}}]
    parent = custom(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        "set",
        metadata={"labels": {"kueue.x-k8s.io/queue-name": "main"}},
        spec={"suspend": True, "replicatedJobs": jobs},
    )
    child = job("set-w-0", ownerReferences=[reference(parent)])
    scene = Scene(parent, child)
    (created,) = await reconcile(scene)
    assert created.body["metadata"]["ownerReferences"][0]["kind"] == "JobSet"


@pytest.mark.parametrize(
    ("labels", "priority_class", "priority"),
    [
        ({}, "", 0),
        ({}, "high", 7),
        ({WORKLOAD_PRIORITY_CLASS_LABEL: "urgent"}, "high", 9),
        ({}, "missing", 0),
    ],
)
@in_virtual_time
async def test_the_priority_comes_from_the_workloads_class_then_from_the_pods(
    labels: dict[str, str], priority_class: str, priority: int
) -> None:
    classes = [
        custom("scheduling.k8s.io/v1", "PriorityClass", "high", metadata={"namespace": ""}, value=7),
        custom(
            "kueue.x-k8s.io/v1beta2",
            "WorkloadPriorityClass",
            "urgent",
            metadata={"namespace": ""},
            value=9,
        ),
    ]
    spec = {"template": template(priorityClassName=priority_class)}
    scene = Scene(*classes, job("train", labels=labels, spec=spec))
    (created,) = await reconcile(scene)
    assert created.body["spec"]["priority"] == priority


@in_virtual_time
async def test_a_workload_class_that_does_not_exist_is_named_instead_of_a_priority() -> None:
    """Its value counts once it exists; the engine holds the Workload until then."""
    scene = Scene(job("train", labels={WORKLOAD_PRIORITY_CLASS_LABEL: "missing"}))
    (created,) = await reconcile(scene)
    assert "priority" not in created.body["spec"]
    reference_ = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "missing"}
    assert created.body["spec"]["priorityClassRef"] == reference_


# TrainJob: its templates are in the JobSet of the same name


def train_job(**metadata: Any) -> Unstructured:
    meta = {"labels": {"kueue.x-k8s.io/queue-name": "main"}, **metadata}
    return custom("trainer.kubeflow.org/v1alpha1", "TrainJob", "fit", metadata=meta, spec={"suspend": True})


def job_set(scheduler: str = "windlass", nodes: int = 2, **metadata: Any) -> Unstructured:
    pods = {"parallelism": nodes, "template": template(4, scheduler)}
    jobs = [{"name": "node", "replicas": 1, "template": {"spec": pods}}]
    meta = {"uid": "uid-set", "ownerReferences": [reference(train_job())], **metadata}
    spec = {"suspend": True, "replicatedJobs": jobs}
    return custom("jobset.x-k8s.io/v1alpha2", "JobSet", "fit", metadata=meta, spec=spec)


@in_virtual_time
async def test_a_train_job_waits_for_its_job_set_and_has_its_pod_sets() -> None:
    scene = Scene(train_job())
    assert await reconcile(scene) == []
    scene.put(job_set())
    scene.watch()
    (created,) = await reconcile_and_watch(scene)
    assert created.body["metadata"]["ownerReferences"] == [reference(train_job())]
    assert created.body["spec"]["podSets"] == [{"name": "node", "count": 2, "template": template(4)}]
    assert await reconcile(scene) == []


@in_virtual_time
async def test_a_train_job_for_another_scheduler_gets_no_workload() -> None:
    assert await reconcile(Scene(train_job(), job_set("default-scheduler"))) == []


@in_virtual_time
async def test_a_train_job_whose_job_set_is_replaced_meanwhile_waits_for_the_next_one() -> None:
    scene = Scene(train_job(), job_set())
    scene.api.remove("jobsets", "team/fit")
    assert await reconcile(scene) == []


def predecessors_job_set() -> Unstructured:
    before = train_job(uid="uid-before")
    return job_set(nodes=1, uid="uid-set-before", ownerReferences=[reference(before)])


def pod_counts(scene: Scene) -> list[int]:
    return [pod_set["count"] for pod_set in workload_of(scene, train_job())["spec"]["podSets"]]


@in_virtual_time
async def test_a_train_job_that_is_made_anew_does_not_take_the_size_of_its_predecessor() -> None:
    scene = Scene(predecessors_job_set(), train_job())
    assert await reconcile(scene) == []
    scene.api.remove("jobsets", "team/fit")
    scene.put(job_set())
    scene.watch()
    assert len(await reconcile_and_watch(scene)) == 1
    assert pod_counts(scene) == [2]


@in_virtual_time
async def test_a_waiting_train_job_follows_its_job_set() -> None:
    scene = Scene(local_queue("main"), train_job(), job_set())
    await reconcile_and_watch(scene)
    assert await reconcile(scene) == []
    scene.put(job_set(nodes=3, resourceVersion="900"))
    scene.watch()
    assert [request.method for request in await reconcile_and_watch(scene)] == ["PATCH"]
    assert pod_counts(scene) == [3]
    assert await reconcile(scene) == []


def outgrown(job_set_on_server: Unstructured) -> Scene:
    """A running TrainJob of three nodes that was admitted with two, as the watch has it."""
    status = {"admission": {"clusterQueue": "cluster", "podSetAssignments": [{"name": "node", "count": 2}]}}
    made = workload("w", owner=train_job(), labels=OURS, status=status)
    made["spec"]["podSets"] = [{"name": "node", "count": 2, "template": template(4)}]
    scene = Scene(local_queue("main"), {**train_job(), "spec": {"suspend": False}}, job_set(nodes=3), made)
    scene.put(job_set_on_server)
    return scene


async def stop_outgrown(scene: Scene) -> None:
    stop = scene.executor.admissions.stop_action(Evict("team/w", (), "", NO_MATCHING_WORKLOAD))
    assert stop is not None
    await stop()
    scene.watch()


@in_virtual_time
async def test_a_train_job_that_has_outgrown_its_admission_is_stopped_and_waits_with_its_new_size() -> None:
    scene = outgrown(job_set(nodes=3))
    await stop_outgrown(scene)
    assert scene.get("trainjobs", "fit")["spec"]["suspend"] is True
    assert condition(scene.get("workloads", "w"), "Evicted")["reason"] == NO_MATCHING_WORKLOAD
    await reconcile_and_watch(scene)
    assert [pod_set["count"] for pod_set in scene.get("workloads", "w")["spec"]["podSets"]] == [3]


@pytest.mark.parametrize("on_server", [job_set(nodes=2), predecessors_job_set()])
@in_virtual_time
async def test_a_train_job_goes_on_where_the_watch_of_its_job_set_was_behind(on_server: Unstructured) -> None:
    scene = outgrown(on_server)
    await stop_outgrown(scene)
    assert scene.get("trainjobs", "fit")["spec"]["suspend"] is False


# End


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        ([{"type": "Complete", "status": "True"}], "Succeeded"),
        ([{"type": "Failed", "status": "True"}], "Failed"),
    ],
)
@in_virtual_time
async def test_a_workload_finishes_with_its_owner_once(conditions: list[Unstructured], reason: str) -> None:
    train = job("train", suspend=False, status={"conditions": conditions})
    scene = Scene(train, workload("w", owner=train, status={"admission": admission()}))
    (written,) = await reconcile(scene)
    assert written.path.endswith("/workloads/w/status")
    finished = condition(scene.get("workloads", "w"), "Finished")
    assert (finished["status"], finished["reason"]) == ("True", reason)
    assert finished["lastTransitionTime"] == "2026-01-01T00:06:40Z"
    scene.watch()
    assert await reconcile(scene) == []


@in_virtual_time
async def test_a_finished_workload_is_left_alone_whatever_its_job_does() -> None:
    train = job("train", parallelism=5)
    scene = Scene(train, workload("w", owner=train, labels=OURS, status=FINISHED))
    await asyncio.sleep(20)
    assert await reconcile(scene) == []


# Changes of a pending owner


def pending(train: Unstructured, **more: Any) -> Unstructured:
    return workload("w", owner=train, labels=OURS, **more)


@in_virtual_time
async def test_a_pending_job_that_was_changed_changes_its_workload() -> None:
    train = job("train", parallelism=4, gpus=2, queue="second", spec={"template": template(2, priority=5)})
    scene = Scene(train, pending(train))
    version = scene.get("workloads", "w")["metadata"]["resourceVersion"]
    (written,) = await reconcile_and_watch(scene)
    assert (written.method, written.path.rpartition("/")[2]) == ("PATCH", "w")
    assert written.body == {
        "metadata": {"resourceVersion": version},
        "spec": {
            "podSets": [{"name": "main", "count": 4, "template": template(2, priority=5)}],
            "queueName": "second",
            "priority": 5,
        },
    }
    assert await reconcile(scene) == [], "they agree"


@pytest.mark.parametrize(
    ("owner", "status", "labels"),
    [
        ({"parallelism": 4}, {"admission": admission()}, OURS),
        ({"parallelism": 4}, {}, {}),
        ({"parallelism": 4, "suspend": False}, {}, OURS),
        ({}, {}, OURS),
    ],
    ids=["admitted", "written by Kueue", "runs", "the same"],
)
@in_virtual_time
async def test_these_workloads_are_not_changed(
    owner: Mapping[str, Any], status: Unstructured, labels: dict[str, str]
) -> None:
    train = job("train", **owner)
    scene = Scene(train, workload("w", owner=train, labels=labels, status=status))
    assert await reconcile(scene) == []


@pytest.mark.parametrize("error", [refused(409, "changed"), refused(404, "gone")])
@in_virtual_time
async def test_a_change_that_met_another_is_tried_again_with_the_next_decision(error: Exception) -> None:
    train = job("train", parallelism=4)
    scene = Scene(train, pending(train))
    scene.client.fail("PATCH workloads/w", error, times=1)
    assert len(await reconcile(scene)) == 1
    assert len(await reconcile(scene)) == 1
    assert await reconcile(scene) == [], "written; the watch is only late"


@pytest.mark.parametrize("error", [refused(422, "no"), lost_answer()])
@in_virtual_time
async def test_a_change_that_failed_is_tried_again_after_five_seconds(error: Exception) -> None:
    train = job("train", parallelism=4)
    scene = Scene(train, pending(train))
    scene.client.fail("PATCH workloads/w", error, times=1)
    assert len(await reconcile(scene)) == 1
    assert await reconcile(scene) == []
    await asyncio.sleep(5.1)
    assert len(await reconcile(scene)) == 1


@in_virtual_time
async def test_a_change_of_a_job_that_has_gone_is_not_written() -> None:
    train = job("train", parallelism=4)
    scene = Scene(train, pending(train))
    scene.api.remove("jobs", "team/train")
    assert await reconcile(scene) == []


# Repair: a leader was killed between its two writes


def contradictions() -> list[Any]:
    return [
        pytest.param(True, {"admission": admission()}, False, id="admitted and suspended"),
        pytest.param(False, EVICTED, True, id="evicted and running"),
    ]


@pytest.mark.parametrize(("suspended", "status", "repaired"), contradictions())
@in_virtual_time
async def test_an_owner_that_contradicts_its_workload_is_repaired_after_five_seconds(
    suspended: bool, status: Unstructured, repaired: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    train = job("train", suspend=suspended)
    scene = Scene(train, workload("w", owner=train, status=status))
    assert await reconcile(scene) == [], "the watch of one kind may be behind that of the other"
    await asyncio.sleep(4.9)
    assert await reconcile(scene) == []
    await asyncio.sleep(0.2)
    (written,) = await reconcile(scene)
    assert written.path.endswith("/jobs/train")
    assert scene.get("jobs", "train")["spec"]["suspend"] is repaired
    state = "evicted: suspending" if repaired else "admitted: unsuspending"
    assert f"Workload team/w is {state} its Job" in caplog.text
    await asyncio.sleep(4.9)
    assert await reconcile(scene) == [], "not again before the watch had its time"
    await asyncio.sleep(0.2)
    # An owner that is to be stopped is read first: it has been stopped already.
    assert len(await reconcile(scene)) == (0 if repaired else 1)
    scene.watch()
    await asyncio.sleep(60)
    assert await reconcile(scene) == []


@pytest.mark.parametrize(("suspended", "status", "repaired"), contradictions())
@in_virtual_time
async def test_only_what_the_server_has_is_repaired(suspended: bool, status: Unstructured, repaired: bool) -> None:
    train = job("train", suspend=suspended)
    scene = Scene(train, workload("w", owner=train, status=status))
    await reconcile(scene)
    others = {"admission": admission()} if repaired else {}
    scene.put(workload("w", owner=train, status=others))  # the watch has not shown it
    await asyncio.sleep(5.1)
    assert await reconcile(scene) == []
    scene.api.remove("workloads", "team/w")
    await asyncio.sleep(5.1)
    assert await reconcile(scene) == []


@in_virtual_time
async def test_a_repair_leaves_a_workload_alone_that_is_being_written() -> None:
    train = job("train", suspend=False)
    scene = Scene(train, workload("w", owner=train, status=EVICTED))
    await reconcile(scene)
    await asyncio.sleep(5.1)
    held = scene.client.hold("GET workloads")
    scene.executor.admissions.execute((), scene.snapshot())
    await settle()
    admissions = scene.executor.admissions
    writing = scene.client.hold("PATCH workloads/w/status")
    admissions._writer.start_once("team/w", lambda: admissions._writer.patch_workload_status("team/w", {"a": 1}))
    await settle()
    held.release()
    await settle()
    assert not scene.client.writes(of="jobs")
    writing.release()
    await admissions.drain()


@pytest.mark.parametrize(
    ("suspended", "status", "active"),
    [
        (True, {"admission": admission()}, False),
        (False, {"admission": admission()}, True),
        (True, EVICTED, True),
        (False, {}, True),
        (False, {"conditions": [{"type": "Evicted", "status": "False"}]}, True),
        (True, {}, True),
    ],
    ids=["deactivated", "runs", "evicted and suspended", "never admitted", "no more evicted", "waits"],
)
@in_virtual_time
async def test_these_do_not_contradict(suspended: bool, status: Unstructured, active: bool) -> None:
    train = job("train", suspend=suspended)
    scene = Scene(train, workload("w", owner=train, status=status, active=active))
    for _ in range(3):
        assert await reconcile(scene) == []
        await asyncio.sleep(10)


@in_virtual_time
async def test_a_contradiction_that_ends_by_itself_starts_anew() -> None:
    train, running = job("train"), job("train", suspend=False)
    scene = Scene(train, workload("w", owner=train, status={"admission": admission()}))
    await reconcile(scene)
    await asyncio.sleep(4)
    for state in (running, train):
        scene.put(state)
        scene.watch()
        assert await reconcile(scene) == []
        await asyncio.sleep(2)
    assert await reconcile(scene) == [], "five seconds from when it began again"
    await asyncio.sleep(5)
    assert len(await reconcile(scene)) == 1


# Memory


@in_virtual_time
async def test_deleted_workloads_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_workloads, "MAX_ENTRIES", 0)
    jobs = [job(f"j{number}", status=ENDED) for number in range(20)]
    scene = Scene(*jobs, *(workload(f"w{number}", owner=jobs[number]) for number in range(20)))
    writer = scene.executor.admissions._writer
    await reconcile_and_watch(scene)
    assert len(writer.written_versions) == 20
    scene.put(*(job(f"k{number}") for number in range(20)))
    scene.watch()
    await reconcile_and_watch(scene)
    await reconcile(scene)  # each of the new ones agrees with its Workload
    for number in range(1, 20):
        scene.api.remove("workloads", f"team/w{number}")
        scene.api.remove("jobs", f"team/j{number}")
        scene.api.remove("jobs", f"team/k{number}")
        scene.api.remove("workloads", f"team/{name_of(job(f'k{number}'))}")
    scene.watch()
    await reconcile(scene)
    assert list(writer.written_versions) == ["team/w0"]
