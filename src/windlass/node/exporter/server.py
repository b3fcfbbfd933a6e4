"""The exporter: a pass over the hardware every interval, and a page that answers scrapes out of the last one.

Runs in the process beside the plugin. However often Prometheus asks, the hardware is asked once per interval; a scrape
is one copy of bytes. A pass that fails leaves the last page and is counted in the exporter's own metrics.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from windlass.model.errors import InputError
from windlass.node.backend.protocol import THROTTLE_REASONS, DeviceBackend, DeviceError, Fault
from windlass.node.exporter.collect import collect, read_devices
from windlass.node.exporter.counters import Counter
from windlass.node.exporter.made_here import CLOCK_EVENTS
from windlass.node.exporter.pods import PodResources, pods_of_processes
from windlass.node.exporter.recent import Recent
from windlass.node.exporter.text import Family, Sample, write_text
from windlass.node.exporter.view import Device, View
from windlass.node.journal import Journal, read_journal
from windlass.node.root import HostRoot

PORT = 9400
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Exporter:
    def __init__(
        self,
        backend: DeviceBackend,
        counters: Sequence[Counter],
        *,
        hostname: str,
        root: HostRoot,
        pods: PodResources | None = None,
        journal: Path | None = None,
        hostname_label: str = "Hostname",
    ) -> None:
        self._backend = backend
        self._counters = counters
        self._hostname = hostname
        self._hostname_label = hostname_label
        self._root = root
        self._pods = pods
        self.uids: Callable[[], Mapping[tuple[str, str], str]] = dict
        """What is known of pods by namespace and name; without it, shared devices have no values by pod."""
        self._journal = journal
        self._counts_clock_events = any(each.field == "DCGM_EXP_CLOCK_EVENTS_COUNT" for each in counters)
        self._last_faults: dict[str, Fault] = {}
        self._recent_xids = Recent()
        self._recent_clock_events = Recent()
        self._failures = 0
        self.page = b""

    def on_faults(self, faults: Sequence[Fault]) -> None:
        """Kept for the Xid metrics."""
        for fault in faults:
            self._last_faults[fault.uuid] = fault
            self._recent_xids.add(fault.uuid, fault.xid)

    def make_page(self) -> None:
        """One pass over the hardware."""
        begun = time.perf_counter()
        journal = read_journal(self._journal) if self._journal is not None else Journal()
        try:
            devices = read_devices(self._backend)
            self._note_clock_events(devices)
            families = collect(self._backend, self._counters, self._view(journal), devices)
        except DeviceError:
            self._failures += 1
            return
        families += self._own(journal, time.perf_counter() - begun)
        self.page = write_text(families).encode()

    def _note_clock_events(self, devices: Sequence[Device]) -> None:
        for device in devices if self._counts_clock_events else ():
            reasons = int(device.reading.get(THROTTLE_REASONS, 0)) if device.instance is None else 0
            for bit in CLOCK_EVENTS:
                if reasons & bit:
                    self._recent_clock_events.add(device.gpu.uuid, bit)

    def _view(self, journal: Journal) -> View:
        holders = self._pods.holders(self.uids()) if self._pods else {}
        # The dearest of the calls, and one whose samples are gone once read: only for what is shared, and only once.
        processes = {uuid: self._backend.processes(uuid) for uuid, held in holders.items() if len(held) > 1}
        pids = [process.pid for found in processes.values() for process in found]
        return View(
            hostname=self._hostname,
            hostname_label=self._hostname_label,
            holders=holders,
            processes=processes,
            pods_of_processes=pods_of_processes(self._root, pids),
            last_faults=self._last_faults,
            recent_xids=self._recent_xids.counts(),
            recent_clock_events=self._recent_clock_events.counts(),
            ailments=journal.ailments,
        )

    def _own(self, journal: Journal, seconds: float) -> list[Family]:
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
            Sample({"UUID": uuid, "reason": why}, 1) for uuid, why in sorted(journal.unhealthy.items())
        ]
        families.append(
            Family("windlass_device_unhealthy", "gauge", "Devices that nobody is given, and why.", samples)
        )
        return families


class MetricsServer:
    """`/metrics` and `/health` on a port."""

    def __init__(self, exporter: Exporter, address: str = "", port: int = PORT) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if self.path.partition("?")[0] == "/metrics":
                    self._answer(200 if exporter.page else 503, exporter.page)
                elif self.path == "/health":
                    self._answer(
                        200 if exporter.page else 503, b"OK\n" if exporter.page else b"no pass yet\n"
                    )
                else:
                    self._answer(404, b"/metrics and /health are here\n")

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """A scrape is no news."""

        try:
            self._server = ThreadingHTTPServer((address, port), Handler)
        except OSError as error:
            raise InputError(
                f"port {port} can't be had: {error.strerror}",
                remedy="another exporter is live on this node; remove it, or choose another port",
            ) from None
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, daemon=True, name="metrics").start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
