"""Prepares the hardware for sharing: starts and checks MPS daemons, sets time-slice intervals.

The plugin process calls `sync` once per round. A daemon that does not run is started (again); until it answers, its
devices are reported as unhealthy, since a container would find no daemon to connect to.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from windlass.node.backend.protocol import DeviceBackend, DeviceError
from windlass.node.mps import MpsDaemon
from windlass.sharing.advertised_resources import PluginResource
from windlass.sharing.inventory import Inventory
from windlass.sharing.plugin_config import PluginConfig

CHECK_SECONDS = 5.0


class SharingSetup:
    def __init__(
        self,
        backend: DeviceBackend,
        log: Callable[[str], None],
        *,
        interval: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend, self._log, self._clock = backend, log, clock
        self._interval = interval
        """The time slice; empty leaves it unchanged."""
        self._daemons: dict[str, MpsDaemon] = {}
        self._started_for: dict[str, object] = {}
        self._next_check = 0.0
        self._problems: dict[str, str] = {}
        self._with_interval: set[str] = set()

    def sync(self, inventory: Inventory, config: PluginConfig, resources: tuple[PluginResource, ...]) -> dict[str, str]:
        """Why devices can't be shared now, by UUID; empty if all daemons run."""
        if config.sharing_strategy == "time-slicing" and self._interval:
            self._set_intervals(inventory)
        shared = [resource for resource in resources if resource.is_shared]
        wanted = {resource.name: resource for resource in shared if config.sharing_strategy == "mps"}
        changed = self._stop_outdated(wanted, config)
        if changed or self._clock() >= self._next_check:
            self._next_check = self._clock() + CHECK_SECONDS
            self._problems = {}
            for resource in wanted.values():
                self._keep_alive(resource, config)
        return self._problems

    def stop(self) -> None:
        for daemon in self._daemons.values():
            self._try_to_stop(daemon)
        self._daemons.clear()
        self._started_for.clear()

    def _keep_alive(self, resource: PluginResource, config: PluginConfig) -> None:
        daemon = self._daemons.get(resource.name)
        gpus = {device.uuid: device.gpu for device in resource.devices}
        if daemon is None:
            root, replicas = Path(config.mps_root), resource.devices[0].replicas
            daemon = MpsDaemon(self._backend, root, resource.name, list(gpus.values()), replicas)
            self._daemons[resource.name] = daemon
            self._started_for[resource.name] = _key(resource, config)
        elif daemon.is_alive():
            return
        else:
            self._log(f"the MPS daemon of {resource.name} does not answer; restarting it")
        try:
            daemon.start()
            self._log(f"MPS daemon of {resource.name}: {', '.join(daemon.limits())}")
        except DeviceError as error:
            self._log(f"the MPS daemon of {resource.name} can't be started: {error}")
            self._problems |= dict.fromkeys(gpus, f"no MPS daemon: {error}")

    def _stop_outdated(self, wanted: dict[str, PluginResource], config: PluginConfig) -> bool:
        """Stops daemons of vanished or changed resources; returns whether any has to be started or was stopped."""
        changed = bool(wanted.keys() - self._daemons.keys())
        for name in list(self._daemons):
            if name not in wanted or self._started_for[name] != _key(wanted[name], config):
                self._try_to_stop(self._daemons.pop(name))
                del self._started_for[name]
                changed = True
        return changed

    def _try_to_stop(self, daemon: MpsDaemon) -> None:
        try:
            daemon.stop()
        except DeviceError as error:
            self._log(f"{error}")

    def _set_intervals(self, inventory: Inventory) -> None:
        for gpu in inventory.gpus:
            if gpu.uuid in self._with_interval or gpu.is_lost:
                continue
            self._with_interval.add(gpu.uuid)
            try:
                self._backend.set_time_slice(gpu.uuid, self._interval)
                self._log(f"{gpu.uuid}: time slice {self._interval}")
            except DeviceError as error:
                self._log(f"{gpu.uuid}: can't set the time slice: {error}")


def _key(resource: PluginResource, config: PluginConfig) -> tuple[object, ...]:
    return (config.mps_root, *((device.id, device.gpu.index) for device in resource.devices))
