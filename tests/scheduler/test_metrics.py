"""The metrics by name: dashboards and alerts read them, and where kube-scheduler has the same they have its form."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from windlass.scheduler.metrics import Metrics

NAMES = {
    "scheduler_schedule_attempts": "counter",
    "scheduler_pending_pods": "gauge",
    "scheduler_scheduling_algorithm_duration_seconds": "histogram",
    "scheduler_pod_scheduling_sli_duration_seconds": "histogram",
    "windlass_evicted_pods": "counter",
    "windlass_binds": "counter",
    "windlass_refusals": "counter",
    "windlass_binds_in_flight": "gauge",
    "windlass_dropped_events": "gauge",
    "windlass_held_workloads": "gauge",
    "windlass_planned_starts": "counter",
    "windlass_cycles": "counter",
    "windlass_failed_decisions": "counter",
    "windlass_internal_errors": "counter",
    "windlass_set_aside_workloads": "gauge",
    "windlass_cache_age_seconds": "gauge",
    "windlass_watch_restarts": "gauge",
    "windlass_leading": "gauge",
    "windlass_unreadable_objects": "counter",
    "windlass_frozen": "gauge",
    "windlass_audit_lines_lost": "counter",
    "windlass_gpus": "gauge",
    "windlass_waiting_gpus": "gauge",
    "windlass_waiting_workloads": "gauge",
    "windlass_oldest_waiting_seconds": "gauge",
    "windlass_stranded_gpus": "gauge",
    "windlass_lost_gpu_seconds": "counter",
    "kueue_admitted_workloads": "counter",
    "kueue_evicted_workloads": "counter",
}


def families(metrics: Metrics) -> dict[str, tuple[str, list[tuple[str, dict[str, str], float]]]]:
    return {
        family.name: (family.type, [(sample.name, sample.labels, sample.value) for sample in family.samples])
        for family in text_string_to_metric_families(metrics.text().decode())
        if not family.name.endswith("_created")
    }


def test_every_metric_is_there_with_its_type() -> None:
    assert {name: kind for name, (kind, _) in families(Metrics()).items()} == NAMES


def test_labels_are_those_of_kube_scheduler() -> None:
    metrics = Metrics()
    metrics.attempts.labels("scheduled", "windlass").inc()
    metrics.pending.labels("active").set(3)
    metrics.binds.labels("bound").inc(2)
    metrics.refusals.labels("bind").inc()
    metrics.held.labels("GPU_FULL").set(4)
    metrics.watch_restarts.labels("pods").set(5)
    metrics.unreadable.labels("Pod").inc()
    found = families(metrics)
    samples = {
        (name, tuple(labels.items())): value
        for _, entries in found.values()
        for name, labels, value in entries
        if labels and "le" not in labels and not name.endswith("_created")
    }
    assert samples == {
        ("scheduler_schedule_attempts_total", (("profile", "windlass"), ("result", "scheduled"))): 1,
        ("scheduler_pending_pods", (("queue", "active"),)): 3,
        ("windlass_binds_total", (("end", "bound"),)): 2,
        ("windlass_refusals_total", (("kind", "bind"),)): 1,
        ("windlass_held_workloads", (("code", "GPU_FULL"),)): 4,
        ("windlass_watch_restarts", (("resource", "pods"),)): 5,
        ("windlass_unreadable_objects_total", (("kind", "Pod"),)): 1,
    }


def bounds(metrics: Metrics, name: str) -> list[float]:
    _, entries = families(metrics)[name]
    return [float(labels["le"]) for sample, labels, _ in entries if sample.endswith("_bucket")]


def test_buckets_are_kube_schedulers() -> None:
    metrics = Metrics()
    algorithm = bounds(metrics, "scheduler_scheduling_algorithm_duration_seconds")
    assert (len(algorithm), algorithm[0], algorithm[1], algorithm[-2]) == (16, 0.001, 0.002, 16.384)
    sli = bounds(metrics, "scheduler_pod_scheduling_sli_duration_seconds")
    assert (len(sli), sli[0], sli[1], sli[-2]) == (21, 0.01, 0.02, 5242.88)


def test_two_schedulers_in_one_process_have_metrics_of_their_own() -> None:
    first, second = Metrics(), Metrics()
    first.cycles.inc()
    assert ("windlass_cycles_total", {}, 1.0) in families(first)["windlass_cycles"][1]
    assert ("windlass_cycles_total", {}, 0.0) in families(second)["windlass_cycles"][1]
