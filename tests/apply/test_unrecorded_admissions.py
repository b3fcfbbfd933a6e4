"""A Job that was not suspended runs while its Workload is being created: the Workload says so afterwards."""

from __future__ import annotations

import pytest
from tests.apply.admissions import FINISHED, is_admitted, scene_of, status_writes
from tests.apply.objects import admission, condition, job, pod, reference, workload
from tests.apply.scene import Scene
from tests.kube.virtual_time import in_virtual_time

from windlass.model.decision import Bind
from windlass.model.names.kueue import MIN_PARALLELISM_ANNOTATION
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured

TRAIN = job("train", parallelism=2, suspend=False)


def running(*, pods: int, status: Unstructured | None = None) -> Scene:
    members = [
        pod(f"train-{number}", on="n1" if number < pods else "", ownerReferences=[reference(TRAIN)])
        for number in range(2)
    ]
    return scene_of(TRAIN, workload("w", count=2, owner=TRAIN, status=status), *members)


async def record(scene: Scene) -> None:
    """A plan that decides nothing."""
    scene.executor.execute(Plan(), scene.snapshot())
    await scene.executor.admissions.drain()


@in_virtual_time
async def test_what_its_pods_use_is_recorded_once() -> None:
    scene = running(pods=2)
    await record(scene)
    scene.watch()
    await record(scene)
    written = scene.get("workloads", "w")["status"]
    (assignment,) = written["admission"]["podSetAssignments"]
    assert written["admission"]["clusterQueue"] == "cluster"
    assert (assignment["count"], assignment["flavors"]) == (2, {GPU_RESOURCE: "default"})
    assert assignment["resourceUsage"] == {GPU_RESOURCE: "2"}
    assert condition(scene.get("workloads", "w"), "Admitted")["status"] == "True"
    assert len(status_writes(scene)) == 1


@in_virtual_time
async def test_not_before_all_of_its_pods_are_on_nodes() -> None:
    scene = running(pods=1)
    await record(scene)
    assert not is_admitted(scene)


@in_virtual_time
async def test_with_partial_admission_its_minimum_is_enough() -> None:
    scene, minimum = running(pods=1), {MIN_PARALLELISM_ANNOTATION: "1"}
    scene.put(job("train", parallelism=2, suspend=False, annotations=minimum))
    tree = workload("w", count=2, owner=TRAIN)
    tree["spec"]["podSets"][0]["minCount"] = 1
    scene.put(tree)
    scene.watch()
    await record(scene)
    (assignment,) = scene.get("workloads", "w")["status"]["admission"]["podSetAssignments"]
    assert (assignment["count"], scene.get("jobs", "train")["spec"]["parallelism"]) == (1, 1)


@in_virtual_time
async def test_no_pod_is_bound_before_its_workload_is_there() -> None:
    members = [pod(f"train-{number}", ownerReferences=[reference(TRAIN)]) for number in range(2)]
    scene = scene_of(TRAIN, *members)
    scene.executor.bind([Bind(f"team/train-{number}", "n1") for number in range(2)], scene.snapshot())
    await scene.executor.drain()
    assert [request for request in scene.client.writes() if request.path.endswith("/binding")] == []


@pytest.mark.parametrize("kind", ["Evicted", "Finished"])
@in_virtual_time
async def test_not_once_it_was_evicted_or_has_ended(kind: str) -> None:
    scene = running(pods=2, status={"conditions": [{**FINISHED, "type": kind}]})
    await record(scene)
    assert not is_admitted(scene)


@in_virtual_time
async def test_one_that_is_on_record_keeps_no_other_from_being_recorded() -> None:
    first = job("first", suspend=False)
    recorded = workload("a", owner=first, status={"admission": admission()})
    scene = running(pods=2)
    scene.put(first, recorded, pod("first-0", on="n1", ownerReferences=[reference(first)]))
    scene.watch()
    await record(scene)
    assert is_admitted(scene)


@pytest.mark.parametrize(("admitted", "bound"), [(1, ["train-0"]), (2, ["train-0", "train-1"])])
@in_virtual_time
async def test_pods_above_what_is_on_record_are_not_bound(admitted: int, bound: list[str]) -> None:
    """The larger admission may have been sent; until the server has it, quota might be given to others."""
    scene = running(pods=0, status={"admission": admission(count=admitted)})
    plan = Plan(binds=tuple(Bind(f"team/train-{number}", "n1") for number in range(2)))
    scene.executor.bind(plan.binds, scene.snapshot())
    await scene.executor.drain()
    sent = [request.path.split("/")[-2] for request in scene.client.writes() if request.path.endswith("/binding")]
    assert sorted(sent) == bound
