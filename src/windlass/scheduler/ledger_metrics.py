"""The ledger as metrics: GPUs by model and state, which add up to all GPUs, and GPUs that wait by queue and cause.

`scheduler.ledger_recorder` fills them. Series that are over are removed, so that nothing stays at its last value.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from windlass.telemetry.ledger import Ledger


class LedgerMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._gpus = Gauge(
            "windlass_gpus",
            "GPUs by model and state; the states add up to all GPUs.",
            ("model", "state"),
            registry=registry,
        )
        self._waiting = Gauge(
            "windlass_waiting_gpus",
            "GPUs that waiting workloads ask for, by ClusterQueue and the cause that holds them.",
            ("cluster_queue", "cause"),
            registry=registry,
        )
        self._workloads = Gauge(
            "windlass_waiting_workloads",
            "Workloads that wait for GPUs, by ClusterQueue and the cause that holds them.",
            ("cluster_queue", "cause"),
            registry=registry,
        )
        self._oldest = Gauge(
            "windlass_oldest_waiting_seconds",
            "For how long the workload that has waited longest for GPUs waits, by ClusterQueue.",
            ("cluster_queue",),
            registry=registry,
        )
        self._stranded = Gauge(
            "windlass_stranded_gpus",
            "Free GPUs that nothing which waits could use, by what excludes most of it.",
            ("model", "cause"),
            registry=registry,
        )
        self.lost_gpu_seconds = Counter(
            "windlass_lost_gpu_seconds_total",
            "GPU time that evictions lost: since the last checkpoint or the start, and for the restart.",
            ("cluster_queue", "reason"),
            registry=registry,
        )

    def observe(self, ledger: Ledger | None) -> None:
        """None: this replica does not know, since another one decides."""
        for gauge in (self._gpus, self._waiting, self._workloads, self._oldest, self._stranded):
            gauge.clear()
        if ledger is None:
            return
        for model, states in ledger.sums("model").items():
            for state, milli in states.items():
                self._gpus.labels(model, state).set(milli / 1000)
        for share in ledger.shares:
            if share.state == "stranded":
                self._stranded.labels(share.model, share.why).inc(share.milli / 1000)
        oldest: dict[str, int] = {}
        for work in ledger.demand.waiting:
            self._waiting.labels(work.holder.queue, work.cause).inc(work.milli / 1000)
            self._workloads.labels(work.holder.queue, work.cause).inc()
            if work.since:
                oldest[work.holder.queue] = min(work.since, oldest.get(work.holder.queue, work.since))
        for queue, since in oldest.items():
            self._oldest.labels(queue).set(max(0, ledger.at - since))
