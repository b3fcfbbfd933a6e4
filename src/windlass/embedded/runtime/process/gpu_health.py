"""The health of this machine's own GPUs: what the driver reports becomes the node's status and its pods' fate.

The node agent's `HealthWatch` and `HealthTracker` decide what is ill, in a thread of their own, since a driver in
trouble may not answer for seconds. `GpuHealth` carries that into the cluster as a worker of the controllers' loop: an
ill GPU is no longer allocatable, and pods on one that is broken (a fatal Xid, a double-bit ECC error, a GPU off the
bus) fail. Pods on one that is only slow or badly connected go on; nobody new gets it. When the driver asks for nothing
any more and a computation on the GPU comes out right, it is given away again.
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
"""Between looks at GPUs that report nothing; a fault is looked at at once."""
STOP_TIMEOUT_SECONDS = 5.0
FATAL_REASON_PREFIXES = ("xid-", "lost", "ecc")
"""Kinds of ailments, by their beginnings, with which a pod can't go on."""


@dataclass(frozen=True)
class HealthFindings:
    """What the book says, by UUID."""

    unhealthy: dict[str, str] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()


class GpuHealth:
    """A worker; its only key is the node's name."""

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
        self._machine, self._backend, self._health = device_manager, backend, health
        self._timing = timing or Timing(round_seconds=POLL_SECONDS)
        self._book = HealthTracker(rules or HealthRules(), time.monotonic)
        self._stop, self._wake = threading.Event(), threading.Event()
        self._watch = HealthWatch(
            backend, HostRoot(), self._book, log=self._complain, wake=self._wake.set, timing=self._timing
        )
        self._thread = threading.Thread(target=self._run, daemon=True, name="gpu-health")
        self._complaint = ""
        self._findings = HealthFindings()
        self._changes: deque[HealthChange] = deque()

    def start(self, loop: ControllerLoop) -> None:
        """Watch, and wake the worker through the loop that runs now."""
        running = asyncio.get_running_loop()

        def hear(findings: HealthFindings, changes: Sequence[HealthChange]) -> None:
            self._findings = findings
            self._changes.extend(changes)
            loop.enqueue(self, self._machine.name)

        def tell(findings: HealthFindings, changes: Sequence[HealthChange]) -> None:
            if not self._stop.is_set():
                running.call_soon_threadsafe(hear, findings, changes)

        self._tell = tell
        self._watch.start(self._stop)
        self._thread.start()

    def close(self) -> bool:
        """End the watch; False where the driver doesn't answer, and must not be closed under those who wait for it."""
        self._stop.set()
        self._wake.set()
        if self._thread.ident is None:
            return True
        self._thread.join(STOP_TIMEOUT_SECONDS)
        return self._watch.join(STOP_TIMEOUT_SECONDS) and not self._thread.is_alive()

    def keys_for(
        self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None
    ) -> Iterator[str]:
        yield from ()

    def sync(self, key: str, now: float) -> float | None:
        """Carry what was found into the cluster."""
        machine, findings = self._machine, self._findings
        ill, ill_parts = self._illnesses(findings)
        if (ill, ill_parts) != (machine.unhealthy, machine.unhealthy_mig_instances):
            machine.unhealthy, machine.unhealthy_mig_instances = ill, ill_parts
            self._health.update_node_status(key, now)
        while self._changes:
            self._announce(key, self._changes[0], now)
            self._changes.popleft()
        for uuid in sorted(findings.broken & findings.unhealthy.keys()):
            index = machine.index_of(uuid)
            if index is not None:
                said = fault_message(machine, index, DeviceFault(0, findings.unhealthy[uuid]), uuid)
                self._health.fail_pods(machine, index if uuid in machine.uuids else uuid, said, now)
        return None

    def _illnesses(self, findings: HealthFindings) -> tuple[dict[int, DeviceFault], dict[str, DeviceFault]]:
        """Of GPUs by their index, of MIG instances by their UUID."""
        whole: dict[int, DeviceFault] = {}
        parts: dict[str, DeviceFault] = {}
        for uuid, why in findings.unhealthy.items():
            index = self._machine.index_of(uuid)
            if index is not None and uuid in self._machine.uuids:
                whole[index] = DeviceFault(0, why)
            elif index is not None:
                parts[uuid] = DeviceFault(0, why)
        return whole, parts

    def _announce(self, node: str, change: HealthChange, now: float) -> None:
        index = self._machine.index_of(change.uuid)
        if index is None:
            return
        todo = f"; {change.action}" if change.action else ""
        said = fault_message(self._machine, index, DeviceFault(0, f"{change.reason}{todo}"), change.uuid)
        is_told = change.healthy and change.reason.startswith("Xid ")
        reason = XID if is_told else HEALTHY if change.healthy else UNHEALTHY
        self._health.record_event(node, reason, said, now)

    def _run(self) -> None:
        """The thread: nothing here touches the cluster."""
        while not self._stop.is_set():
            try:
                self._look(self._backend.inventory())
            except DeviceError as error:
                self._complain(str(error))
            self._wake.wait(self._timing.round_seconds)
            self._wake.clear()

    def _look(self, inventory: Inventory) -> None:
        self._watch.poll(inventory)
        changes = self._book.drain_changes()
        if changes:
            kinds = self._book.problem_kinds()
            broken = {
                uuid
                for uuid, found in kinds.items()
                if any(kind.startswith(FATAL_REASON_PREFIXES) for kind in found)
            }
            self._tell(HealthFindings(self._book.unhealthy(), frozenset(broken)), changes)

    def _complain(self, said: str) -> None:
        """Once for each thing that goes on being wrong."""
        if said != self._complaint:
            self._complaint = said
            log.warning("watching the GPUs: %s", said)
