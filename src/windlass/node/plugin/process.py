"""The plugin process: reads hardware, health and configuration, and updates the kubelet.

`agent.run_plugin` runs it. One loop, woken by faults and otherwise twice a second; threads of `health_watch` wait
for the driver and the validator. Only the loop changes state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.node.agent_parts import DEPLOY_LABELS, PLUGIN_OFF_FILE, PLUGIN_READY_FILE
from windlass.node.backend.protocol import DeviceBackend, DeviceError, DriverChanged
from windlass.node.cdi_writer import CdiWriter
from windlass.node.config_source import ConfigSource
from windlass.node.container_runtime import CONTAINER_GPUS_FILE, RuntimeWatch, find_container_runtime
from windlass.node.device_cordon import CORDON_REASON, RELEASE, DeviceCordon
from windlass.node.health import HealthTracker
from windlass.node.health_journal import HealthJournal, read_journal, write_journal
from windlass.node.health_watch import HealthWatch, Timing
from windlass.node.host_root import HostRoot
from windlass.node.named_configs import write_state_file
from windlass.node.operator_requests import HELD_REASON, read_held
from windlass.node.plugin.manager import PluginManager
from windlass.node.plugin.sharing_setup import SharingSetup
from windlass.node.process_memory import freeze_and_trim_memory
from windlass.node.validator.validated_gpus import ValidatedGpus
from windlass.sharing.inventory import Inventory
from windlass.sharing.plugin_config import PluginConfig

if TYPE_CHECKING:
    from windlass.node.exporter.collection_context import DeviceHolder

Log = Callable[[str], None]
MEMORY_TRIM_ROUND = 10
"""After this round everything has started: servers, validator, the kubelet's streams."""


