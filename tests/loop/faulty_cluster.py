"""The virtual cluster of `tests.worlds` with replicas of the scheduler on a faulty network, which crash and stop, and
more promises:

no replica ends by itself, none meets a bug, nothing is written for a replica after another one has the lease, and every
pod that can't be read is told so.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from tests.loop import strange_pods
from tests.loop.faulty_client import FaultyClient, FaultyNetwork
from tests.loop.stopped_process import PROCESS, Process
from tests.worlds.judge import Judge
from tests.worlds.virtual_cluster import ObservedScheduler, Replica, VirtualCluster, _nothing
from tests.worlds.virtual_time import Machine

from windlass.embedded.runtime.fleet_nodes import FleetNode
from windlass.kube.request import Request
from windlass.model.configuration import Settings
from windlass.model.unstructured import Unstructured
from windlass.scheduler.options import SchedulerOptions

BUG_METRICS = ("windlass_internal_errors_total{", "windlass_failed_decisions_total ")
CRASH_SECONDS, MAX_STEPS_LOG10, MAX_CANCELS = 30.0, 3.5, 5
LEASE = ("leases.coordination.k8s.io", "windlass-system", "windlass-scheduler")


class FaultyCluster(VirtualCluster):
    def __init__(
        self, nodes: Sequence[FleetNode], settings: Settings, random: Random, machine: Machine, replicas: int
    ) -> None:
        super().__init__(nodes, settings, random, machine, replicas)
        self._faulty = FaultyNetwork(random)
        self.network, self.counts = self._faulty, self._faulty.counts
        self.wrong: Callable[[str], None] = lambda problem: None
        self._processes: dict[int, Process] = {}
        """By the replica's identity in memory."""

    async def start(self, judge: Judge | None = None) -> None:
        assert judge is not None
        self.wrong = judge.wrong
        on_change = judge.on_change

        def on_change_of_others(resource: str, event: str, new: Unstructured, old: Unstructured | None) -> None:
            if new["metadata"].get("namespace") != strange_pods.NAMESPACE:
                on_change(resource, event, new, old)

        judge.on_change = on_change_of_others  # type: ignore[method-assign]
        self.client.create("namespaces", "", {"metadata": {"name": strange_pods.NAMESPACE}})
        await super().start(judge)

    def _start_replica(self) -> None:
        identity = f"world-{self._random.randrange(10**6)}"
        options = SchedulerOptions(
            settings=self._settings, warm_up=False, leader_elect=self._replica_count > 1, identity=identity
        )
        network, process = replace(self._faulty), Process()
        client = FaultyClient(self._server, network, lambda request: self._on_delivery(identity, request))
        scheduler = ObservedScheduler(client, options)
        scheduler.on_plan = self._on_plan
        token = PROCESS.set(process)
        running = asyncio.create_task(scheduler.run(asyncio.Event()))
        PROCESS.reset(token)
        running.add_done_callback(self._on_end)
        self._replicas.append(Replica(scheduler, network, running))
        self._processes[id(scheduler)] = process

    def _on_end(self, running: asyncio.Task[None]) -> None:
        if not running.cancelled():
            self.wrong(f"a scheduler has ended by itself: {running.exception()!r}")

    def _on_delivery(self, identity: str, request: Request) -> None:
        lease = self.client.find(*LEASE) if self._replica_count > 1 else None
        holder = lease["spec"].get("holderIdentity") if lease is not None else ""
        if holder and holder != identity:
            self.wrong(f"{request.method} {request.path} of {identity} comes while {holder} has the lease")

    async def restart_scheduler(self, pause: float) -> None:
        """A crash at some step of the leader, wherever that is."""
        leader = self._leader()
        process = self._processes[id(leader.scheduler)]
        process.crash_in = int(10 ** self._random.uniform(0, MAX_STEPS_LOG10))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CRASH_SECONDS):
                await process.crashed.wait()
        await self._kill(leader)
        await asyncio.sleep(pause)
        self._start_replica()

    async def cut_off_leader(self) -> None:
        """From the network, or it stops for a while and goes on as if it still led."""
        if self._random.random() < 0.5:
            await super().cut_off_leader()
            return
        process = self._processes[id(self._leader().scheduler)]
        process.stop()
        await asyncio.sleep(self._random.uniform(2, 60))
        process.go_on()

    async def _kill(self, replica: Replica) -> None:
        replica.network.outage = True  # whatever is done on the way out, nothing of it arrives
        self._processes.pop(id(replica.scheduler)).kill()
        self._replicas.remove(replica)
        replica.scheduler._shut_down = _nothing  # type: ignore[method-assign]
        for _ in range(MAX_CANCELS):
            replica.running.cancel()
            await asyncio.wait((replica.running,), timeout=5.0)
            if replica.running.done():
                return
        self.wrong("a replica that was killed does not end")

    async def stop(self) -> None:
        for pod in self.client.list("pods", strange_pods.NAMESPACE):
            if wrong := strange_pods.wrong_with(pod):
                self.wrong(f"{pod['metadata']['name']} {wrong}: {pod['spec']['containers'][0]['resources']}")
        for replica in self._replicas:
            if reason := replica.scheduler.not_ready():
                self.wrong(f"a replica is not ready at the end: {reason}")
            for line in replica.scheduler.metrics.text().decode().splitlines():
                if line.startswith(BUG_METRICS) and float(line.rpartition(" ")[2]):
                    self.wrong(f"a bug: {line}")
        await super().stop()
