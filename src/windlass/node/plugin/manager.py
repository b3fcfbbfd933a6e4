"""Keeps the kubelet in step with hardware, configuration and health, without restarts.

The plugin process calls `sync` in a loop: check the kubelet's socket, compare resources with the inventory, update
the servers. New resources get a server and are registered, vanished resources get an empty list, changed devices
are sent over the open streams. Failures are logged once and tried again; none of them ends the process.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path

from windlass.model.errors import InputError
from windlass.node.backend.protocol import DeviceError
from windlass.node.cdi_extras import present_imex_channels
from windlass.node.host_root import HostRoot
from windlass.node.plugin.allocate import Allocator
from windlass.node.plugin.preferred_allocation import DeviceChooser
from windlass.node.plugin.registrar import Registrar
from windlass.node.plugin.resource_server import PreferredDevices, ResourceServer, UnhealthyDevices
from windlass.sharing.advertised_resources import PluginResource, advertised_resources
from windlass.sharing.config_warnings import ineffective_settings
from windlass.sharing.inventory import Inventory
from windlass.sharing.plugin_config import PluginConfig

RETRY_SECONDS = 5.0
WITHDRAW_TIMEOUT_SECONDS = 10.0
"""How long `withdraw` waits until the kubelet has the empty lists."""


MAX_LIST_BYTES = 4 << 20
"""What the kubelet takes in one message; of a longer list it takes nothing, and only its own log says so."""
BYTES_BESIDE_ID = 28
"""Of a device in that message, at most: health, NUMA node, lengths."""


class ConflictingPlugin(InputError):
    """Another device plugin serves this node already."""

    exit_code = 1


class PluginManager:
    def __init__(
        self,
        folder: Path,
        root: HostRoot,
        log: Callable[[str], None],
        *,
        kubelet_socket: Path | None = None,
        preferred_devices: PreferredDevices = lambda name, size: (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.registrar = Registrar(folder, kubelet_socket)
        self._folder, self._root, self._log = folder, root, log
        self._preferred_devices, self._clock = preferred_devices, clock
        self._servers: dict[str, ResourceServer] = {}
        self._kubelet: tuple[int, int] | None = None
        self._unregistered: dict[str, float] = {}
        """Resources not registered yet, and when to try next (clock)."""
        self._last_logged = ""
        self._built_from: tuple[Inventory, PluginConfig] | None = None
        self._resources: tuple[PluginResource, ...] = ()
        self._handlers: dict[str, tuple[DeviceChooser, Allocator]] = {}

    @property
    def is_registered(self) -> bool:
        """Whether the kubelet knows every resource; without a kubelet to register with, always."""
        return self.registrar.is_disabled or (self._kubelet is not None and not self._unregistered)

    def refuse_conflicting_plugin(self, inventory: Inventory, config: PluginConfig) -> None:
        """Raises if another plugin serves one of our resources."""
        for resource in advertised_resources(inventory, config):
            socket = self.registrar.conflicting_socket(resource.name)
            if socket:
                raise ConflictingPlugin(
                    f"another device plugin serves {resource.name}",
                    file=socket,
                    remedy="remove it from this node, or label the node nvidia.com/gpu.deploy.device-plugin=false",
                )

    def advertised_resources(self, inventory: Inventory, config: PluginConfig) -> tuple[PluginResource, ...]:
        """The resources to advertise; the last good ones if the configuration does not fit the hardware."""
        if self._built_from != (inventory, config):
            self._build_resources(inventory, config)
        return self._resources

    def sync(self, inventory: Inventory, config: PluginConfig, unhealthy: UnhealthyDevices) -> None:
        if not self._folder.is_dir():
            self._log_once(f"waiting for the kubelet: there is no {self._folder}")
            return
        self._check_kubelet()
        resources = self.advertised_resources(inventory, config)
        unhealthy = {**_vanished_devices(resources, inventory), **unhealthy}
        for resource in resources:
            self._serve(resource, unhealthy)
        self._register_pending()

    def stop(self) -> None:
        """Stops answering. The kubelet keeps the capacity for a while, for a plugin that comes back."""
        for server in self._servers.values():
            server.stop()
        self._servers.clear()
        self._unregistered.clear()

    def withdraw(self) -> None:
        """Sends empty lists to the kubelet, then stops."""
        for server in self._servers.values():
            server.withdraw()
        for server in self._servers.values():
            server.wait_until_sent(WITHDRAW_TIMEOUT_SECONDS)
        self.stop()

    def _check_kubelet(self) -> None:
        identity = self.registrar.kubelet_identity()
        if identity is not None and identity != self._kubelet:
            if self._kubelet is not None:
                self._log("the kubelet has restarted: registering again")
                for server in self._servers.values():
                    server.stop()
                    server.start()
            self._unregistered = dict.fromkeys(self._servers, 0.0)
        if identity is not None:
            self._kubelet = identity

    def _build_resources(self, inventory: Inventory, config: PluginConfig) -> None:
        try:
            present_imex_channels(config, self._root)
            resources = advertised_resources(inventory, config)
            _check_list_sizes(resources)
        except InputError as error:
            self._log_once(f"the last good resources stay in force, without devices that no longer exist: {error}")
            return
        self._built_from = (inventory, config)
        self._resources = resources
        self._handlers = {
            resource.name: (
                DeviceChooser(resource, inventory, config.shared_devices_allocation_policy),
                Allocator(resource, config, self._root, lambda: str(uuid.uuid4())),
            )
            for resource in resources
        }
        names = {resource.name for resource in resources}
        for name, server in self._servers.items():
            if name not in names:
                server.withdraw()
        for warning in ineffective_settings(inventory, config):
            self._log(f"warning: {warning}")
        counts = ", ".join(f"{resource.name}: {len(resource.devices)}" for resource in resources)
        self._log(f"advertising {counts or 'nothing'}")

    def _serve(self, resource: PluginResource, unhealthy: UnhealthyDevices) -> None:
        chooser, allocator = self._handlers[resource.name]
        known = self._servers.get(resource.name)
        server = known or ResourceServer(resource.name, self._folder, self._preferred_devices)
        server.update(resource, unhealthy, chooser, allocator)
        if known is None:
            server.start()
            self._servers[resource.name] = server
            self._unregistered[resource.name] = 0.0

    def _register_pending(self) -> None:
        if self._kubelet is None:
            return
        for name, due in list(self._unregistered.items()):
            if self._clock() < due:
                continue
            try:
                self.registrar.register(self._servers[name])
            except DeviceError as error:
                self._log_once(str(error))
                self._unregistered[name] = self._clock() + RETRY_SECONDS
            else:
                del self._unregistered[name]
                self._log(f"registered {name}")

    def _log_once(self, line: str) -> None:
        if line != self._last_logged:
            self._log(line)
            self._last_logged = line


def _check_list_sizes(resources: tuple[PluginResource, ...]) -> None:
    for resource in resources:
        size = sum(len(device.id) + BYTES_BESIDE_ID for device in resource.devices)
        if size > MAX_LIST_BYTES:
            raise InputError(
                f"the list of {len(resource.devices)} {resource.name} is longer than the kubelet takes "
                f"({MAX_LIST_BYTES >> 20} MiB)",
                path="sharing",
                remedy="use fewer replicas",
            )


def _vanished_devices(resources: tuple[PluginResource, ...], inventory: Inventory) -> dict[str, str]:
    """Devices that the hardware no longer has, which stay advertised while the configuration doesn't fit it."""
    whole = {gpu.uuid for gpu in inventory.gpus if not gpu.mig_enabled}
    present = {gpu.uuid for gpu in inventory.gpus} | {each.uuid for gpu in inventory.gpus for each in gpu.instances}
    return {
        device.uuid: "it no longer exists: the MIG layout has changed"
        for resource in resources
        for device in resource.devices
        if device.uuid not in present
        or (device.instance is None and not device.gpu.mig_enabled and device.uuid not in whole)
    }
