"""The GPUs that the scheduler chose for pods of this node, and the GPUs that the kubelet allocated.

The scheduler writes `windlass.dev/devices` when it binds a pod. The sidecar watches the pods of its node and writes
the choices for pending pods to a file; the plugin follows a choice if exactly one pending pod matches a request,
since the kubelet does not say for which pod it asks. `reporter` reads the allocation from PodResources and writes
it to the pod as `windlass.dev/allocated-devices`, which the scheduler trusts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from windlass.model.digits import is_digits
from windlass.model.names.nvidia import NVIDIA_PREFIX
from windlass.model.names.windlass import DEVICES_ANNOTATION
from windlass.node.atomic_file import write_atomically
from windlass.node.exporter.collection_context import DeviceHolder
from windlass.sharing.inventory import Inventory


class PendingPod(msgspec.Struct, frozen=True):
    pod: str
    resource: str
    size: int
    devices: tuple[int, ...]


def pending_pods(pods: Iterable[Mapping[str, Any]], holders: Mapping[str, Sequence[DeviceHolder]]) -> list[PendingPod]:
    """Pods with the annotation that hold no device yet."""
    served = {(holder.namespace, holder.pod) for held in holders.values() for holder in held}
    found = []
    for pod in pods:
        metadata = pod["metadata"]
        preferred = (metadata.get("annotations") or {}).get(DEVICES_ANNOTATION, "")
        key = (metadata.get("namespace", ""), metadata["name"])
        if not preferred or key in served or pod.get("status", {}).get("phase", "Pending") != "Pending":
            continue
        indices = tuple(int(index) for index in preferred.split(",") if is_digits(index.strip()))
        for resource, size in _requested_devices(pod):
            found.append(PendingPod("/".join(key), resource, size, indices))
    return found


def _requested_devices(pod: Mapping[str, Any]) -> list[tuple[str, int]]:
    found = []
    for container in pod.get("spec", {}).get("containers", ()):
        for name, amount in (container.get("resources", {}).get("limits") or {}).items():
            if name.startswith(NVIDIA_PREFIX) and is_digits(str(amount)):
                found.append((name, int(amount)))
    return found


def write_preferred_devices(path: Path, pending: Sequence[PendingPod]) -> None:
    write_atomically(path, msgspec.json.encode(pending))


class PreferredDevicesFile:
    """The plugin's side."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, resource: str, size: int) -> tuple[int, ...]:
        try:
            pending = msgspec.json.decode(self._path.read_bytes(), type=list[PendingPod])
        except (OSError, msgspec.MsgspecError):
            return ()
        matching = [pod for pod in pending if (pod.resource, pod.size) == (resource, size)]
        return matching[0].devices if len(matching) == 1 else ()


def allocated_devices(
    inventory: Inventory, holders: Mapping[str, Sequence[DeviceHolder]]
) -> dict[tuple[str, str], str]:
    """By pod: the indices of the GPUs that it holds entirely or in part."""
    found: dict[tuple[str, str], set[int]] = {}
    for uuid, held in holders.items():
        gpu = inventory.parent_of(uuid)
        for holder in held if gpu is not None else ():
            assert gpu is not None
            found.setdefault((holder.namespace, holder.pod), set()).add(gpu.index)
    return {key: ",".join(map(str, sorted(indices))) for key, indices in found.items()}
