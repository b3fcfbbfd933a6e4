"""Puts the agent together: from the command line's options to the two processes.

`windlass node run` makes `commands` of its options; the supervisor starts them, and each ends up in `run_plugin` or
`run_beside`. Nothing heavy is imported before it is needed, so that the plugin doesn't carry the exporter and the other
way round.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.model.errors import InputError, WindlassError
from windlass.node.backend.protocol import DeviceBackend, DeviceError
from windlass.node.owners import SWITCH
from windlass.node.root import HostRoot

if TYPE_CHECKING:
    from windlass.node.beside import BesideParts
    from windlass.node.exporter.pods import PodResources
    from windlass.node.exporter.server import Exporter
    from windlass.node.labels.sinks import LabelSink
    from windlass.node.node_api import NodeApi

BESIDE = ("exporter", "labels", "mig")
RETRY_SECONDS = 30.0
PARENT_SECONDS = 1.0
"""How often a process looks whether its supervisor is still there."""


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The command line of `windlass node run`, read."""

    parts: frozenset[str] = frozenset(("plugin", *BESIDE))
    fleet: Path | None = None
    node_name: str = ""
    root: Path = Path("/")
    state: Path = Path("/run/windlass")
    config_file: Path | None = None
    flags: dict[str, Any] = {}
    honor_renames: bool = False
    device_plugins: Path = Path("/var/lib/kubelet/device-plugins")
    pod_resources: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    kubelet_socket: Path | None = None
    cdi_folder: Path = Path("/var/run/cdi")
    cdi_disable_hooks: tuple[str, ...] = ()
    kubeconfig: str = ""
    without_api: bool = False
    label_sink: str = "node-feature"
    namespace: str = "windlass-system"
    mig_config: Path | None = None
    counters: Path | None = None
    listen: str = ":9400"
    interval: float = 30.0
    quiet_seconds: float = 30.0
    reading_seconds: float = 5.0
    time_slice: str = ""
    hostname_label: str = "Hostname"

    @property
    def node(self) -> str:
        return self.node_name or os.environ.get("NODE_NAME", "") or socket.gethostname()


