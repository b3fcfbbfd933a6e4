"""Chooses the device for a share of a GPU.

Placement picks the device by its own rule. A search for moves has to try the others as well, since the device of a
share decides which other devices stay whole. `move_search`, `move_sequence` and `exact_solver` use it.
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.cluster.node_state import FREE_MILLI, MODEL, REPLICAS
from windlass.cluster.pod_accounting import device_share_milli
from windlass.cluster.shape import Shape
from windlass.model.pod import Pod
from windlass.placement.defrag.types import ANY_DEVICE
from windlass.placement.kernel_arrays import MODELS
from windlass.placement.overlay import AssumedPod, Overlay

WHOLE_MILLI = 1000


def is_gpu_share(shape: Shape) -> bool:
    """Whether a pod of this shape takes a part of one device."""
    gpu = shape.gpu
    return gpu is not None and not gpu.profile and gpu.count == 1 and gpu.milli < WHOLE_MILLI


def usable_devices(overlay: Overlay, shape: Shape, row: int, node: int) -> list[tuple[int, int, int]]:
    """(index, thousandths that the pod would take, thousandths free) for every device that it may use."""
    state, gpu = overlay.state, shape.gpu
    if gpu is None:
        return []
    models, replicas = int(overlay.table.shapes[row, MODELS]), int(state.node_info[node, REPLICAS])
    return [
        (
            index,
            device_share_milli(state, device, gpu, replicas),
            int(state.device_occupancy[device, FREE_MILLI]),
        )
        for index, device in enumerate(state.devices(node))
        if models >> int(state.device_info[device, MODEL]) & 1
    ]


def other_devices(overlay: Overlay, shape: Shape, row: int, node: int) -> Iterator[int]:
    """Devices with enough free, other than the one that placement would pick; one of each kind of equal devices."""
    seen: set[tuple[int, int]] = set()
    devices = usable_devices(overlay, shape, row, node)
    picked = int(overlay.table.cells.device[overlay.slot(row), node])
    for index, milli, free in devices:
        if index == picked:
            seen.add((milli, free))
    for index, milli, free in devices:
        if milli <= free and (milli, free) not in seen:
            seen.add((milli, free))
            yield index


def assume_on_device(overlay: Overlay, pod: Pod, row: int, node: int, device: int = ANY_DEVICE) -> AssumedPod:
    """Assume the pod on the node, on this device where one is named."""
    slot, cells = overlay.refresh(row), overlay.table.cells
    picked = int(cells.device[slot, node])
    if device != ANY_DEVICE and picked != ANY_DEVICE:
        cells.device[slot, node] = device
    assumed = overlay.assume(pod, row, node)
    # The overlay may roll back to the state before, for which the cell has to hold what placement picks.
    cells.device[slot, node] = picked
    return assumed
