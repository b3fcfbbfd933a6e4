"""The sidecar process of the agent: exporter, labels, MIG manager, and reports to the API server.

`agent.run_sidecar` builds and runs it. Each part is a thread that survives its own errors: it logs them and goes
on, and none of them can withdraw the node's GPUs, since the plugin is another process. Parts are chosen on the
command line, and enabled or disabled by the node's `nvidia.com/gpu.deploy.*` labels while the agent runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.model.errors import WindlassError
from windlass.model.names.nvidia import MIG_CONFIG_STATE_LABEL
from windlass.node.agent_parts import PLUGIN_OFF_FILE, is_disabled_by_label
from windlass.node.backend.protocol import DeviceBackend, DriverChanged
from windlass.node.config_source import ConfigSource
from windlass.node.device_cordon import cordon_devices, release_elsewhere
from windlass.node.exporter.collection_context import DeviceHolder
from windlass.node.exporter.exporter import Exporter
from windlass.node.exporter.metrics_server import MetricsServer
from windlass.node.exporter.pod_resources import PodResources
from windlass.node.host_root import HostRoot
from windlass.node.kubelet_policy import KubeletPolicy
from windlass.node.labels.features import node_labels
from windlass.node.labels.sinks import LabelSink
from windlass.node.labels.vgpu import find_virtual_gpus
from windlass.node.mig_manager import REASON_ANNOTATION, MigManager
from windlass.node.named_configs import CONFIG_LABEL_FILE, read_state_file, write_state_file
from windlass.node.operator_requests import OperatorRequests, answer_patch
from windlass.node.owners import TRUSTED_NAMESPACES, conflict_message, doubt_message, find_owners
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
    """Seconds between two collections of the exporter."""
    report_seconds: float = 1.0
    mig_config: Path | None = None
    state: Path
    """Folder of the files with which sidecar and plugin tell each other their state."""
    config_label: str = ""
    """The label that selects the plugin's config; empty without named configs."""
    trusted_namespaces: tuple[str, ...] = TRUSTED_NAMESPACES
    """Where pods of other projects may own the job of a part."""


