"""Keeps the ledger of the live cluster: metrics of every state and cause, and history in the folder of `--history`.

`scheduler.loop` shows it every decision, of which it takes one every half minute; `scheduler.scheduler` shows it the
evictions that were carried out. What the GPUs do comes from a Prometheus, if one is named (`--prometheus`); without
one, GPUs that pods hold are unmeasured. A failure here is logged, and scheduling goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from windlass.apply.audit import EVICTED, AuditRecord
from windlass.cluster.snapshot import Snapshot
from windlass.model.errors import InputError, WindlassError
from windlass.model.plan import Plan
from windlass.placement.explain.advisor import Advisor
from windlass.scheduler.ledger_metrics import LedgerMetrics
from windlass.telemetry.activity import GpuSample
from windlass.telemetry.demand import find_demand
from windlass.telemetry.holders import NO_QUEUE, UNKNOWN_USER, Holder
from windlass.telemetry.ledger import GpuKey, Ledger, build_ledger
from windlass.telemetry.prometheus import Prometheus
from windlass.telemetry.prometheus_samples import read_samples
from windlass.telemetry.starts import FirstWork, FirstWorkFinder, Start, StartFinder
from windlass.telemetry.usage import UsageKey
from windlass.telemetry.usage_history import LedgerHistory

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 30
SAMPLE_SECONDS = 60.0


class LedgerRecorder:
    def __init__(self, metrics: LedgerMetrics, history: Path | None = None, prometheus: str = "") -> None:
        """Raises an `InputError` if the folder can't be used, or another process writes there."""
        self._metrics = metrics
        self._history = _HistoryThread(_open(history)) if history is not None else None
        self._prometheus = Prometheus(prometheus) if prometheus else None
        self._samples: Mapping[GpuKey, GpuSample] = {}
        self._holder_by_pod: dict[str, Holder] = {}
        self._starts, self._first_work = StartFinder(), FirstWorkFinder()
        self._observed_at = 0
        self.ledger: Ledger | None = None
        """The last one."""

    def observe(self, snapshot: Snapshot, plan: Plan, advisor: Advisor | None, now: int) -> None:
        """Called with each decision, before the next one is made."""
        if 0 <= now - self._observed_at < INTERVAL_SECONDS:
            return
        self._observed_at = now
        ledger = build_ledger(snapshot, self._samples, find_demand(snapshot, plan, advisor), now)
        self.ledger = ledger
        self._holder_by_pod = {share.pod: share.holder for share in ledger.shares if share.holder is not None}
        self._metrics.observe(ledger)
        if self._history is not None:
            starts = self._starts.find(snapshot, ledger)
            worked = self._first_work.find(snapshot, ledger, starts)
            self._history.submit(lambda history: _keep(history, ledger, starts, worked))

    def on_record(self, record: AuditRecord, now: int) -> None:
        """Called with what was carried out."""
        if record.action != EVICTED:
            return
        queue = record.queue or NO_QUEUE
        self._metrics.lost_gpu_seconds.labels(queue, record.reason).inc(record.lost_gpu_seconds)
        if self._history is None:
            return
        known = next((self._holder_by_pod[pod] for pod in record.pods if pod in self._holder_by_pod), None)
        namespace = record.workload.partition("/")[0]
        holder = known or Holder(namespace, queue, UNKNOWN_USER, f"Workload {record.workload}")
        key = UsageKey.of(holder, "")
        lost, reason, gainer = record.lost_gpu_seconds, record.reason, record.gainer
        self._history.submit(lambda history: history.evicted(now, key, lost, reason, gainer))

    async def run(self) -> None:
        """Reads measurements, if there is a Prometheus, until cancelled."""
        logged = ""
        while True:
            if self._prometheus is not None:
                try:
                    self._samples = await asyncio.to_thread(read_samples, self._prometheus)
                    logged = ""
                except WindlassError as error:  # samples grow old, and GPUs become unmeasured by themselves
                    if str(error) != logged:
                        log.warning("GPUs can't be measured: %s", error)
                    logged = str(error)
            await asyncio.sleep(SAMPLE_SECONDS)

    def close(self) -> None:
        if self._history is not None:
            self._history.close()


class _HistoryThread:
    """Writes in a thread of its own: closing a day takes seconds, for which no decision should wait."""

    def __init__(self, history: LedgerHistory) -> None:
        self._history = history
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="windlass-history")

    def submit(self, work: Callable[[LedgerHistory], None]) -> None:
        self._pool.submit(self._run, work)

    def close(self) -> None:
        self._pool.shutdown()
        self._history.close()

    def _run(self, work: Callable[[LedgerHistory], None]) -> None:
        try:
            work(self._history)
        except Exception:  # a task boundary: history must not end scheduling, nor itself
            log.exception("history could not be kept")


def _keep(history: LedgerHistory, ledger: Ledger, starts: Sequence[Start], worked: Sequence[FirstWork]) -> None:
    history.observe(ledger)
    for start in starts:
        history.started(ledger.at, start)
    for work in worked:
        history.worked(ledger.at, work)


def _open(folder: Path) -> LedgerHistory:
    try:
        return LedgerHistory(folder)
    except BlockingIOError:
        remedy = "every replica needs a folder of its own"
        raise InputError("another process writes history there", file=str(folder), remedy=remedy) from None
    except OSError as error:
        raise InputError(f"history can't be written: {error.strerror}", file=str(folder)) from None
