"""The gRPC server of one resource on its Unix socket.

Made and kept by `manager`. The kubelet opens a stream and gets the whole list of devices at once and again after each
change; preferred allocation and Allocate are answered from what the list was made of.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from windlass.node.backend.protocol import DeviceError
from windlass.node.plugin.allocate import Allocator
from windlass.node.plugin.preferred_allocation import DeviceChooser
from windlass.node.plugin.rpc import HEALTHY, UNHEALTHY, plugin_handler
from windlass.node.protos import deviceplugin_pb2 as dp
from windlass.sharing.advertised_resources import PluginResource
from windlass.sharing.sharing_config import NVIDIA_PREFIX

UnhealthyDevices = Mapping[str, str]
"""Why a GPU or MIG device can't be used, by UUID; healthy ones are absent."""
PreferredDevices = Callable[[str, int], Sequence[int]]
"""The GPUs that the engine wants for the next container that asks for so many of a resource."""

_WORKERS = 6
STOP_GRACE_SECONDS = 2.0
"""How long open calls may take to end; there is nothing to wait for where there are none."""


def socket_name(resource: str) -> str:
    return f"nvidia-{resource.removeprefix(NVIDIA_PREFIX)}.sock"


class ResourceServer:
    def __init__(
        self, name: str, folder: Path, preferred_devices: PreferredDevices = lambda name, size: ()
    ) -> None:
        self.name = name
        self.socket = folder / socket_name(name)
        self._wish = preferred_devices
        self._changed = threading.Condition()
        self._generation = 0
        self._response = dp.ListAndWatchResponse()
        self._told: dict[object, int] = {}
        """The generation that each open stream has sent."""
        self._chooser: DeviceChooser | None = None
        self._allocator: Allocator | None = None
        self._server: Any = None
        self._workers: ThreadPoolExecutor | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Raises a `DeviceError` where the socket can't be made."""
        self.socket.unlink(missing_ok=True)
        self._is_stopped = False
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix=self.socket.stem)
        self._server = grpc.server(self._workers, options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((plugin_handler(self),))
        try:
            self._server.add_insecure_port(f"unix:{self.socket}")
        except RuntimeError as error:
            raise DeviceError(f"{self.name} can't be served: {error}") from None
        self._server.start()

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        if self._server is not None:
            # Streams that end by themselves deliver what was sent; one that is cut off may lose it.
            self._server.stop(grace=STOP_GRACE_SECONDS).wait()
            self._server = None
        if self._workers is not None:
            self._workers.shutdown(wait=False)
        self.socket.unlink(missing_ok=True)

    def update(
        self,
        resource: PluginResource,
        unhealthy: UnhealthyDevices,
        device_chooser: DeviceChooser,
        allocator: Allocator,
    ) -> None:
        """What the resource consists of now; the kubelet hears of it only if its list changes."""
        response = dp.ListAndWatchResponse(devices=[_device(each, unhealthy) for each in resource.devices])
        with self._changed:
            self._chooser, self._allocator = device_chooser, allocator
            if response != self._response:
                self._response = response
                self._generation += 1
                self._changed.notify_all()

    def withdraw(self) -> None:
        """An empty list: the resource has no devices any more, and pods on it are told."""
        with self._changed:
            self._response = dp.ListAndWatchResponse()
            self._generation += 1
            self._changed.notify_all()

    def wait_until_sent(self, seconds: float) -> None:
        """Until every kubelet that listens has been sent the latest list, or so long."""
        with self._changed:
            self._changed.wait_for(
                lambda: all(told == self._generation for told in self._told.values()), seconds
            )

    def get_device_plugin_options(self) -> dp.DevicePluginOptions:
        return dp.DevicePluginOptions(get_preferred_allocation_available=True)

    def list_and_watch(self, context: Any) -> Iterator[dp.ListAndWatchResponse]:
        stream = object()
        seen = -1
        context.add_callback(self._wake)
        try:
            while True:
                with self._changed:
                    # gRPC asks for the next message when it has taken the one before.
                    self._told[stream] = seen
                    self._changed.notify_all()
                    while self._generation == seen and not self._is_stopped and context.is_active():
                        self._changed.wait()
                    if self._is_stopped or not context.is_active():
                        return
                    seen, response = self._generation, self._response
                yield response
        finally:
            with self._changed:
                del self._told[stream]
                self._changed.notify_all()

    def get_preferred_allocation(
        self, request: dp.PreferredAllocationRequest
    ) -> dp.PreferredAllocationResponse:
        answer = dp.PreferredAllocationResponse()
        chooser = self._chooser
        for asked in request.container_requests:
            size = asked.allocation_size
            chosen: Sequence[str] = list(asked.available_deviceIDs)[:size]
            if chooser is not None:
                wish = self._wish(self.name, size)
                chosen = chooser.choose(asked.available_deviceIDs, asked.must_include_deviceIDs, size, wish)
            answer.container_responses.add(deviceIDs=chosen)
        return answer

    def allocate(self, request: dp.AllocateRequest) -> dp.AllocateResponse:
        allocator = self._allocator
        assert allocator is not None, "a server is updated before it is started"
        containers = [
            allocator.allocate_container(list(asked.devices_ids)) for asked in request.container_requests
        ]
        return dp.AllocateResponse(container_responses=containers)

    def pre_start_container(self, request: dp.PreStartContainerRequest) -> dp.PreStartContainerResponse:
        return dp.PreStartContainerResponse()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _device(device: Any, health: UnhealthyDevices) -> dp.Device:
    ill = health.get(device.uuid) or health.get(device.gpu.uuid)
    found = dp.Device(ID=device.id, health=UNHEALTHY if ill else HEALTHY)
    if device.gpu.numa >= 0:
        found.topology.nodes.add(ID=device.gpu.numa)
    return found
