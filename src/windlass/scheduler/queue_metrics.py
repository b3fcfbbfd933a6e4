"""Metrics of the queues that Windlass admits in, under Kueue's names and labels, so that its dashboards stay.

`scheduler.scheduler` hands over each snapshot and each record of an admission or eviction; `scheduler.metrics` has it
in its registry. Gauges are computed when they are scraped, from the newest snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from windlass.apply.audit import ADMITTED, DONE, AuditRecord
from windlass.cluster.snapshot import Snapshot
from windlass.model.queue import ClusterQueue
from windlass.model.quota import quota_units
from windlass.scheduler.queue_status import used_quota

CELL = ["cohort", "cluster_queue", "flavor", "resource"]


class QueueMetrics(Collector):
    def __init__(self, registry: CollectorRegistry) -> None:
        self.decides_on: Callable[[str], bool] = lambda queue: True
        """Whether Windlass admits in that ClusterQueue. Of the others Kueue has the metrics."""
        self._latest: Snapshot | None = None
        self._admitted = Counter(
            "kueue_admitted_workloads_total",
            "The total number of admitted workloads per 'cluster_queue'.",
            ["cluster_queue"],
            registry=registry,
        )
        self._evicted = Counter(
            "kueue_evicted_workloads_total",
            "The number of evicted workloads per 'cluster_queue' and 'reason'.",
            ["cluster_queue", "reason"],
            registry=registry,
        )
        registry.register(self)

    def observe(self, snapshot: Snapshot | None) -> None:
        """None: this replica doesn't decide any more."""
        self._latest = snapshot

    def count(self, record: AuditRecord) -> None:
        if not record.queue or record.result != DONE:
            return
        if record.action == ADMITTED:
            self._admitted.labels(record.queue).inc()
        else:
            self._evicted.labels(record.queue, record.reason).inc()

    def describe(self) -> Iterator[Metric]:
        """Nothing: without it the registry would ask for the values before there are any."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        snapshot = self._latest
        if snapshot is None:
            return
        system = snapshot.queue_system
        queues = [queue for queue in system.queues.values() if self.decides_on(queue.name)]
        yield from self._counts(snapshot, queues)
        yield from self._quotas(snapshot, queues)

    def _counts(self, snapshot: Snapshot, queues: list[ClusterQueue]) -> Iterator[Metric]:
        admitted: dict[str, int] = {}
        pending: dict[str, int] = {}
        for workload in snapshot.workloads:
            local = snapshot.queue_system.local_queues.get(f"{workload.namespace}/{workload.queue_name}")
            if local is not None:
                counted = pending if workload.admission is None else admitted
                counted[local.cluster_queue] = counted.get(local.cluster_queue, 0) + 1
        by_status = GaugeMetricFamily(
            "kueue_pending_workloads",
            "The number of pending workloads, per 'cluster_queue' and 'status'; inadmissible: the queue is not active.",
            labels=["cluster_queue", "status"],
        )
        active = GaugeMetricFamily(
            "kueue_cluster_queue_status", "1 for the status of a 'cluster_queue'.", labels=["cluster_queue", "status"]
        )
        families = {
            name: GaugeMetricFamily(f"kueue_{name}_active_workloads", text, labels=["cluster_queue"])
            for name, text in (
                ("reserving", "The number of Workloads that are reserving quota, per 'cluster_queue'."),
                ("admitted", "The number of admitted Workloads that are active, per 'cluster_queue'."),
            )
        }
        for queue in queues:
            is_active = not queue.inactive_reason and queue.stop_policy == "None"
            for status in ("active", "inadmissible"):
                waiting = pending.get(queue.name, 0) if (status == "active") == is_active else 0
                by_status.add_metric([queue.name, status], waiting)
            for status in ("pending", "active", "terminating"):
                active.add_metric([queue.name, status], float(status == ("active" if is_active else "pending")))
            for family in families.values():
                family.add_metric([queue.name], admitted.get(queue.name, 0))
        yield by_status
        yield active
        yield from families.values()

    def _quotas(self, snapshot: Snapshot, queues: list[ClusterQueue]) -> Iterator[Metric]:
        names = ("resource_usage", "nominal_quota", "borrowing_limit", "lending_limit")
        families = {
            name: GaugeMetricFamily(
                f"kueue_cluster_queue_{name}",
                f"The {name.replace('_', ' ')} of a 'cluster_queue', by flavor and resource.",
                labels=CELL,
            )
            for name in names
        }
        used = used_quota(snapshot.queue_system, snapshot.workloads)
        for queue in queues:
            for group in queue.resource_groups:
                for flavor in group.flavors:
                    for resource, quota in flavor.quotas.items():
                        labels = [queue.cohort, queue.name, flavor.flavor, resource]
                        amounts = (
                            used.get((queue.name, flavor.flavor, resource), 0),
                            quota.nominal,
                            quota.borrowing_limit,
                            quota.lending_limit,
                        )
                        for name, amount in zip(names, amounts, strict=True):
                            if amount is not None:
                                families[name].add_metric(labels, quota_units(resource, amount))
        yield from families.values()
