"""The node of `windlass up --gpus real`: this machine, its kubelet, its GPUs, its processes.

Same interface as `simulated_nodes.SimulatedNodes`; `embedded_cluster` chooses. No faults are injected: `gpu_health`
watches the hardware's own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.controller_loop import Controller, ControllerLoop
from windlass.embedded.controllers.objects import name_of
from windlass.embedded.runtime.device_health import DeviceHealth
from windlass.embedded.runtime.device_manager import DeviceManager
from windlass.embedded.runtime.heartbeat import Heartbeat
from windlass.embedded.runtime.kubelet import Kubelet
from windlass.embedded.runtime.process.cgroups import Cgroups
from windlass.embedded.runtime.process.container_runtime import ProcessContainerRuntime
from windlass.embedded.runtime.process.gpu_health import GpuHealth
from windlass.embedded.runtime.process.kubelet_api import ProcessKubeletApi
from windlass.embedded.runtime.process.leftovers import kill_leftovers
from windlass.embedded.runtime.process.this_machine import ThisMachine, discover_this_machine
from windlass.model.errors import InputError
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.node.backend.protocol import DeviceBackend, DeviceError
from windlass.node.health_rules import HealthRules, health_rules_from_environment
from windlass.node.health_watch import Timing
from windlass.node.mps import MpsDaemon


def nvml_backend() -> DeviceBackend:
    from windlass.node.backend.nvml import NvmlBackend

    return NvmlBackend()


class SingleNodeFleet:
    """A fleet of one node."""

    def __init__(self, device_manager: DeviceManager) -> None:
        self._device_manager = device_manager

    def device_manager(self, node: str) -> DeviceManager | None:
        return self._device_manager if node == self._device_manager.name else None

    def is_ours(self, node: str) -> bool:
        return node == self._device_manager.name

    def is_down(self, node: str) -> bool:
        return False

    def node_names(self) -> list[str]:
        return [self._device_manager.name]


class ProcessNodes:
    def __init__(
        self,
        client: Client,
        cache: Cache,
        *,
        replicas: int = 1,
        mps: bool = False,
        clock: Callable[[], float] = time.time,
        backend: Callable[[], DeviceBackend] = nvml_backend,
        cgroups: Cgroups | None = None,
        rules: HealthRules | None = None,
        timing: Timing | None = None,
    ) -> None:
        """`rules` and `timing` say when a GPU is unhealthy and how often it is read."""
        self._client, self._clock = client, clock
        self._leftovers = kill_leftovers()
        self._folder = Path(tempfile.mkdtemp(prefix="windlass-up-"))
        root = str(self._folder / "mps") if mps else ""
        this_machine, self._backend = discover_this_machine(backend, replicas, root, clock())
        self.this_machine: ThisMachine = this_machine
        try:
            self._mps = self._start_mps(replicas) if mps else None
        except InputError:
            self._release()
            raise
        environment = self._mps.environment() if self._mps is not None else {}
        self.fleet = SingleNodeFleet(this_machine.device_manager)
        self._runtime = ProcessContainerRuntime(self._folder / "pods", self._enqueue, cgroups, environment)
        self.kubelet = Kubelet(client, cache, self.fleet, self._runtime)
        self.heartbeat = Heartbeat(client, self.fleet)
        self.kubelet_api = ProcessKubeletApi(self._runtime)
        self._health = self._watch_gpus(rules or health_rules_from_environment(os.environ), timing)
        self._loop: ControllerLoop | None = None

    @property
    def controllers(self) -> Sequence[Controller]:
        health = [self._health] if self._health is not None else []
        return (self.kubelet, self.heartbeat, *health)

    @property
    def notes(self) -> list[str]:
        """Remarks for the user."""
        reason = self._runtime.cgroups.unavailable_reason
        limits = f"memory and CPU limits are not enforced: {reason}" if reason else ""
        watch = "Xids, ECC errors and counters of these GPUs are watched" if self._health is not None else ""
        found = self._leftovers
        left = f"killed {found} processes that pods of an earlier windlass up had left running" if found else ""
        return [f"GPUs of this machine: {self.this_machine.note}", *filter(None, [watch, limits, left])]

    def attach_loop(self, loop: ControllerLoop) -> None:
        self._loop = loop
        if self._health is not None:
            self._health.start(loop)

    def register(self, now: float) -> None:
        """Creates the Node object, or updates the one from an earlier start, since the hardware may have changed."""
        name = name_of(self.this_machine.node)
        if any(name_of(node) == name for node in self._client.list("nodes")):
            existing = self._client.get("nodes", "", name)
            metadata = {**existing["metadata"], **self.this_machine.node["metadata"]}
            self._client.update("nodes", "", name, {**existing, "metadata": metadata})
            newest = self._client.get("nodes", "", name)
            self._client.update("nodes", "", name, {**newest, "status": self.this_machine.node["status"]}, "status")
            self.heartbeat.renew_lease(name, now)
        else:
            self._client.create("nodes", "", self.this_machine.node)

    def close(self) -> None:
        """Kills what runs, and restores the machine's state."""
        for process in self._runtime.all_processes():
            process.kill(self._clock())
            process.poll(self._clock())
        self._runtime.cgroups.close()
        if self._mps is not None:
            self._mps.stop()
        self._release(driver_answers=self._health is None or self._health.close())

    def _release(self, *, driver_answers: bool = True) -> None:
        """Closes the driver, unless it does not answer while threads wait in it, and removes the folder."""
        if self._backend is not None and driver_answers:
            with contextlib.suppress(DeviceError):
                self._backend.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _enqueue(self, key: str) -> None:
        if self._loop is not None:
            self._loop.enqueue(self.kubelet, key)

    def _watch_gpus(self, rules: HealthRules, timing: Timing | None) -> GpuHealth | None:
        """None if there is no GPU to watch."""
        if self._backend is None or not self.this_machine.device_manager.devices:
            return None
        health = DeviceHealth(self._client, self.kubelet, self.heartbeat)
        return GpuHealth(self.this_machine.device_manager, self._backend, health, rules=rules, timing=timing)

    def _start_mps(self, replicas: int) -> MpsDaemon:
        inventory = self.this_machine.inventory
        if inventory is None or self._backend is None:
            raise InputError("--mps needs a GPU", remedy=f"this machine has {self.this_machine.note}")
        daemon = MpsDaemon(self._backend, self._folder / "mps", GPU_RESOURCE, inventory.gpus, replicas)
        try:
            daemon.start()
        except DeviceError as error:
            raise InputError(
                f"MPS can't be started: {error}", remedy="leave out --mps to share by time-slicing"
            ) from None
        return daemon
