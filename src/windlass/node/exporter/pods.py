"""Who holds which device: the kubelet's PodResources, and the cgroups of processes.

Asked by the exporter once per pass and by the MIG manager before it touches an instance. Device IDs are looked through
to the GPU or MIG device behind them, so plain, `.shared` and MIG resources join alike, whatever they are called.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import grpc

from windlass.node.exporter.view import Holder
from windlass.node.plugin.rpc import list_caller, unix_channel
from windlass.node.protos import podresources_pb2 as pr
from windlass.node.root import HostRoot
from windlass.sharing.replicas import PREFIX

SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
_SECONDS = 5
_POD_UID = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")


class PodResources:
    """The kubelet's answer, asked over one channel."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._channel = unix_channel(str(socket))
        self._list = list_caller(self._channel)

    def holders(self, uids: Mapping[tuple[str, str], str] | None = None) -> dict[str, list[Holder]]:
        """Containers by UUID of the GPU or MIG device; empty where the kubelet doesn't answer.

        `uids` is what the API server knows about pods, by namespace and name; PodResources doesn't say it.
        """
        try:
            answer = self._list(pr.ListPodResourcesRequest(), timeout=_SECONDS)
        except grpc.RpcError:
            return {}
        return holders_of(answer, uids or {})

    def close(self) -> None:
        self._channel.close()


def holders_of(
    answer: pr.ListPodResourcesResponse, uids: Mapping[tuple[str, str], str]
) -> dict[str, list[Holder]]:
    found: dict[str, list[Holder]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            holder = Holder(pod.name, pod.namespace, container.name, uids.get((pod.namespace, pod.name), ""))
            for devices in container.devices:
                if not devices.resource_name.startswith(PREFIX):
                    continue
                for each in devices.device_ids:
                    holders = found.setdefault(physical(each), [])
                    if holder not in holders:
                        holders.append(holder)
    return found


def physical(device_id: str) -> str:
    """The GPU or MIG device behind an ID: `GPU-…::3` → `GPU-…`."""
    return device_id.partition("::")[0]


def pods_of_processes(root: HostRoot, pids: Iterable[int]) -> dict[int, str]:
    """UID of the pod that each process belongs to, by its cgroup; processes of the host are left out."""
    found = {}
    for pid in pids:
        match = _POD_UID.search(root.read(f"/proc/{pid}/cgroup"))
        if match:
            found[pid] = match[1].replace("_", "-")
    return found