@dataclass(frozen=True, kw_only=True)
class SidecarParts:
    """The components of this agent; None for those that it does not have."""

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
        self._backend, self._root, self._config = backend, root, config
        self._options, self._log = options, log
        self._api, self._resources, self._sink = parts.api, parts.pods, parts.sink
        self._exporter, self._metrics = parts.exporter, parts.metrics
        self._stop = threading.Event()
        self._mig_lock = threading.Lock()
        self._conflicting: frozenset[str] = frozenset()
        """Parts that don't run because another pod on this node does their job."""
        self._disabled: frozenset[str] = frozenset()
        """Parts that the node's labels disable now."""
        self._last_errors: dict[str, str] = {}
        """The last error of each part, to log it once."""
        self._pods: dict[PodKey, dict[str, Any]] = {}
        self._timestamp = int(time.time())
        """Value of the timestamp label. Constant, since every label change wakes all watchers of the node."""
        if parts.exporter is not None:
            parts.exporter.pod_uids = self.pod_uids
            parts.exporter.pod_labels = self.pod_labels
        backend.reset_guard = self._release_plugin
        self._mig = MigManager(
            backend,
            config_file=options.mig_config,
            holders=self.holders_or_raise,
            write_state=self._write_mig_state,
            log=log,
            cordon_devices=self._cordon_devices,
            process_name=lambda pid: root.read(f"/proc/{pid}/comm"),
        )
        self._requests = OperatorRequests(
            backend, options.state, holders=self.holders_or_raise, write_answer=self._write_answer, log=log
        )

    def run(self, stop: threading.Event) -> None:
        self._stop = stop
        for part in self._conflicting_parts():
            self._conflicting |= {part}
        if self._metrics is not None and "exporter" not in self._conflicting:
            self._start("port", None, self._metrics.start)
            self._start("exporter", self._options.interval, self._export)
            self._start("faults", 0.0, self._poll_faults)
        if self._sink is not None and "labels" not in self._conflicting:
            config = self._config.config
            is_once = config.oneshot or config.sleep_interval == INFINITE
            self._start("labels", None if is_once else max(1.0, config.sleep_interval), self._write_labels)
        if self._api is not None:
            if "mig" in self._options.parts and "mig" not in self._conflicting:
                self._start("mig", RETRY_SECONDS, self._retry_mig)
            self._start("node", RETRY_SECONDS, self._follow_node)
            self._start("pods", RETRY_SECONDS, self._follow_pods)
            self._start("operator", self._options.report_seconds, self._requests.work)
            reporter = Reporter(
                self._backend,
                self._api,
                self._options.state / "health.json",
                pods=lambda: dict(self._pods),
                holders=self.holders,
                kubelet_policy=KubeletPolicy(self._root).current,
            )
            self._start("report", self._options.report_seconds, reporter.report)
        for _ in range(2):  # after startup, and after the first rounds of work
            if not stop.wait(MEMORY_TRIM_SECONDS):
                freeze_and_trim_memory()
        stop.wait()
        if self._metrics is not None and "exporter" not in self._conflicting:
            self._metrics.stop()

    def holders(self) -> Mapping[str, Sequence[DeviceHolder]]:
        return self._resources.holders(self.pod_uids()) if self._resources is not None else {}

    def holders_or_raise(self) -> Mapping[str, Sequence[DeviceHolder]]:
        """Like `holders`, but a `DeviceError` if the kubelet does not answer: MIG must not change on a guess."""
        return self._resources.holders_or_raise(self.pod_uids()) if self._resources is not None else {}

    def pod_uids(self) -> dict[PodKey, str]:
        return {key: pod["metadata"].get("uid", "") for key, pod in list(self._pods.items())}

    def pod_labels(self) -> dict[PodKey, dict[str, str]]:
        return {key: pod["metadata"].get("labels") or {} for key, pod in list(self._pods.items())}

    def _conflicting_parts(self) -> list[str]:
        """Parts whose job another pod does, each logged."""
        if self._api is None:
            return []
        try:
            owners = find_owners(self._api.list_pods(), self._options.trusted_namespaces)
        except WindlassError as error:
            self._log(f"can't check for other GPU agents on this node: {error}")
            return []
        found = [part for part in owners.trusted if part in self._options.parts]
        for part in found:
            self._log(conflict_message(part, owners.trusted[part]))
        for part in sorted((owners.doubtful.keys() & self._options.parts) - owners.trusted.keys()):
            self._log(doubt_message(part, owners.doubtful[part]))
        return found

    def _start(self, name: str, period: float | None, work: Callable[[], None]) -> None:
        """Runs `work` in a thread every `period` seconds; without a period, until it has succeeded once."""

        def loop() -> None:
            while not self._stop.is_set():
                is_done = self._attempt(name, work)
                if is_done and period is None:
                    return
                self._stop.wait(RETRY_SECONDS if period is None else period)

        threading.Thread(target=loop, daemon=True, name=name).start()

    def _attempt(self, name: str, work: Callable[[], None]) -> bool:
        """Whether it succeeded. An error is logged once, and again after a success or another error."""
        try:
            work()
        except DriverChanged as error:
            self._log(f"{name}: {error}")
            self._stop.set()  # the supervisor starts this process again
            return False
        except WindlassError as error:
            self._log_once(name, str(error))
            return False
        except Exception as error:  # the boundary: one part must not end the others
            self._log_once(name, f"{type(error).__name__}: {error}")
            self._stop.wait(RETRY_SECONDS)
            return False
        self._last_errors.pop(name, None)
        return True

    def _log_once(self, name: str, why: str) -> None:
        if self._last_errors.get(name) != why:
            self._last_errors[name] = why
            self._log(f"{name}: {why}")

    def _export(self) -> None:
        assert self._exporter is not None
        if "exporter" in self._disabled:
            self._exporter.metrics_text = b""
        else:
            self._exporter.collect()

    def _poll_faults(self) -> None:
        assert self._exporter is not None
        self._exporter.on_faults(self._backend.wait_for_faults(1.0))

    def _write_labels(self) -> None:
        if "labels" in self._conflicting | self._disabled or self._sink is None:
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
        self._disabled = frozenset(part for part in self._options.parts if is_disabled_by_label(part, labels))
        disabled = self._conflicting | self._disabled
        self._set_plugin_disabled("plugin" in disabled)
        self._hold_driver(bool(self._options.parts - disabled))
        self._requests.on_node(node)
        if self._options.config_label:
            self._write_config_label(labels.get(self._options.config_label, ""))
        if "mig" in self._options.parts and "mig" not in disabled:
            with self._mig_lock:
                self._mig.on_node(node)

    def _hold_driver(self, needed: bool) -> None:
        """Closed while every part is paused: parts are paused to reset a GPU or to exchange the driver."""
        if needed:
            self._backend.acquire()
        else:
            self._backend.release()

    def _set_plugin_disabled(self, disabled: bool) -> None:
        """The plugin is another process: it looks for this file."""
        off_file = self._options.state / PLUGIN_OFF_FILE
        if disabled:
            off_file.parent.mkdir(parents=True, exist_ok=True)
            off_file.touch()
        else:
            off_file.unlink(missing_ok=True)

    def _write_config_label(self, name: str) -> None:
        """Both processes read the label's value from a file; the node's labels about sharing depend on it."""
        label_file = self._options.state / CONFIG_LABEL_FILE
        if not label_file.exists() or read_state_file(label_file) != name:
            write_state_file(label_file, name)
            self._attempt("labels", self._write_labels)

    def _retry_mig(self) -> None:
        if "mig" not in self._disabled:
            with self._mig_lock:
                self._mig.retry()

    def _cordon_devices(self, uuids: frozenset[str]) -> AbstractContextManager[None]:
        has_plugin = "plugin" in self._options.parts - self._conflicting - self._disabled
        return cordon_devices(self._options.state, uuids, has_plugin=has_plugin)

    def _release_plugin(self) -> AbstractContextManager[None]:
        has_plugin = "plugin" in self._options.parts - self._conflicting - self._disabled
        return release_elsewhere(self._options.state, has_plugin=has_plugin)

    def _write_mig_state(self, state: str, reason: str) -> None:
        if self._api is not None:
            self._api.patch_node(
                labels={MIG_CONFIG_STATE_LABEL: state}, annotations={REASON_ANNOTATION: reason or None}
            )
        if state == "success":
            self._write_labels()

    def _write_answer(self, answer: str) -> None:
        if self._api is not None:
            self._api.patch_node(annotations=answer_patch(answer))

    def _follow_pods(self) -> None:
        assert self._api is not None
        for kind, found in self._api.watch_pods():
            if kind == "LISTED":
                self._pods = {_key(pod): pod for pod in found.get("items") or ()}
            elif kind == "DELETED":
                self._pods.pop(_key(found), None)
            else:
                self._pods[_key(found)] = found
            self._write_preferred_devices()
            if self._stop.is_set():
                return

    def _write_preferred_devices(self) -> None:
        write_preferred_devices(
            self._options.state / "preferred-devices.json",
            pending_pods(list(self._pods.values()), self.holders()),
        )


def _key(pod: Mapping[str, Any]) -> PodKey:
    return pod["metadata"].get("namespace", ""), pod["metadata"]["name"]
