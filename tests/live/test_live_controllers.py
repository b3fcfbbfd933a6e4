"""Queued work of the real controllers of JobSet, LeaderWorkerSet and Kubeflow's trainer: each kind waits, is admitted,
runs, is preempted, comes back, changes its size and is deleted, with the quota right at every step."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.live.owner_kinds import QUEUE, template
from tests.live.replica import Replica, replica
from tests.live.scenes import GPU, bound, overbooked, pods
from tests.live.test_live_queues import KUEUE, condition, install_crds, job, queues, workload
from tests.real_cluster.api import Api, ApiError, Object, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.controllers import job_set_controller, leader_worker_set_controller, trainer_controller
from tests.real_cluster.fake_kubelet import FakeKubelet, node
from tests.real_cluster.fixtures import unavailable

QUOTA = 8
JOBS = "/apis/batch/v1/namespaces/default/jobs"
JOB_SET = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/work"
HIGH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 1000,
}


@pytest.fixture
def api(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Api]:
    if os.geteuid() != 0:
        unavailable("the controllers of other projects need root")
    found = control_plane.api
    install_crds(found)
    found.create(HIGH, *(node(f"n{i}", {GPU: "8"}) for i in range(2)), *queues(QUOTA))
    with contextlib.ExitStack() as stack:
        for start in (job_set_controller, leader_worker_set_controller, trainer_controller):
            stack.callback(start(control_plane, tmp_path).stop)
        stack.enter_context(FakeKubelet(found))
        yield found


@pytest.fixture
def scheduler(api: Api, control_plane: ControlPlane, tmp_path: Path) -> Iterator[Replica]:
    with replica(control_plane.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        yield one


def job_set() -> Object:
    """Four pods of one GPU: two Jobs of two."""
    made = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": template(1)}
    workers = {"name": "workers", "replicas": 2, "template": {"spec": made}}
    return _made("jobset.x-k8s.io/v1alpha2", "JobSet", {"suspend": True, "replicatedJobs": [workers]})


def training_runtime() -> Object:
    pod_template = template(1)
    pod_template["spec"]["containers"][0]["name"] = "node"
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    workers = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": pod_template}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "plain"},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [workers]}}},
    }


def train_job() -> Object:
    """Four nodes of one GPU."""
    spec = {"suspend": True, "runtimeRef": {"name": "plain"}, "trainer": {"numNodes": 4}}
    return _made("trainer.kubeflow.org/v1alpha1", "TrainJob", spec)


def leader_worker_set() -> Object:
    """Two groups of two pods of one GPU. Nothing stops it: its pods wait, each group as a whole."""
    pod_template = template(1)
    pod_template["spec"]["restartPolicy"] = "Always"
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": pod_template}}
    return _made("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)


def _made(version: str, kind: str, spec: Object) -> Object:
    metadata = {"name": "work", "namespace": "default", "labels": {QUEUE: "main"}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def in_use(api: Api) -> int:
    """GPUs of the quota, as the queue's status has it."""
    status = api.get(f"{KUEUE}/clusterqueues/team").get("status") or {}
    cells = [cell for flavor in status.get("flavorsUsage") or () for cell in flavor["resources"]]
    return sum(int(cell["total"]) for cell in cells if cell["name"] == GPU)


def runs(api: Api, count: int) -> Callable[[], bool]:
    """So many pods of the work are on nodes, and nothing is lent or given twice."""

    def look() -> bool:
        assert len(bound(api)) <= QUOTA, "quota was lent twice"
        assert not overbooked(api)
        return len(bound(api, "work")) == count

    return look


def take_all(api: Api, name: str, priority_class: str = "") -> Callable[[], None]:
    """A Job that takes all of the quota; returns what ends it."""
    (made,) = api.create(job(name, 1, QUOTA, priority_class))

    def end() -> None:
        api.delete(api.path_of(made), propagationPolicy="Background")
        until(lambda: not pods(api, name), 60)

    until(lambda: len(bound(api, name)) == 1, 60, name)
    return end


def resize_job_set(api: Api, path: str) -> None:
    """Its webhook refuses another number of replicas: it is deleted and made anew."""
    with pytest.raises(ApiError, match="immutable"):
        api.patch(path, [{"op": "replace", "path": "/spec/replicatedJobs/0/replicas", "value": 3}], "json")
    larger = job_set()
    larger["spec"]["replicatedJobs"][0]["replicas"] = 3
    api.delete(path, propagationPolicy="Foreground")
    until(lambda: not api.exists(path), 60)
    api.create(larger)


