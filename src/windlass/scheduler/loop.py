"""The scheduling loop: applies changes to the store, decides, and hands the plan to the sink.

    cache.flush ─► store.snapshot ─► decide (in a thread, unless it is quick) ─► sink.execute

`scheduler.scheduler` owns it and is its sink. The loop sleeps until a change arrives that could change a decision,
waits a moment for more changes, and decides on all of them at once. Nodes and quotas are the engine's concern.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from windlass.cluster.delta import Delta
from windlass.cluster.snapshot import Snapshot
from windlass.isolation import Fault, IsolatingEngine
from windlass.model.bug import bug_of
from windlass.model.plan import Plan
from windlass.placement.explain.advisor import Advisor
from windlass.planner import engine_config
from windlass.scheduler.cache import SchedulerCache
from windlass.scheduler.explanation_cache import ExplanationCache
from windlass.scheduler.metrics import Metrics
from windlass.scheduler.options import SchedulerOptions

log = logging.getLogger(__name__)

TICK_SECONDS = 10.0
"""Decides this often without any change: grace periods end, planned starts and reservations become due."""
RETRY_SECONDS = 5.0
INLINE_MAX_SECONDS, INLINE_MAX_CHANGES = 0.01, 100
"""If the last decision took less, one on no more changes runs on the event loop: a thread switch would cost more."""
MAX_BATCH_SECONDS = 0.25
"""Longest wait for more changes after a decision that took long: half of the time is then left for carrying out."""
EXPLAIN_SECONDS, EXPLAIN_BUSY_SECONDS = 2.0, 60.0
"""Shortest time between two rounds of explaining holds, and the same while there are pods to bind."""


class PlanSink(Protocol):
    def execute(self, plan: Plan, snapshot: Snapshot) -> None: ...


class CycleObserver(Protocol):
    """Sees every input of a decision, and the decision (`scheduler.decision_record`)."""

    def on_cycle(self, now: int, deltas: Sequence[Delta], plan: Plan | None) -> None: ...


class LedgerObserver(Protocol):
    """Sees decisions together with what can explain them (`scheduler.ledger_recorder`)."""

    def observe(self, snapshot: Snapshot, plan: Plan, advisor: Advisor | None, now: int) -> None: ...


class SchedulingLoop:
    def __init__(
        self,
        options: SchedulerOptions,
        cache: SchedulerCache,
        sink: PlanSink,
        metrics: Metrics,
        observer: CycleObserver | None = None,
        ledger: LedgerObserver | None = None,
    ) -> None:
        self._options, self._cache, self._sink, self._metrics = options, cache, sink, metrics
        self._observer, self._ledger = observer, ledger
        self._engine = IsolatingEngine(engine_config(options.settings))
        self._faults: dict[str, Fault] = {}
        """What is set aside, as last reported."""
        self.last_cycle_at = time.monotonic()
        self.consecutive_failures = 0
        self.last_failure = ""
        self._explanations = ExplanationCache(cache.changed.is_set)
        self._explained_at = 0.0
        self._decided_at = 0.0
        self._is_quick = False
        """The last decision took less than `INLINE_MAX_SECONDS`."""
        self._batch_seconds = options.batch_seconds

    async def run(self, may_decide: Callable[[], bool]) -> None:
        """Decides until `may_decide` is false, or until cancelled."""
        must_decide = True
        while may_decide():
            try:
                await self._cycle(must_decide)
                self.consecutive_failures = 0
            except Exception as error:  # a task boundary: one failed decision must not end the loop
                self.consecutive_failures += 1
                self.last_failure = f"{type(error).__name__}: {error}"
                log.exception("a decision failed; deciding again in %.0f s", RETRY_SECONDS)
                self._metrics.failures.inc()
                self._engine.reset_cache()  # it may be what the decision failed on
                await asyncio.sleep(RETRY_SECONDS)
                must_decide = True
                continue
            # Changes that no decision depends on must not put the tick off: some clusters have many each second.
            must_decide = await self._wait() or time.monotonic() - self._decided_at >= TICK_SECONDS

    async def run_standby(self) -> None:
        """Keeps the store up to date without deciding, until cancelled: for a replica that is not the leader."""
        while True:
            now = int(time.time())
            flushed = self._cache.flush(now)
            self._notify_observer(now, flushed.applied, None)
            self.last_cycle_at = time.monotonic()
            await self._wait()

    async def _wait(self) -> bool:
        """Waits for a change or the next tick; true if it was the tick."""
        try:
            # Not `wait_for`: in Python 3.11 it swallows a cancellation that arrives together with the event.
            async with asyncio.timeout(TICK_SECONDS):
                await self._cache.changed.wait()
        except TimeoutError:
            return True
        await asyncio.sleep(self._batch_seconds)
        return False

    async def _cycle(self, must_decide: bool) -> None:
        self.last_cycle_at = time.monotonic()
        now = int(time.time())
        flushed = self._cache.flush(now)
        if not flushed.needs_decision and not must_decide:
            self._notify_observer(now, flushed.applied, None)
            return
        self._decided_at = time.monotonic()
        snapshot = self._cache.store.snapshot(now)
        started = time.perf_counter()
        if self._is_quick and len(flushed.applied) <= INLINE_MAX_CHANGES:
            plan, explained = self._decide(snapshot, now)
        else:
            plan, explained = await asyncio.to_thread(self._decide, snapshot, now)
        seconds = time.perf_counter() - started
        self._is_quick = seconds < INLINE_MAX_SECONDS
        pause = 0.0 if self._is_quick else time.monotonic() - self._decided_at
        self._batch_seconds = max(self._options.batch_seconds, min(pause, MAX_BATCH_SECONDS))
        self._metrics.algorithm.observe(seconds)
        self._metrics.cycles.inc()
        self._cache.store.mark_decided(snapshot.pods.pending())
        self._notify_observer(now, flushed.applied, plan)
        self._sink.execute(explained, snapshot)
        self._count_pending(plan)

    def _decide(self, snapshot: Snapshot, now: int) -> tuple[Plan, Plan]:
        """The plan, and a copy with cached explanations. Only the first is recorded: it does not depend on timing."""
        plan, advisor, faults = self._engine.decide_without_explanations(snapshot, now)
        self._report_faults(faults)
        if self._ledger is not None:
            try:
                self._ledger.observe(snapshot, plan, advisor, now)
            except Exception as error:  # what is told about the decision must not undo it
                self._report_bug("the ledger failed; the decision stands", error)
        interval = EXPLAIN_BUSY_SECONDS if plan.binds else EXPLAIN_SECONDS
        is_due = time.monotonic() - self._explained_at > interval
        if advisor is not None and plan.holds and is_due:
            failure = self._explanations.compute(plan, advisor.explain_hold)
            if failure is not None:
                self._report_bug("explaining a hold failed; the decision stands", failure)
                self._engine.reset_cache()  # what explains shares it with decisions
            self._explained_at = time.monotonic()
        return plan, self._explanations.with_explanations(plan)

    def _report_faults(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            known = self._faults.get(fault.key)
            if known is None or known.error is not fault.error:
                self._report_bug(f"{fault.key} is set aside, and everything else is decided on", fault.error)
        self._faults = {fault.key: fault for fault in faults}
        self._metrics.set_aside.set(len(faults))

    def _report_bug(self, what: str, error: Exception) -> None:
        bug = bug_of(error)
        self._metrics.bugs.labels(bug.id).inc()
        log.error("bug %s: %s; please report it with these lines", bug.id, what, exc_info=error)

    def _notify_observer(self, now: int, deltas: Sequence[Delta], plan: Plan | None) -> None:
        if self._observer is not None:
            self._observer.on_cycle(now, deltas, plan)

    def _count_pending(self, plan: Plan) -> None:
        self._metrics.pending.labels("active").set(len(plan.binds))
        self._metrics.pending.labels("unschedulable").set(len(plan.holds))
