"""Collects from the hardware every interval and keeps the page with which `metrics_server` answers scrapes.

Runs in the sidecar. However often Prometheus scrapes, the hardware is read once per interval. A failed collection
leaves the last page in place and is counted in the exporter's own metrics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from windlass.node.backend.protocol import THROTTLE_REASONS, DeviceBackend, DeviceError, Fault
from windlass.node.exporter.collect import collect_families, read_devices
from windlass.node.exporter.collection_context import CollectionContext, MeasuredDevice
from windlass.node.exporter.counters import Counter
from windlass.node.exporter.derived_metrics import CLOCK_EVENTS
from windlass.node.exporter.extra_labels import ExtraLabels
from windlass.node.exporter.pod_resources import PodResources, pod_uids_of_processes
from windlass.node.exporter.prometheus_text import Family, Sample, write_text
from windlass.node.exporter.recent import RecentEvents
from windlass.node.exporter.sample_history import SampleHistory
from windlass.node.health_journal import HealthJournal, read_journal
from windlass.node.host_root import HostRoot


class Exporter:
    def __init__(
        self,
        backend: DeviceBackend,
        counters: Sequence[Counter] | Callable[[], Sequence[Counter]],
        *,
        hostname: str,
        root: HostRoot,
        pods: PodResources | None = None,
        journal: Path | None = None,
        hostname_label: str = "Hostname",
        extra_labels: ExtraLabels | None = None,
        history: SampleHistory | None = None,
    ) -> None:
        """`counters` may be a function, which is called before each collection."""
        self._history = history
        self._backend, self._root, self._pods = backend, root, pods
        self._counters = counters if callable(counters) else lambda: counters
        self._hostname, self._hostname_label = hostname, hostname_label
        self.pod_uids: Callable[[], Mapping[tuple[str, str], str]] = dict
        """UIDs of pods by namespace and name; without them, shared devices have no values per pod."""
        self.pod_labels: Callable[[], Mapping[tuple[str, str], Mapping[str, str]]] = dict
        """Labels of pods by namespace and name, for those that are asked for."""
        self._extra_labels = extra_labels or ExtraLabels()
        self._journal = journal
        self._last_faults: dict[tuple[str, int], Fault] = {}
        self._recent_xids = RecentEvents()
        self._recent_clock_events = RecentEvents()
        self._failures = 0
        self.metrics_text = b""

    def on_faults(self, faults: Sequence[Fault]) -> None:
        """Records faults for the Xid metrics."""
        for fault in faults:
            key = (fault.uuid, fault.gpu_instance)
            self._last_faults.pop(key, None)  # the newest stands last
            self._last_faults[key] = fault
            self._recent_xids.add(fault.uuid, fault.xid)

    def collect(self) -> None:
        started = time.perf_counter()
        journal = read_journal(self._journal) if self._journal is not None else HealthJournal()
        counters = self._counters()
        try:
            devices = read_devices(self._backend, counters)
            if any(counter.field == "DCGM_EXP_CLOCK_EVENTS_COUNT" for counter in counters):
                self._count_clock_events(devices)
            families = collect_families(self._backend, counters, self._make_context(journal), devices)
            if self._history is not None:
                self._history.record(devices, self._backend)
        except DeviceError:
            self._failures += 1
            return
        families += self._own_metrics(journal, time.perf_counter() - started)
        self.metrics_text = write_text(families).encode()

    def _count_clock_events(self, devices: Sequence[MeasuredDevice]) -> None:
        for device in devices:
            reasons = int(device.reading.get(THROTTLE_REASONS, 0)) if device.instance is None else 0
            for bit in CLOCK_EVENTS:
                if reasons & bit:
                    self._recent_clock_events.add(device.gpu.uuid, bit)

    def _make_context(self, journal: HealthJournal) -> CollectionContext:
        holders = self._pods.holders(self.pod_uids()) if self._pods else {}
        # The most expensive call, and reading consumes the samples: only for shared devices, once per collection.
        processes = {uuid: self._backend.processes(uuid) for uuid, held in holders.items() if len(held) > 1}
        pids = [process.pid for found in processes.values() for process in found]
        return CollectionContext(
            hostname=self._hostname,
            hostname_label=self._hostname_label,
            holders=holders,
            pod_labels={key: self._extra_labels.of_pod(labels) for key, labels in self.pod_labels().items()},
            hpc_jobs=self._extra_labels.hpc_jobs(),
            processes=processes,
            pods_of_processes=pod_uids_of_processes(self._root, pids),
            last_faults=self._last_faults,
            recent_xids=self._recent_xids.counts(),
            recent_clock_events=self._recent_clock_events.counts(),
            problem_kinds=journal.ailments,
        )

    def _own_metrics(self, journal: HealthJournal, seconds: float) -> list[Family]:
        """Metrics about the exporter itself and about health."""
        took, failures = [Sample({}, round(seconds, 6))], [Sample({}, self._failures)]
        unhealthy = [
            Sample({"UUID": uuid, "reason": why, "action": journal.actions.get(uuid, "")}, 1)
            for uuid, why in sorted(journal.unhealthy.items())
        ]
        rows: tuple[tuple[str, str, str, list[Sample]], ...] = (
            ("exporter_pass_seconds", "gauge", "How long the last pass over the hardware took.", took),
            ("exporter_failed_passes_total", "counter", "Passes that the driver refused.", failures),
            ("device_unhealthy", "gauge", "Devices that nobody is given, and why.", unhealthy),
        )
        if self._history is not None:
            lost = [Sample({}, self._history.lost_rows)]
            rows += (("history_lost_samples_total", "counter", "Passes that could not be kept in --history.", lost),)
        return [Family(f"windlass_{name}", kind, words, samples) for name, kind, words, samples in rows]
