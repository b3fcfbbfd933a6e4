"""The whole live scheduler put together: informers, loop, sinks, leadership, status pages; and taken down again.

`windlass scheduler` calls `run_scheduler`; tests do too, with a server of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time

from windlass.apply.carry import Carrier
from windlass.cluster.snapshot import Snapshot
from windlass.dump.configuration import HASH_ANNOTATION
from windlass.kube.access import Access
from windlass.kube.client import KubeClient
from windlass.kube.events import Recorder
from windlass.kube.informers import Informers
from windlass.kube.lease import Lease, LeaseTerms
from windlass.model.configuration_document import settings_hash
from windlass.model.plan import Plan
from windlass.planner import engine_config
from windlass.scheduler.kueue_watch import watch_kueue
from windlass.scheduler.loop import Loop
from windlass.scheduler.memory import Memory
from windlass.scheduler.metrics import Metrics
from windlass.scheduler.options import Options
from windlass.scheduler.publish import Publisher
from windlass.scheduler.queue_status import QueueStatusWriter
from windlass.scheduler.record import Record
from windlass.scheduler.run_times import RunTimeWriter
from windlass.scheduler.server import StatusServer
from windlass.scheduler.shadow import Shadow
from windlass.scheduler.unreadable import UnreadableReports
from windlass.scheduler.warm import warm_up
from windlass.scheduler.world import World

log = logging.getLogger(__name__)

STUCK_SECONDS = 120.0
"""A loop that has not got round for so long is restarted by its kubelet."""
SETTLE_SECONDS = 10.0
FAILURES_IN_A_ROW = 3
"""So many decisions that failed one after the other are no accident: the replica says that it isn't ready."""


class Scheduler:
    def __init__(self, client: KubeClient, options: Options) -> None:
        self._client, self._options = client, options
        self.metrics = Metrics()
        self.recorder = Recorder(client, options.identity)
        self.world = World(options)
        self.informers = Informers(client, self.world.push)
        self.world.owner_wait.is_watched = self.informers.is_watched
        terms = LeaseTerms(
            options.lease_namespace,
            options.lease_name,
            options.identity,
            options.lease_seconds,
            {HASH_ANNOTATION: settings_hash(options.settings)},
        )
        self.lease = Lease(client, terms)
        self.carrier = Carrier(
            client,
            self.world,
            self.recorder,
            self.metrics,
            self._may_write,
            self.informers.served,
        )
        self.unreadable = UnreadableReports(self.world, self.recorder, self.carrier.conditions, self.metrics)
        self.recorder.gives_way = lambda: self.carrier.binder.is_behind
        self._kueue_known, self._warm = asyncio.Event(), asyncio.Event()
        self.memory = Memory(client, self.world, options.settings, self._may_write, self.informers.served)
        self.run_times = RunTimeWriter(client, self.world, self._may_write, self.informers.served)
        self.queue_status = QueueStatusWriter(client, self.world, self._may_write, self.informers.served)
        self.publisher = Publisher(client, options, self._may_write)
        self.record = Record(options.record, options.settings) if options.record is not None else None
        self.world.witness = self.record
        self._shadow = Shadow(self.world) if options.shadow else None
        self.loop = Loop(options, self.world, self, self.metrics, self.record)
        self.server = StatusServer(self._sick, self.not_ready, self._metrics_text)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; then everything that was begun is brought to its end."""
        if self._options.listen is not None:
            await self.server.start(*self._options.listen)
        works = [
            self.informers.run(),
            self.recorder.run(),
            self.carrier.conditions.run(),
            self.carrier.tell(),
            self.queue_status.run(),
            self.memory.run(),
            self.run_times.run(),
            self.publisher.run(),
            watch_kueue(self._client, self.world, self._kueue_known),
            self._lead(),
        ]
        tasks = [asyncio.create_task(work) for work in works]
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((*tasks, stopped), return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()  # none of them ends by itself: this raises what went wrong
        finally:
            tasks[-1].cancel()
            await self._wind_down()
            stopped.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, stopped, return_exceptions=True)
            await self.server.stop()
            if self.record is not None:
                self.record.close()

    def carry_out(self, plan: Plan, snapshot: Snapshot) -> None:
        """The loop's sink."""
        self.unreadable.tell(snapshot, self._may_tell)
        if self._shadow is not None:
            self._shadow.carry_out(plan, snapshot)
            return
        self.carrier.carry_out(plan, snapshot)
        self.queue_status.see(snapshot)
        self.memory.see(plan, snapshot)
        self.run_times.see()

    async def _lead(self) -> None:
        """Decide while we may, follow while we may not."""
        if self._options.warm:
            await asyncio.to_thread(warm_up, engine_config(self._options.settings))
        self._warm.set()
        await self.informers.synced.wait()
        await self._kueue_known.wait()
        gc.collect()
        gc.freeze()  # what is known by now mostly stays: the collector need not walk it again and again
        log.info("in step with the cluster")
        if not self._options.leader_elect:
            await self.loop.run(lambda: True)
        while True:
            follower = asyncio.create_task(self.loop.follow())
            try:
                await self.lease.acquire()
            finally:
                follower.cancel()
                await asyncio.gather(follower, return_exceptions=True)
            await self._reign()

    async def _reign(self) -> None:
        keeper = asyncio.create_task(self.lease.keep())
        try:
            # What the last leader bound and admitted must be known before the first decision.
            await self.informers.refresh("Pod", "Node", "Workload")
            self.metrics.leading.set(1)
            self.run_times.begin()
            await self.loop.run(lambda: self.lease.is_held)
            await self.carrier.settle()
        finally:
            self.metrics.leading.set(0)
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def _wind_down(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                await self.carrier.settle()
                await self.run_times.flush()
        await self.recorder.drain(SETTLE_SECONDS / 2)
        if self._options.leader_elect:
            await self.lease.release()

    def _may_write(self) -> bool:
        return not self._options.leader_elect or self.lease.is_held

    def _may_tell(self) -> bool:
        return self._shadow is None and self._may_write()

    def _sick(self) -> str:
        silent = time.monotonic() - self.loop.alive_at
        leads = self._may_write() and self.informers.synced.is_set()
        return f"no decision for {silent:.0f} s" if leads and silent > STUCK_SECONDS else ""

    def not_ready(self) -> str:
        if self.loop.failed_in_a_row >= FAILURES_IN_A_ROW:
            return f"{self.loop.failed_in_a_row} decisions in a row have failed: {self.loop.last_failure}"
        if self.informers.synced.is_set():
            return "" if self._warm.is_set() else "the kernels are being compiled"
        waiting = [one.resource.plural for one in self.informers.informers if not one.synced.is_set()]
        return f"not in step yet: {', '.join(waiting) or 'looking for kinds'}"

    def _metrics_text(self) -> bytes:
        now = asyncio.get_running_loop().time()
        ages = [now - one.heard_at for one in self.informers.informers if one.synced.is_set()]
        self.metrics.cache_age.set(max(ages, default=0.0))
        for one in self.informers.informers:
            self.metrics.watch_restarts.labels(one.resource.plural).set(one.restarts)
        self.metrics.in_flight.set(self.carrier.binder.in_flight)
        self.metrics.dropped_events.set(self.recorder.dropped)
        return self.metrics.text()


async def run_scheduler(access: Access, options: Options, stop: asyncio.Event) -> None:
    async with KubeClient(access) as client:
        await Scheduler(client, options).run(stop)
