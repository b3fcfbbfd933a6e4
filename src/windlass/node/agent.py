"""Builds the node agent from its options: the commands of its two processes, and the objects that each process
needs.

`windlass node run` calls `child_commands`; the supervisor starts these commands, and `child` calls `run_plugin` or
`run_sidecar`. Imports are local to the functions that need them, so that the plugin does not load the exporter, nor
the sidecar gRPC.
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
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.model.errors import InputError, WindlassError
from windlass.model.names.nvidia import DEVICE_PLUGIN_CONFIG_LABEL
from windlass.node.agent_parts import PLUGIN_OFF_FILE, PLUGIN_READY_FILE
from windlass.node.backend.protocol import DeviceBackend, DeviceError
from windlass.node.host_root import HostRoot
from windlass.node.named_configs import CONFIG_LABEL_FILE, NAMED, SINGLE, NamedConfigs, write_state_file
from windlass.node.owners import TRUSTED_NAMESPACES
from windlass.node.supervisor import NO_DRIVER, RESTARTED_VARIABLE

if TYPE_CHECKING:
    from windlass.node.exporter.counters_file import CountersFile
    from windlass.node.exporter.exporter import Exporter
    from windlass.node.exporter.pod_resources import PodResources
    from windlass.node.exporter.web_config import WebConfig
    from windlass.node.labels.sinks import LabelSink
    from windlass.node.node_api import NodeApi
    from windlass.node.plugin.process import PluginProcess
    from windlass.node.sidecar import Sidecar, SidecarParts

Log = Callable[[str], None]
SIDECAR_PARTS = ("exporter", "labels", "mig")
RETRY_SECONDS = 30.0
LABEL_RETRY_SECONDS = 2.0
MAX_PORT = 65_535
HOST_ROOT_VARIABLE = "HOST_ROOT"
PARENT_POLL_SECONDS = 1.0
"""How often a child process checks that its supervisor is still alive."""


class NoDriver(DeviceError):
    """`failOnInitError` requires a driver, and there is none."""

    exit_code = NO_DRIVER


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `windlass node run`. Passed to the child processes as JSON."""

    parts: frozenset[str] = frozenset(("plugin", *SIDECAR_PARTS))
    fleet: Path | None = None
    node_name: str = ""
    root: Path = Path("/")
    state: Path = Path("/run/windlass")
    config_file: Path | None = None
    config_file_srcdir: Path | None = None
    default_config: str = ""
    fallback_strategies: tuple[str, ...] = (NAMED, SINGLE)
    node_label: str = DEVICE_PLUGIN_CONFIG_LABEL
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
    trusted_namespaces: tuple[str, ...] = TRUSTED_NAMESPACES
    mig_config: Path | None = None
    counters: Path | None = None
    listen: str = ":9400"
    web_config_file: Path | None = None
    interval: float = 30.0
    quiet_seconds: float = 30.0
    reading_seconds: float = 5.0
    time_slice: str = ""
    hostname_label: str = "Hostname"
    history: Path | None = None
    """Folder for the samples of 30 days; None keeps none."""
    extra_labels: dict[str, str] = {}
    """Settings of dcgm-exporter about labels, by their variables; the environment has the others."""

    @property
    def host(self) -> HostRoot:
        """The host's files: where `HOST_ROOT` says that they are, unless the machine is simulated."""
        folder = os.environ.get(HOST_ROOT_VARIABLE, "")
        is_there = self.root == Path("/") and os.access(folder, os.R_OK | os.X_OK)
        return HostRoot(self.root, files=folder if is_there else None)

    @property
    def node(self) -> str:
        return self.node_name or os.environ.get("NODE_NAME", "") or socket.gethostname()


