"""A GPU that fails under an admitted job: its member is placed elsewhere, or the job is queued again and says why.

Played on the virtual cluster, with the live scheduler.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from random import Random

from tests.invariants.objects import GPU, HOSTNAME, QUEUE, cluster_queue, flavor, local_queue, pod_spec, topology
from tests.worlds.virtual_cluster import VirtualCluster
from tests.worlds.virtual_time import Machine, run_virtually

from windlass.embedded.runtime.fleet_nodes import fleet_nodes
from windlass.model.configuration import Settings
from windlass.model.fleet import Fleet, FleetGpus, FleetPool
from windlass.model.fleet_spec import FleetSpec
from windlass.model.names.windlass import RACK_LABEL, SIMULATED_DURATION_ANNOTATION
from windlass.model.unstructured import Unstructured

GRACE = 60
RESOURCES = {
    "ClusterQueue": "clusterqueues.kueue.x-k8s.io",
    "LocalQueue": "localqueues.kueue.x-k8s.io",
    "ResourceFlavor": "resourceflavors.kueue.x-k8s.io",
    "Topology": "topologies.kueue.x-k8s.io",
}
Story = Callable[[VirtualCluster], Awaitable[None]]


def play(nodes: int, story: Story) -> None:
    """Nodes with eight GPUs, two in a rack, and one queue with room for all."""

    async def main(machine: Machine) -> None:
        pool = FleetPool(
            name="big",
            count=nodes,
            gpus=(FleetGpus(model="H100", count=8),),
            cpu="32",
            nodes_per_rack=2,
            labels={"windlass.dev/world": "yes"},
        )
        fleet = fleet_nodes(Fleet(FleetSpec((pool,))), time.time())
        cluster = VirtualCluster(fleet, Settings(gang_grace_seconds=GRACE), Random(1))
        cluster.client.create("namespaces", "", {"metadata": {"name": "team"}})
        await cluster.start()
        quota = {"nominalQuota": "1000"}
        for tree in (
            topology("racks", [RACK_LABEL, HOSTNAME]),
            flavor("any", {"windlass.dev/world": "yes"}, "racks"),
            cluster_queue("q", {"any": {"cpu": quota, GPU: quota}}),
            local_queue("q", "q"),
        ):
            cluster.client.create(RESOURCES[tree["kind"]], tree["metadata"].get("namespace", ""), tree)
        await asyncio.sleep(3)
        await story(cluster)
        await cluster.stop()

    run_virtually(main, 1)


def job(pods: int, queue: str = "q", **annotations: str) -> Unstructured:
    spec = pod_spec(1, 8, restartPolicy="Never", terminationGracePeriodSeconds=1)
    spec["containers"][0]["image"] = "train"
    notes = {SIMULATED_DURATION_ANNOTATION: "50000s", **annotations}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "team", "labels": {QUEUE: queue} if queue else {}},
        "spec": {
            "suspend": bool(queue),
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 100,
            "template": {"metadata": {"annotations": notes}, "spec": spec},
        },
    }


IN_ONE_RACK = {"kueue.x-k8s.io/podset-required-topology": RACK_LABEL}


def running(cluster: VirtualCluster) -> list[str]:
    pods = cluster.client.list("pods")
    return sorted(pod["spec"]["nodeName"] for pod in pods if pod["status"]["phase"] == "Running")


def conditions(cluster: VirtualCluster) -> dict[str, Unstructured]:
    (workload,) = cluster.client.list("workloads.kueue.x-k8s.io")
    return {condition["type"]: condition for condition in workload["status"]["conditions"]}


async def submit_and_lose_gpu(cluster: VirtualCluster, tree: Unstructured) -> None:
    cluster.client.create("jobs.batch", "team", tree)
    await asyncio.sleep(20)
    assert len(running(cluster)) == tree["spec"]["parallelism"]
    cluster.nodes.faults.fail(f"gpu/{running(cluster)[0]}:3")


def test_a_lost_member_is_placed_on_another_node_within_the_grace() -> None:
    async def story(cluster: VirtualCluster) -> None:
        await submit_and_lose_gpu(cluster, job(2))
        await asyncio.sleep(GRACE - 5)
        assert running(cluster) == ["big-1", "big-2"]
        assert conditions(cluster)["Admitted"]["status"] == "True"

    play(3, story)


def test_the_pod_of_a_job_without_a_queue_is_placed_on_another_node() -> None:
    async def story(cluster: VirtualCluster) -> None:
        await submit_and_lose_gpu(cluster, job(1, queue=""))
        await asyncio.sleep(GRACE - 5)
        assert running(cluster) == ["big-1"]

    play(2, story)


def test_a_gang_whose_rack_has_no_other_node_moves_as_a_whole_and_says_why() -> None:
    async def story(cluster: VirtualCluster) -> None:
        await submit_and_lose_gpu(cluster, job(2, **IN_ONE_RACK))
        await asyncio.sleep(200)
        assert running(cluster) == ["big-2", "big-3"]
        events = cluster.client.list("events")
        (evicted,) = [event for event in events if event["reason"] == "Evicted"]
        assert "node big-0 would take a pod if its GPU 3 were healthy" in evicted["message"]

    play(4, story)


def test_a_job_without_another_place_is_queued_again_and_names_the_gpu() -> None:
    async def story(cluster: VirtualCluster) -> None:
        await submit_and_lose_gpu(cluster, job(1))
        await asyncio.sleep(GRACE - 15)
        (waiting,) = [pod for pod in cluster.client.list("pods") if pod["status"]["phase"] == "Pending"]
        (scheduled,) = [found for found in waiting["status"]["conditions"] if found["type"] == "PodScheduled"]
        assert "node big-0 would take a pod if its GPU 3 were healthy" in scheduled["message"]
        await asyncio.sleep(120)
        found = conditions(cluster)
        assert "node big-0 would take a pod if its GPU 3 were healthy" in found["Evicted"]["message"]
        assert found["QuotaReserved"]["status"] == "False"
        assert "node big-0 would take a pod if its GPU 3 were healthy" in found["QuotaReserved"]["message"]
        assert "would not fit even if nothing else ran" not in found["QuotaReserved"]["message"]
        cluster.nodes.faults.heal()
        await asyncio.sleep(30)
        assert running(cluster) == ["big-0"]

    play(1, story)
