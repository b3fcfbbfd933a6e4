"""Watches a machine's GPUs: waits for the driver's faults, reads counters, lets the validator bring a GPU back.

Feeds a `HealthTracker`. The device plugin's process and `windlass up --gpus real` each have one, call `look` once per
round, and read from the book what came of it. Two helpers run beside them: a thread that waits for faults, and one that
runs the validator, which may take seconds. Only `look` changes the book.
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
"""How long one wait for faults lasts, and so how long the waiting thread may take to end."""


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
        """`wake` is called from other threads when there is something to look at; `gate` knows which GPUs have passed
        the validator already, and without one all have."""
        self._backend, self._root, self._book = backend, root, tracker
        self._log, self._wake, self._gate = log, wake, validated
        self._timing = timing or Timing()
        self._faults: queue.SimpleQueue[Fault] = queue.SimpleQueue()
        self._validations: queue.SimpleQueue[tuple[str, Validation]] = queue.SimpleQueue()
        self._validating = threading.Event()
        self._next_validation = 0.0
        self._next_reading = 0.0
        self._seen: set[str] = set()
        self._waiter: threading.Thread | None = None

    def start(self, stop: threading.Event) -> None:
        """Wait for faults until `stop` is set."""
        self._waiter = threading.Thread(
            target=self._wait_for_faults, args=(stop,), daemon=True, name="faults"
        )
        self._waiter.start()

    def join(self, seconds: float) -> bool:
        """Until nobody waits in the driver any more; False where that takes longer."""
        if self._waiter is not None:
            self._waiter.join(seconds)
        return self._waiter is None or not self._waiter.is_alive()

    def poll(self, inventory: Inventory) -> None:
        """One look at everything: GPUs that came and went, faults, counters, the validator's answers."""
        for gpu in inventory.gpus:
            if gpu.uuid not in self._seen:
                self._seen.add(gpu.uuid)
                if self._gate is not None and not self._gate.has_passed(gpu.uuid):
                    self._book.require_validation(gpu.uuid, "the validator has not passed on this boot")
        self._book.on_inventory(inventory)
        faults = []
        while not self._faults.empty():
            faults.append(self._faults.get())
        self._book.on_faults(faults, inventory)
        now = time.monotonic()
        if now >= self._next_reading:
            self._next_reading = now + self._timing.reading_seconds
            for gpu in inventory.gpus:
                self._book.on_reading(gpu, self._backend.reading(gpu.uuid))
        self._validate(inventory)

    def _validate(self, inventory: Inventory) -> None:
        """Takes the validator's answers in, and asks it about what it could bring back."""
        while not self._validations.empty():
            uuid, outcome = self._validations.get()
            gpu = inventory.gpu(uuid)
            if gpu is not None:
                self._take_in(gpu, outcome)
        waiting = [gpu for gpu in inventory.gpus if self._book.is_ready_for_validation(gpu)]
        if not waiting or self._validating.is_set() or time.monotonic() < self._next_validation:
            return
        self._validating.set()
        threading.Thread(target=self._run_validator, args=(waiting,), daemon=True, name="validator").start()

    def _take_in(self, gpu: Gpu, outcome: Validation) -> None:
        failures = [f"{check.name}: {check.evidence}" for check in outcome.failures(gpu.index)]
        self._book.on_validated(gpu, failures)
        if self._gate is not None:
            (self._gate.mark_failed if failures else self._gate.mark_passed)(gpu.uuid)

    def _run_validator(self, gpus: list[Gpu]) -> None:
        wanted = {gpu.uuid for gpu in gpus} | {each.uuid for gpu in gpus for each in gpu.instances}
        try:
            # A healthy neighbour may be hard at work: only what waits for its verdict is made to compute.
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