def log_to_stderr(name: str) -> Callable[[str], None]:
    def log(line: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        print(f"{stamp} {name}: {line}", file=sys.stderr, flush=True)

    return log


def make_backend(options: AgentOptions) -> DeviceBackend:
    """Real GPUs, or those of a Fleet."""
    if options.fleet is None:
        from windlass.node.backend.nvml import NvmlBackend

        return NvmlBackend(HostRoot(options.root))
    from windlass.node.backend.simulated import SimulatedBackend
    from windlass.node.backend.simulated_fleet import pool_of_node

    pool, number = pool_of_node(options.fleet, options.node_name)
    return SimulatedBackend(pool, number, folder=options.root)


def check_options(options: AgentOptions) -> None:
    """What is wrong already before anything runs: the configuration, the counters file, the simulated root."""
    if options.fleet is not None and options.root == Path("/"):
        raise InputError("a simulated node needs a folder of its own", remedy="give --root FOLDER")
    make_config(options, lambda line: None)
    if "exporter" in options.parts:
        read_counters_file(options.counters)


def forget_old_switch(options: AgentOptions) -> None:
    """What a label switched off in an earlier life stays off only if somebody follows labels in this one."""
    if not _can_reach_api(options):
        (options.state / SWITCH).unlink(missing_ok=True)


def make_config(options: AgentOptions, log: Callable[[str], None]) -> Any:
    from windlass.node.config_source import ConfigSource

    named = options.config_file or os.environ.get("CONFIG_FILE")
    return ConfigSource(
        Path(named) if named else None,
        os.environ,
        options.flags,
        honor_renames=options.honor_renames,
        log=log,
    )


def run_plugin(options: AgentOptions) -> int:
    """The plugin process; 2 for wrong input, 1 where another plugin is live or there is no driver."""
    from windlass.node.cdi_writer import CdiWriter
    from windlass.node.health import HealthBook
    from windlass.node.health_rules import Rules, rules_from
    from windlass.node.health_watch import Timing
    from windlass.node.plugin.manager import PluginManager
    from windlass.node.plugin.process import PluginProcess
    from windlass.node.wishes import WishFile

    log = log_to_stderr("plugin")
    stop = _stop_on_signal()
    try:
        config = make_config(options, log)
        root = HostRoot(options.root)
        backend = wait_for_driver(options, config.config.fail_on_init_error, log, stop)
        if backend is None:
            return 0
        wish = WishFile(options.state / "wishes.json")
        kubelet = options.kubelet_socket
        manager = PluginManager(options.device_plugins, root, log, kubelet_socket=kubelet, wish=wish)
        rules = rules_from(os.environ, Rules(quiet_seconds=options.quiet_seconds))
        process = PluginProcess(
            backend,
            root,
            config,
            manager,
            HealthBook(rules, time.monotonic),
            state=options.state,
            cdi=CdiWriter(options.cdi_folder, root, log, without_hooks=options.cdi_disable_hooks),
            log=log,
            timing=Timing(reading_seconds=options.reading_seconds),
            time_slice=options.time_slice,
        )
        process.run(stop)
    except WindlassError as error:
        log(f"error: {error}")
        return error.exit_code
    backend.close()
    return 0


def run_beside(options: AgentOptions) -> int:
    """The process beside the plugin."""
    from windlass.node.beside import Beside, BesideOptions

    log = log_to_stderr("beside")
    stop = _stop_on_signal()
    try:
        config = make_config(options, log)
        backend = wait_for_driver(options, config.config.fail_on_init_error, log, stop)
        if backend is None:
            return 0
        choices = BesideOptions(
            parts=options.parts,
            interval=options.interval,
            mig_config=options.mig_config,
            state=options.state,
        )
        parts = _beside_parts(options, backend, config, log)
        beside = Beside(backend, HostRoot(options.root), config, choices, parts, log)
        beside.run(stop)
    except WindlassError as error:
        log(f"error: {error}")
        return error.exit_code
    backend.close()
    return 0


def _beside_parts(
    options: AgentOptions, backend: DeviceBackend, config: Any, log: Callable[[str], None]
) -> BesideParts:
    from windlass.node.beside import BesideParts
    from windlass.node.exporter.pods import PodResources
    from windlass.node.exporter.server import MetricsServer

    api, pods = _make_api(options), PodResources(options.pod_resources)
    exporter = metrics = None
    if "exporter" in options.parts:
        exporter = _make_exporter(options, backend, pods, log)
        address, _, port = options.listen.rpartition(":")
        metrics = MetricsServer(exporter, address, int(port))
    sink = _make_label_sink(options, config, api) if "labels" in options.parts else None
    return BesideParts(api=api, pods=pods, exporter=exporter, metrics=metrics, sink=sink)


def _make_exporter(
    options: AgentOptions, backend: DeviceBackend, pods: PodResources, log: Callable[[str], None]
) -> Exporter:
    from windlass.node.exporter.server import Exporter

    return Exporter(
        backend,
        read_counters_file(options.counters, log),
        hostname=options.node,
        root=HostRoot(options.root),
        pods=pods,
        journal=options.state / "health.json",
        hostname_label=options.hostname_label,
    )


def _make_label_sink(options: AgentOptions, config: Any, api: NodeApi | None) -> LabelSink:
    from windlass.node.labels.sinks import make_sink

    kind = options.label_sink if api is not None else "file"
    if kind == "node-feature" and not config.config.use_node_feature_api:
        kind = "file"
    file = Path(config.config.output_file)
    target = file if options.root == Path("/") else HostRoot(options.root).path(str(file))
    pod = os.environ.get("POD_NAME", "")
    return make_sink(kind, file=target, api=api, namespace=options.namespace, pod=pod)


def _make_api(options: AgentOptions) -> NodeApi | None:
    if options.without_api:
        return None
    from windlass.kube.access import find_access
    from windlass.node.node_api import NodeApi

    return NodeApi(find_access(options.kubeconfig), options.node)


def _can_reach_api(options: AgentOptions) -> bool:
    from windlass.kube.access import find_access

    try:
        return not options.without_api and bool(find_access(options.kubeconfig))
    except WindlassError:
        return False


def read_counters_file(path: Path | None, log: Callable[[str], None] = lambda line: None) -> Any:
    from windlass.node.exporter.counters import default_counters, read_counters

    named = path or os.environ.get("DCGM_EXPORTER_COLLECTORS")
    if not named:
        return default_counters()
    try:
        text = Path(named).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"can't be read: {error}", file=str(named)) from None
    counters, left_out = read_counters(text, str(named))
    if left_out:
        log(f"not measured here and left out: {', '.join(left_out)}")
    return counters


def wait_for_driver(
    options: AgentOptions, must: bool, log: Callable[[str], None], stop: threading.Event
) -> DeviceBackend | None:
    """The back end; with `failOnInitError: false` a node without a driver is waited on instead of failed."""
    while not stop.is_set():
        try:
            return make_backend(options)
        except DeviceError as error:
            if must:
                raise
            log(f"{error}; trying again in {RETRY_SECONDS:g} s")
            stop.wait(RETRY_SECONDS)
    return None


def _stop_on_signal() -> threading.Event:
    """Set by TERM and INT, and when the supervisor is gone: an orphan would keep the port from the next agent."""
    stop = threading.Event()
    parent = os.getppid()

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    def watch_parent() -> None:
        while not stop.wait(PARENT_SECONDS):
            if os.getppid() != parent:
                stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    threading.Thread(target=watch_parent, daemon=True, name="parent").start()
    return stop


def commands(options: AgentOptions) -> dict[str, list[str]]:
    """The processes that the chosen parts need, as the supervisor starts them."""
    encoded = msgspec.json.encode(options, enc_hook=str).decode()
    names = ["plugin"] if "plugin" in options.parts else []
    # Also the plugin alone has somebody beside it who reads the node's labels and tells of its health.
    if options.parts & set(BESIDE) or _can_reach_api(options):
        names.append("beside")
    # Without docstrings (-OO) each process is a megabyte and a half smaller.
    return {name: [sys.executable, "-OO", "-m", "windlass.node.child", name, encoded] for name in names}


def decode_options(text: str) -> AgentOptions:
    return msgspec.json.decode(text, type=AgentOptions, dec_hook=lambda kind, value: kind(value))
