"""Which pod holds which device: the kubelet's PodResources API, and the cgroups of processes.

The exporter asks once per collection, the MIG manager before it changes an instance. Device IDs are mapped to the
GPU or MIG device behind them, so plain, `.shared` and MIG resources join alike, whatever their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from google.protobuf.message import DecodeError

from windlass.model.names.nvidia import NVIDIA_PREFIX
from windlass.node.backend.protocol import DeviceError
from windlass.node.exporter.collection_context import DeviceClaim, DeviceHolder
from windlass.node.exporter.resource_slices import DRIVER, DeviceUuid
from windlass.node.host_root import HostRoot
from windlass.node.protos import podresources_pb2 as pr
from windlass.node.unary_call import call_unary

_METHOD = "/v1.PodResourcesLister/List"
_TIMEOUT_SECONDS = 5.0
_POD_UID = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")


class PodResources:
    def __init__(self, socket: Path, uuid_of: DeviceUuid = lambda pool, device: "") -> None:
        """`uuid_of` finds devices that pods hold by claims (DRA)."""
        self._socket, self._uuid_of = socket, uuid_of

    def holders(self, uids: Mapping[tuple[str, str], str] | None = None) -> dict[str, list[DeviceHolder]]:
        """Containers by UUID of the GPU or MIG device; empty if the kubelet does not answer.

        `uids` are the pods' UIDs by namespace and name from the API server; PodResources has none.
        """
        try:
            return self.holders_or_raise(uids)
        except DeviceError:
            return {}

    def holders_or_raise(self, uids: Mapping[tuple[str, str], str] | None = None) -> dict[str, list[DeviceHolder]]:
        """Like `holders`, but a `DeviceError` if the kubelet does not answer."""
        request = pr.ListPodResourcesRequest().SerializeToString()
        data = call_unary(self._socket, _METHOD, request, _TIMEOUT_SECONDS)
        try:
            answer = pr.ListPodResourcesResponse.FromString(data)
        except DecodeError:
            raise DeviceError(f"{self._socket} sent an answer that is not a PodResources list") from None
        return holders_from_response(answer, uids or {}, self._uuid_of)


def holders_from_response(
    answer: pr.ListPodResourcesResponse,
    uids: Mapping[tuple[str, str], str],
    uuid_of: DeviceUuid = lambda pool, device: "",
) -> dict[str, list[DeviceHolder]]:
    found: dict[str, dict[DeviceHolder, None]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            uid = uids.get((pod.namespace, pod.name), "")
            holder = DeviceHolder(pod.name, pod.namespace, container.name, uid)
            for devices in container.devices:
                if not devices.resource_name.startswith(NVIDIA_PREFIX):
                    continue
                for device_id in devices.device_ids:
                    found.setdefault(physical_device_id(device_id), {})[holder] = None
            for claim in _claims(container):
                uuid = uuid_of(claim.pool, claim.device)
                if uuid:
                    found.setdefault(uuid, {})[msgspec.structs.replace(holder, claim=claim)] = None
    return {uuid: list(holders) for uuid, holders in found.items()}


def _claims(container: pr.ContainerResources) -> list[DeviceClaim]:
    return [
        DeviceClaim(resource.claim_name, resource.claim_namespace, DRIVER, device.pool_name, device.device_name)
        for resource in container.dynamic_resources
        for device in resource.claim_resources
        if device.driver_name == DRIVER
    ]


def physical_device_id(device_id: str) -> str:
    """The GPU or MIG device behind an ID: `GPU-…::3` → `GPU-…`."""
    return device_id.partition("::")[0]


def pod_uids_of_processes(root: HostRoot, pids: Iterable[int]) -> dict[int, str]:
    """UID of the pod of each process, by its cgroup; processes outside pods are left out."""
    found = {}
    for pid in pids:
        match = _POD_UID.search(root.read(f"/proc/{pid}/cgroup"))
        if match:
            found[pid] = match[1].replace("_", "-")
    return found
