"""Where a queue admits, drains stop the Workload, and start it again: no pod of admitted work is evicted."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.operator.kueue_play import JOB, Kueue
from tests.operator.play import CHANGE, Play, fleet, is_up
from tests.operator.world import World

from windlass.operator.cache import OperatorCache, observed_object
from windlass.operator.decide import decide
from windlass.operator.observed import Observed
from windlass.operator.writes import EvictPods, StopWorkload, Write


def with_job(world: World, **fields: Any) -> Kueue:
    """A Job of two pods on two nodes, admitted by a queue, and a pod of nobody."""
    queue = Kueue(world)
    queue.admit("team/job-train", JOB, **fields)
    for number in range(2):
        world.add_pod(f"team/train-{number}", f"gpu-00{number}", set(range(8)), owner_uid=JOB)
    world.add_pod("team/alone", "gpu-002", {0})
    return queue


def evicted(play: Play) -> list[str]:
    """Fills up while the play goes on."""
    found: list[str] = []
    apply = play.judge.apply

    def watched(write: Write) -> bool:
        if isinstance(write, EvictPods):
            found.extend(key for key, _ in write.pods)
        return apply(write)

    play.judge.apply = watched  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_change_stops_admitted_work_and_starts_it_again(seed: int) -> None:
    chance = random.Random(seed)
    world = fleet()
    play = Play(world, kill=lambda number: seed > 0 and chance.random() < 0.2).run(lambda: is_up(world))
    queue = with_job(world)
    gone = evicted(play)
    world.add("FleetChange", "r590", CHANGE)
    assert play.until_phase("r590", "Succeeded", "RolledBack", "Failed") == "Succeeded"
    play.run(seconds=600)
    assert queue.stops, "its node was changed"
    assert set(gone) <= {"team/alone"}, "the controller would count evicted pods of a Job as failed"
    work = queue.works["team/job-train"]
    assert (work.is_active, work.is_admitted, work.stopped_for) == (True, True, "")
    assert {pod.key for pod in queue.pods_of(work.key)} == {"team/train-0", "team/train-1"}


def test_the_whole_work_is_stopped_once_for_both_of_its_nodes() -> None:
    world = fleet(2, maxUnavailable=2)
    play = Play(world).run(lambda: is_up(world))
    queue = with_job_on_two(world)
    world.add("FleetChange", "r590", CHANGE | {"waves": [{"nodes": "100%", "bake": "1m"}]})
    play.run(lambda: bool(queue.stops), 3600)
    assert "; stopped in its queue: Workload team/job-train" in message(play, "gpu-000")
    assert play.until_phase("r590", "Succeeded", "Failed", seconds=7200) == "Succeeded"
    assert queue.stops == ["team/job-train"]


def with_job_on_two(world: World) -> Kueue:
    queue = Kueue(world)
    queue.admit("team/job-train", JOB)
    for number in range(2):
        world.add_pod(f"team/train-{number}", f"gpu-00{number}", set(range(8)), owner_uid=JOB)
    return queue


def message(play: Play, node: str) -> str:
    play.settle()
    record = play.world.gpu_node(node).status.change
    assert record is not None
    return record.message


def test_a_budget_of_one_pod_keeps_the_whole_work() -> None:
    world = fleet(2)
    play = Play(world).run(lambda: is_up(world))
    queue = with_job_on_two(world)
    world.protected.add("team/train-1")
    world.add("FleetChange", "r590", CHANGE | {"waves": [{"nodes": 1, "bake": "1m"}], "drain": {"timeout": "5m"}})
    assert play.until_phase("r590", "Succeeded", "Failed", seconds=7200) == "Failed"
    assert "team/train-1: Cannot evict pod" in world.change("r590").status.message
    assert not queue.stops
    assert len(queue.pods_of("team/job-train")) == 2


def test_work_whose_queue_does_nothing_runs_on_when_the_drain_is_given_up() -> None:
    world = fleet(2)
    play = Play(world).run(lambda: is_up(world))
    queue = with_job_on_two(world)
    queue.is_down = True
    world.add("FleetChange", "r590", CHANGE | {"waves": [{"nodes": 1, "bake": "1m"}], "drain": {"timeout": "5m"}})
    assert play.until_phase("r590", "Succeeded", "Failed", seconds=7200) == "Failed"
    assert queue.stops == ["team/job-train"] * 2, "once for each node that was tried"
    assert queue.works["team/job-train"].is_active
    assert len(queue.pods_of("team/job-train")) == 2


def test_what_a_person_has_deactivated_stays_so() -> None:
    world = fleet(2)
    play = Play(world).run(lambda: is_up(world))
    queue = with_job_on_two(world)
    queue.put("team/job-train", is_active=False, is_admitted=False)
    for key in list(world.pods):
        del world.pods[key]
    world.add("FleetChange", "r590", CHANGE)
    assert play.until_phase("r590", "Succeeded", "Failed", seconds=24 * 3600) == "Succeeded"
    assert not queue.works["team/job-train"].is_active


def test_a_repair_stops_the_work_that_holds_the_gpu() -> None:
    world = fleet(3)
    play = Play(world).run(lambda: is_up(world))
    queue = with_job(world)
    gone = evicted(play)
    world.fail_gpu_under_work("gpu-001", 3)
    play.run(lambda: "gpu-001-3-1" in world.objects["GPURepair"] and not world.repair("gpu-001-3-1").is_open, 7200)
    play.run(seconds=600)
    assert queue.stops == ["team/job-train"]
    assert not gone
    assert queue.works["team/job-train"].is_admitted


POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "p", "namespace": "team", "uid": "uid-p"},
    "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
}


def owned(kind: str, api_version: str, name: str, *owner: str, **more: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "team", "uid": f"uid-{name}"}
    if owner:
        of = {"kind": owner[0], "name": owner[1], "uid": f"uid-{owner[1]}", "controller": True}
        metadata["ownerReferences"] = [of]
    return {"kind": kind, "apiVersion": api_version, "metadata": metadata, **more}


def workload(*owner: str) -> dict[str, Any]:
    status = {"conditions": [{"type": "QuotaReserved", "status": "True"}]}
    return owned("Workload", "kueue.x-k8s.io/v1beta1", "w", *owner, status=status)


def seen(*trees: dict[str, Any]) -> Observed:
    from windlass.cluster.delta import Put

    cache = OperatorCache("windlass-node")
    cache.push([Put(observed_object(tree)) for tree in trees])
    return cache.observed()


JOBSET = [
    owned("Job", "batch/v1", "job", "JobSet", "set"),
    owned("JobSet", "jobset.x-k8s.io/v1alpha2", "set", "TrainJob", "train"),
]


@pytest.mark.parametrize(
    ("pod_owner", "others", "is_found"),
    [
        (("Job", "job"), [workload("Job", "job")], True),
        (("Job", "job"), [*JOBSET, workload("JobSet", "set")], True),
        (("Job", "job"), [*JOBSET, workload("TrainJob", "train")], True),
        (("RayCluster", "c"), [owned("RayCluster", "ray.io/v1", "c", "RayJob", "r"), workload("RayJob", "r")], True),
        (("Job", "job"), [workload("Job", "another")], False),
        (("Job", "job"), JOBSET, False),
        ((), [workload("Pod", "p")], False),
    ],
)
def test_a_pod_belongs_to_the_workload_of_an_owner_above_it(
    pod_owner: tuple[str, ...], others: list[dict[str, Any]], is_found: bool
) -> None:
    pod = {**POD, "metadata": {**POD["metadata"], **owned("Pod", "v1", "p", *pod_owner)["metadata"]}}
    observed = seen(pod, *others)
    ((found,),) = observed.pods.values()
    work = observed.queued.find(found.workload, (found.uid, found.owner_uid))
    assert (work is not None and not work.is_of_pods) == is_found
    if is_found:
        assert work is not None
        assert (work.key, work.is_admitted, work.api_version) == ("team/w", True, "kueue.x-k8s.io/v1beta1")


def test_a_workload_that_has_been_deleted_is_not_found() -> None:
    from windlass.cluster.delta import Deleted, Put

    cache = OperatorCache("windlass-node")
    cache.push([Put(observed_object(tree)) for tree in [*JOBSET, workload("TrainJob", "train")]])
    assert cache.observed().queued.find("", ["uid-job"]) is not None
    cache.push([Deleted("JobSet", "team/set")])
    assert cache.observed().queued.find("", ["uid-job"]) is None
    assert cache.observed().queued.find("team/w", []) is not None
    cache.push([Deleted("Workload", "team/w")])
    assert cache.observed().queued.find("team/w", []) is None


def test_work_that_its_queue_stops_already_is_not_stopped_again() -> None:
    world = fleet(2)
    play = Play(world).run(lambda: is_up(world))
    queue = with_job_on_two(world)
    world.add("FleetChange", "r590", CHANGE | {"waves": [{"nodes": 1, "bake": "1m"}]})
    play.run(lambda: bool(queue.stops), 3600)
    writes = decide(world.observe(), world.now).writes
    assert not [write for write in writes if isinstance(write, StopWorkload | EvictPods)]
