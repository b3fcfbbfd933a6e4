"""The engine's wishes for devices, and what the kubelet really gave.

The scheduler writes `windlass.dev/devices` with a binding. The process beside the plugin sees the pods of its node, and
leaves in a file what waiting pods wish for; the plugin steers by it where exactly one waiting pod matches a request,
since the kubelet doesn't say for whom it asks. What was given stands in PodResources, and is written back to the pod as
`windlass.dev/allocated-devices`, which the scheduler believes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from windlass.node.atomic_file import write_atomically
from windlass.node.exporter.collection_context import DeviceHolder
from windlass.sharing.inventory import Inventory

PREFERRED_DEVICES_ANNOTATION, ALLOCATED_DEVICES_ANNOTATION = (
    "windlass.dev/devices",
    "windlass.dev/allocated-devices",
)


class PendingPod(msgspec.Struct, frozen=True):
    pod: str
    resource: str
    size: int
    devices: tuple[int, ...]


def pending_pods(
    pods: Iterable[Mapping[str, Any]], holders: Mapping[str, Sequence[DeviceHolder]]
) -> list[PendingPod]:
    """Pods with a wish that hold no device yet."""
    served = {(each.namespace, each.pod) for held in holders.values() for each in held}
    found = []
    for pod in pods:
        metadata = pod["metadata"]
        wish = (metadata.get("annotations") or {}).get(PREFERRED_DEVICES_ANNOTATION, "")
        key = (metadata.get("namespace", ""), metadata["name"])
        if not wish or key in served or pod.get("status", {}).get("phase", "Pending") != "Pending":
            continue
        indices = tuple(int(word) for word in wish.split(",") if word.strip().isdigit())
        for resource, size in _asked(pod):
            found.append(PendingPod("/".join(key), resource, size, indices))
    return found


def _asked(pod: Mapping[str, Any]) -> list[tuple[str, int]]:
    found = []
    for container in pod.get("spec", {}).get("containers", ()):
        for name, amount in (container.get("resources", {}).get("limits") or {}).items():
            if name.startswith("nvidia.com/") and str(amount).isdigit():
                found.append((name, int(amount)))
    return found


def write_preferred_devices(path: Path, waiting: Sequence[PendingPod]) -> None:
    write_atomically(path, msgspec.json.encode(waiting))


class PreferredDevicesFile:
    """The plugin's side."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, resource: str, size: int) -> tuple[int, ...]:
        try:
            waiting = msgspec.json.decode(self._path.read_bytes(), type=list[PendingPod])
        except (OSError, msgspec.MsgspecError):
            return ()
        fits = [each for each in waiting if (each.resource, each.size) == (resource, size)]
        return fits[0].devices if len(fits) == 1 else ()


def allocated_devices(
    inventory: Inventory, holders: Mapping[str, Sequence[DeviceHolder]]
) -> dict[tuple[str, str], str]:
    """By pod: the indices of the GPUs that it was given, or is given a part of."""
    found: dict[tuple[str, str], set[int]] = {}
    for uuid, held in holders.items():
        gpu = inventory.parent_of(uuid)
        for holder in held if gpu is not None else ():
            assert gpu is not None
            found.setdefault((holder.namespace, holder.pod), set()).add(gpu.index)
    return {key: ",".join(map(str, sorted(indices))) for key, indices in found.items()}
