"""The plugin process: hardware, health and configuration in; the kubelet told.

One loop, woken by faults as they come and otherwise twice a second; `health_watch` has threads beside it that wait for
the driver and for the validator. Only the loop changes anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from windlass.node.agent_parts import DEPLOY_LABELS, PLUGIN_OFF_FILE
from windlass.node.backend.protocol import DeviceBackend, DeviceError
from windlass.node.cdi_writer import CdiWriter
from windlass.node.config_source import ConfigSource
from windlass.node.device_cordon import CORDON_REASON, DeviceCordon
from windlass.node.health import HealthTracker
from windlass.node.health_journal import HealthJournal, read_journal, write_journal
from windlass.node.health_watch import HealthWatch, Timing
from windlass.node.host_root import HostRoot
from windlass.node.plugin.manager import PluginManager
from windlass.node.plugin.sharing_setup import SharingSetup
from windlass.node.process_memory import freeze_and_trim_memory
from windlass.node.validator.validated_gpus import ValidatedGpus
from windlass.sharing.inventory import Inventory
from windlass.sharing.plugin_config import PluginConfig

Log = Callable[[str], None]
MEMORY_TRIM_ROUND = 10
"""After so many everything that comes up has come up: servers, validator, the kubelet's streams."""


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
    ) -> None:
        self.backend = backend
        self.root = root
        self.config = config
        self.manager = manager
        self.tracker = tracker
        self.timing = timing or Timing()
        self._cdi = cdi
        self._sharing = SharingSetup(backend, log, interval=time_slice)
        self._log = log
        self._journal_path = state / "health.json"
        self._switch = state / PLUGIN_OFF_FILE
        self._held_back = DeviceCordon(state)
        self._journal: HealthJournal = read_journal(self._journal_path)
        self._wake = threading.Event()
        gate = ValidatedGpus(state / "validated.json", root.boot_id())
        self._watch = HealthWatch(
            backend, root, tracker, log=log, wake=self._wake.set, timing=self.timing, validated=gate
        )
        self._is_off: bool | None = None
        """Whether a label keeps the plugin off; None before the first look."""

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set; a driver that goes away is waited for."""
        self._watch.start(stop)
        freeze_and_trim_memory()
        rounds = 0
        while not stop.is_set():
            try:
                self.sync()
            except DeviceError as error:
                self._log(f"{error}")
            rounds += 1
            if rounds == MEMORY_TRIM_ROUND:
                freeze_and_trim_memory()
            self._wake.wait(self.timing.round_seconds)
            self._wake.clear()
        self.manager.stop()
        self._sharing.stop()

    def sync(self) -> None:
        """One look at everything."""
        config = self.config.reload_if_changed()
        inventory = self.backend.inventory()
        # First of all: who is refused or switched off leaves no trace, such as a CDI spec under the other's name.
        is_off = self._switched_off(inventory, config)
        self._watch.poll(inventory)
        self._tell()
        if is_off:
            return
        self._cdi.sync(inventory, config)
        unshared = self._sharing.sync(inventory, config, self.manager.advertised_resources(inventory, config))
        word = self._held_back.requested()
        held = dict.fromkeys(word.uuids if word is not None else (), CORDON_REASON)
        self.manager.sync(inventory, config, {**held, **unshared, **self.tracker.unhealthy()})
        self._held_back.acknowledge(word)

    def wake(self) -> None:
        self._wake.set()

    def _tell(self) -> None:
        changes = self.tracker.drain_changes()
        unhealthy = self.tracker.unhealthy()
        for change in changes:
            self._journal.add(change)
            todo = f" ({change.action})" if change.action else ""
            self._log(f"{change.uuid}: {'healthy' if change.healthy else 'unhealthy'}: {change.reason}{todo}")
        if changes or unhealthy != self._journal.unhealthy:
            self._journal.unhealthy, self._journal.ailments = unhealthy, self.tracker.problem_kinds()
            self._journal.actions = self.tracker.actions()
            self._write_journal()

    def _write_journal(self) -> None:
        """The kubelet hears of a fault also where the disk is full."""
        try:
            write_journal(self._journal_path, self._journal)
        except OSError as error:
            self._log(f"events and metrics don't hear of it: {error}")

    def _switched_off(self, inventory: Inventory, config: PluginConfig) -> bool:
        """The rest of the agent reads the node's deploy labels, and leaves its word in a file."""
        off, before = self._switch.exists(), self._is_off
        if off and not before:
            self._log(f"switched off by the node's label {DEPLOY_LABELS['plugin']}: nothing is advertised")
            self.manager.withdraw()
            self._sharing.stop()
        elif not off and before is not False:
            self.manager.refuse_conflicting_plugin(inventory, config)
            if before:
                self._log("switched on again by the node's label")
        self._is_off = off
        return off
