"""Assembles the live scheduler (informers, loop, writers, leader election, health server), runs it and shuts it down.

`cli.scheduler` and `embedded.scheduler_thread` call `run_scheduler`; tests do too, with a server of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from windlass.apply.audit import Auditor, AuditRecord
from windlass.apply.executor import PlanExecutor
from windlass.cluster.snapshot import Snapshot
from windlass.dump.configuration import HASH_ANNOTATION
from windlass.kube.client import KubeClient
from windlass.kube.client_config import ClientConfig
from windlass.kube.events import EventRecorder
from windlass.kube.freeze import FREEZE_CONFIG_MAP, FROZEN, OBEYED_ANNOTATION, RUNNING, FreezeState
from windlass.kube.informers import Informers
from windlass.kube.leader_election import LeaderElectionConfig, LeaderElector
from windlass.kube.write_gate import WriteGate
from windlass.model.bug import bug_of
from windlass.model.configuration_document import settings_hash
from windlass.model.errors import WindlassError
from windlass.model.plan import Plan
from windlass.planner import engine_config
from windlass.scheduler.api_metrics import ApiMetrics
from windlass.scheduler.audit_log import AuditLog
from windlass.scheduler.cache import SchedulerCache
from windlass.scheduler.configuration_publisher import ConfigurationPublisher
from windlass.scheduler.decision_record import RecordWriter
from windlass.scheduler.health_server import HealthServer
from windlass.scheduler.jit_warmup import warm_up
from windlass.scheduler.kueue_watch import watch_kueue
from windlass.scheduler.ledger_recorder import LedgerRecorder
from windlass.scheduler.loop import SchedulingLoop
from windlass.scheduler.metrics import Metrics
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.persisted_state import PersistedStateWriter
from windlass.scheduler.planned_start_record import PlannedStartRecord
from windlass.scheduler.queue_status import QueueStatusWriter
from windlass.scheduler.run_time_writer import RunTimeWriter
from windlass.scheduler.shadow import ShadowSink
from windlass.scheduler.unreadable_reporter import UnreadableReporter

log = logging.getLogger(__name__)

STUCK_SECONDS = 120.0
"""/healthz fails when the loop has not completed a cycle for this long; the kubelet then restarts the container."""
DRAIN_SECONDS = 10.0
RESTART_SECONDS = 5.0
"""Pause until a task that ended with an internal error is started again."""


class Scheduler:
    def __init__(self, client: KubeClient, options: SchedulerOptions) -> None:
        self._client, self._options = client, options
        self.metrics = Metrics(ApiMetrics(client.traffic, client.budget))
        self.recorder = EventRecorder(client, options.identity)
        self.audit_log = AuditLog(options.audit, self.metrics.lost_audit_lines.inc)
        self.cache = SchedulerCache(options)
        self.informers = Informers(client, self.cache.push)
        self.cache.awaiting_owner.is_watched = self.informers.is_watched
        self.write_gate = client.write_gate = WriteGate(client, options.lease_namespace, self._on_freeze)
        self.leader_elector = LeaderElector(client, _election_config(options))
        if options.leader_elect:
            client.seconds_to_write = lambda: self.leader_elector.seconds_left
        self.executor = PlanExecutor(
            client,
            self.cache,
            self.recorder,
            self.metrics,
            self._may_write,
            self.informers.resource_for,
            Auditor(options.identity, self._put_on_record),
        )
        self.unreadable_reporter = UnreadableReporter(self.cache, self.recorder, self.executor.conditions, self.metrics)
        self.metrics.queues.decides_on = self._decides_on_queue
        self.recorder.should_yield = lambda: self.executor.binder.has_backlog
        self._broken_task = ""
        """The task that ended with an internal error and was not started again yet."""
        self._kueue_detected, self._warmed_up = asyncio.Event(), asyncio.Event()
        self.persisted_state = PersistedStateWriter(
            client, self.cache, options.settings, self._may_write, self.informers.resource_for
        )
        self.planned_start_record = PlannedStartRecord(self.metrics.planned_starts)
        self.run_time_writer = RunTimeWriter(client, self.cache, self._may_write, self.informers.resource_for)
        self.queue_status_writer = QueueStatusWriter(client, self.cache, self._may_write, self.informers.resource_for)
        self.configuration_publisher = ConfigurationPublisher(client, options, self._may_write)
        self.record_writer = RecordWriter(options.record, options.settings) if options.record is not None else None
        self.cache.assume_observer = self.record_writer
        self._shadow = ShadowSink(self.cache) if options.shadow else None
        self.ledger_recorder = LedgerRecorder(self.metrics.ledger, options.history, options.prometheus)
        self.loop = SchedulingLoop(options, self.cache, self, self.metrics, self.record_writer, self.ledger_recorder)
        self.health_server = HealthServer(self._unhealthy_reason, self.not_ready, self._metrics_text)

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set, then waits for writes under way and releases the lease."""
        if self._options.listen is not None:
            await self.health_server.start(*self._options.listen)
        jobs: list[Callable[[], Coroutine[Any, Any, None]]] = [
            self.informers.run,
            self.recorder.run,
            self.executor.conditions.run,
            self.executor.run_reporter,
            self.queue_status_writer.run,
            self.persisted_state.run,
            self.run_time_writer.run,
            self.configuration_publisher.run,
            self.ledger_recorder.run,
            functools.partial(watch_kueue, self._client, self.cache, self._kueue_detected),
            self._lead,
        ]
        tasks = [asyncio.create_task(self._keep_running(job)) for job in jobs]
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((*tasks, stopped), return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()  # none of them returns: this raises its error
        finally:
            tasks[-1].cancel()  # decide nothing more, while the writers are still there to finish
            await self._shut_down()
            stopped.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, stopped, return_exceptions=True)
            await self.health_server.stop()
            if self.record_writer is not None:
                self.record_writer.close()
            self.ledger_recorder.close()
            self.audit_log.close()

    async def _keep_running(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs a task that never ends; again, if it ends with an internal error. What a user has to mend ends it."""
        while True:
            try:
                await job()
            except WindlassError:
                raise
            except Exception as error:  # a task boundary: one failed task must not end the others
                bug = bug_of(error)
                self._broken_task = f"{type(error).__name__} in {bug.where} (bug {bug.id})"
                self.metrics.bugs.labels(bug.id).inc()
                log.exception("bug %s: a task has ended; it starts again in %.0f s", bug.id, RESTART_SECONDS)
                await asyncio.sleep(RESTART_SECONDS)
                self._broken_task = ""

    def execute(self, plan: Plan, snapshot: Snapshot) -> None:
        """Called by the loop with each plan."""
        if self._shadow is not None:
            self._shadow.execute(plan, snapshot)
        else:
            self.executor.execute(plan, snapshot)
        step = self.executor.guard.step
        with step("the report of objects that can't be read"):
            self.unreadable_reporter.report(snapshot, self._may_report)
        with step("the report of queues that are not taken over"):
            self.cache.responsibility.take_over.report(self.recorder, self.cache.objects, self._may_report)
        if self._shadow is not None:
            return
        self.metrics.queues.observe(snapshot)
        with step("the status of queues"):
            self.queue_status_writer.observe(snapshot)
        with step("the usage history"):
            self.persisted_state.observe(plan, snapshot)
        with step("the record of planned starts"):
            self.planned_start_record.observe(plan, int(time.time()))
        with step("the history of run times"):
            self.run_time_writer.observe()

    async def _lead(self) -> None:
        """Decides while this replica is the leader, keeps the store up to date while it is not."""
        if self._options.warm_up:
            await asyncio.to_thread(warm_up, engine_config(self._options.settings))
        self._warmed_up.set()
        await self.informers.synced.wait()
        await self._kueue_detected.wait()
        gc.collect()
        gc.freeze()  # the objects listed so far mostly stay: collections need not walk them again
        log.info("all informers have synced")
        if not self._options.leader_elect:
            await self._decide_while(lambda: True)
        while True:
            standby = asyncio.create_task(self.loop.run_standby())
            try:
                await self.leader_elector.acquire()
            finally:
                standby.cancel()
                await asyncio.gather(standby, return_exceptions=True)
            await self._run_as_leader()

    async def _run_as_leader(self) -> None:
        renewal = asyncio.create_task(self.leader_elector.renew())
        try:
            # The previous leader's last binds and admissions must be in the cache before the first decision.
            await self.informers.relist("Pod", "Node", "Workload")
            self.metrics.leading.set(1)
            self.run_time_writer.start_leading()
            self.executor.conditions.start_leading()
            self.queue_status_writer.start_leading()
            await self._decide_while(lambda: self.leader_elector.is_leader)
            await self.executor.drain()
        finally:
            self.metrics.leading.set(0)
            self.metrics.queues.observe(None)
            self.metrics.ledger.observe(None)
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)

    async def _decide_while(self, may_decide: Callable[[], bool]) -> None:
        """Decides, and while writes are frozen only keeps the store up to date: a decision that can't be carried out
        would be made again and again."""
        while may_decide():
            await self.loop.run(lambda: may_decide() and not self.write_gate.state.is_frozen)
            standby = asyncio.create_task(self.loop.run_standby())
            try:
                await self.write_gate.wait_until_running(may_decide)
            finally:
                standby.cancel()
                await asyncio.gather(standby, return_exceptions=True)

    def _put_on_record(self, record: AuditRecord) -> None:
        self.audit_log.write(record)
        self.metrics.queues.count(record)
        self.ledger_recorder.on_record(record, int(time.time()))

    def _decides_on_queue(self, cluster_queue: str) -> bool:
        responsibility = self.cache.responsibility
        return not responsibility.kueue_is_live or cluster_queue in responsibility.take_over.names

    def _on_freeze(self, state: FreezeState) -> None:
        self.metrics.frozen.set(state.is_frozen)
        self.cache.request_decision()  # wakes the loop

    async def _shut_down(self) -> None:
        is_drained = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await self.executor.drain()
                is_drained = True
                await self.run_time_writer.flush()
        await self.recorder.drain(DRAIN_SECONDS / 2)
        # Writes under way end within the lease: the next leader has to wait for them, that is, for its end.
        if self._options.leader_elect and is_drained:
            await self.leader_elector.release()

    def _may_write(self) -> bool:
        return not self._options.leader_elect or self.leader_elector.is_leader

    def _may_report(self) -> bool:
        return self._shadow is None and self._may_write()

    def _unhealthy_reason(self) -> str:
        idle = time.monotonic() - self.loop.last_cycle_at
        is_deciding = self._may_write() and self.informers.synced.is_set()
        return f"no scheduling cycle for {idle:.0f} s" if is_deciding and idle > STUCK_SECONDS else ""

    def not_ready(self) -> str:
        failures = self.loop.consecutive_failures
        if failures:
            return f"{failures} decisions in a row have failed: {self.loop.last_failure}"
        if self._broken_task:
            return f"a task has ended with an internal error and is started again: {self._broken_task}"
        if self.write_gate.state.state not in (FROZEN, RUNNING):
            return f"writes are {self.write_gate.state}"
        if self.informers.synced.is_set():
            return "" if self._warmed_up.is_set() else "the kernels are being compiled"
        missing = [informer.resource.plural for informer in self.informers.informers if not informer.synced.is_set()]
        return f"informers not synced: {', '.join(missing) or 'API discovery is under way'}"

    def _metrics_text(self) -> bytes:
        now = asyncio.get_running_loop().time()
        informers = self.informers.informers
        ages = [now - informer.last_heard_at for informer in informers if informer.synced.is_set()]
        self.metrics.cache_age.set(max(ages, default=0.0))
        for informer in informers:
            self.metrics.watch_restarts.labels(informer.resource.plural).set(informer.restarts)
        self.metrics.in_flight.set(self.executor.binder.in_flight)
        self.metrics.dropped_events.set(self.recorder.dropped)
        return self.metrics.text()


def _election_config(options: SchedulerOptions) -> LeaderElectionConfig:
    return LeaderElectionConfig(
        options.lease_namespace,
        options.lease_name,
        options.identity,
        options.lease_seconds,
        {HASH_ANNOTATION: settings_hash(options.settings), OBEYED_ANNOTATION: FREEZE_CONFIG_MAP},
    )


async def run_scheduler(config: ClientConfig, options: SchedulerOptions, stop: asyncio.Event) -> None:
    async with KubeClient(config, rate=options.api_rate) as client:
        await Scheduler(client, options).run(stop)
