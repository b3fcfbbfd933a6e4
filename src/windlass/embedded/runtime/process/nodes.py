"""The one node of `windlass up --gpus real`, put together: this machine, its kubelet, its GPUs, its processes.

Has the same face as `runtime.nodes.SimulatedNodes`; `embedded.embedded_cluster` chooses. Faults are not injected
here: the hardware has its own, and `process.health` watches for them.
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
from windlass.embedded.runtime.process.this_machine import ThisMachine, discover_this_machine
from windlass.model.errors import InputError
from windlass.node.backend.protocol import DeviceBackend, DeviceError
from windlass.node.health_rules import HealthRules, health_rules_from_environment
from windlass.node.health_watch import Timing
from windlass.node.mps import MpsDaemon


def nvml_backend() -> DeviceBackend:
    from windlass.node.backend.nvml import NvmlBackend

    return NvmlBackend()


class SingleNodeFleet:
    """The park of one."""

    def __init__(self, device_manager: DeviceManager) -> None:
        self._machine = device_manager

    def device_manager(self, node: str) -> DeviceManager | None:
        return self._machine if node == self._machine.name else None

    def is_ours(self, node: str) -> bool:
        return node == self._machine.name

    def is_down(self, node: str) -> bool:
        return False

    def node_names(self) -> list[str]:
        return [self._machine.name]


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
        """`rules` and `timing` say when a GPU counts as ill, and how often it is looked at."""
        self._door, self._clock = client, clock
        self._folder = Path(tempfile.mkdtemp(prefix="windlass-up-"))
        root = str(self._folder / "mps") if mps else ""
        found, self._backend = discover_this_machine(backend, replicas, root, clock())
        self.this_machine: ThisMachine = found
        try:
            self._mps = self._start_mps(replicas) if mps else None
        except InputError:
            self._let_go()
            raise
        environment = self._mps.environment() if self._mps is not None else {}
        self.fleet = SingleNodeFleet(found.device_manager)
        self._containers = ProcessContainerRuntime(self._folder / "pods", self._wake, cgroups, environment)
        self.kubelet = Kubelet(client, cache, self.fleet, self._containers)
        self.heartbeat = Heartbeat(client, self.fleet)
        self.kubelet_api = ProcessKubeletApi(self._containers)
        self._health = self._watch(rules or health_rules_from_environment(os.environ), timing)
        self._loop: ControllerLoop | None = None

    @property
    def controllers(self) -> Sequence[Controller]:
        health = [self._health] if self._health is not None else []
        return (self.kubelet, self.heartbeat, *health)

    @property
    def notes(self) -> list[str]:
        """What a person should know."""
        why = self._containers.cgroups.unavailable_reason
        limits = f"limits on memory and CPU are not enforced here: {why}" if why else ""
        watch = "Xids, ECC errors and counters of these GPUs are watched" if self._health is not None else ""
        return [f"GPUs of this machine: {self.this_machine.note}", *filter(None, [watch, limits])]

    def attach_loop(self, loop: ControllerLoop) -> None:
        self._loop = loop
        if self._health is not None:
            self._health.start(loop)

    def register(self, now: float) -> None:
        """The Node object; made anew at each start, since the hardware may have changed."""
        name = name_of(self.this_machine.node)
        if any(name_of(node) == name for node in self._door.list("nodes")):
            known = self._door.get("nodes", "", name)
            metadata = {**known["metadata"], **self.this_machine.node["metadata"]}
            self._door.update("nodes", "", name, {**known, "metadata": metadata})
            newest = self._door.get("nodes", "", name)
            self._door.update(
                "nodes", "", name, {**newest, "status": self.this_machine.node["status"]}, "status"
            )
            self.heartbeat.renew_lease(name, now)
        else:
            self._door.create("nodes", "", self.this_machine.node)

    def close(self) -> None:
        """Kill what runs, and leave the machine as it was."""
        for process in self._containers.all_processes():
            process.kill(self._clock())
            process.poll(self._clock())
        self._containers.cgroups.close()
        if self._mps is not None:
            self._mps.stop()
        self._let_go(answers=self._health is None or self._health.close())

    def _let_go(self, *, answers: bool = True) -> None:
        """Of the driver, unless it doesn't answer those who still wait for it, and of the folder."""
        if self._backend is not None and answers:
            with contextlib.suppress(DeviceError):
                self._backend.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wake(self, key: str) -> None:
        if self._loop is not None:
            self._loop.enqueue(self.kubelet, key)

    def _watch(self, rules: HealthRules, timing: Timing | None) -> GpuHealth | None:
        """None where there is no GPU to watch."""
        if self._backend is None or not self.this_machine.device_manager.devices:
            return None
        health = DeviceHealth(self._door, self.kubelet, self.heartbeat)
        return GpuHealth(self.this_machine.device_manager, self._backend, health, rules=rules, timing=timing)

    def _start_mps(self, replicas: int) -> MpsDaemon:
        inventory = self.this_machine.inventory
        if inventory is None or self._backend is None:
            raise InputError("--mps needs a GPU", remedy=f"this machine has {self.this_machine.note}")
        daemon = MpsDaemon(self._backend, self._folder / "mps", "nvidia.com/gpu", inventory.gpus, replicas)
        try:
            daemon.start()
        except DeviceError as error:
            raise InputError(
                f"MPS can't be started: {error}", remedy="leave out --mps to share by time"
            ) from None
        return daemon
