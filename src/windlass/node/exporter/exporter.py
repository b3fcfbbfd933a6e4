"""The exporter: a pass over the hardware every interval, and the page that `metrics_server` answers scrapes with.

Runs in the process beside the plugin. However often Prometheus asks, the hardware is asked once per interval. A pass
that fails leaves the last page and is counted in the exporter's own metrics.
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
from windlass.node.exporter.pod_resources import PodResources, pod_uids_of_processes
from windlass.node.exporter.prometheus_text import Family, Sample, write_text
from windlass.node.exporter.recent import RecentEvents
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
    ) -> None:
        """`counters` may be asked before each pass for those that are in force then."""
        self._backend = backend
        self._counters = counters if callable(counters) else lambda: counters
        self._hostname = hostname
        self._hostname_label = hostname_label
        self._root = root
        self._pods = pods
        self.pod_uids: Callable[[], Mapping[tuple[str, str], str]] = dict
        """What is known of pods by namespace and name; without it, shared devices have no values by pod."""
        self._journal = journal
        self._last_faults: dict[str, Fault] = {}
        self._recent_xids = RecentEvents()
        self._recent_clock_events = RecentEvents()
        self._failures = 0
        self.metrics_text = b""

    def on_faults(self, faults: Sequence[Fault]) -> None:
        """Kept for the Xid metrics."""
        for fault in faults:
            self._last_faults[fault.uuid] = fault
            self._recent_xids.add(fault.uuid, fault.xid)

    def collect(self) -> None:
        """One pass over the hardware."""
        begun = time.perf_counter()
        journal = read_journal(self._journal) if self._journal is not None else HealthJournal()
        counters = self._counters()
        try:
            devices = read_devices(self._backend)
            if any(each.field == "DCGM_EXP_CLOCK_EVENTS_COUNT" for each in counters):
                self._note_clock_events(devices)
            families = collect_families(self._backend, counters, self._view(journal), devices)
        except DeviceError:
            self._failures += 1
            return
        families += self._own(journal, time.perf_counter() - begun)
        self.metrics_text = write_text(families).encode()

    def _note_clock_events(self, devices: Sequence[MeasuredDevice]) -> None:
        for device in devices:
            reasons = int(device.reading.get(THROTTLE_REASONS, 0)) if device.instance is None else 0
            for bit in CLOCK_EVENTS:
                if reasons & bit:
                    self._recent_clock_events.add(device.gpu.uuid, bit)

    def _view(self, journal: HealthJournal) -> CollectionContext:
        holders = self._pods.holders(self.pod_uids()) if self._pods else {}
        # The dearest of the calls, and one whose samples are gone once read: only for what is shared, and only once.
        processes = {uuid: self._backend.processes(uuid) for uuid, held in holders.items() if len(held) > 1}
        pids = [process.pid for found in processes.values() for process in found]
        return CollectionContext(
            hostname=self._hostname,
            hostname_label=self._hostname_label,
            holders=holders,
            processes=processes,
            pods_of_processes=pod_uids_of_processes(self._root, pids),
            last_faults=self._last_faults,
            recent_xids=self._recent_xids.counts(),
            recent_clock_events=self._recent_clock_events.counts(),
            problem_kinds=journal.ailments,
        )

    def _own(self, journal: HealthJournal, seconds: float) -> list[Family]:
        """What is said about the exporter itself, and about health."""
        families = [
            Family(
                "windlass_exporter_pass_seconds",
                "gauge",
                "How long the last pass over the hardware took.",
                [Sample({}, round(seconds, 6))],
            ),
            Family(
                "windlass_exporter_failed_passes_total",
                "counter",
                "Passes that the driver refused.",
                [Sample({}, self._failures)],
            ),
        ]
        samples = [
            Sample({"UUID": uuid, "reason": why, "action": journal.actions.get(uuid, "")}, 1)
            for uuid, why in sorted(journal.unhealthy.items())
        ]
        families.append(
            Family("windlass_device_unhealthy", "gauge", "Devices that nobody is given, and why.", samples)
        )
        return families
