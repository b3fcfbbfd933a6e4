"""The virtual cluster of `tests.worlds` with replicas of the scheduler on a faulty network, and more promises:

no replica ends by itself, none meets a bug, and nothing is written for a replica after another one has the lease.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from tests.loop.faulty_client import FaultyClient, FaultyNetwork
from tests.worlds.judge import Judge
from tests.worlds.virtual_cluster import ObservedScheduler, Replica, VirtualCluster
from tests.worlds.virtual_time import Machine

from windlass.embedded.runtime.fleet_nodes import FleetNode
from windlass.kube.request import Request
from windlass.model.configuration import Settings
from windlass.scheduler.options import SchedulerOptions

BUG_METRICS = ("windlass_internal_errors_total{", "windlass_failed_decisions_total ")
CRASH_SECONDS, MAX_AWAITS = 30.0, 60
LEASE = ("leases.coordination.k8s.io", "windlass-system", "windlass-scheduler")


class FaultyCluster(VirtualCluster):
    def __init__(
        self, nodes: Sequence[FleetNode], settings: Settings, random: Random, machine: Machine, replicas: int
    ) -> None:
        super().__init__(nodes, settings, random, machine, replicas)
        self._faulty = FaultyNetwork(random)
        self.network, self.counts = self._faulty, self._faulty.counts
        self.wrong: Callable[[str], None] = lambda problem: None

    async def start(self, judge: Judge | None = None) -> None:
        assert judge is not None
        self.wrong = judge.wrong
        await super().start(judge)

    def _start_replica(self) -> None:
        identity = f"world-{self._random.randrange(10**6)}"
        options = SchedulerOptions(
            settings=self._settings, warm_up=False, leader_elect=self._replica_count > 1, identity=identity
        )
        network = replace(self._faulty, crash_in=None, crashed=asyncio.Event())
        client = FaultyClient(self._server, network, lambda request: self._on_delivery(identity, request))
        scheduler = ObservedScheduler(client, options)
        scheduler.on_plan = self._on_plan
        running = asyncio.create_task(scheduler.run(asyncio.Event()))
        running.add_done_callback(self._on_end)
        self._replicas.append(Replica(scheduler, network, running))

    def _on_end(self, running: asyncio.Task[None]) -> None:
        if not running.cancelled():
            self.wrong(f"a scheduler has ended by itself: {running.exception()!r}")

    def _on_delivery(self, identity: str, request: Request) -> None:
        lease = self.client.find(*LEASE) if self._replica_count > 1 else None
        holder = lease["spec"].get("holderIdentity") if lease is not None else ""
        if holder and holder != identity:
            self.wrong(f"{request.method} {request.path} of {identity} comes while {holder} has the lease")

    async def restart_scheduler(self, pause: float) -> None:
        """A crash at some await of the leader, wherever that is."""
        leader = self._leader()
        network = leader.network
        assert isinstance(network, FaultyNetwork)
        network.crash_in = self._random.randrange(MAX_AWAITS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CRASH_SECONDS):
                await network.crashed.wait()
        await self._kill(leader)
        await asyncio.sleep(pause)
        self._start_replica()

    async def stop(self) -> None:
        for replica in self._replicas:
            if reason := replica.scheduler.not_ready():
                self.wrong(f"a replica is not ready at the end: {reason}")
            for line in replica.scheduler.metrics.text().decode().splitlines():
                if line.startswith(BUG_METRICS) and float(line.rpartition(" ")[2]):
                    self.wrong(f"a bug: {line}")
        await super().stop()
