"""The scheduler's metrics. Where the meaning is kube-scheduler's, so are name, labels and buckets.

`scheduler.loop`, `apply.executor` and `scheduler.scheduler` fill them; `scheduler.health_server` serves them under
/metrics.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from windlass.scheduler.api_metrics import ApiMetrics
from windlass.scheduler.ledger_metrics import LedgerMetrics
from windlass.scheduler.queue_metrics import QueueMetrics

# kube-scheduler's buckets: 1 ms to 16 s for the algorithm, 10 ms to 1.5 h from creation to binding.
_ALGORITHM_BUCKETS = tuple(0.001 * 2**power for power in range(15))
_SLI_BUCKETS = tuple(0.01 * 2**power for power in range(20))


class Metrics:
    def __init__(self, api: ApiMetrics | None = None) -> None:
        self._registry = CollectorRegistry()
        if api is not None:
            self._registry.register(api)
        self.queues = QueueMetrics(self._registry)
        self.ledger = LedgerMetrics(self._registry)
        self._add_kube_scheduler_metrics()
        self._add_api_write_metrics()
        self._add_loop_metrics()

    def text(self) -> bytes:
        return bytes(generate_latest(self._registry))

    def _add_kube_scheduler_metrics(self) -> None:
        self.attempts = self._counter(
            "scheduler_schedule_attempts_total",
            "Number of attempts to schedule pods, by the result.",
            "result",
            "profile",
        )
        self.pending = self._gauge("scheduler_pending_pods", "Number of pending pods, by the queue type.", "queue")
        self.algorithm = Histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds; here, of one decision on everything that waits.",
            buckets=_ALGORITHM_BUCKETS,
            registry=self._registry,
        )
        self.sli = Histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "E2e latency for a pod being scheduled, from its creation to its binding.",
            buckets=_SLI_BUCKETS,
            registry=self._registry,
        )

    def _add_api_write_metrics(self) -> None:
        self.victims = self._counter("windlass_evicted_pods_total", "Pods evicted to make room.")
        self.binds = self._counter("windlass_binds_total", "Binds sent, by their outcome.", "end")
        self.refusals = self._counter(
            "windlass_refusals_total",
            "Binds and evictions that the API server refused; the next decision respects them.",
            "kind",
        )
        self.in_flight = self._gauge("windlass_binds_in_flight", "Binds without an answer yet.")
        self.lost_audit_lines = self._counter(
            "windlass_audit_lines_lost_total", "Admissions and evictions that could not be put on record."
        )
        self.dropped_events = self._gauge(
            "windlass_dropped_events", "Events that were not sent because there were too many."
        )

    def _add_loop_metrics(self) -> None:
        self.held = self._gauge(
            "windlass_held_workloads",
            "Workloads (single pods, gangs, queued work) that wait, by the code of the cause.",
            "code",
        )
        self.planned_starts = self._counter(
            "windlass_planned_starts_total",
            "Workloads with a planned start that have started: kept (by the first that was told), or late and why "
            "(moved, unknown, overdue).",
            "result",
            "reason",
        )
        self.cycles = self._counter("windlass_cycles_total", "Decisions made.")
        self.failures = self._counter(
            "windlass_failed_decisions_total", "Decisions that failed with an internal error."
        )
        self.bugs = self._counter(
            "windlass_internal_errors_total",
            "Internal errors, by the id of the bug: a workload was set aside, or a step was left out.",
            "bug",
        )
        self.set_aside = self._gauge(
            "windlass_set_aside_workloads",
            "Workloads and pods that are not decided on because of a bug of Windlass's; everything else is.",
        )
        self.cache_age = self._gauge(
            "windlass_cache_age_seconds",
            "Seconds since the last message from the API server, for the oldest watch.",
        )
        self.watch_restarts = self._gauge("windlass_watch_restarts", "Restarts of watches, by kind.", "resource")
        self.leading = self._gauge("windlass_leading", "1 if this replica is the leader.")
        self.frozen = self._gauge(
            "windlass_frozen", "1 while `windlass freeze` has stopped the writes of this replica."
        )
        self.unreadable = self._counter(
            "windlass_unreadable_objects_total", "Objects that could not be read, by kind.", "kind"
        )

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(name, help_text, labels, registry=self._registry)

    def _gauge(self, name: str, help_text: str, *labels: str) -> Gauge:
        return Gauge(name, help_text, labels, registry=self._registry)
