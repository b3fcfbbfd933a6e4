"""Every kind that makes pods says how many of which template, whether they start together, and what they are called."""

from __future__ import annotations

from typing import Any

import pytest
from tests.model.kueue_samples import changed, decoded
from tests.model.owner_samples import (
    DEPLOYMENT,
    JOB,
    JOB_SET,
    LEADER_WORKER_SET,
    MPI_JOB,
    PYTORCH_JOB,
    RAY_CLUSTER,
    RAY_JOB,
    TRAIN_JOB,
)

from windlass.model.codec import decode_object
from windlass.model.errors import InputError
from windlass.model.owners import Owner, owner_from_object, template_pod
from windlass.model.requests import pod_requests
from windlass.model.unstructured import Unstructured


def made(tree: Unstructured) -> Owner:
    [wire] = decoded(tree)
    return owner_from_object(wire)


@pytest.mark.parametrize(
    ("tree", "kind", "sets"),
    [
        (JOB, "Job", [("main", 4)]),
        (JOB_SET, "JobSet", [("leader", 1), ("workers", 8)]),
        (PYTORCH_JOB, "PyTorchJob", [("master", 1), ("worker", 4)]),
        (MPI_JOB, "MPIJob", [("launcher", 1), ("worker", 2)]),
        (TRAIN_JOB, "TrainJob", []),
        (RAY_CLUSTER, "RayCluster", [("headgroup", 1), ("gpu", 4)]),
        (RAY_JOB, "RayJob", [("headgroup", 1), ("gpu", 4), ("submitter", 1)]),
        (LEADER_WORKER_SET, "LeaderWorkerSet", [("leader", 1), ("worker", 2)]),
        (DEPLOYMENT, "Deployment", [("main", 3)]),
    ],
)
def test_sets_and_sizes(tree: Unstructured, kind: str, sets: list[tuple[str, int]]) -> None:
    owner = made(tree)
    assert owner.kind == kind
    assert [(one.name, one.count) for one in owner.pod_sets] == sets
    for one in owner.pod_sets:
        assert pod_requests(template_pod(owner, one))["nvidia.com/gpu"] == 2


def test_a_job_wants_what_is_left_of_it() -> None:
    started = {**JOB, "status": {"succeeded": 8}}
    assert made(started).pod_sets[0].count == 2
    assert made(JOB).pod_sets[0].min_count == 2
    assert made(JOB).deadline == 600
    assert made(JOB).suspended


@pytest.mark.parametrize("tree", [JOB, JOB_SET], ids=["Job", "JobSet"])
def test_jobs_start_together_where_they_are_queued(tree: Unstructured) -> None:
    assert made(tree).is_gang
    assert not made(changed(tree, "metadata/labels", {})).is_gang


def test_training_kinds_start_together_and_controllers_do_not() -> None:
    assert made(PYTORCH_JOB).is_gang
    assert not made(DEPLOYMENT).is_gang


def test_elastic_training_may_start_smaller() -> None:
    assert made(PYTORCH_JOB).min_pods == 3
    policy = changed(PYTORCH_JOB, "spec/runPolicy/schedulingPolicy", {"minAvailable": 99})
    assert made(policy).min_pods == 5


def test_a_leader_worker_set_makes_several_gangs() -> None:
    assert made(LEADER_WORKER_SET).gang_count == 2
    alike = changed(LEADER_WORKER_SET, "spec/leaderWorkerTemplate/leaderTemplate", None)
    assert [(one.name, one.count) for one in made(alike).pod_sets] == [("main", 3)]


@pytest.mark.parametrize(
    ("tree", "ended"),
    [(JOB, "Complete"), (JOB, "Failed"), (JOB_SET, "Completed"), (PYTORCH_JOB, "Succeeded")],
)
def test_an_end_is_seen(tree: Unstructured, ended: str) -> None:
    assert not made(tree).finished
    assert made({**tree, "status": {"conditions": [{"type": ended, "status": "True"}]}}).finished


@pytest.mark.parametrize(
    ("tree", "path", "value", "where"),
    [
        (JOB, "spec/parallelism", -1, "spec.parallelism"),
        (
            JOB,
            "spec/template/spec/tolerations",
            [{"operator": "Is"}],
            "spec.template.spec.tolerations[0].operator",
        ),
        (
            JOB,
            "metadata/annotations",
            {"kueue.x-k8s.io/job-min-parallelism": "x"},
            "metadata.annotations.kueue",
        ),
        (JOB_SET, "spec/replicatedJobs/1/name", "leader", "spec.replicatedJobs[1]"),
        (JOB_SET, "spec/replicatedJobs/1/replicas", 10**9, "spec.replicatedJobs[1].replicas"),
        (
            PYTORCH_JOB,
            "spec/pytorchReplicaSpecs/Worker/replicas",
            -4,
            "spec.pytorchReplicaSpecs.Worker.replicas",
        ),
        (RAY_CLUSTER, "spec/workerGroupSpecs/0/groupName", "headgroup", "spec.workerGroupSpecs[1]"),
        (LEADER_WORKER_SET, "spec/replicas", -1, "spec.replicas"),
        (DEPLOYMENT, "spec/template/spec/containers", "none", "spec.template.spec.containers"),
    ],
)
def test_the_wrong_field_is_named(tree: Unstructured, path: str, value: Any, where: str) -> None:
    with pytest.raises(InputError) as caught:
        decode_object(changed(tree, path, value))
    assert caught.value.path.startswith(where)
    assert caught.value.object == f"{tree['kind']} eng/train"


def test_a_job_of_another_project_is_not_kubernetes_own() -> None:
    assert type(decode_object(changed(JOB, "apiVersion", "batch.example.com/v1"))).__name__ == "PartialObject"
