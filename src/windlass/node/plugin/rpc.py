"""Typed handlers and clients of the kubelet's gRPC services, over the generated messages.

Used by `resource_server`, `registrar` and `fake_kubelet`. gRPC's generated service stubs are untyped and import
more than is needed; the wire format is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import grpc

from windlass.node.protos import deviceplugin_pb2 as dp
from windlass.node.protos import podresources_pb2 as pr

VERSION = "v1beta1"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
_PLUGIN, _REGISTRATION, _LISTER = "v1beta1.DevicePlugin", "v1beta1.Registration", "v1.PodResourcesLister"


class DevicePluginService(Protocol):
    def get_device_plugin_options(self) -> dp.DevicePluginOptions: ...

    def list_and_watch(self, context: Any) -> Iterator[dp.ListAndWatchResponse]: ...

    def get_preferred_allocation(self, request: dp.PreferredAllocationRequest) -> dp.PreferredAllocationResponse: ...

    def allocate(self, request: dp.AllocateRequest) -> dp.AllocateResponse: ...

    def pre_start_container(self, request: dp.PreStartContainerRequest) -> dp.PreStartContainerResponse: ...


class FailedCall(Exception):
    """Returned to the kubelet as a failed call with this message."""


def plugin_handler(service: DevicePluginService) -> Any:
    """The service as a gRPC handler."""
    return grpc.method_handlers_generic_handler(
        _PLUGIN,
        {
            "GetDevicePluginOptions": _unary(lambda request: service.get_device_plugin_options(), dp.Empty),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                lambda request, context: service.list_and_watch(context),
                request_deserializer=dp.Empty.FromString,
                response_serializer=_serialize,
            ),
            "GetPreferredAllocation": _unary(service.get_preferred_allocation, dp.PreferredAllocationRequest),
            "Allocate": _unary(service.allocate, dp.AllocateRequest),
            "PreStartContainer": _unary(service.pre_start_container, dp.PreStartContainerRequest),
        },
    )


def registration_handler(register: Callable[[dp.RegisterRequest], dp.Empty]) -> Any:
    """The kubelet's side, for tests."""
    return grpc.method_handlers_generic_handler(_REGISTRATION, {"Register": _unary(register, dp.RegisterRequest)})


def pod_resources_handler(answer: Callable[[], pr.ListPodResourcesResponse]) -> Any:
    """The kubelet's PodResources, for tests."""
    return grpc.method_handlers_generic_handler(
        _LISTER, {"List": _unary(lambda request: answer(), pr.ListPodResourcesRequest)}
    )


def unix_channel(socket: str) -> Any:
    return grpc.insecure_channel(f"unix:{socket}", options=[("grpc.enable_http_proxy", 0)])


class DevicePluginClient:
    """A plugin as the kubelet calls it."""

    def __init__(self, channel: Any) -> None:
        plugin = partial(_caller, channel, _PLUGIN)
        self.get_device_plugin_options = plugin("GetDevicePluginOptions", dp.DevicePluginOptions)
        self.get_preferred_allocation = plugin("GetPreferredAllocation", dp.PreferredAllocationResponse)
        self.allocate = plugin("Allocate", dp.AllocateResponse)
        self.pre_start_container = plugin("PreStartContainer", dp.PreStartContainerResponse)
        self.list_and_watch = channel.unary_stream(
            f"/{_PLUGIN}/ListAndWatch",
            request_serializer=_serialize,
            response_deserializer=dp.ListAndWatchResponse.FromString,
        )


def registration_client(channel: Any) -> Callable[..., Any]:
    return _caller(channel, _REGISTRATION, "Register", dp.Empty)


def _unary(function: Callable[[Any], Any], request: Any) -> Any:
    def handle(message: Any, context: Any) -> Any:
        try:
            return function(message)
        except FailedCall as refusal:
            context.abort(grpc.StatusCode.UNKNOWN, str(refusal))

    return grpc.unary_unary_rpc_method_handler(
        handle, request_deserializer=request.FromString, response_serializer=_serialize
    )


def _caller(channel: Any, service: str, method: str, response: Any) -> Callable[..., Any]:
    caller: Callable[..., Any] = channel.unary_unary(
        f"/{service}/{method}", request_serializer=_serialize, response_deserializer=response.FromString
    )
    return caller


def _serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
