"""The kubelet's side of the device plugin protocol, over real gRPC and Unix sockets.

Used by tests and by `windlass bench node`.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from windlass.node.plugin.rpc import DevicePluginClient, registration_handler, unix_channel
from windlass.node.protos import deviceplugin_pb2 as dp


class FakeKubelet:
    """Accepts registrations, opens each plugin's stream as the real kubelet does, and keeps the last list."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registrations: list[dp.RegisterRequest] = []
        self.device_lists: dict[str, list[dict[str, str]]] = {}
        self.updates: dict[str, int] = {}
        self._plugins: dict[str, Any] = {}
        self._server: Any = None

    def start(self) -> None:
        """Empties its folder first, as the kubelet does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for old in self.folder.iterdir():
            old.unlink()
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((registration_handler(self._register),))
        self._server.add_insecure_port(f"unix:{self.folder / 'kubelet.sock'}")
        self._server.start()

    def stop(self) -> None:
        for channel in self._plugins.values():
            channel.close()
        self._plugins.clear()
        self.device_lists.clear()
        if self._server is not None:
            self._server.stop(0).wait()
            self._server = None

    def plugin(self, resource: str) -> DevicePluginClient:
        return DevicePluginClient(self._plugins[resource])

    def healthy_devices(self, resource: str) -> list[str]:
        return [name for name, device in self.devices(resource).items() if device["health"] == "Healthy"]

    def devices(self, resource: str) -> dict[str, dict[str, str]]:
        return {device["id"]: device for device in self.device_lists.get(resource, [])}

    def allocate(self, resource: str, *ids: str) -> dp.ContainerAllocateResponse:
        request = dp.AllocateRequest(container_requests=[dp.ContainerAllocateRequest(devices_ids=ids)])
        response: dp.AllocateResponse = self.plugin(resource).allocate(request, timeout=5)
        return response.container_responses[0]

    def get_preferred_allocation(self, resource: str, size: int, available: list[str], must: list[str]) -> list[str]:
        container_request = dp.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
        )
        request = dp.PreferredAllocationRequest(container_requests=[container_request])
        (answer,) = self.plugin(resource).get_preferred_allocation(request, timeout=5).container_responses
        return list(answer.deviceIDs)

    def _register(self, request: dp.RegisterRequest) -> dp.Empty:
        self.registrations.append(request)
        channel = unix_channel(str(self.folder / request.endpoint))
        self._plugins[request.resource_name] = channel
        threading.Thread(target=self._watch, args=(request.resource_name, channel), daemon=True).start()
        return dp.Empty()

    def _watch(self, resource: str, channel: Any) -> None:
        try:
            for answer in DevicePluginClient(channel).list_and_watch(dp.Empty()):
                self.device_lists[resource] = [
                    {
                        "id": device.ID,
                        "health": device.health,
                        "numa": ",".join(str(node.ID) for node in device.topology.nodes),
                    }
                    for device in answer.devices
                ]
                self.updates[resource] = self.updates.get(resource, 0) + 1
        except (grpc.RpcError, ValueError):
            return  # the plugin has stopped, or the test is over
