"""The plugin process: hardware, health and configuration in; the kubelet told.

One loop, woken by faults as they come and otherwise twice a second, and two helpers beside it: a thread that waits for
the driver's faults, and one that runs the validator, which may take seconds. Only the loop changes anything.
"""

from __future__ import annotations

import gc
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from windlass.node.backend.protocol import DeviceBackend, DeviceError, Fault
from windlass.node.cdi_writer import CdiWriter
from windlass.node.config_source import ConfigSource
from windlass.node.health import HealthBook
from windlass.node.journal import Journal, read_journal, write_journal
from windlass.node.owners import DEPLOY_LABELS, SWITCH
from windlass.node.plugin.manager import PluginManager
from windlass.node.plugin.sharing_setup import SharingSetup
from windlass.node.root import HostRoot
from windlass.node.validator.checks import Validation, validate
from windlass.node.validator.gate import Gate
from windlass.sharing.inventory import Gpu, Inventory
from windlass.sharing.plugin_config import PluginConfig

Log = Callable[[str], None]


def spare_the_collector() -> None:
    """What was loaded so far stays for good: looking through it again would hold up an answer for milliseconds."""
    gc.collect()
    gc.freeze()


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    round_seconds: float = 0.5
    reading_seconds: float = 5.0
    validation_retry_seconds: float = 15.0


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
        self._journal: Journal = read_journal(self._journal_path)
        self._gate = Gate(state / "validated.json", root.boot_id())
        self._wake = threading.Event()
        self._faults: queue.SimpleQueue[Fault] = queue.SimpleQueue()
        self._validations: queue.SimpleQueue[tuple[str, Validation]] = queue.SimpleQueue()
        self._validating = threading.Event()
        self._next_validation = 0.0
        self._next_reading = 0.0
        self._seen: set[str] = set()
        self._is_off: bool | None = None
        """Whether a label keeps the plugin off; None before the first look."""

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set; a driver that goes away is waited for."""
        threading.Thread(target=self._wait_for_faults, args=(stop,), daemon=True, name="faults").start()
        spare_the_collector()
        while not stop.is_set():
            try:
                self.round()
            except DeviceError as error:
                self._log(f"{error}")
            self._wake.wait(self.timing.round_seconds)
            self._wake.clear()
        self.manager.stop()
        self._sharing.stop()

    def round(self) -> None:
        """One look at everything."""
        config = self.config.follow()
        inventory = self.backend.inventory()
        self._look(inventory)
        self._validate(inventory)
        self._tell()
        self._cdi.follow(inventory, config)
        if self._switched_off(inventory, config):
            return
        unshared = self._sharing.follow(inventory, config, self.manager.plan(inventory, config))
        self.manager.step(inventory, config, {**unshared, **self.book.unhealthy()})

    def wake(self) -> None:
        self._wake.set()

    def _look(self, inventory: Inventory) -> None:
        for gpu in inventory.gpus:
            if gpu.uuid not in self._seen:
                self._seen.add(gpu.uuid)
                if not self._gate.is_open(gpu.uuid):
                    self.book.ask_again(gpu.uuid, "the validator has not passed on this boot")
        self.book.on_inventory(inventory)
        faults = []
        while not self._faults.empty():
            faults.append(self._faults.get())
        self.book.on_faults(faults, inventory)
        now = time.monotonic()
        if now >= self._next_reading:
            self._next_reading = now + self.timing.reading_seconds
            for gpu in inventory.gpus:
                self.book.on_reading(gpu, self.backend.reading(gpu.uuid))

    def _validate(self, inventory: Inventory) -> None:
        """Takes the validator's answers in, and asks it about what it could bring back."""
        while not self._validations.empty():
            uuid, outcome = self._validations.get()
            gpu = inventory.gpu(uuid)
            if gpu is not None:
                self._take_in(gpu, outcome)
        waiting = [gpu for gpu in inventory.gpus if self.book.wants_validation(gpu)]
        if not waiting or self._validating.is_set() or time.monotonic() < self._next_validation:
            return
        self._validating.set()
        threading.Thread(target=self._run_validator, args=(waiting,), daemon=True, name="validator").start()

    def _take_in(self, gpu: Gpu, outcome: Validation) -> None:
        failures = [f"{check.name}: {check.evidence}" for check in outcome.failures(gpu.index)]
        self.book.on_validated(gpu, failures)
        if failures:
            self._gate.close(gpu.uuid)
        else:
            self._gate.open(gpu.uuid)

    def _run_validator(self, gpus: list[Gpu]) -> None:
        wanted = {gpu.uuid for gpu in gpus} | {each.uuid for gpu in gpus for each in gpu.instances}
        try:
            # A healthy neighbour may be hard at work: only what waits for its verdict is made to compute.
            outcome = validate(self.backend, self.root, self.backend.compute, only=frozenset(wanted))
            for gpu in gpus:
                self._validations.put((gpu.uuid, outcome))
        except DeviceError as error:
            self._log(f"the validator could not run: {error}")
        finally:
            self._next_validation = time.monotonic() + self.timing.validation_retry_seconds
            self._validating.clear()
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
            write_journal(self._journal_path, self._journal)

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

    def _wait_for_faults(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                faults = self.backend.wait_for_faults(1.0)
            except DeviceError as error:
                self._log(f"{error}")
                stop.wait(5.0)
                continue
            for fault in faults:
                self._faults.put(fault)
            if faults:
                self._wake.set()
