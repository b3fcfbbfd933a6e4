"""Admitted pods get the node labels and tolerations of their flavor; a stopped Job is again what its owner wrote."""

from __future__ import annotations

import asyncio
import copy

import pytest
from tests.scheduler.queued_jobs import JOBS, TOLERATION, WORKLOADS, QueuedJobs, on_cluster
from tests.worlds.draw_world import GPU, POOL_LABEL

from windlass.model.names.kueue import KUEUE_POD_GROUP_NAME, POD_GROUP_TOTAL_COUNT_ANNOTATION, QUEUE_NAME_LABEL
from windlass.model.unstructured import Unstructured

OWN = {
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "example.com/mine", "operator": "Exists"}],
}
"""What the user wrote."""
PARTIAL = {"kueue.x-k8s.io/job-min-parallelism": "2"}
GATE = "kueue.x-k8s.io/admission"


def activate(cluster: QueuedJobs, name: str, active: bool) -> None:
    workload = cluster.workload(name)["metadata"]["name"]
    cluster.client.patch(WORKLOADS, "team", workload, {"spec": {"active": active}})


def spec_of(cluster: QueuedJobs, name: str) -> Unstructured:
    """All of a Job's spec but whether it is suspended, and its annotations."""
    job = cluster.job(name)
    return {**copy.deepcopy(job["spec"]), "suspend": None, "annotations": job["metadata"].get("annotations")}


def label_nodes(cluster: QueuedJobs) -> None:
    for node in cluster.client.list("nodes"):
        labels = {"kubernetes.io/os": "linux"}
        cluster.client.patch("nodes", "", node["metadata"]["name"], {"metadata": {"labels": labels}})


@on_cluster(big=8, small=4)
async def test_a_job_runs_with_its_flavors_labels_and_tolerations(cluster: QueuedJobs) -> None:
    label_nodes(cluster)
    cluster.submit("first", 8, pod=OWN)
    await asyncio.sleep(2)
    cluster.submit("second", 4, pod=OWN)
    await asyncio.sleep(10)
    for name, pool, tolerations in (("first", "big", []), ("second", "small", [TOLERATION])):
        spec = cluster.job(name)["spec"]["template"]["spec"]
        assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", POOL_LABEL: pool}
        assert spec["tolerations"] == [*OWN["tolerations"], *tolerations]
        for pod in cluster.bound(name):
            assert pod["spec"]["nodeSelector"] == spec["nodeSelector"]
            assert pod["spec"]["nodeName"] == f"{pool}-0"
            assert all(toleration in pod["spec"]["tolerations"] for toleration in tolerations)
    assert len(cluster.bound("first")) == 8
    assert len(cluster.bound("second")) == 4


@on_cluster(big=8, small=4)
async def test_a_job_that_is_stopped_is_again_what_it_was_and_may_run_in_another_flavor(cluster: QueuedJobs) -> None:
    label_nodes(cluster)
    cluster.submit("train", 4, pod=OWN)
    cluster.submit("plain", 4)
    written = {name: spec_of(cluster, name) for name in ("train", "plain")}
    await asyncio.sleep(10)
    for name in written:
        activate(cluster, name, False)
    await asyncio.sleep(10)
    assert {name: spec_of(cluster, name) for name in written} == written
    cluster.set_quota(0)
    activate(cluster, "train", True)
    await asyncio.sleep(10)
    selector = cluster.job("train")["spec"]["template"]["spec"]["nodeSelector"]
    assert selector == {"kubernetes.io/os": "linux", POOL_LABEL: "small"}
    assert {pod["spec"]["nodeName"] for pod in cluster.bound("train")} == {"small-0"}


