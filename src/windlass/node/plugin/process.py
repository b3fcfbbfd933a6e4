"""The plugin process: hardware, health and configuration in; the kubelet told.

One loop, woken by faults as they come and otherwise twice a second; `health_watch` has threads beside it that wait for
the driver and for the validator. Only the loop changes anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from windlass.node.backend.protocol import DeviceBackend, DeviceError
from windlass.node.cdi_writer import CdiWriter
from windlass.node.config_source import ConfigSource
from windlass.node.health import HealthBook
from windlass.node.health_watch import HealthWatch, Timing
from windlass.node.held_back import REASON, HeldBack
from windlass.node.journal import Journal, read_journal, write_journal
from windlass.node.owners import DEPLOY_LABELS, SWITCH
from windlass.node.plugin.manager import PluginManager
from windlass.node.plugin.sharing_setup import SharingSetup
from windlass.node.root import HostRoot
from windlass.node.settle import settle
from windlass.node.validator.gate import Gate
from windlass.sharing.inventory import Inventory
from windlass.sharing.plugin_config import PluginConfig

Log = Callable[[str], None]
SETTLED_ROUNDS = 10
"""After so many everything that comes up has come up: servers, validator, the kubelet's streams."""


class PluginProcess:
    def __init__(
        self,
        backend: DeviceBackend,
        root: HostRoot,
        config: ConfigSource,
        manager: PluginManager,
        book: HealthBook,
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
        self.book = book
        self.timing = timing or Timing()
        self._cdi = cdi
        self._sharing = SharingSetup(backend, log, interval=time_slice)
        self._log = log
        self._journal_path = state / "health.json"
        self._switch = state / SWITCH
        self._held_back = HeldBack(state)
        self._journal: Journal = read_journal(self._journal_path)
        self._wake = threading.Event()
        gate = Gate(state / "validated.json", root.boot_id())
        self._watch = HealthWatch(
            backend, root, book, log=log, wake=self._wake.set, timing=self.timing, gate=gate
        )
        self._is_off: bool | None = None
        """Whether a label keeps the plugin off; None before the first look."""

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set; a driver that goes away is waited for."""
        self._watch.start(stop)
        settle()
        rounds = 0
        while not stop.is_set():
            try:
                self.round()
            except DeviceError as error:
                self._log(f"{error}")
            rounds += 1
            if rounds == SETTLED_ROUNDS:
                settle()
            self._wake.wait(self.timing.round_seconds)
            self._wake.clear()
        self.manager.stop()
        self._sharing.stop()

    def round(self) -> None:
        """One look at everything."""
        config = self.config.follow()
        inventory = self.backend.inventory()
        # First of all: who is refused or switched off leaves no trace, such as a CDI spec under the other's name.
        is_off = self._switched_off(inventory, config)
        self._watch.look(inventory)
        self._tell()
        if is_off:
            return
        self._cdi.follow(inventory, config)
        unshared = self._sharing.follow(inventory, config, self.manager.plan(inventory, config))
        word = self._held_back.asked()
        held = dict.fromkeys(word.uuids if word is not None else (), REASON)
        self.manager.step(inventory, config, {**held, **unshared, **self.book.unhealthy()})
        self._held_back.tell(word)

    def wake(self) -> None:
        self._wake.set()

    def _tell(self) -> None:
        changes = self.book.changes()
        unhealthy = self.book.unhealthy()
        for change in changes:
            self._journal.add(change)
            todo = f" ({change.action})" if change.action else ""
            self._log(f"{change.uuid}: {'healthy' if change.healthy else 'unhealthy'}: {change.reason}{todo}")
        if changes or unhealthy != self._journal.unhealthy:
            self._journal.unhealthy, self._journal.ailments = unhealthy, self.book.kinds()
            self._journal.actions = self.book.actions()
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
            self.manager.refuse_second_owner(inventory, config)
            if before:
                self._log("switched on again by the node's label")
        self._is_off = off
        return off
