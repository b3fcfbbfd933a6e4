"""The gRPC server of one resource on its Unix socket.

Created by `manager`. The kubelet opens a stream and gets the whole list of devices at once and again after each
change; GetPreferredAllocation and Allocate are answered from the same state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from windlass.model.names.nvidia import NVIDIA_PREFIX
from windlass.node.backend.protocol import DeviceError
from windlass.node.plugin.allocate import Allocator
from windlass.node.plugin.preferred_allocation import DeviceChooser
from windlass.node.plugin.rpc import HEALTHY, UNHEALTHY, plugin_handler
from windlass.node.protos import deviceplugin_pb2 as dp
from windlass.sharing.advertised_resources import PluginResource

UnhealthyDevices = Mapping[str, str]
"""Why a GPU or MIG device can't be used, by UUID; healthy ones are absent."""
PreferredDevices = Callable[[str, int], Sequence[int]]
"""(resource, size) → indices of the GPUs that the scheduler chose for the pod that asks."""

_WORKERS = 6
STOP_GRACE_SECONDS = 2.0
"""How long open calls may take to end."""


def socket_name(resource: str) -> str:
    return f"nvidia-{resource.removeprefix(NVIDIA_PREFIX)}.sock"


class ResourceServer:
    def __init__(self, name: str, folder: Path, preferred_devices: PreferredDevices = lambda name, size: ()) -> None:
        self.name = name
        self.socket = folder / socket_name(name)
        self._preferred_devices = preferred_devices
        self._changed = threading.Condition()
        self._generation = 0
        self._response = dp.ListAndWatchResponse()
        self._sent: dict[object, int] = {}
        """The generation that each open stream has sent, by stream."""
        self._chooser: DeviceChooser | None = None
        self._allocator: Allocator | None = None
        self._server: Any = None
        self._workers: ThreadPoolExecutor | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Raises a `DeviceError` if the socket can't be created."""
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
            # Streams that end by themselves deliver what was sent; a cancelled one may lose it.
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
        """Sets the resource's state; the kubelet gets a new list only if it differs."""
        devices = [_device(device, unhealthy) for device in resource.devices]
        response = dp.ListAndWatchResponse(devices=devices)
        with self._changed:
            self._chooser, self._allocator = device_chooser, allocator
            if response != self._response:
                self._response = response
                self._generation += 1
                self._changed.notify_all()

    def withdraw(self) -> None:
        """Sends an empty list: the resource has no devices any more."""
        with self._changed:
            self._response = dp.ListAndWatchResponse()
            self._generation += 1
            self._changed.notify_all()

    def wait_until_sent(self, seconds: float) -> None:
        """Waits until every open stream has sent the latest list, or `seconds` have passed."""
        with self._changed:
            self._changed.wait_for(
                lambda: all(generation == self._generation for generation in self._sent.values()), seconds
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
                    # gRPC asks for the next message only after it has taken the previous one.
                    self._sent[stream] = seen
                    self._changed.notify_all()
                    while self._generation == seen and not self._is_stopped and context.is_active():
                        self._changed.wait()
                    if self._is_stopped or not context.is_active():
                        return
                    seen, response = self._generation, self._response
                yield response
        finally:
            with self._changed:
                del self._sent[stream]
                self._changed.notify_all()

    def get_preferred_allocation(self, request: dp.PreferredAllocationRequest) -> dp.PreferredAllocationResponse:
        answer = dp.PreferredAllocationResponse()
        chooser = self._chooser
        for container_request in request.container_requests:
            size = container_request.allocation_size
            chosen: Sequence[str] = list(container_request.available_deviceIDs)[:size]
            if chooser is not None:
                preferred = self._preferred_devices(self.name, size)
                required = container_request.must_include_deviceIDs
                available = container_request.available_deviceIDs
                chosen = chooser.choose(available, required, size, preferred)
            answer.container_responses.add(deviceIDs=chosen)
        return answer

    def allocate(self, request: dp.AllocateRequest) -> dp.AllocateResponse:
        allocator = self._allocator
        assert allocator is not None, "a server is updated before it is started"
        containers = [
            allocator.allocate_container(list(container_request.devices_ids))
            for container_request in request.container_requests
        ]
        return dp.AllocateResponse(container_responses=containers)

    def pre_start_container(self, request: dp.PreStartContainerRequest) -> dp.PreStartContainerResponse:
        return dp.PreStartContainerResponse()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _device(device: Any, unhealthy: UnhealthyDevices) -> dp.Device:
    problem = unhealthy.get(device.uuid) or unhealthy.get(device.gpu.uuid)
    result = dp.Device(ID=device.id, health=UNHEALTHY if problem else HEALTHY)
    if device.gpu.numa >= 0:
        result.topology.nodes.add(ID=device.gpu.numa)
    return result
