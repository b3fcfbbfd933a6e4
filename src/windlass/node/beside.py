"""The process beside the plugin: exporter, labels, MIG manager, and what is told to the cluster.

Each part is a thread with a boundary of its own: a part that fails says so and goes on, and none of them can take the
node's GPUs away, since the plugin is another process. Parts are chosen on the command line, and switched by the node's
`nvidia.com/gpu.deploy.*` labels while the agent runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.model.device import LAYOUT_ANNOTATION, UNHEALTHY_ANNOTATION
from windlass.model.errors import WindlassError
from windlass.node.backend.protocol import DeviceBackend
from windlass.node.config_source import ConfigSource
from windlass.node.exporter.pods import PodResources
from windlass.node.exporter.server import Exporter, MetricsServer
from windlass.node.exporter.view import Holder
from windlass.node.journal import read_journal
from windlass.node.labels.features import layout, node_labels
from windlass.node.labels.sinks import LabelSink
from windlass.node.labels.vgpu import find_virtual_gpus
from windlass.node.mig_manager import REASON, STATE, MigManager
from windlass.node.owners import is_switched_off, other_owners, refusal
from windlass.node.root import HostRoot
from windlass.node.wishes import GIVEN, given_devices, waiting_pods, write_wishes
from windlass.sharing.plugin_fields import INFINITE

if TYPE_CHECKING:
    from windlass.node.node_api import NodeApi

Log = Callable[[str], None]
RETRY_SECONDS = 5.0


class BesideOptions(msgspec.Struct, frozen=True, kw_only=True):
    parts: frozenset[str]
    interval: float = 30.0
    """Seconds between passes of the exporter."""
    report_seconds: float = 1.0
    mig_config: Path | None = None


class Beside:
    def __init__(
        self,
        backend: DeviceBackend,
        root: HostRoot,
        config: ConfigSource,
        options: BesideOptions,
        *,
        state: Path,
        log: Log,
        api: NodeApi | None = None,
        pods: PodResources | None = None,
        exporter: Exporter | None = None,
        metrics: MetricsServer | None = None,
        sink: LabelSink | None = None,
    ) -> None:
        self._backend = backend
        self._root = root
        self._config = config
        self._options = options
        self._state = state
        self._log = log
        self._api = api
        self._resources = pods
        self._exporter = exporter
        self._metrics = metrics
        self._sink = sink
        self._stop = threading.Event()
        self._mig_lock = threading.Lock()
        self._off: frozenset[str] = frozenset()
        """Parts whose job somebody else does."""
        self._switched_off: frozenset[str] = frozenset()
        """Parts that the node's labels switch off right now."""
        self._pods: dict[tuple[str, str], dict[str, Any]] = {}
        self._told: dict[tuple[str, str], str] = {}
        self._reported = 0
        self._timestamp = int(time.time())
        """In the labels, and the same for as long as the process lives: a label that changes wakes everybody."""
        if exporter is not None:
            exporter.uids = self.uids
        self._mig = MigManager(
            backend,
            config_file=options.mig_config,
            holders=self.holders,
            write=self._write_mig_state,
            log=log,
        )

    def run(self, stop: threading.Event) -> None:
        self._stop = stop
        self._reported = read_journal(self._state / "health.json").last
        for part in self._refused_parts():
            self._off |= {part}
        if self._metrics is not None and "exporter" not in self._off:
            self._metrics.start()
            self._start("exporter", self._options.interval, self._export)
            self._start("faults", 0.0, self._fault_round)
        if self._sink is not None and "labels" not in self._off:
            config = self._config.config
            is_once = config.oneshot or config.sleep_interval == INFINITE
            self._start("labels", None if is_once else max(1.0, config.sleep_interval), self._label)
        if self._api is not None:
            if "mig" in self._options.parts and "mig" not in self._off:
                self._start("mig", RETRY_SECONDS, self._retry_mig)
            self._start("node", RETRY_SECONDS, self._follow_node)
            self._start("pods", RETRY_SECONDS, self._follow_pods)
            self._start("report", self._options.report_seconds, self._report)
        stop.wait()
        if self._metrics is not None and "exporter" not in self._off:
            self._metrics.stop()

    def holders(self) -> Mapping[str, Sequence[Holder]]:
        return self._resources.holders(self.uids()) if self._resources is not None else {}

    def uids(self) -> dict[tuple[str, str], str]:
        return {key: pod["metadata"].get("uid", "") for key, pod in list(self._pods.items())}

    def _refused_parts(self) -> list[str]:
        """Parts whose job somebody else does, each said once."""
        if self._api is None:
            return []
        try:
            owners = other_owners(self._api.pods())
        except WindlassError as error:
            self._log(f"other owners can't be looked for: {error}")
            return []
        found = [part for part in owners if part in self._options.parts]
        for part in found:
            self._log(refusal(part, owners[part]))
        return found

    def _start(self, name: str, period: float | None, work: Callable[[], None]) -> None:
        """Work every so many seconds, or, without a period, until it has been done once."""

        def loop() -> None:
            while not self._stop.is_set():
                is_done = self._attempt(name, work)
                if is_done and period is None:
                    return
                self._stop.wait(RETRY_SECONDS if period is None else period)

        threading.Thread(target=loop, daemon=True, name=name).start()

    def _attempt(self, name: str, work: Callable[[], None]) -> bool:
        try:
            work()
        except WindlassError as error:
            self._log(f"{name}: {error}")
            return False
        except Exception as error:  # the boundary: one part must not end the others
            self._log(f"{name}: {type(error).__name__}: {error}")
            self._stop.wait(RETRY_SECONDS)
            return False
        return True

    def _export(self) -> None:
        assert self._exporter is not None
        if "exporter" in self._switched_off:
            self._exporter.page = b""
        else:
            self._exporter.make_page()

    def _fault_round(self) -> None:
        assert self._exporter is not None
        self._exporter.on_faults(self._backend.wait_for_faults(1.0))

    def _label(self) -> None:
        if "labels" in self._off | self._switched_off or self._sink is None:
            return
        config = self._config.follow()
        found = node_labels(
            self._backend.inventory(),
            config,
            machine=self._root.read(config.machine_type_file),
            timestamp=self._timestamp,
            virtual=find_virtual_gpus(self._root),
        )
        self._sink.put(found)

    def _follow_node(self) -> None:
        assert self._api is not None
        for kind, found in self._api.watch_node():
            for node in found.get("items") or () if kind == "LISTED" else (found,):
                self._on_node(node)
            if self._stop.is_set():
                return

    def _on_node(self, node: Mapping[str, Any]) -> None:
        labels = node.get("metadata", {}).get("labels") or {}
        self._switched_off = frozenset(part for part in self._options.parts if is_switched_off(part, labels))
        off = self._off | self._switched_off
        self._switch_plugin("plugin" in off)
        if "mig" in self._options.parts and "mig" not in off:
            with self._mig_lock:
                self._mig.on_node(node)

    def _switch_plugin(self, off: bool) -> None:
        """The plugin is another process: it finds the word in a file."""
        switch = self._state / "device-plugin.off"
        if off:
            switch.parent.mkdir(parents=True, exist_ok=True)
            switch.touch()
        else:
            switch.unlink(missing_ok=True)

    def _retry_mig(self) -> None:
        if "mig" not in self._switched_off:
            with self._mig_lock:
                self._mig.retry()

    def _write_mig_state(self, state: str, reason: str) -> None:
        if self._api is not None:
            self._api.patch_node(labels={STATE: state}, annotations={REASON: reason or None})
        if state == "success":
            self._label()

    def _follow_pods(self) -> None:
        assert self._api is not None
        for kind, found in self._api.watch_pods():
            if kind == "LISTED":
                self._pods = {_key(pod): pod for pod in found.get("items") or ()}
            elif kind == "DELETED":
                self._pods.pop(_key(found), None)
            else:
                self._pods[_key(found)] = found
            self._write_wishes()
            if self._stop.is_set():
                return

    def _write_wishes(self) -> None:
        write_wishes(self._state / "wishes.json", waiting_pods(list(self._pods.values()), self.holders()))

    def _report(self) -> None:
        """Health to the node as Events and annotations, given devices to the pods."""
        assert self._api is not None
        journal = read_journal(self._state / "health.json")
        for entry in journal.since(self._reported):
            change = entry.change
            todo = f": {change.action}" if change.action else ""
            self._api.event(
                reason="GPUHealthy" if change.healthy else "GPUUnhealthy",
                message=f"{change.uuid}: {change.reason}{todo}",
                warning=not change.healthy,
                now=time.time(),
            )
            self._reported = entry.number
        inventory = self._backend.inventory()
        self._annotate_node(*layout(inventory, frozenset(journal.unhealthy)))
        given = given_devices(inventory, self.holders())
        for key, devices in given.items():
            pod = self._pods.get(key)
            annotations = (pod or {}).get("metadata", {}).get("annotations") or {}
            if pod is not None and annotations.get(GIVEN) != devices and self._told.get(key) != devices:
                self._api.annotate_pod(*key, {GIVEN: devices})
                self._told[key] = devices

    def _annotate_node(self, devices: str, unhealthy: str) -> None:
        assert self._api is not None
        told = self._told.get(("", "node"))
        if told == devices + unhealthy:
            return
        self._api.patch_node(
            annotations={LAYOUT_ANNOTATION: devices, UNHEALTHY_ANNOTATION: unhealthy or None}
        )
        self._told["", "node"] = devices + unhealthy


def _key(pod: Mapping[str, Any]) -> tuple[str, str]:
    return pod["metadata"].get("namespace", ""), pod["metadata"]["name"]
