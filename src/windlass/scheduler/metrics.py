"""The scheduler's metrics. Where the meaning is kube-scheduler's, so are name, labels and buckets.

Filled by `scheduler.loop`, shown by `scheduler.health_server` under /metrics.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = tuple(0.001 * 2**power for power in range(15))
_SLI = tuple(0.01 * 2**power for power in range(20))


class Metrics:
    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self.attempts = Counter(
            "scheduler_schedule_attempts_total",
            "Number of attempts to schedule pods, by the result.",
            ("result", "profile"),
            registry=registry,
        )
        self.pending = Gauge(
            "scheduler_pending_pods",
            "Number of pending pods, by the queue type.",
            ("queue",),
            registry=registry,
        )
        self.algorithm = Histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds; here, of one decision on all that waits.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.sli = Histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "E2e latency for a pod being scheduled, from its creation to its binding.",
            buckets=_SLI,
            registry=registry,
        )
        self.victims = Counter(
            "windlass_evicted_pods_total", "Pods that were evicted to make room.", registry=registry
        )
        self.binds = Counter(
            "windlass_binds_total",
            "Binds that were sent, by what became of them.",
            ("end",),
            registry=registry,
        )
        self.refusals = Counter(
            "windlass_refusals_total",
            "Binds and evictions that the API server refused, and the next decision reckons with.",
            ("kind",),
            registry=registry,
        )
        self.in_flight = Gauge("windlass_binds_in_flight", "Binds without an answer yet.", registry=registry)
        self.held = Gauge(
            "windlass_held_workloads",
            "Workloads (pods on their own, gangs, queued work) that wait, by the code of the cause.",
            ("code",),
            registry=registry,
        )
        self.cycles = Counter("windlass_cycles_total", "Decisions made.", registry=registry)
        self.failures = Counter(
            "windlass_failed_decisions_total",
            "Decisions that ended in an error of our own.",
            registry=registry,
        )
        self.cache_age = Gauge(
            "windlass_cache_age_seconds",
            "Seconds since the server was last heard of, at the worst kind.",
            registry=registry,
        )
        self.watch_restarts = Gauge(
            "windlass_watch_restarts",
            "Watches that had to begin again, by kind.",
            ("resource",),
            registry=registry,
        )
        self.leading = Gauge("windlass_leading", "1 if this replica decides.", registry=registry)
        self.unreadable = Counter(
            "windlass_unreadable_objects_total",
            "Objects that could not be read, by kind.",
            ("kind",),
            registry=registry,
        )
        self.dropped_events = Gauge(
            "windlass_dropped_events",
            "Events that were not sent, since there were too many.",
            registry=registry,
        )

    def text(self) -> bytes:
        return bytes(generate_latest(self._registry))
