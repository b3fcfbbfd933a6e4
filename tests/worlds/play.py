"""Plays a world: draws happenings, lets time pass between them, and asks the judge after every change.

play_virtually(seed)   → what happened, and what was wrong
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from tests.worlds import happenings
from tests.worlds.draw_world import GPU, WorldSpec, draw_world
from tests.worlds.judge import Judge
from tests.worlds.virtual_cluster import VirtualCluster
from tests.worlds.virtual_time import Machine, run_virtually

from windlass.embedded.api.errors import ApiError
from windlass.model.unstructured import Unstructured

RESOURCES = {
    "Deployment": "deployments.apps",
    "Job": "jobs.batch",
    "Pod": "pods",
    "PodDisruptionBudget": "poddisruptionbudgets.policy",
    "PriorityClass": "priorityclasses.scheduling.k8s.io",
    "ClusterQueue": "clusterqueues.kueue.x-k8s.io",
    "Cohort": "cohorts.kueue.x-k8s.io",
    "LocalQueue": "localqueues.kueue.x-k8s.io",
    "ResourceFlavor": "resourceflavors.kueue.x-k8s.io",
    "Topology": "topologies.kueue.x-k8s.io",
}
CLUSTER_WIDE = ("PriorityClass", "ClusterQueue", "Cohort", "ResourceFlavor", "Topology")
QUIET_SECONDS = 400
"""At the end everything is healed, and nothing happens for so long but the end of work."""


@dataclass
class Report:
    seed: int
    happened: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """What the scheduler did: binds, admissions, evictions, requests by method and answer."""
    log: list[str] = field(default_factory=list)
    """The last things that happened."""


class Play:
    """A world while it is played; the happenings act on it."""

    def __init__(self, spec: WorldSpec, cluster: VirtualCluster, machine: Machine) -> None:
        self.spec, self.cluster, self._machine = spec, cluster, machine
        self.rng = Random(spec.seed + 1)
        self.gpus_of_cluster = sum(int(node.tree["status"]["capacity"].get(GPU, 0)) for node in spec.nodes)
        self._serial = 0

    def name(self, prefix: str) -> str:
        self._serial += 1
        return f"{prefix}-{self._serial}"

    async def create(self, tree: Unstructured) -> None:
        kind = tree["kind"]
        namespace = "" if kind in CLUSTER_WIDE else tree["metadata"]["namespace"]
        self.cluster.client.create(RESOURCES[kind], namespace, tree)

    async def list(self, resource: str) -> list[Unstructured]:
        return self.cluster.client.list(resource)

    async def patch(self, resource: str, tree: Unstructured, merge: Unstructured) -> None:
        meta = tree["metadata"]
        try:
            self.cluster.client.patch(resource, meta.get("namespace", ""), meta["name"], merge)
        except ApiError as error:
            if error.code not in (404, 409, 422):
                raise

    async def delete(self, resource: str, tree: Unstructured) -> None:
        meta = tree["metadata"]
        self.cluster.client.delete(resource, meta.get("namespace", ""), meta["name"])

    async def node_names(self) -> list[str]:
        return [node["metadata"]["name"] for node in await self.list("nodes")]

    def fault(self, target: str) -> None:
        self.cluster.nodes.faults.fail(target)

    def heal(self) -> None:
        self.cluster.nodes.faults.heal()

    async def restart_scheduler(self) -> None:
        await self.cluster.kill_scheduler()
        await asyncio.sleep(self.rng.choice((0.1, 5.0)))
        self.cluster.start_scheduler()

    def set_network(
        self, latency: float = 0.002, failures: float = 0.0, watch_lag: float = 0.0, decision_seconds: float = 0.0
    ) -> None:
        network = self.cluster.network
        network.latency, network.failures, network.watch_lag = latency, failures, watch_lag
        self._machine.thread_seconds = decision_seconds


def play_virtually(seed: int, steps: int = 40) -> Report:
    report = Report(seed)

    async def main(machine: Machine) -> None:
        spec = draw_world(seed)
        cluster = VirtualCluster(spec.nodes, spec.settings, Random(seed + 2))
        play = Play(spec, cluster, machine)
        cluster.client.create("namespaces", "", {"metadata": {"name": "team"}})
        judge = Judge(cluster, report)
        await cluster.start()
        for tree in spec.objects:
            await play.create({**tree, "metadata": {**tree["metadata"]}})
        await asyncio.sleep(5)
        for _ in range(steps):
            happening = happenings.draw_happening(play.rng)
            report.happened[happening.__name__] += 1
            judge.note(happening.__name__)
            await happening(play)
            await asyncio.sleep(play.rng.choice((0.01, 0.5, 3.0, 15.0, 60.0)))
        await _become_quiet(play)
        judge.begin_quiet()
        await asyncio.sleep(QUIET_SECONDS)
        judge.check_at_rest()
        report.counts.update(cluster.network.counts)
        report.log += judge.log
        await cluster.stop()

    run_virtually(main, seed)
    return report


async def _become_quiet(play: Play) -> None:
    play.set_network()
    play.heal()
    for node in await play.list("nodes"):
        if node["spec"].get("unschedulable"):
            await play.patch("nodes", node, {"spec": {"unschedulable": None}})
    for queue in await play.list("clusterqueues.kueue.x-k8s.io"):
        await play.patch("clusterqueues.kueue.x-k8s.io", queue, {"spec": {"stopPolicy": "None"}})
