"""Shares of a GPU and the device that each goes to.

Placement picks the device by its own rule. A search for moves has to be able to try the others as well: which device a
half goes to decides whether another one stays whole. Used by `search`, `stage` and `exact`.
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
    """(index, milli that it would take, milli that are free) for every device that such a pod may use."""
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
    """Devices with room beside the one that placement would pick; of those that look alike, one."""
    seen: set[tuple[int, int]] = set()
    found = usable_devices(overlay, shape, row, node)
    picked = int(overlay.table.cells.device[row, node])
    for index, milli, free in found:
        if index == picked:
            seen.add((milli, free))
    for index, milli, free in found:
        if milli <= free and (milli, free) not in seen:
            seen.add((milli, free))
            yield index


def assume_on_device(overlay: Overlay, pod: Pod, row: int, node: int, device: int = ANY_DEVICE) -> AssumedPod:
    """The pod on the node, on this device where it has room."""
    overlay.refresh(row)
    cells = overlay.table.cells
    picked = int(cells.device[row, node])
    if device != ANY_DEVICE and picked != ANY_DEVICE:
        cells.device[row, node] = device
    placing = overlay.assume(pod, row, node)
    cells.device[row, node] = (
        picked  # the cell stays true to the state before, to which the overlay may go back
    )
    return placing
