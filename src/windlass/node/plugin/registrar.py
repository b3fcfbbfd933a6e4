"""Makes the kubelet know a plugin's sockets, and notices when it has forgotten them.

Used by `manager`'s loop. A kubelet that starts anew empties its folder and makes its own socket again: a socket with
another identity means that everything has to be served and registered again.
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
"""Instead of a socket: serve, and register nowhere."""
_SECONDS = 5


class Registrar:
    def __init__(self, folder: Path, kubelet_socket: Path | None = None) -> None:
        self.folder = folder
        self.kubelet_socket = kubelet_socket or folder / KUBELET_SOCKET
        self.is_disabled = kubelet_socket == NO_REGISTRATION

    def kubelet_identity(self) -> tuple[int, int] | None:
        """Tells one life of the kubelet from the next; None while there is no kubelet to register with."""
        if self.is_disabled:
            return None
        try:
            found = self.kubelet_socket.stat()
        except OSError:
            return None
        return found.st_ino, found.st_ctime_ns

    def register(self, server: ResourceServer) -> None:
        """A `DeviceError` where the kubelet refuses or isn't there."""
        request = dp.RegisterRequest(
            version=VERSION,
            endpoint=server.socket.name,
            resource_name=server.name,
            options=server.get_device_plugin_options(),
        )
        channel = unix_channel(str(self.kubelet_socket))
        try:
            registration_client(channel)(request, timeout=_SECONDS)
        except grpc.RpcError as error:
            words = error.details() if hasattr(error, "details") else str(error)
            raise DeviceError(f"the kubelet didn't register {server.name}: {words}") from None
        finally:
            channel.close()

    def conflicting_socket(self, resource: str) -> str:
        """The socket on which another plugin serves the resource right now; empty where there is none."""
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
