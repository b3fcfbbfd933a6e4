"""Registers the plugin's sockets with the kubelet, and notices when the kubelet has restarted.

`manager` uses it. A restarting kubelet empties its folder and creates its socket again: a socket with another inode
means that everything has to be served and registered again.
"""

from __future__ import annotations

from pathlib import Path

import grpc

from windlass.node.backend.protocol import DeviceError
from windlass.node.plugin.resource_server import ResourceServer, socket_name
from windlass.node.plugin.rpc import VERSION, DevicePluginClient, registration_client, unix_channel
from windlass.node.protos import deviceplugin_pb2 as dp

KUBELET_SOCKET = "kubelet.sock"
NO_REGISTRATION = Path()
"""Instead of a socket: serve without registering."""
_TIMEOUT_SECONDS = 5


class Registrar:
    def __init__(self, folder: Path, kubelet_socket: Path | None = None) -> None:
        self.folder = folder
        self.kubelet_socket = kubelet_socket or folder / KUBELET_SOCKET
        self.is_disabled = kubelet_socket == NO_REGISTRATION

    def kubelet_identity(self) -> tuple[int, int] | None:
        """Differs between two starts of the kubelet; None while there is none to register with."""
        if self.is_disabled:
            return None
        try:
            status = self.kubelet_socket.stat()
        except OSError:
            return None
        return status.st_ino, status.st_ctime_ns

    def register(self, server: ResourceServer) -> None:
        """Raises a `DeviceError` if the kubelet refuses or does not answer."""
        request = dp.RegisterRequest(
            version=VERSION,
            endpoint=server.socket.name,
            resource_name=server.name,
            options=server.get_device_plugin_options(),
        )
        channel = unix_channel(str(self.kubelet_socket))
        try:
            registration_client(channel)(request, timeout=_TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            message = error.details() if hasattr(error, "details") else str(error)
            raise DeviceError(f"the kubelet didn't register {server.name}: {message}") from None
        finally:
            channel.close()

    def conflicting_socket(self, resource: str) -> str:
        """The socket on which another plugin serves the resource now; empty if there is none."""
        socket = self.folder / socket_name(resource)
        if not socket.exists():
            return ""
        channel = unix_channel(str(socket))
        try:
            DevicePluginClient(channel).get_device_plugin_options(dp.Empty(), timeout=1)
        except grpc.RpcError:
            return ""
        finally:
            channel.close()
        return str(socket)
