"""Watches a machine's GPUs: waits for driver faults, reads counters, runs the validator on GPUs that could recover.

Feeds a `HealthTracker`. The device plugin's process and `windlass up --gpus real` own one each, call `poll` once
per round and read the result from the tracker. One thread waits for faults, another runs the validator, which may
take seconds; only `poll` changes the tracker.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

import msgspec

from windlass.node.backend.protocol import DeviceBackend, DeviceError, Fault
from windlass.node.health import HealthTracker
from windlass.node.host_root import HostRoot
from windlass.node.validator.checks import Validation, validate
from windlass.node.validator.validated_gpus import ValidatedGpus
from windlass.sharing.inventory import Gpu, Inventory

Log = Callable[[str], None]
FAULT_SECONDS = 1.0
"""How long one wait for faults lasts, and so how long the thread may take to stop."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    round_seconds: float = 0.5
    reading_seconds: float = 5.0
    validation_retry_seconds: float = 15.0


class HealthWatch:
    def __init__(
        self,
        backend: DeviceBackend,
        root: HostRoot,
        tracker: HealthTracker,
        *,
        log: Log,
        wake: Callable[[], None],
        timing: Timing | None = None,
        validated: ValidatedGpus | None = None,
    ) -> None:
        """`wake` is called from other threads. Without `validated`, all GPUs count as validated at the start."""
        self._backend, self._root, self._tracker = backend, root, tracker
        self._log, self._wake, self._validated = log, wake, validated
        self._timing = timing or Timing()
        self._faults: queue.SimpleQueue[Fault] = queue.SimpleQueue()
        self._validations: queue.SimpleQueue[tuple[str, Validation]] = queue.SimpleQueue()
        self._validating = threading.Event()
        self._next_validation = 0.0
        self._next_reading = 0.0
        self._seen: set[str] = set()
        self._waiter: threading.Thread | None = None

    def start(self, stop: threading.Event) -> None:
        """Starts the thread that waits for faults until `stop` is set."""
        watch = self._wait_for_faults
        self._waiter = threading.Thread(target=watch, args=(stop,), daemon=True, name="faults")
        self._waiter.start()

    def join(self, seconds: float) -> bool:
        """Waits for the fault thread to leave the driver; False if that takes longer than `seconds`."""
        if self._waiter is not None:
            self._waiter.join(seconds)
        return self._waiter is None or not self._waiter.is_alive()

    def poll(self, inventory: Inventory) -> None:
        """One round: GPUs that appeared or vanished, faults, counters, validator results."""
        for gpu in inventory.gpus:
            if gpu.uuid not in self._seen:
                self._seen.add(gpu.uuid)
                if self._validated is not None and not self._validated.has_passed(gpu.uuid):
                    self._tracker.require_validation(gpu.uuid, "the validator has not passed on this boot")
        self._tracker.on_inventory(inventory)
        faults = []
        while not self._faults.empty():
            faults.append(self._faults.get())
        self._tracker.on_faults(faults, inventory)
        now = time.monotonic()
        if now >= self._next_reading:
            self._next_reading = now + self._timing.reading_seconds
            for gpu in inventory.gpus:
                self._tracker.on_reading(gpu, self._backend.reading(gpu.uuid))
        self._validate(inventory)

    def _validate(self, inventory: Inventory) -> None:
        """Records validator results, and starts the validator for GPUs that it could make healthy."""
        while not self._validations.empty():
            uuid, outcome = self._validations.get()
            gpu = inventory.gpu(uuid)
            if gpu is not None:
                self._record_validation(gpu, outcome)
        waiting = [gpu for gpu in inventory.gpus if self._tracker.is_ready_for_validation(gpu)]
        if not waiting or self._validating.is_set() or time.monotonic() < self._next_validation:
            return
        self._validating.set()
        threading.Thread(target=self._run_validator, args=(waiting,), daemon=True, name="validator").start()

    def _record_validation(self, gpu: Gpu, outcome: Validation) -> None:
        failures = [f"{check.name}: {check.evidence}" for check in outcome.failures(gpu.index)]
        self._tracker.on_validated(gpu, failures)
        if self._validated is not None:
            (self._validated.mark_failed if failures else self._validated.mark_passed)(gpu.uuid)

    def _run_validator(self, gpus: list[Gpu]) -> None:
        wanted = {gpu.uuid for gpu in gpus} | {instance.uuid for gpu in gpus for instance in gpu.instances}
        try:
            # Healthy GPUs may be busy: run the compute check only on those that wait for a result.
            outcome = validate(self._backend, self._root, self._backend.compute, only=frozenset(wanted))
            for gpu in gpus:
                self._validations.put((gpu.uuid, outcome))
        except DeviceError as error:
            self._log(f"the validator could not run: {error}")
        finally:
            self._next_validation = time.monotonic() + self._timing.validation_retry_seconds
            self._validating.clear()
            self._wake()

    def _wait_for_faults(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                faults = self._backend.wait_for_faults(FAULT_SECONDS)
            except DeviceError as error:
                self._log(f"{error}")
                stop.wait(5.0)
                continue
            for fault in faults:
                self._faults.put(fault)
            if faults:
                self._wake()