def larger_train_job(nodes: int) -> Object:
    made = train_job()
    made["spec"]["trainer"]["numNodes"] = nodes
    return made


def resize_train_job(api: Api, path: str) -> None:
    """Its controller can't change the JobSet that it has made (the same webhook): it is deleted and made anew, too. Its
    Jobs have to be gone: kube-controller-manager makes no pods for a Job whose predecessor's pods it still counts."""
    api.delete(path, propagationPolicy="Foreground")
    until(lambda: not api.exists(path) and not api.exists(JOB_SET) and not api.items(JOBS), 60)
    api.create(larger_train_job(6))


def resize_leader_worker_set(api: Api, path: str) -> None:
    api.patch(path, {"spec": {"replicas": 3}})


@pytest.mark.parametrize(
    ("made", "resize", "has_workload"),
    [
        pytest.param(job_set, resize_job_set, True, id="JobSet"),
        pytest.param(train_job, resize_train_job, True, id="TrainJob"),
        pytest.param(leader_worker_set, resize_leader_worker_set, False, id="LeaderWorkerSet"),
    ],
)
def test_the_life_of_queued_work(
    made: Callable[[], Object],
    resize: Callable[[Api, str], None],
    has_workload: bool,
    api: Api,
    scheduler: Replica,
) -> None:
    api.create(training_runtime())
    end_filler = take_all(api, "filler")
    (created,) = api.create(made())
    path = api.path_of(created)
    if has_workload:
        until(lambda: condition(workload(api, "work"), "QuotaReserved") == ("False", "Pending"), 60, "it is queued")
        assert not pods(api, "work")
    else:
        until(lambda: pods(api, "work"), 60, "its first pods are there")
        until(lambda: all(waits_for_quota(found) for found in pods(api, "work").values()), 60, "they are told")
    end_filler()
    until(runs(api, 4), 60, f"admitted, and runs\n{scheduler.last_lines()}")
    until(lambda: in_use(api) == 4, 60, "the queue's status counts it")
    end_urgent = take_all(api, "urgent", "high")
    until(lambda: not bound(api, "work"), 60, "preempted")
    assert in_use(api) <= QUOTA
    end_urgent()
    until(runs(api, 4), 60, f"resumed\n{scheduler.last_lines()}")
    resize(api, path)
    until(runs(api, 6), 90, f"resized\n{scheduler.last_lines()}")
    until(lambda: in_use(api) == 6, 60, "the queue's status counts its new size")
    api.delete(path, propagationPolicy="Background")
    until(lambda: not pods(api, "work") and in_use(api) == 0, 60, f"deleted\n{scheduler.last_lines()}")
    until(lambda: not workload(api, "work"), 60, "its Workload is gone with it")


def test_a_train_job_that_is_made_anew_at_once_is_admitted_with_its_own_size(api: Api, scheduler: Replica) -> None:
    """It meets the JobSet, the pods and the Workload of the one before, which has its name."""
    api.create(training_runtime())
    (made,) = api.create(train_job())
    until(runs(api, 4), 60, scheduler.last_lines())
    api.delete(api.path_of(made), propagationPolicy="Background")
    (made,) = api.create(larger_train_job(6))
    until(admitted_with(api, made, 6), 120, scheduler.last_lines())


def admitted_with(api: Api, train_job: Object, nodes: int) -> Callable[[], bool]:
    """The TrainJob is let go with a Workload and a JobSet of its own, both of this size."""

    def look() -> bool:
        uid, found = train_job["metadata"]["uid"], workload(api, "work")
        if not found or found["metadata"]["ownerReferences"][0]["uid"] != uid or not api.exists(JOB_SET):
            return False
        (job,) = (job_set := api.get(JOB_SET))["spec"]["replicatedJobs"]
        sizes = [part["count"] for part in found["spec"]["podSets"]] + [job["template"]["spec"]["parallelism"]]
        is_own = job_set["metadata"]["ownerReferences"][0]["uid"] == uid
        is_let_go = not api.get(api.path_of(train_job))["spec"]["suspend"] and not job_set["spec"]["suspend"]
        return is_own and is_let_go and sizes == [nodes, nodes] and condition(found, "Admitted")[0] == "True"

    return look


def waits_for_quota(found: Object) -> bool:
    return condition(found, "PodScheduled") == ("False", "WaitingForQuota")