class PluginProcess:
    def __init__(
        self,
        backend: DeviceBackend,
        root: HostRoot,
        config: ConfigSource,
        manager: PluginManager,
        tracker: HealthTracker,
        *,
        state: Path,
        cdi: CdiWriter,
        log: Log,
        timing: Timing | None = None,
        time_slice: str = "",
        runtime: RuntimeWatch | None = None,
        pod_resources: Path | None = None,
    ) -> None:
        self.backend, self.root, self.config = backend, root, config
        self.manager, self.tracker, self.timing = manager, tracker, timing or Timing()
        self._cdi, self._log = cdi, log
        self._runtime = runtime or RuntimeWatch(lambda: find_container_runtime(root), log)
        cgroups = root.host_file("/sys/fs/cgroup")
        host = root.host_file("/") if root.root == Path("/") and not root.is_this_process else None
        holders = partial(_holders_of_gpus, pod_resources)
        self._sharing = SharingSetup(backend, log, interval=time_slice, cgroups=cgroups, host=host, holders=holders)
        self._is_sharing = False
        """Whether there may be an MPS daemon."""
        self._journal_path = state / "health.json"
        self._off_file = state / PLUGIN_OFF_FILE
        self._ready_file, self._is_ready = state / PLUGIN_READY_FILE, False
        self._instances: set[str] | None = None
        """UUIDs of the MIG devices in the last round; None before the first."""
        self._way_file, self._way = state / CONTAINER_GPUS_FILE, ""
        self._cordon = DeviceCordon(state)
        self._release = DeviceCordon(state, RELEASE)
        self._journal: HealthJournal = read_journal(self._journal_path)
        self._wake = threading.Event()
        gate = ValidatedGpus(state / "validated.json", root.boot_id())
        self._watch = HealthWatch(
            backend, root, tracker, log=log, wake=self._wake.set, timing=self.timing, validated=gate
        )
        self._was_disabled: bool | None = None
        """Whether a label disabled the plugin in the last round; None before the first."""

    def run(self, stop: threading.Event) -> None:
        """Runs until `stop` is set; while the driver is gone, errors are logged and the loop goes on."""
        self._watch.start(stop)
        freeze_and_trim_memory()
        rounds = 0
        while not stop.is_set():
            try:
                self.sync()
            except DriverChanged:
                self.manager.stop()
                raise
            except DeviceError as error:
                self._log(f"{error}")
            rounds += 1
            if rounds == MEMORY_TRIM_ROUND:
                freeze_and_trim_memory()
            self._wake.wait(self.timing.round_seconds)
            self._wake.clear()
        self._set_ready(False)
        self.manager.stop()
        self._sharing.stop()

    def sync(self) -> None:
        """One round."""
        config = self.config.reload_if_changed()
        if not self._holds_driver():
            return
        inventory = self._read_inventory()
        # First: a plugin that is refused must write nothing, such as a CDI spec under the same name.
        self._enable(inventory, config)
        config, strategy_problem = self._runtime.apply(config)
        self._watch.poll(inventory)
        self._record_changes()
        self._cdi.sync(inventory, config)
        self._describe_way()
        problem = strategy_problem or self._cdi.problem
        cordon = self._cordon.requested()
        resources = self.manager.advertised_resources(inventory, config)
        self._is_sharing = True
        unshared = self._sharing.sync(inventory, config, resources, cordon.uuids if cordon is not None else frozenset())
        cordoned = dict.fromkeys(read_held(self._journal_path.parent), HELD_REASON)
        cordoned |= dict.fromkeys(cordon.uuids if cordon is not None else (), CORDON_REASON)
        unreachable = {gpu.uuid: problem for gpu in inventory.gpus if problem}
        self.manager.sync(inventory, config, {**unreachable, **cordoned, **unshared, **self.tracker.unhealthy()})
        self._cordon.acknowledge(cordon)
        self._set_ready(self.manager.is_registered)

    def _read_inventory(self) -> Inventory:
        """The driver's library remembers what an instance was by its number, and the sidecar gives numbers to others:
        it is opened again for new ones."""
        inventory = self.backend.inventory()
        instances = {instance.uuid for gpu in inventory.gpus for instance in gpu.instances}
        if self._instances is not None and not instances <= self._instances:
            self.backend.release()
            self.backend.acquire()
            inventory = self.backend.inventory()
        self._instances = instances
        return inventory

    def _set_ready(self, is_ready: bool) -> None:
        """For the pod's readiness probe: a rollout goes on once the kubelet has this node's devices again."""
        if is_ready == self._is_ready:
            return
        try:
            if is_ready:
                self._ready_file.parent.mkdir(parents=True, exist_ok=True)
                self._ready_file.touch()
            else:
                self._ready_file.unlink(missing_ok=True)
        except OSError as error:
            self._log(f"{self._ready_file} can't be written: {error}")
        self._is_ready = is_ready

    def _describe_way(self) -> None:
        """For the sidecar, which tells the cluster."""
        way = self._cdi.problem or "; ".join(filter(None, (self._runtime.described, self._cdi.described)))
        if way != self._way:
            try:
                write_state_file(self._way_file, way)
            except OSError as error:
                self._log(f"{self._way_file} can't be written: {error}")
            self._way = way

    def wake(self) -> None:
        self._wake.set()

    def _record_changes(self) -> None:
        changes = self.tracker.drain_changes()
        unhealthy = self.tracker.unhealthy()
        for change in changes:
            self._journal.add(change)
            remedy = f" ({change.action})" if change.action else ""
            health = "healthy" if change.healthy else "unhealthy"
            self._log(f"{change.uuid}: {health}: {change.reason}{remedy}")
        if changes or unhealthy != self._journal.unhealthy:
            self._journal.unhealthy, self._journal.ailments = unhealthy, self.tracker.problem_kinds()
            self._journal.actions = self.tracker.actions()
            self._write_journal()

    def _write_journal(self) -> None:
        """A full disk must not keep a fault from the kubelet."""
        try:
            write_journal(self._journal_path, self._journal)
        except OSError as error:
            self._log(f"health.json can't be written, so events and metrics miss this change: {error}")

    def _holds_driver(self) -> bool:
        """Opens the driver, or closes it while a label disables the plugin or a GPU is reset.

        The sidecar reads the node's deploy labels and creates a file while the plugin is disabled.
        """
        disabled, request = self._off_file.exists(), self._release.requested()
        if disabled and not self._was_disabled:
            self._log(f"disabled by the node's label {DEPLOY_LABELS['plugin']}: nothing is advertised")
            self.manager.withdraw()
            self._was_disabled = True
            self._set_ready(True)
        if disabled and self._is_sharing:
            self._is_sharing = not self._sharing.stop()
        # Not before the last MPS daemon has gone, whose server holds the driver too: GPUs get their default mode then.
        if (disabled and not self._is_sharing) or request is not None:
            self.backend.release()
        else:
            self.backend.acquire()
        self._release.acknowledge(request)
        return not disabled and request is None

    def _enable(self, inventory: Inventory, config: PluginConfig) -> None:
        """Before the first round, and before the first after a label disabled the plugin."""
        if self._was_disabled is not False:
            self.manager.refuse_conflicting_plugin(inventory, config)
            if self._was_disabled:
                self._log("enabled again by the node's label")
        self._was_disabled = False


def _holders_of_gpus(pod_resources: Path | None) -> dict[str, list[DeviceHolder]]:
    """Containers by UUID of what they hold; none where there is no kubelet."""
    from windlass.node.exporter.pod_resources import PodResources  # for the end alone

    return PodResources(pod_resources).holders_or_raise() if pod_resources and pod_resources.exists() else {}