def log_to_stderr(name: str) -> Log:
    def log(line: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        print(f"{stamp} {name}: {line}", file=sys.stderr, flush=True)

    return log


def make_backend(options: AgentOptions) -> DeviceBackend:
    """NVML, or the simulated back end if a Fleet file is given."""
    if options.fleet is None:
        from windlass.node.backend.nvml import NvmlBackend
        from windlass.node.driver_libraries import use_mounted_driver
        from windlass.node.unsupported import unsupported_machine

        problem = unsupported_machine(options.host)
        if problem:
            raise DeviceError(problem)
        libraries = os.environ.get("LD_LIBRARY_PATH")
        use_mounted_driver(options.host, options.state / "driver")
        if os.environ.get("LD_LIBRARY_PATH") != libraries:
            # The loader reads it when a process starts, and NVML looks for libcuda by its name.
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
        return NvmlBackend(options.host)
    from windlass.node.backend.simulated import SimulatedBackend
    from windlass.node.backend.simulated_fleet import pool_of_node

    pool, number = pool_of_node(options.fleet, options.node_name)
    return SimulatedBackend(pool, number, folder=options.root)


def clear_stale_label_files(options: AgentOptions) -> None:
    """Removes what an earlier agent recorded from node labels, if this agent can't read labels itself."""
    if not _can_reach_api(options):
        for name in (PLUGIN_OFF_FILE, CONFIG_LABEL_FILE):
            (options.state / name).unlink(missing_ok=True)


def make_named_configs(options: AgentOptions) -> NamedConfigs | None:
    """The folder of named configs; None without `--config-file-srcdir`."""
    if options.config_file_srcdir is None:
        return None
    return NamedConfigs(
        options.config_file_srcdir,
        options.state,
        label=options.node_label,
        default=options.default_config,
        fallbacks=options.fallback_strategies,
    )


def wait_for_config_label(options: AgentOptions, log: Log, stop: threading.Event) -> None:
    """Blocks the plugin until the sidecar has read the label that selects the config, once per boot."""
    label_file = options.state / CONFIG_LABEL_FILE
    if options.config_file_srcdir is None or label_file.exists() or not _can_reach_api(options):
        return
    log(f"waiting for the sidecar to read the node's label {options.node_label}")
    while not label_file.exists() and not stop.wait(0.1):
        pass


def fetch_config_label(options: AgentOptions, log: Log, stop: threading.Event) -> None:
    """Reads the node's label, retrying until the API server answers or a value from earlier is on disk."""
    api = _make_api(options) if options.config_file_srcdir is not None else None
    last_error = ""
    while api is not None and not stop.is_set():
        try:
            labels = api.get_node().get("metadata", {}).get("labels") or {}
        except WindlassError as error:
            if str(error) != last_error:
                last_error = str(error)
                log(f"the node's label {options.node_label} can't be read: {last_error}")
            if (options.state / CONFIG_LABEL_FILE).exists() or stop.wait(LABEL_RETRY_SECONDS):
                return
        else:
            write_state_file(options.state / CONFIG_LABEL_FILE, labels.get(options.node_label, ""))
            return


def make_config(options: AgentOptions, log: Log, last_good_copy: Path | None = None) -> Any:
    from windlass.node.config_source import ConfigSource

    file = options.config_file or os.environ.get("CONFIG_FILE")
    return ConfigSource(
        make_named_configs(options) or (Path(file) if file else None),
        os.environ,
        options.flags,
        honor_renames=options.honor_renames,
        log=log,
        last_good_copy=last_good_copy,
        is_restart=RESTARTED_VARIABLE in os.environ,
    )


def run_plugin(options: AgentOptions) -> int:
    """The plugin process. Exit code 2 for wrong input, 1 if another plugin is running, 3 without a required driver."""
    (options.state / PLUGIN_READY_FILE).unlink(missing_ok=True)
    return _run_process("plugin", options, wait_for_config_label, _make_plugin)


def run_sidecar(options: AgentOptions) -> int:
    """The sidecar process: everything but the device plugin."""
    return _run_process("sidecar", options, fetch_config_label, _make_sidecar)


def _run_process(
    name: str,
    options: AgentOptions,
    prepare: Callable[[AgentOptions, Log, threading.Event], None],
    make: Callable[[AgentOptions, DeviceBackend, Any, Log], PluginProcess | Sidecar],
) -> int:
    log, stop = log_to_stderr(name), _stop_on_signal()
    try:
        prepare(options, log, stop)
        config = make_config(options, log, options.state / f"{name}-config.yaml")
        backend = wait_for_driver(options, config.config.fail_on_init_error, log, stop)
        if backend is None:
            return 0
        backend.acquire()
        make(options, backend, config, log).run(stop)
    except WindlassError as error:
        log(f"error: {error}")
        return error.exit_code
    backend.close()
    return 0


def _make_plugin(options: AgentOptions, backend: DeviceBackend, config: Any, log: Log) -> PluginProcess:
    from windlass.node.cdi_writer import CdiWriter
    from windlass.node.health import HealthTracker
    from windlass.node.health_rules import HealthRules, health_rules_from_environment
    from windlass.node.health_watch import Timing
    from windlass.node.plugin.manager import PluginManager
    from windlass.node.plugin.process import PluginProcess
    from windlass.node.preferred_devices import PreferredDevicesFile

    root = options.host
    preferred = PreferredDevicesFile(options.state / "preferred-devices.json")
    folder, kubelet_socket = options.device_plugins, options.kubelet_socket
    manager = PluginManager(folder, root, log, kubelet_socket=kubelet_socket, preferred_devices=preferred)
    rules = health_rules_from_environment(os.environ, HealthRules(quiet_seconds=options.quiet_seconds), log)
    return PluginProcess(
        *(backend, root, config, manager, HealthTracker(rules, time.monotonic)),
        state=options.state,
        cdi=CdiWriter(
            options.cdi_folder, root, log, hook_folder=options.state, without_hooks=options.cdi_disable_hooks
        ),
        log=log,
        timing=Timing(reading_seconds=options.reading_seconds),
        time_slice=options.time_slice,
        pod_resources=options.pod_resources,
    )


def _make_sidecar(options: AgentOptions, backend: DeviceBackend, config: Any, log: Log) -> Sidecar:
    from windlass.node.sidecar import Sidecar, SidecarOptions

    sidecar_options = SidecarOptions(
        parts=options.parts,
        interval=options.interval,
        mig_config=options.mig_config,
        state=options.state,
        config_label=options.node_label if options.config_file_srcdir is not None else "",
        trusted_namespaces=options.trusted_namespaces,
    )
    parts = _make_sidecar_parts(options, backend, config, log)
    return Sidecar(backend, options.host, config, sidecar_options, parts, log)


def _make_sidecar_parts(options: AgentOptions, backend: DeviceBackend, config: Any, log: Log) -> SidecarParts:
    from windlass.node.exporter.metrics_server import MetricsServer
    from windlass.node.exporter.pod_resources import PodResources
    from windlass.node.exporter.resource_slices import ResourceSlices
    from windlass.node.sidecar import SidecarParts

    api = _make_api(options)
    by_claims = (ResourceSlices(api).uuid_of,) if api is not None else ()
    pods = PodResources(options.pod_resources, *by_claims)
    exporter = metrics = None
    if "exporter" in options.parts:
        exporter = _make_exporter(options, backend, pods, log)
        metrics = MetricsServer(exporter, *listen_address(options.listen), make_web_config(options, log))
    sink = make_label_sink(options, config, api) if "labels" in options.parts else None
    return SidecarParts(api=api, pods=pods, exporter=exporter, metrics=metrics, sink=sink)


def make_web_config(options: AgentOptions, log: Log = lambda line: None) -> WebConfig | None:
    if options.web_config_file is None:
        return None
    from windlass.node.exporter.web_config import WebConfig  # imports ssl

    return WebConfig(options.web_config_file, log)


def listen_address(text: str) -> tuple[str, int]:
    """`:9400`, `9400`, `127.0.0.1:9400` or `[::1]:9400` → host and port; an empty host is every address."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdigit() and int(port) <= MAX_PORT) or (colon and host.endswith(":")):
        raise InputError(f"{text[:64]!r} is not an address", path="--listen", remedy="write :9400 or 127.0.0.1:9400")
    return host, int(port)


def _make_exporter(options: AgentOptions, backend: DeviceBackend, pods: PodResources, log: Log) -> Exporter:
    from windlass.node.exporter.exporter import Exporter
    from windlass.node.exporter.extra_labels import extra_labels_from_environment
    from windlass.node.exporter.sample_history import SampleHistory

    history = options.history
    return Exporter(
        backend,
        make_counters_file(options.counters, log).reload_if_changed,
        hostname=options.node,
        root=options.host,
        pods=pods,
        journal=options.state / "health.json",
        hostname_label=options.hostname_label,
        extra_labels=extra_labels_from_environment({**os.environ, **options.extra_labels}, options.host),
        history=SampleHistory(history, options.interval, options.node) if history is not None else None,
    )


def make_label_sink(options: AgentOptions, config: Any, api: NodeApi | None) -> LabelSink:
    from windlass.node.driver_root import seen_here
    from windlass.node.labels.sinks import make_sink

    kind = options.label_sink if api is not None else "file"
    if kind == "node-feature" and not config.config.use_node_feature_api:
        kind = "file"
    file, host = Path(config.config.output_file), options.host
    target = seen_here(host, str(file.parent)) / file.name if options.root == Path("/") else host.path(str(file))
    pod = os.environ.get("POD_NAME", "")
    return make_sink(kind, file=target, api=api, namespace=options.namespace, pod=pod)


def _make_api(options: AgentOptions) -> NodeApi | None:
    if options.without_api:
        return None
    from windlass.kube.client_config import load_client_config
    from windlass.node.node_api import NodeApi

    return NodeApi(load_client_config(options.kubeconfig), options.node, options.namespace)


def _can_reach_api(options: AgentOptions) -> bool:
    from windlass.kube.client_config import load_client_config

    try:
        return not options.without_api and bool(load_client_config(options.kubeconfig))
    except WindlassError:
        return False


def make_counters_file(path: Path | None, log: Log = lambda line: None) -> CountersFile:
    from windlass.node.exporter.counters_file import CountersFile

    named = path or os.environ.get("DCGM_EXPORTER_COLLECTORS")
    return CountersFile(Path(named) if named else None, log)


def wait_for_driver(options: AgentOptions, required: bool, log: Log, stop: threading.Event) -> DeviceBackend | None:
    """Opens the back end. Retries while there is no driver; with `failOnInitError`, raises `NoDriver` instead."""
    while not stop.is_set():
        try:
            return make_backend(options)
        except DeviceError as error:
            problem = f"{error}{_hidden_host(options)}"
            if required:
                raise NoDriver(problem) from None
            log(f"{problem}; trying again in {RETRY_SECONDS:g} s")
            stop.wait(RETRY_SECONDS)
    return None


def _hidden_host(options: AgentOptions) -> str:
    """Why the driver was looked for in this container alone, if it should have been looked for on the host."""
    folder = os.environ.get(HOST_ROOT_VARIABLE, "")
    if not folder or options.fleet is not None or not options.host.is_this_process:
        return ""
    return f"; the host's files were not searched, since {folder} can't be read: install with --mount-host-root"


def _stop_on_signal() -> threading.Event:
    """An event set by TERM, INT, and the supervisor's death: an orphan would keep the next agent's port busy."""
    stop = threading.Event()
    parent = os.getppid()

    def watch_parent() -> None:
        while not stop.wait(PARENT_POLL_SECONDS):
            if os.getppid() != parent:
                stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threading.Thread(target=watch_parent, daemon=True, name="parent").start()
    return stop


def child_commands(options: AgentOptions) -> dict[str, list[str]]:
    """The command of each process that the chosen parts need, by process name."""
    encoded = msgspec.json.encode(options, enc_hook=str).decode()
    names = ["plugin"] if "plugin" in options.parts else []
    # Also an agent with the plugin only gets a sidecar: it reads the node's labels and reports health.
    if options.parts & set(SIDECAR_PARTS) or _can_reach_api(options):
        names.append("sidecar")
    # -OO drops docstrings (1.5 MB per process); -P keeps the working directory off the import path.
    return {name: [sys.executable, "-OO", "-P", "-m", "windlass.node.child", name, encoded] for name in names}


def decode_options(text: str) -> AgentOptions:
    return msgspec.json.decode(text, type=AgentOptions, dec_hook=lambda kind, value: kind(value))
