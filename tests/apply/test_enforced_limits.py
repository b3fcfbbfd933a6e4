"""Limits of Kueue that Windlass enforces where it admits: execution time, readiness of pods, and declared durations.

Everything that is known of a limit is in the objects: each step is decided by a scheduler that has just started.
"""

from __future__ import annotations

import asyncio
import time

from tests.apply.admissions import is_admitted
from tests.apply.objects import condition, job, node, pod, queues, reference, workload
from tests.apply.scene import Scene
from tests.kube.virtual_time import in_virtual_time

from windlass.model.configuration import Settings
from windlass.model.names.kueue import MAX_EXEC_TIME_LABEL
from windlass.model.names.windlass import DECLARED_DURATION_ANNOTATION, LAST_CHECKPOINT_ANNOTATION
from windlass.model.times import format_timestamp
from windlass.model.unstructured import Unstructured

READY = Settings(ready_seconds=60, recovery_seconds=30, requeue_limit=2, requeue_base_seconds=10)


class Cluster(Scene):
    """One queue with a Job and its Workload `w`; every step is decided by a new scheduler on the same objects."""

    def __init__(self, train: Unstructured, *, limit: int | None = None, settings: Settings = READY) -> None:
        wanted = workload("w", owner=train)
        if limit is not None:
            wanted["spec"]["maximumExecutionTimeSeconds"] = limit
        super().__init__(*queues(), node("n1"), train, wanted, settings=settings)

    async def step(self, seconds: float = 0.0) -> list[str]:
        """After so many seconds, and a restart, one decision is made and written; the reasons of its evictions."""
        await asyncio.sleep(seconds)
        fresh = Scene(settings=self.options.settings)
        fresh.api, fresh.client.api = self.api, self.api
        fresh._shown = 0
        fresh.watch()
        plan = fresh.decide()
        await fresh.executor.drain()
        for hold in plan.holds:
            fresh.executor.admissions.report_pending(hold)
        await fresh.executor.drain()
        return [evict.reason for evict in plan.evicts]

    def start_pod(self, name: str = "p", *, ready: bool = True) -> None:
        """The Job's controller and the kubelet have done their part."""
        status = {
            "phase": "Running",
            "startTime": format_timestamp(int(time.time())),
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        }
        owner = reference(self.get("jobs", "train"))
        labels = {"batch.kubernetes.io/job-name": "train"}
        self.put(pod(name, on="n1", status=status, ownerReferences=[owner], labels=labels))

    def end_pods(self) -> None:
        for key in list(self.api.objects.get("pods", {})):
            self.api.remove("pods", key)

    def workload(self) -> Unstructured:
        return self.get("workloads", "w")

    def evicted(self) -> str:
        return str(condition(self.workload(), "Evicted")["reason"])

    def why(self) -> str:
        return str(condition(self.workload(), "QuotaReserved")["message"])


def edit(tree: Unstructured, **annotations: str) -> Unstructured:
    meta = tree["metadata"]
    return {**tree, "metadata": {**meta, "annotations": {**meta.get("annotations", {}), **annotations}}}


# Maximum execution time


@in_virtual_time
async def test_at_the_end_of_its_maximum_execution_time_a_workload_is_deactivated() -> None:
    cluster = Cluster(job("train"), limit=100)
    assert await cluster.step() == []
    assert is_admitted(cluster)
    cluster.start_pod()
    assert await cluster.step(99) == []
    assert await cluster.step(1) == ["MaximumExecutionTimeExceeded"]
    assert cluster.workload()["spec"]["active"] is False
    assert cluster.evicted() == "DeactivatedDueToMaximumExecutionTimeExceeded"
    assert cluster.get("jobs", "train")["spec"]["suspend"] is True
    cluster.end_pods()
    assert await cluster.step(1000) == []
    assert not is_admitted(cluster)


