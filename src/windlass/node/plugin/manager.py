"""Keeps what the kubelet is told in step with the hardware, the configuration and health, without restarts.

The plugin process runs `step` in a loop: look at the kubelet's socket, look at the inventory, serve what there is. New
resources get a server and are registered, resources that are gone get an empty list, changed devices are told over the
open streams. Failures are told once and tried again; nothing here ends the process.
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
"""How long a resource that goes waits for the kubelet to have heard of it."""


class ConflictingPlugin(InputError):
    """Another program does this job on the node already."""

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
        self._folder = folder
        self._root = root
        self._log = log
        self._wish = preferred_devices
        self._clock = clock
        self._servers: dict[str, ResourceServer] = {}
        self._kubelet: tuple[int, int] | None = None
        self._unregistered: dict[str, float] = {}
        """Resources that the kubelet doesn't know yet, and when to try again."""
        self._last_told = ""
        self._made_from: tuple[Inventory, PluginConfig] | None = None
        self._resources: tuple[PluginResource, ...] = ()
        self._tools: dict[str, tuple[DeviceChooser, Allocator]] = {}

    def refuse_conflicting_plugin(self, inventory: Inventory, config: PluginConfig) -> None:
        """Raises where another plugin serves one of our resources."""
        for resource in advertised_resources(inventory, config):
            socket = self.registrar.conflicting_socket(resource.name)
            if socket:
                raise ConflictingPlugin(
                    f"another device plugin serves {resource.name}",
                    file=socket,
                    remedy="remove it from this node, or label the node nvidia.com/gpu.deploy.device-plugin=false",
                )

    def advertised_resources(self, inventory: Inventory, config: PluginConfig) -> tuple[PluginResource, ...]:
        """What would be advertised; the last good resources where the configuration can't serve the hardware."""
        if self._made_from != (inventory, config):
            self._remake(inventory, config)
        return self._resources

    def sync(self, inventory: Inventory, config: PluginConfig, unhealthy: UnhealthyDevices) -> None:
        """One round; what the configuration can't make of the hardware leaves the last good resources in force."""
        if not self._folder.is_dir():
            self._tell(f"waiting for the kubelet: there is no {self._folder}")
            return
        self._follow_kubelet()
        for resource in self.advertised_resources(inventory, config):
            self._serve(resource, unhealthy)
        self._register_waiting()

    def stop(self) -> None:
        """No more answers; the kubelet keeps the capacity for a while, for a plugin that comes back."""
        for server in self._servers.values():
            server.stop()
        self._servers.clear()
        self._unregistered.clear()

    def withdraw(self) -> None:
        """The kubelet hears that there is nothing here any more, and then no more answers."""
        for server in self._servers.values():
            server.withdraw()
        for server in self._servers.values():
            server.wait_until_sent(WITHDRAW_TIMEOUT_SECONDS)
        self.stop()

    def _follow_kubelet(self) -> None:
        now = self.registrar.kubelet_identity()
        if now is not None and now != self._kubelet:
            if self._kubelet is not None:
                self._log("the kubelet has started anew: registering again")
                for server in self._servers.values():
                    server.stop()
                    server.start()
            self._unregistered = dict.fromkeys(self._servers, 0.0)
        if now is not None:
            self._kubelet = now

    def _remake(self, inventory: Inventory, config: PluginConfig) -> None:
        try:
            present_imex_channels(config, self._root)
            resources = advertised_resources(inventory, config)
        except InputError as error:
            self._tell(f"the last good resources stay: {error}")
            return
        self._made_from = (inventory, config)
        self._resources = resources
        self._tools = {
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
        self._log(
            "advertising "
            + (", ".join(f"{each.name}: {len(each.devices)}" for each in resources) or "nothing")
        )

    def _serve(self, resource: PluginResource, health: UnhealthyDevices) -> None:
        chooser, allocator = self._tools[resource.name]
        server = self._servers.get(resource.name)
        if server is not None:
            server.update(resource, health, chooser, allocator)
            return
        server = ResourceServer(resource.name, self._folder, self._wish)
        server.update(resource, health, chooser, allocator)
        server.start()
        self._servers[resource.name] = server
        self._unregistered[resource.name] = 0.0

    def _register_waiting(self) -> None:
        if self._kubelet is None:
            return
        for name, due in list(self._unregistered.items()):
            if self._clock() < due:
                continue
            try:
                self.registrar.register(self._servers[name])
            except DeviceError as error:
                self._tell(str(error))
                self._unregistered[name] = self._clock() + RETRY_SECONDS
            else:
                del self._unregistered[name]
                self._log(f"registered {name}")

    def _tell(self, line: str) -> None:
        if line != self._last_told:
            self._log(line)
            self._last_told = line
