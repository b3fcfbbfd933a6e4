"""Many queued Jobs at once on an idle cluster: each is started soon, and written only as often as the API needs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from tests.invariants.objects import NAMESPACE, QUEUE, cluster_queue, flavor, local_queue, pod_spec
from tests.worlds.draw_world import GPU
from tests.worlds.virtual_client import WRITES, InProcessKubeClient
from tests.worlds.virtual_cluster import VirtualCluster
from tests.worlds.virtual_time import Machine, run_virtually

from windlass.embedded.runtime.fleet_nodes import fleet_nodes
from windlass.kube.errors import ServerUnavailable
from windlass.kube.request import Request
from windlass.model.configuration import Settings
from windlass.model.fleet import Fleet, FleetGpus, FleetPool
from windlass.model.fleet_spec import FleetSpec
from windlass.model.names.windlass import SIMULATED_DURATION_ANNOTATION
from windlass.model.unstructured import Unstructured

PODS = (1, 1, 2, 1, 4)


class Requests:
    """Counts what the scheduler sends, by method and resource, and what is answered with 409."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self.fails: Callable[[str], bool] = lambda what: False
        self.loses: Callable[[str], bool] = lambda what: False
        """Whether the answer is lost, after the write was done."""
        send = InProcessKubeClient._send_once

        async def counted(client: InProcessKubeClient, request: Request) -> bytes:
            what = f"{request.method} {_resource(request.path)}"
            if request.method in WRITES:
                self.counts[what] += 1
            if self.fails(what):
                raise ServerUnavailable("connection refused")
            answer = await send(client, request)
            if self.loses(what):
                raise ServerUnavailable("connection reset by peer")
            return answer

        monkeypatch.setattr(InProcessKubeClient, "_send_once", counted)


def _resource(path: str) -> str:
    """`pods/binding` of `/api/v1/namespaces/team/pods/p/binding`."""
    parts = path.rpartition("/namespaces/")[2].split("/")[1:]
    return "/".join(parts[::2])


def _is_of(what: str, resources: tuple[str, ...]) -> bool:
    return what.partition(" ")[2].partition("/")[0] in resources


def job(number: int, seconds: int) -> Unstructured:
    spec = pod_spec(1, 1, restartPolicy="Never")
    spec["containers"][0]["image"] = "train"
    pods = PODS[number % len(PODS)]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"job-{number}", "namespace": NAMESPACE, "labels": {QUEUE: "main"}},
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": pods,
            "template": {"metadata": {"annotations": {SIMULATED_DURATION_ANNOTATION: f"{seconds}s"}}, "spec": spec},
        },
    }


async def cluster_of(nodes: int, machine: Machine) -> VirtualCluster:
    """Idle nodes of eight GPUs, a queue with quota for all of them, and decisions that take as long as real ones."""
    machine.thread_seconds = 0.03
    pool = FleetPool(name="p", count=nodes, gpus=(FleetGpus(model="H100", count=8),), cpu="64")
    cluster = VirtualCluster(fleet_nodes(Fleet(FleetSpec((pool,))), time.time()), Settings(), Random(1))
    create = cluster.client.create
    create("namespaces", "", {"metadata": {"name": NAMESPACE}})
    cells = {"any": {"cpu": {"nominalQuota": "10000"}, GPU: {"nominalQuota": str(8 * nodes)}}}
    create("resourceflavors.kueue.x-k8s.io", "", flavor("any", {}, ""))
    create("clusterqueues.kueue.x-k8s.io", "", cluster_queue("main", cells))
    create("localqueues.kueue.x-k8s.io", NAMESPACE, local_queue("main", "main"))
    await cluster.start()
    await asyncio.sleep(5)
    return cluster


def bound_pods(cluster: VirtualCluster) -> int:
    return sum(1 for pod in cluster.client.list("pods") if pod["spec"].get("nodeName"))


@pytest.mark.parametrize("jobs_per_second", [0, 40], ids=["at once", "one after the other"])
def test_each_of_sixty_jobs_starts_within_a_second_and_is_written_once(
    monkeypatch: pytest.MonkeyPatch, jobs_per_second: int
) -> None:
    requests = Requests(monkeypatch)
    pods = sum(PODS[number % len(PODS)] for number in range(60))

    async def main(machine: Machine) -> None:
        cluster = await cluster_of(20, machine)
        requests.counts.clear()
        for number in range(60):
            cluster.client.create("jobs.batch", NAMESPACE, job(number, 1000))
            await asyncio.sleep(1 / jobs_per_second if jobs_per_second else 0)
        await asyncio.sleep(1)
        assert bound_pods(cluster) == pods, "none waits for the next tick"
        assert not [what for what in cluster.network.counts if what.startswith("conflict")]
        await cluster.stop()

    run_virtually(main, 1)
    of_jobs = ("workloads", "jobs", "pods")
    assert {what: count for what, count in requests.counts.items() if _is_of(what, of_jobs)} == {
        "POST workloads": 60,
        "PATCH workloads/status": 60,
        "PATCH jobs": 60,
        "POST pods/binding": pods,
    }


def test_a_job_whose_workload_could_not_be_created_does_not_wait_for_the_next_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests = Requests(monkeypatch)
    requests.fails = lambda what: what == "POST workloads" and requests.counts[what] == 1

    async def main(machine: Machine) -> None:
        cluster = await cluster_of(1, machine)
        cluster.client.create("jobs.batch", NAMESPACE, job(0, 1000))
        await asyncio.sleep(6)
        assert bound_pods(cluster) == 1
        await cluster.stop()

    run_virtually(main, 1)


def test_no_workload_is_created_again_while_the_watch_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(monkeypatch)

    async def main(machine: Machine) -> None:
        cluster = await cluster_of(2, machine)
        cluster.set_network(latency=0.002, failures=0.0, watch_lag=20.0, decision_seconds=0.03)
        for number in range(5):
            cluster.client.create("jobs.batch", NAMESPACE, job(number, 1000))
        await asyncio.sleep(200)
        assert bound_pods(cluster) == 9
        await cluster.stop()

    run_virtually(main, 1)
    assert requests.counts["POST workloads"] == 5


def test_a_workload_whose_creation_was_not_answered_is_not_created_again(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(monkeypatch)
    requests.loses = lambda what: what == "POST workloads" and requests.counts[what] == 1

    async def main(machine: Machine) -> None:
        cluster = await cluster_of(1, machine)
        cluster.set_network(latency=0.002, failures=0.0, watch_lag=20.0, decision_seconds=0.03)
        cluster.client.create("jobs.batch", NAMESPACE, job(0, 1000))
        await asyncio.sleep(100)
        assert bound_pods(cluster) == 1
        await cluster.stop()

    run_virtually(main, 1)
    assert requests.counts["POST workloads"] == 1


def test_messages_of_a_long_queue_are_not_rewritten_while_it_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Job that ends changes the position of all others; telling them all would be most of what is written."""
    requests = Requests(monkeypatch)

    async def main(machine: Machine) -> None:
        cluster = await cluster_of(1, machine)
        requests.counts.clear()
        for number in range(80):
            cluster.client.create("jobs.batch", NAMESPACE, job(number, 10))
        await asyncio.sleep(50)
        await cluster.stop()

    run_virtually(main, 1)
    started, statuses = requests.counts["PATCH jobs"], requests.counts["PATCH workloads/status"]
    assert started > 10
    # A status for what is admitted and one for what has ended, and a message for what waits.
    assert statuses <= 2 * started + 80