@in_virtual_time
async def test_what_a_run_has_used_of_it_counts_for_the_next() -> None:
    cluster = Cluster(job("train"), limit=100)
    await cluster.step()
    cluster.start_pod()
    await asyncio.sleep(60)
    admitted = cluster.workload()
    admitted["status"]["conditions"] = [
        *admitted["status"]["conditions"],
        {"type": "PodsReady", "status": "True", "reason": "Started", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]
    cluster.put(admitted, *queues(stopPolicy="HoldAndDrain"))
    assert await cluster.step() == ["ClusterQueueStopped"]
    assert cluster.workload()["status"]["accumulatedPastExecutionTimeSeconds"] == 60
    cluster.end_pods()
    cluster.put(*queues())
    await cluster.step(500)
    assert is_admitted(cluster)
    cluster.start_pod()
    assert await cluster.step(39) == []
    assert await cluster.step(1) == ["MaximumExecutionTimeExceeded"]


@in_virtual_time
async def test_the_label_of_a_job_becomes_the_limit_of_its_workload() -> None:
    train = job("train", labels={MAX_EXEC_TIME_LABEL: "100"})
    scene = Scene(*queues(), node("n1"), train)
    scene.decide()
    await scene.executor.drain()
    (made,) = scene.api.objects["workloads"].values()
    assert made["spec"]["maximumExecutionTimeSeconds"] == 100


# Readiness


@in_virtual_time
async def test_a_workload_that_is_not_ready_in_time_waits_longer_each_time_and_is_deactivated_at_last() -> None:
    cluster = Cluster(job("train"))
    waits = []
    for _ in range(2):
        await cluster.step()
        cluster.start_pod(ready=False)
        assert await cluster.step(59) == []
        assert condition(cluster.workload(), "PodsReady")["reason"] == "WaitForStart"
        assert await cluster.step(1) == ["PodsReadyTimeout"]
        assert cluster.evicted() == "PodsReadyTimeout"
        cluster.end_pods()
        waits.append(cluster.workload()["status"]["requeueState"])
        wait = 10 * len(waits)
        assert await cluster.step(wait - 1) == []
        assert not is_admitted(cluster)
        await cluster.step(1)
        assert condition(cluster.workload(), "Requeued")["reason"] == "BackoffFinished"
    assert [state["count"] for state in waits] == [1, 2]
    await cluster.step()
    cluster.start_pod(ready=False)
    assert await cluster.step(60) == ["RequeuingLimitExceeded"]
    assert cluster.workload()["spec"]["active"] is False
    assert cluster.evicted() == "DeactivatedDueToRequeuingLimitExceeded"


@in_virtual_time
async def test_what_became_ready_while_no_scheduler_ran_is_not_evicted() -> None:
    cluster = Cluster(job("train"))
    await cluster.step()
    cluster.start_pod()
    assert await cluster.step(1000) == []
    assert condition(cluster.workload(), "PodsReady")["status"] == "True"


@in_virtual_time
async def test_pods_that_were_ready_have_the_recovery_time_to_be_so_again() -> None:
    cluster = Cluster(job("train"))
    await cluster.step()
    cluster.start_pod()
    await cluster.step(10)
    assert condition(cluster.workload(), "PodsReady")["status"] == "True"
    assert await cluster.step(1000) == []
    cluster.start_pod(ready=False)
    await cluster.step()
    assert condition(cluster.workload(), "PodsReady")["reason"] == "WaitForRecovery"
    assert await cluster.step(29) == []
    assert await cluster.step(1) == ["PodsReadyTimeout"]


@in_virtual_time
async def test_without_the_configuration_nothing_is_written_about_readiness() -> None:
    cluster = Cluster(job("train"), settings=Settings())
    await cluster.step()
    cluster.start_pod(ready=False)
    assert await cluster.step(100_000) == []
    assert all(known["type"] != "PodsReady" for known in cluster.workload()["status"]["conditions"])


# Declared durations


@in_virtual_time
async def test_what_was_stopped_at_its_declared_duration_does_not_start_again_with_it() -> None:
    train = job("train", annotations={DECLARED_DURATION_ANNOTATION: "2m"})
    cluster = Cluster(train, settings=Settings())
    await cluster.step()
    cluster.start_pod()
    assert await cluster.step(120) == ["DurationExceeded"]
    cluster.end_pods()
    await cluster.step(5)
    await cluster.step(10)
    assert not is_admitted(cluster)
    assert f"stopped after its declared 2m ({DECLARED_DURATION_ANNOTATION}) without a checkpoint" in cluster.why()
    assert cluster.why().endswith("(DURATION_EXCEEDED)")
    cluster.put(edit(cluster.get("jobs", "train"), **{DECLARED_DURATION_ANNOTATION: "1h"}))
    await cluster.step()
    assert is_admitted(cluster)


@in_virtual_time
async def test_one_that_saved_a_checkpoint_goes_on_from_there() -> None:
    train = job("train", annotations={DECLARED_DURATION_ANNOTATION: "2m"})
    cluster = Cluster(train, settings=Settings())
    await cluster.step()
    cluster.start_pod()
    await asyncio.sleep(60)
    saved = {LAST_CHECKPOINT_ANNOTATION: format_timestamp(int(time.time()))}
    cluster.put(edit(cluster.get("jobs", "train"), **saved))
    assert await cluster.step(60) == ["DurationExceeded"]
    cluster.end_pods()
    await cluster.step(5)
    assert is_admitted(cluster)


@in_virtual_time
async def test_a_waiting_time_that_kueue_began_ends_also_without_the_setting() -> None:
    cluster = Cluster(job("train"), settings=Settings())
    waiting = {
        "type": "Requeued",
        "status": "False",
        "reason": "PodsReadyTimeout",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    stopped = cluster.workload()
    stopped["status"] = {
        "conditions": [waiting],
        "requeueState": {"count": 2, "requeueAt": format_timestamp(int(time.time()) + 100)},
    }
    cluster.put(stopped)
    await cluster.step(99)
    assert not is_admitted(cluster)
    await cluster.step(1)
    await cluster.step()
    assert is_admitted(cluster)
    assert condition(cluster.workload(), "PodsReady") == {}, "nobody asked for it"
