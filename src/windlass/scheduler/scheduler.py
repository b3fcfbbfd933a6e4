"""The whole live scheduler put together: informers, loop, sinks, leadership, status pages; and taken down again.

`windlass scheduler` calls `run_scheduler`; tests do too, with a server of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time

from windlass.apply.executor import PlanExecutor
from windlass.cluster.snapshot import Snapshot
from windlass.dump.configuration import HASH_ANNOTATION
from windlass.kube.client import KubeClient
from windlass.kube.client_config import ClientConfig
from windlass.kube.events import EventRecorder
from windlass.kube.informers import Informers
from windlass.kube.leader_election import LeaderElectionConfig, LeaderElector
from windlass.model.configuration_document import settings_hash
from windlass.model.plan import Plan
from windlass.planner import engine_config
from windlass.scheduler.cache import SchedulerCache
from windlass.scheduler.configuration_publisher import ConfigurationPublisher
from windlass.scheduler.decision_record import RecordWriter
from windlass.scheduler.health_server import HealthServer
from windlass.scheduler.jit_warmup import warm_up
from windlass.scheduler.kueue_watch import watch_kueue
from windlass.scheduler.loop import SchedulingLoop
from windlass.scheduler.metrics import Metrics
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.persisted_state import PersistedStateWriter
from windlass.scheduler.queue_status import QueueStatusWriter
from windlass.scheduler.run_time_writer import RunTimeWriter
from windlass.scheduler.shadow import ShadowSink
from windlass.scheduler.unreadable_reporter import UnreadableReporter

log = logging.getLogger(__name__)

STUCK_SECONDS = 120.0
"""A loop that has not got round for so long is restarted by its kubelet."""
DRAIN_SECONDS = 10.0
MAX_CONSECUTIVE_FAILURES = 3
"""So many decisions that failed one after the other are no accident: the replica says that it isn't ready."""


class Scheduler:
    def __init__(self, client: KubeClient, options: SchedulerOptions) -> None:
        self._client, self._options = client, options
        self.metrics = Metrics()
        self.recorder = EventRecorder(client, options.identity)
        self.cache = SchedulerCache(options)
        self.informers = Informers(client, self.cache.push)
        self.cache.awaiting_owner.is_watched = self.informers.is_watched
        terms = LeaderElectionConfig(
            options.lease_namespace,
            options.lease_name,
            options.identity,
            options.lease_seconds,
            {HASH_ANNOTATION: settings_hash(options.settings)},
        )
        self.leader_elector = LeaderElector(client, terms)
        self.executor = PlanExecutor(
            client,
            self.cache,
            self.recorder,
            self.metrics,
            self._may_write,
            self.informers.resource_for,
        )
        self.unreadable_reporter = UnreadableReporter(
            self.cache, self.recorder, self.executor.conditions, self.metrics
        )
        self.recorder.should_yield = lambda: self.executor.binder.has_backlog
        self._kueue_known, self._warm = asyncio.Event(), asyncio.Event()
        self.persisted_state = PersistedStateWriter(
            client, self.cache, options.settings, self._may_write, self.informers.resource_for
        )
        self.run_time_writer = RunTimeWriter(client, self.cache, self._may_write, self.informers.resource_for)
        self.queue_status_writer = QueueStatusWriter(
            client, self.cache, self._may_write, self.informers.resource_for
        )
        self.configuration_publisher = ConfigurationPublisher(client, options, self._may_write)
        self.record_writer = (
            RecordWriter(options.record, options.settings) if options.record is not None else None
        )
        self.cache.assume_observer = self.record_writer
        self._shadow = ShadowSink(self.cache) if options.shadow else None
        self.loop = SchedulingLoop(options, self.cache, self, self.metrics, self.record_writer)
        self.health_server = HealthServer(self._sick, self.not_ready, self._metrics_text)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; then everything that was begun is brought to its end."""
        if self._options.listen is not None:
            await self.health_server.start(*self._options.listen)
        works = [
            self.informers.run(),
            self.recorder.run(),
            self.executor.conditions.run(),
            self.executor.run_reporter(),
            self.queue_status_writer.run(),
            self.persisted_state.run(),
            self.run_time_writer.run(),
            self.configuration_publisher.run(),
            watch_kueue(self._client, self.cache, self._kueue_known),
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
            await self.health_server.stop()
            if self.record_writer is not None:
                self.record_writer.close()

    def execute(self, plan: Plan, snapshot: Snapshot) -> None:
        """The loop's sink."""
        self.unreadable_reporter.report(snapshot, self._may_tell)
        if self._shadow is not None:
            self._shadow.execute(plan, snapshot)
            return
        self.executor.execute(plan, snapshot)
        self.queue_status_writer.observe(snapshot)
        self.persisted_state.observe(plan, snapshot)
        self.run_time_writer.observe()

    async def _lead(self) -> None:
        """Decide while we may, follow while we may not."""
        if self._options.warm_up:
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
            follower = asyncio.create_task(self.loop.run_standby())
            try:
                await self.leader_elector.acquire()
            finally:
                follower.cancel()
                await asyncio.gather(follower, return_exceptions=True)
            await self._reign()

    async def _reign(self) -> None:
        keeper = asyncio.create_task(self.leader_elector.renew())
        try:
            # What the last leader bound and admitted must be known before the first decision.
            await self.informers.relist("Pod", "Node", "Workload")
            self.metrics.leading.set(1)
            self.run_time_writer.start_leading()
            await self.loop.run(lambda: self.leader_elector.is_leader)
            await self.executor.drain()
        finally:
            self.metrics.leading.set(0)
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def _wind_down(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await self.executor.drain()
                await self.run_time_writer.flush()
        await self.recorder.drain(DRAIN_SECONDS / 2)
        if self._options.leader_elect:
            await self.leader_elector.release()

    def _may_write(self) -> bool:
        return not self._options.leader_elect or self.leader_elector.is_leader

    def _may_tell(self) -> bool:
        return self._shadow is None and self._may_write()

    def _sick(self) -> str:
        silent = time.monotonic() - self.loop.last_cycle_at
        leads = self._may_write() and self.informers.synced.is_set()
        return f"no decision for {silent:.0f} s" if leads and silent > STUCK_SECONDS else ""

    def not_ready(self) -> str:
        if self.loop.consecutive_failures >= MAX_CONSECUTIVE_FAILURES:
            return (
                f"{self.loop.consecutive_failures} decisions in a row have failed: {self.loop.last_failure}"
            )
        if self.informers.synced.is_set():
            return "" if self._warm.is_set() else "the kernels are being compiled"
        waiting = [one.resource.plural for one in self.informers.informers if not one.synced.is_set()]
        return f"not in step yet: {', '.join(waiting) or 'looking for kinds'}"

    def _metrics_text(self) -> bytes:
        now = asyncio.get_running_loop().time()
        ages = [now - one.last_heard_at for one in self.informers.informers if one.synced.is_set()]
        self.metrics.cache_age.set(max(ages, default=0.0))
        for one in self.informers.informers:
            self.metrics.watch_restarts.labels(one.resource.plural).set(one.restarts)
        self.metrics.in_flight.set(self.executor.binder.in_flight)
        self.metrics.dropped_events.set(self.recorder.dropped)
        return self.metrics.text()


async def run_scheduler(config: ClientConfig, options: SchedulerOptions, stop: asyncio.Event) -> None:
    async with KubeClient(config) as client:
        await Scheduler(client, options).run(stop)
