"""Prepares the hardware for sharing: starts, adopts and checks MPS daemons, sets time-slice intervals.

The plugin process calls `sync` once per round. A daemon that does not run is started (again); until it answers, its
devices are reported as unhealthy, since a container would find no daemon to connect to. A daemon that is no longer
wanted stays until its last client has ended, and its GPUs are unhealthy meanwhile: exclusive mode refuses everybody
else. An agent that ends leaves daemons with clients, and those whose GPUs a pod holds, to the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.node.backend.protocol import DeviceBackend, DeviceError
from windlass.node.mps import MpsDaemon, started_daemons
from windlass.sharing.advertised_resources import PluginResource
from windlass.sharing.inventory import Inventory
from windlass.sharing.plugin_config import PluginConfig

if TYPE_CHECKING:
    from windlass.node.exporter.collection_context import DeviceHolder

CHECK_SECONDS = 5.0
DEFAULT_MPS_ROOT = "/run/nvidia/mps"
"""Where the DaemonSet has it, for daemons that an earlier configuration has left."""


class SharingSetup:
    def __init__(
        self,
        backend: DeviceBackend,
        log: Callable[[str], None],
        *,
        interval: str = "",
        cgroups: Path | None = None,
        host: Path | None = None,
        holders: Callable[[], Mapping[str, Sequence[DeviceHolder]]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`holders` gives the containers that hold a GPU, by UUID; a `DeviceError` if the kubelet doesn't say."""
        self._backend, self._log, self._clock = backend, log, clock
        self._holders = holders
        self._interval = interval
        """The time slice; empty leaves it unchanged."""
        self._cgroups, self._host = cgroups, host
        self._daemons: dict[str, MpsDaemon] = {}
        self._draining: dict[str, MpsDaemon] = {}
        """Daemons that are no longer wanted and have clients, by resource."""
        self._is_stopped = False
        self._looked_for_others = False
        self._next_check = 0.0
        self._problems: dict[str, str] = {}
        self._with_interval: set[str] = set()

    def sync(
        self,
        inventory: Inventory,
        config: PluginConfig,
        resources: tuple[PluginResource, ...],
        cordoned: frozenset[str] = frozenset(),
    ) -> dict[str, str]:
        """Why devices can't be shared now, by UUID; empty if all daemons run.

        Daemons of `cordoned` GPUs, whose MIG layout is about to change, are stopped if nobody uses them.
        """
        if config.sharing_strategy == "time-slicing" and self._interval:
            self._set_intervals(inventory)
        shared = [resource for resource in resources if resource.is_shared]
        wanted = {
            resource.name: resource
            for resource in shared
            if config.sharing_strategy == "mps" and cordoned.isdisjoint(device.uuid for device in resource.devices)
        }
        self._find_others(inventory, config, wanted)
        changed = self._retire_outdated(wanted, config)
        if changed or self._clock() >= self._next_check:
            self._next_check = self._clock() + CHECK_SECONDS
            self._problems = {}
            self._stop_unused()
            for resource in wanted.values():
                if resource.name not in self._draining:
                    self._keep_alive(resource, config)
        return self._problems

    def stop(self) -> bool:
        """For an agent that ends, or is told to do nothing: daemons in use stay, for the next one to adopt.

        Returns whether none is left. While there is one, a later call looks again.
        """
        if not self._is_stopped or self._clock() >= self._next_check:
            self._next_check = self._clock() + CHECK_SECONDS
            self._draining |= self._daemons
            self._daemons = {}
            for name, daemon in list(self._draining.items()):
                users = self._users(daemon)
                if not users and self._try_to_stop(daemon):
                    del self._draining[name]
                elif not self._is_stopped:
                    self._log(f"the MPS daemon of {name} is in use and stays: {users}")
        self._is_stopped, self._looked_for_others = True, False
        return not self._draining

    def _users(self, daemon: MpsDaemon) -> str:
        """Its clients, and pods that hold its GPUs: these may start a client at any time. Empty if there is none."""
        try:
            holders = self._holders()
            held = {holder for gpu in daemon.gpus for holder in holders.get(gpu.uuid, ())}
            pods = sorted({f"{holder.namespace}/{holder.pod}" for holder in held})
        except DeviceError as error:
            pods = [f"pods unknown: {error}"]
        return ", ".join(filter(None, (_pids(daemon), *pods)))

    def _keep_alive(self, resource: PluginResource, config: PluginConfig) -> None:
        daemon = self._daemons.get(resource.name)
        gpus = {device.uuid: device.gpu for device in resource.devices}
        if daemon is None:
            daemon = self._daemons[resource.name] = self._make(resource, config)
        elif daemon.is_alive():
            return
        else:
            self._log(f"the MPS daemon of {resource.name} does not answer; restarting it")
        try:
            how = "adopted" if daemon.start() else "started"
            self._log(f"MPS daemon of {resource.name} {how}: {', '.join(daemon.limits())}")
        except DeviceError as error:
            self._log(f"the MPS daemon of {resource.name} can't be started: {error}")
            self._problems |= dict.fromkeys(gpus, f"no MPS daemon: {error}")

    def _make(self, resource: PluginResource, config: PluginConfig) -> MpsDaemon:
        gpus = {device.uuid: device.gpu for device in resource.devices}
        replicas = resource.devices[0].replicas
        root = Path(config.mps_root)
        named = (self._backend, root, resource.name, list(gpus.values()), replicas)
        return MpsDaemon(*named, cgroups=self._cgroups, host=self._host)

    def _find_others(self, inventory: Inventory, config: PluginConfig, wanted: Collection[str]) -> None:
        """Daemons of an earlier agent that this configuration has no use for."""
        if self._looked_for_others:
            return
        self._looked_for_others, self._is_stopped = True, False
        self._draining.clear()
        root = Path(config.mps_root or DEFAULT_MPS_ROOT)
        for name, uuids in started_daemons(root).items():
            if name not in wanted:
                gpus = [gpu for gpu in inventory.gpus if gpu.uuid in uuids]
                self._draining[name] = MpsDaemon(self._backend, root, name, gpus, 1, self._cgroups, self._host)

    def _retire_outdated(self, wanted: dict[str, PluginResource], config: PluginConfig) -> bool:
        """Puts daemons of vanished or changed resources aside; returns whether there is anything to do at once.

        Other limits are given to the running daemon; other GPUs need another daemon.
        """
        changed = bool(wanted.keys() - self._daemons.keys() - self._draining.keys())
        for name, daemon in list(self._daemons.items()):
            new = self._make(wanted[name], config) if name in wanted else None
            if new is None or (new.folder, new.gpus) != (daemon.folder, daemon.gpus):
                self._draining[name] = self._daemons.pop(name)
                changed = True
            elif new.replicas != daemon.replicas:
                del self._daemons[name]  # the new one adopts it
                changed = True
        return changed

    def _stop_unused(self) -> None:
        for name, daemon in list(self._draining.items()):
            if self._try_to_stop(daemon):
                del self._draining[name]
                self._log(f"the MPS daemon of {name} has stopped")
            else:
                reason = f"the MPS daemon of {name} still has clients: {_pids(daemon)}"
                self._problems |= {gpu.uuid: reason for gpu in daemon.gpus}

    def _try_to_stop(self, daemon: MpsDaemon) -> bool:
        """False if clients keep it running."""
        try:
            return daemon.stop()
        except DeviceError as error:
            self._log(f"{error}")
            return True

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


def _pids(daemon: MpsDaemon) -> str:
    clients = daemon.clients()
    return "it doesn't say which" if clients is None else ", ".join(f"process {pid}" for pid in clients)
