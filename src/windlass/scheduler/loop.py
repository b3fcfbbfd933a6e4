"""One decision after another: what has changed, what to do about it, and that carried out.

    world.settle ─► store.snapshot ─► decide (in a thread, unless it is quick) ─► carry out

Owned by `scheduler.scheduler`. It sleeps until something changes that could change a decision, waits a moment for
more of the kind, and decides on all of it at once. Nothing here looks at nodes or quotas: that is `decide`'s.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from windlass.cluster.delta import Delta
from windlass.cluster.snapshot import Snapshot
from windlass.engine import EngineCache, decide_without_explanations
from windlass.model.plan import Plan
from windlass.planner import engine_config
from windlass.scheduler.cache import SchedulerCache
from windlass.scheduler.explanation_cache import ExplanationCache
from windlass.scheduler.metrics import Metrics
from windlass.scheduler.options import SchedulerOptions

log = logging.getLogger(__name__)

TICK_SECONDS = 10.0
"""Time alone can change a decision (a grace, a planned start, a reservation), so it is looked at this often."""
RETRY_SECONDS = 5.0
INLINE_MAX_SECONDS, INLINE_MAX_CHANGES = 0.01, 100
"""After a decision that took less, one on no more changes than this is made at once, without a thread of its own."""
EXPLAIN_SECONDS, EXPLAIN_BUSY_SECONDS = 2.0, 60.0
"""What would help those that wait is worked out no more often than this; the second while there is work to bind."""


class PlanSink(Protocol):
    def execute(self, plan: Plan, snapshot: Snapshot) -> None: ...


class CycleObserver(Protocol):
    """Sees everything that went into a decision, and the decision."""

    def on_cycle(self, now: int, deltas: Sequence[Delta], plan: Plan | None) -> None: ...


class SchedulingLoop:
    def __init__(
        self,
        options: SchedulerOptions,
        cache: SchedulerCache,
        sink: PlanSink,
        metrics: Metrics,
        observer: CycleObserver | None = None,
    ) -> None:
        self._options, self._world, self._sink, self._metrics = options, cache, sink, metrics
        self._witness = observer
        self._config = engine_config(options.settings)
        self._memo = EngineCache()
        self.last_cycle_at = time.monotonic()
        """When the loop last got round."""
        self.consecutive_failures = 0
        self.last_failure = ""
        self._explanations = ExplanationCache(cache.changed.is_set)
        self._explained_at = 0.0
        self._is_quick = False
        """The last decision took no longer than handing it to a thread and back may."""

    async def run(self, may_decide: Callable[[], bool]) -> None:
        """Until nothing may be decided any more, or cancelled."""
        must = True
        while may_decide():
            try:
                await self._cycle(must)
                self.consecutive_failures = 0
            except Exception as error:  # a task boundary: one bad decision must not take the next one with it
                self.consecutive_failures += 1
                self.last_failure = f"{type(error).__name__}: {error}"
                log.exception("a decision failed; deciding again in %.0f s", RETRY_SECONDS)
                self._metrics.failures.inc()
                self._memo = EngineCache()
                await asyncio.sleep(RETRY_SECONDS)
            must = await self._wait()

    async def run_standby(self) -> None:
        """Keep the store up to date without deciding, until cancelled: for a replica that doesn't lead."""
        while True:
            now = int(time.time())
            settled = self._world.flush(now)
            self._note(now, settled.applied, None)
            self.last_cycle_at = time.monotonic()
            await self._wait()

    async def _wait(self) -> bool:
        """For news, or the next tick; true if it was the tick."""
        try:
            # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes together with news.
            async with asyncio.timeout(TICK_SECONDS):
                await self._world.changed.wait()
        except TimeoutError:
            return True
        await asyncio.sleep(self._options.batch_seconds)
        return False

    async def _cycle(self, must: bool) -> None:
        """Decide, if there is news or time has passed."""
        self.last_cycle_at = time.monotonic()
        now = int(time.time())
        settled = self._world.flush(now)
        if not settled.needs_decision and not must:
            self._note(now, settled.applied, None)
            return
        snapshot = self._world.store.snapshot(now)
        started = time.perf_counter()
        if self._is_quick and len(settled.applied) <= INLINE_MAX_CHANGES:
            plan, told = self._decide(snapshot, now)
        else:
            plan, told = await asyncio.to_thread(self._decide, snapshot, now)
        took = time.perf_counter() - started
        self._is_quick = took < INLINE_MAX_SECONDS
        self._metrics.algorithm.observe(took)
        self._metrics.cycles.inc()
        self._world.store.mark_decided(snapshot.pods.pending())
        self._note(now, settled.applied, plan)
        self._sink.execute(told, snapshot)
        self._count(plan)

    def _decide(self, snapshot: Snapshot, now: int) -> tuple[Plan, Plan]:
        """The plan, and the same as those are told of it who wait: they hear what would help when there is time."""
        plan, advisor = decide_without_explanations(snapshot, self._config, now, self._memo)
        silent = time.monotonic() - self._explained_at
        if (
            advisor is not None
            and plan.holds
            and silent > (EXPLAIN_BUSY_SECONDS if plan.binds else EXPLAIN_SECONDS)
        ):
            self._explanations.compute(plan, advisor.explain_hold)
            self._explained_at = time.monotonic()
        return plan, self._explanations.with_explanations(plan)

    def _note(self, now: int, told: Sequence[Delta], plan: Plan | None) -> None:
        if self._witness is not None:
            self._witness.on_cycle(now, told, plan)

    def _count(self, plan: Plan) -> None:
        self._metrics.pending.labels("active").set(len(plan.binds))
        self._metrics.pending.labels("unschedulable").set(len(plan.holds))
