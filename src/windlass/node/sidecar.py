"""The process beside the plugin: exporter, labels, MIG manager, and what is told to the cluster.

Each part is a thread with a boundary of its own: a part that fails says so and goes on, and none of them can take the
node's GPUs away, since the plugin is another process. Parts are chosen on the command line, and switched by the node's
`nvidia.com/gpu.deploy.*` labels while the agent runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.model.errors import WindlassError
from windlass.node.agent_parts import (
    PLUGIN_OFF_FILE,
    conflict_message,
    conflicting_pods,
    is_disabled_by_label,
)
from windlass.node.backend.protocol import DeviceBackend
from windlass.node.config_source import ConfigSource
from windlass.node.device_cordon import cordon_devices
from windlass.node.exporter.collection_context import DeviceHolder
from windlass.node.exporter.exporter import Exporter
from windlass.node.exporter.metrics_server import MetricsServer
from windlass.node.exporter.pod_resources import PodResources
from windlass.node.host_root import HostRoot
from windlass.node.labels.features import node_labels
from windlass.node.labels.sinks import LabelSink
from windlass.node.labels.vgpu import find_virtual_gpus
from windlass.node.mig_manager import REASON_ANNOTATION, STATE_LABEL, MigManager
from windlass.node.named_configs import CONFIG_LABEL_FILE, read_state_file, write_state_file
from windlass.node.preferred_devices import pending_pods, write_preferred_devices
from windlass.node.process_memory import freeze_and_trim_memory
from windlass.node.reporter import PodKey, Reporter
from windlass.sharing.plugin_fields import INFINITE

if TYPE_CHECKING:
    from windlass.node.node_api import NodeApi

Log = Callable[[str], None]
RETRY_SECONDS = 5.0
MEMORY_TRIM_SECONDS = 5.0


class SidecarOptions(msgspec.Struct, frozen=True, kw_only=True):
    parts: frozenset[str]
    interval: float = 30.0
    """Seconds between passes of the exporter."""
    report_seconds: float = 1.0
    mig_config: Path | None = None
    state: Path
    """Where word is left for the plugin, and the plugin leaves its own."""
    config_label: str = ""
    """The label that picks the plugin's config; empty where there is only one."""


@dataclass(frozen=True, kw_only=True)
class SidecarParts:
    """What the process is made of; what is None is not part of this agent."""

    api: NodeApi | None = None
    pods: PodResources | None = None
    exporter: Exporter | None = None
    metrics: MetricsServer | None = None
    sink: LabelSink | None = None


