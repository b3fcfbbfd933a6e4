"""The health of this machine's GPUs: turns driver reports into the node's status and failed pods.

`nodes` creates it. The node agent's `HealthWatch` and `HealthTracker` decide in a thread of their own what is
unhealthy, since a driver with problems may not answer for seconds. `GpuHealth`, a controller on the controllers'
loop, applies the result: an unhealthy GPU is not allocatable, and pods on a broken one (fatal Xid, double-bit ECC
error, GPU off the bus) fail. Pods on a GPU that is only slow or badly connected go on. A GPU is allocatable again
when the driver asks for no action and a computation on it succeeds.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from windlass.embedded.controllers.controller_loop import ControllerLoop
from windlass.embedded.runtime.device_health import HEALTHY, UNHEALTHY, XID, DeviceHealth, fault_message
from windlass.embedded.runtime.device_manager import DeviceFault, DeviceManager
from windlass.model.unstructured import Unstructured
from windlass.node.backend.protocol import DeviceBackend, DeviceError
from windlass.node.health import HealthChange, HealthTracker
from windlass.node.health_rules import HealthRules
from windlass.node.health_watch import HealthWatch, Timing
from windlass.node.host_root import HostRoot
from windlass.sharing.inventory import Inventory

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
"""Polling interval without faults; a fault is handled at once."""
STOP_TIMEOUT_SECONDS = 5.0
FATAL_REASON_PREFIXES = ("xid-", "lost", "ecc")
"""Prefixes of problem kinds with which a pod can't continue."""


@dataclass(frozen=True)
class HealthFindings:
    """The tracker's result, by UUID."""

    unhealthy: dict[str, str] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()


class GpuHealth:
    """A controller whose only key is the node's name."""

    name = "gpu-health"
    resources: Sequence[str] = ()

    def __init__(
        self,
        device_manager: DeviceManager,
        backend: DeviceBackend,
        health: DeviceHealth,
        *,
        rules: HealthRules | None = None,
        timing: Timing | None = None,
    ) -> None:
        self._device_manager, self._backend, self._health = device_manager, backend, health
        self._timing = timing or Timing(round_seconds=POLL_SECONDS)
        self._tracker = HealthTracker(rules or HealthRules(), time.monotonic)
        self._stop, self._wake = threading.Event(), threading.Event()
        self._watch = HealthWatch(
            backend, HostRoot(), self._tracker, log=self._log_once, wake=self._wake.set, timing=self._timing
        )
        self._thread = threading.Thread(target=self._run, daemon=True, name="gpu-health")
        self._last_logged = ""
        self._findings = HealthFindings()
        self._changes: deque[HealthChange] = deque()

    def start(self, loop: ControllerLoop) -> None:
        """Starts watching; findings reach the controllers' loop through the running event loop."""
        event_loop = asyncio.get_running_loop()

        def receive(findings: HealthFindings, changes: Sequence[HealthChange]) -> None:
            self._findings = findings
            self._changes.extend(changes)
            loop.enqueue(self, self._device_manager.name)

        def publish(findings: HealthFindings, changes: Sequence[HealthChange]) -> None:
            if not self._stop.is_set():
                event_loop.call_soon_threadsafe(receive, findings, changes)

        self._publish = publish
        self._watch.start(self._stop)
        self._thread.start()

    def close(self) -> bool:
        """Stops watching; False if the driver does not answer, and so must not be closed while threads wait in it."""
        self._stop.set()
        self._wake.set()
        if self._thread.ident is None:
            return True
        self._thread.join(STOP_TIMEOUT_SECONDS)
        return self._watch.join(STOP_TIMEOUT_SECONDS) and not self._thread.is_alive()

    def keys_for(self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None) -> Iterator[str]:
        yield from ()

    def sync(self, key: str, now: float) -> float | None:
        """Applies the findings to the cluster."""
        machine, findings = self._device_manager, self._findings
        gpu_faults, mig_faults = self._device_faults(findings)
        if (gpu_faults, mig_faults) != (machine.unhealthy, machine.unhealthy_mig_instances):
            machine.unhealthy, machine.unhealthy_mig_instances = gpu_faults, mig_faults
            self._health.update_node_status(key, now)
        while self._changes:
            self._record_change(key, self._changes[0], now)
            self._changes.popleft()
        for uuid in sorted(findings.broken & findings.unhealthy.keys()):
            index = machine.index_of(uuid)
            if index is not None:
                message = fault_message(machine, index, DeviceFault(0, findings.unhealthy[uuid]), uuid)
                self._health.fail_pods(machine, index if uuid in machine.uuids else uuid, message, now)
        return None

    def _device_faults(self, findings: HealthFindings) -> tuple[dict[int, DeviceFault], dict[str, DeviceFault]]:
        """Faults of GPUs by index, of MIG instances by UUID."""
        gpu_faults: dict[int, DeviceFault] = {}
        mig_faults: dict[str, DeviceFault] = {}
        for uuid, reason in findings.unhealthy.items():
            index = self._device_manager.index_of(uuid)
            if index is not None and uuid in self._device_manager.uuids:
                gpu_faults[index] = DeviceFault(0, reason)
            elif index is not None:
                mig_faults[uuid] = DeviceFault(0, reason)
        return gpu_faults, mig_faults

    def _record_change(self, node: str, change: HealthChange, now: float) -> None:
        index = self._device_manager.index_of(change.uuid)
        if index is None:
            return
        todo = f"; {change.action}" if change.action else ""
        message = fault_message(self._device_manager, index, DeviceFault(0, f"{change.reason}{todo}"), change.uuid)
        is_harmless_xid = change.healthy and change.reason.startswith("Xid ")
        reason = XID if is_harmless_xid else HEALTHY if change.healthy else UNHEALTHY
        self._health.record_event(node, reason, message, now)

    def _run(self) -> None:
        """The watching thread; does not touch the cluster."""
        while not self._stop.is_set():
            try:
                self._poll(self._backend.inventory())
            except DeviceError as error:
                self._log_once(str(error))
            self._wake.wait(self._timing.round_seconds)
            self._wake.clear()

    def _poll(self, inventory: Inventory) -> None:
        self._watch.poll(inventory)
        changes = self._tracker.drain_changes()
        if changes:
            kinds = self._tracker.problem_kinds()
            broken = {
                uuid for uuid, found in kinds.items() if any(kind.startswith(FATAL_REASON_PREFIXES) for kind in found)
            }
            self._publish(HealthFindings(self._tracker.unhealthy(), frozenset(broken)), changes)

    def _log_once(self, problem: str) -> None:
        """Logs a repeated problem once."""
        if problem != self._last_logged:
            self._last_logged = problem
            log.warning("watching the GPUs: %s", problem)