@pytest.mark.parametrize("milliseconds", [2, 6, 10, 14, 18, 22, 26, 30, 34, 40])
def test_a_scheduler_that_is_killed_while_it_stops_a_job_is_followed_by_one_that_ends_it(milliseconds: int) -> None:
    @on_cluster(big=8, small=4)
    async def play(cluster: QueuedJobs) -> None:
        cluster.cluster.set_network(latency=0.004, failures=0.0, watch_lag=0.0, decision_seconds=0.0)
        cluster.submit("train", 4, annotations=PARTIAL)
        cluster.submit("other", 6)
        written = spec_of(cluster, "train")
        await asyncio.sleep(10)
        activate(cluster, "train", False)
        await asyncio.sleep(milliseconds / 1000)
        await cluster.cluster.restart_scheduler(1)
        await asyncio.sleep(30)
        assert spec_of(cluster, "train") == written
        assert cluster.job("train")["spec"]["suspend"] is True
        template = cluster.workload("train")["spec"]["podSets"][0]["template"]
        assert POOL_LABEL not in (template["spec"].get("nodeSelector") or {})
        activate(cluster, "train", True)
        await asyncio.sleep(20)
        assert len(cluster.bound("train")) == 4

    play()


@on_cluster(big=6, small=1)
async def test_partial_admission_changes_the_parallelism_and_restores_it(cluster: QueuedJobs) -> None:
    equal = {**PARTIAL, "kueue.x-k8s.io/job-completions-equal-parallelism": "true"}
    cluster.submit("other", 2)
    await asyncio.sleep(2)
    cluster.submit("train", 8, annotations=PARTIAL)
    await asyncio.sleep(2)
    cluster.submit("late", 6, annotations=equal, spec={"completions": 6, "completionMode": "Indexed"})
    await asyncio.sleep(10)
    assert cluster.job("train")["spec"]["parallelism"] == cluster.admitted("train") == len(cluster.bound("train")) == 4
    activate(cluster, "train", False)
    await asyncio.sleep(20)
    assert cluster.job("train")["spec"]["parallelism"] == 8
    late = cluster.job("late")["spec"]
    assert (late["parallelism"], late["completions"], cluster.admitted("late")) == (4, 4, 4)
    cluster.quota["big"] = 16
    cluster.set_quota(16)
    activate(cluster, "late", False)
    await asyncio.sleep(20)
    assert (cluster.job("late")["spec"]["parallelism"], cluster.job("late")["spec"]["completions"]) == (6, 6)
    cluster.client.delete(JOBS, "team", "other")
    await asyncio.sleep(60)
    activate(cluster, "train", True)
    await asyncio.sleep(20)
    assert cluster.job("train")["spec"]["parallelism"] == cluster.admitted("train") == len(cluster.bound("train")) == 8


@on_cluster(small=4)
async def test_pods_of_a_group_get_the_labels_of_their_flavor_when_their_gates_are_removed(cluster: QueuedJobs) -> None:
    container = {"name": "main", "image": "train", "resources": {"limits": {GPU: "1"}}}
    for number in range(2):
        metadata = {
            "name": f"pod-{number}",
            "namespace": "team",
            "labels": {QUEUE_NAME_LABEL: "q", KUEUE_POD_GROUP_NAME: "group"},
            "annotations": {POD_GROUP_TOTAL_COUNT_ANNOTATION: "2"},
        }
        spec = {"containers": [container], "schedulingGates": [{"name": GATE}], "nodeSelector": {"a": "b"}}
        cluster.client.create("pods", "team", {"metadata": metadata, "spec": spec})
    for node in cluster.client.list("nodes"):
        cluster.client.patch("nodes", "", node["metadata"]["name"], {"metadata": {"labels": {"a": "b"}}})
    await asyncio.sleep(20)
    for number in range(2):
        pod = cluster.client.get("pods", "team", f"pod-{number}")
        assert pod["spec"]["nodeName"] == "small-0"
        assert pod["spec"]["nodeSelector"] == {"a": "b", POOL_LABEL: "small"}
        assert TOLERATION in pod["spec"]["tolerations"]