class Sidecar:
    def __init__(
        self,
        backend: DeviceBackend,
        root: HostRoot,
        config: ConfigSource,
        options: SidecarOptions,
        parts: SidecarParts,
        log: Log,
    ) -> None:
        self._backend = backend
        self._root = root
        self._config = config
        self._options = options
        self._log = log
        self._api, self._resources, self._sink = parts.api, parts.pods, parts.sink
        self._exporter, self._metrics = parts.exporter, parts.metrics
        self._stop = threading.Event()
        self._mig_lock = threading.Lock()
        self._off: frozenset[str] = frozenset()
        """Parts whose job somebody else does."""
        self._switched_off: frozenset[str] = frozenset()
        """Parts that the node's labels switch off right now."""
        self._said: dict[str, str] = {}
        """Why each part failed when it was last tried."""
        self._pods: dict[PodKey, dict[str, Any]] = {}
        self._timestamp = int(time.time())
        """In the labels, and the same for as long as the process lives: a label that changes wakes everybody."""
        if parts.exporter is not None:
            parts.exporter.pod_uids = self.pod_uids
        self._mig = MigManager(
            backend,
            config_file=options.mig_config,
            holders=self.holders_or_raise,
            write_state=self._write_mig_state,
            log=log,
            cordon_devices=lambda uuids: cordon_devices(
                options.state, uuids, has_plugin="plugin" in options.parts - self._off - self._switched_off
            ),
        )

    def run(self, stop: threading.Event) -> None:
        self._stop = stop
        for part in self._refused_parts():
            self._off |= {part}
        if self._metrics is not None and "exporter" not in self._off:
            self._start("port", None, self._metrics.start)
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
            reporter = Reporter(
                self._backend,
                self._api,
                self._options.state / "health.json",
                pods=lambda: dict(self._pods),
                holders=self.holders,
            )
            self._start("report", self._options.report_seconds, reporter.report)
        for _ in range(2):  # once what came up at the start has, and once it has worked for a while
            if not stop.wait(MEMORY_TRIM_SECONDS):
                freeze_and_trim_memory()
        stop.wait()
        if self._metrics is not None and "exporter" not in self._off:
            self._metrics.stop()

    def holders(self) -> Mapping[str, Sequence[DeviceHolder]]:
        return self._resources.holders(self.pod_uids()) if self._resources is not None else {}

    def holders_or_raise(self) -> Mapping[str, Sequence[DeviceHolder]]:
        """The same, and a `DeviceError` where the kubelet can't say: nothing is cut on a guess."""
        return self._resources.holders_or_raise(self.pod_uids()) if self._resources is not None else {}

    def pod_uids(self) -> dict[PodKey, str]:
        return {key: pod["metadata"].get("uid", "") for key, pod in list(self._pods.items())}

    def _refused_parts(self) -> list[str]:
        """Parts whose job somebody else does, each said once."""
        if self._api is None:
            return []
        try:
            owners = conflicting_pods(self._api.list_pods())
        except WindlassError as error:
            self._log(f"other owners can't be looked for: {error}")
            return []
        found = [part for part in owners if part in self._options.parts]
        for part in found:
            self._log(conflict_message(part, owners[part]))
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
        """Whether it worked; why not is said once, and again after it has worked or failed in another way."""
        try:
            work()
        except WindlassError as error:
            self._say(name, str(error))
            return False
        except Exception as error:  # the boundary: one part must not end the others
            self._say(name, f"{type(error).__name__}: {error}")
            self._stop.wait(RETRY_SECONDS)
            return False
        self._said.pop(name, None)
        return True

    def _say(self, name: str, why: str) -> None:
        if self._said.get(name) != why:
            self._said[name] = why
            self._log(f"{name}: {why}")

    def _export(self) -> None:
        assert self._exporter is not None
        if "exporter" in self._switched_off:
            self._exporter.metrics_text = b""
        else:
            self._exporter.collect()

    def _fault_round(self) -> None:
        assert self._exporter is not None
        self._exporter.on_faults(self._backend.wait_for_faults(1.0))

    def _label(self) -> None:
        if "labels" in self._off | self._switched_off or self._sink is None:
            return
        config = self._config.reload_if_changed()
        found = node_labels(
            self._backend.inventory(),
            config,
            machine=self._root.read(config.machine_type_file),
            timestamp=self._timestamp,
            virtual=find_virtual_gpus(self._root),
        )
        self._sink.write_labels(found)

    def _follow_node(self) -> None:
        assert self._api is not None
        for kind, found in self._api.watch_node():
            for node in found.get("items") or () if kind == "LISTED" else (found,):
                self._on_node(node)
            if self._stop.is_set():
                return

    def _on_node(self, node: Mapping[str, Any]) -> None:
        labels = node.get("metadata", {}).get("labels") or {}
        self._switched_off = frozenset(
            part for part in self._options.parts if is_disabled_by_label(part, labels)
        )
        off = self._off | self._switched_off
        self._switch_plugin("plugin" in off)
        if self._options.config_label:
            self._pick_config(labels.get(self._options.config_label, ""))
        if "mig" in self._options.parts and "mig" not in off:
            with self._mig_lock:
                self._mig.on_node(node)

    def _switch_plugin(self, off: bool) -> None:
        """The plugin is another process: it finds the word in a file."""
        switch = self._options.state / PLUGIN_OFF_FILE
        if off:
            switch.parent.mkdir(parents=True, exist_ok=True)
            switch.touch()
        else:
            switch.unlink(missing_ok=True)

    def _pick_config(self, name: str) -> None:
        """Both processes find the label's word in a file; labels that tell of sharing change with it."""
        word = self._options.state / CONFIG_LABEL_FILE
        if not word.exists() or read_state_file(word) != name:
            write_state_file(word, name)
            self._attempt("labels", self._label)

    def _retry_mig(self) -> None:
        if "mig" not in self._switched_off:
            with self._mig_lock:
                self._mig.retry()

    def _write_mig_state(self, state: str, reason: str) -> None:
        if self._api is not None:
            self._api.patch_node(labels={STATE_LABEL: state}, annotations={REASON_ANNOTATION: reason or None})
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
        write_preferred_devices(
            self._options.state / "wishes.json", pending_pods(list(self._pods.values()), self.holders())
        )


def _key(pod: Mapping[str, Any]) -> PodKey:
    return pod["metadata"].get("namespace", ""), pod["metadata"]["name"]
