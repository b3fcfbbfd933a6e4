"""What a bound pod takes from its node's row of the arrays, and which devices it has.

The store calls it for bound pods. Inside a decision, `placement.kernels.devices` accounts the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from windlass.cluster.node_state import (
    DEV_END,
    DEV_FIRST,
    FREE_MILLI,
    GEOMETRY,
    HEALTHY,
    MEMORY_MIB,
    REPLICAS,
    USED_SLICES,
    Ints,
    NodeState,
    gpu_pod_kind,
)
from windlass.cluster.resource_columns import ResourceColumns
from windlass.cluster.shape import Shape
from windlass.model.decision import DeviceGrant
from windlass.model.gpu import GpuRequest
from windlass.model.mig import GEOMETRIES, find_profile
from windlass.model.names.windlass import ALLOCATED_DEVICES_ANNOTATION, DEVICES_ANNOTATION

MILLI_PER_GPU = 1000


def account_pod(
    state: NodeState,
    row: int,
    shape: Shape,
    grants: tuple[DeviceGrant, ...],
    resources: ResourceColumns,
    sign: int = 1,
) -> None:
    """Takes the pod's request (`sign` 1) from node `row`, or gives it back (`sign` -1)."""
    for name, amount in shape.requests:
        state.free[row, resources.column(name)] -= sign * amount
    devices = state.devices(row)
    for grant in grants:
        if grant.index >= len(devices):
            continue  # the node has fewer devices than when the pod was bound
        device = devices[grant.index]
        if grant.profile:
            _account_slices(state, device, grant, sign)
        elif state.device_info[device, HEALTHY]:
            # An unhealthy device has no free share, with or without its pod.
            state.device_occupancy[device, FREE_MILLI] -= sign * grant.milli
    if shape.gpu:
        state.gpu_pod_counts[row, gpu_pod_kind(shape.gpu.count, shape.gpu.milli)] += sign


def account_pods(
    state: NodeState,
    rows: Sequence[int],
    shapes: Sequence[Shape],
    grants: Sequence[tuple[DeviceGrant, ...]],
    resources: ResourceColumns,
) -> None:
    """`account_pod` for many pods, in few array operations; pods whose node is below 0 take nothing."""
    if not len(state.node_info):
        return
    requests_by_shape: dict[int, tuple[Ints, int]] = {}
    amounts, nodes, kinds, devices, milli = [], [], [], [], []
    device_ranges = state.node_info[:, (DEV_FIRST, DEV_END)][np.maximum(rows, 0)].tolist()
    for row, shape, granted, (first, end) in zip(rows, shapes, grants, device_ranges, strict=True):
        if row < 0:
            continue
        # MIG slices and devices that don't exist any more are rare: they are accounted one by one.
        if granted and (granted[0].profile or first + max(grant.index for grant in granted) >= end):
            account_pod(state, row, shape, granted, resources)
            continue
        requests = requests_by_shape.get(shape.number)
        if requests is None:
            requests = requests_by_shape[shape.number] = _requests(shape, resources, state.free.shape[1])
        nodes.append(row)
        amounts.append(requests[0])
        kinds.append(requests[1])
        for grant in granted:
            devices.append(first + grant.index)
            milli.append(grant.milli)
    if nodes:
        np.subtract.at(state.free, nodes, np.array(amounts))
        kind = np.array(kinds)
        np.add.at(state.gpu_pod_counts, (np.array(nodes)[kind >= 0], kind[kind >= 0]), 1)
    if devices:
        healthy = state.device_info[devices, HEALTHY]
        np.subtract.at(state.device_occupancy[:, FREE_MILLI], devices, milli * healthy)


def _requests(shape: Shape, resources: ResourceColumns, width: int) -> tuple[Ints, int]:
    """[resource column] the shape's requests, and the kind of its GPU request (-1: none)."""
    amounts = np.zeros(width, dtype=np.int64)
    for name, amount in shape.requests:
        amounts[resources.column(name)] += amount  # several may have one column: what no node has
    return amounts, gpu_pod_kind(shape.gpu.count, shape.gpu.milli) if shape.gpu else -1


def _account_slices(state: NodeState, device: int, grant: DeviceGrant, sign: int) -> None:
    geometry = int(state.device_info[device, GEOMETRY])
    profile = find_profile(geometry, grant.profile)
    if profile is None or grant.start < 0:
        return
    mask = GEOMETRIES[geometry].mask(profile, grant.start)
    if sign > 0:
        state.device_occupancy[device, USED_SLICES] |= mask
    else:
        state.device_occupancy[device, USED_SLICES] &= ~mask


def grants_of_bound_pod(
    state: NodeState,
    row: int,
    shape: Shape,
    annotations: Mapping[str, str],
    previous: tuple[DeviceGrant, ...] = (),
) -> tuple[DeviceGrant, ...]:
    """The devices of a bound pod: those that the node agent reports, else those of our bind, else a guess."""
    named = named_devices(annotations)
    if previous and (not named or sorted(named) in _names_of(previous)):
        return previous
    return assume_grants(state, row, shape, named, bool(_indices(annotations.get(ALLOCATED_DEVICES_ANNOTATION))))


def named_devices(annotations: Mapping[str, str]) -> tuple[int, ...]:
    """Those that the node agent reports, else those of our bind."""
    return _indices(annotations.get(ALLOCATED_DEVICES_ANNOTATION)) or _indices(annotations.get(DEVICES_ANNOTATION))


def is_contested(state: NodeState, row: int, grants: tuple[DeviceGrant, ...], annotations: Mapping[str, str]) -> bool:
    """Whether the pod, accounted already, names a device that another pod has too."""
    named = named_devices(annotations)
    if not named:
        return False
    devices = state.devices(row)
    return sorted(named) not in _names_of(grants) or any(
        grant.index < len(devices) and state.device_occupancy[devices[grant.index], FREE_MILLI] < 0 for grant in grants
    )


def _names_of(grants: tuple[DeviceGrant, ...]) -> tuple[list[int], list[int]]:
    """How these devices may be reported: each once, or a GPU as often as the pod has replicas of it."""
    named = sorted(grant.index for grant in grants for _ in range(grant.replicas))
    return sorted(grant.index for grant in grants), named


def _indices(text: str | None) -> tuple[int, ...]:
    if not text:
        return ()
    parts = (part.strip() for part in text.split(","))
    return tuple(int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 9)


def assume_grants(
    state: NodeState, row: int, shape: Shape, preferred: tuple[int, ...], reported: bool = False
) -> tuple[DeviceGrant, ...]:
    """Devices of a bound pod: the `preferred` ones where they were reported or have room, else the first with room.

    The kubelet decides which devices a pod gets; until the node agent reports them, this is an assumption.
    """
    gpu = shape.gpu
    if gpu is None:
        return ()
    if gpu.profile:
        return _guess_instances(state, row, gpu, preferred)
    return _guess_shares(state, row, gpu, preferred, reported and len(preferred) == gpu.count)


def _guess_shares(
    state: NodeState, row: int, gpu: GpuRequest, preferred: tuple[int, ...], is_reported: bool
) -> tuple[DeviceGrant, ...]:
    """Reported devices are taken even where they look full: then another pod's assumed devices are wrong."""
    devices = state.devices(row)
    replicas = int(state.node_info[row, REPLICAS])
    may_share_device = is_reported or (replicas > 1 and gpu.milli == MILLI_PER_GPU)
    shares = [device_share_milli(state, device, gpu, replicas) for device in devices]
    free = state.device_occupancy[devices.start : devices.stop, FREE_MILLI].tolist()
    amounts, counts = [0] * len(devices), [0] * len(devices)
    for number in range(gpu.count):
        for index in _device_order(preferred, number, len(devices)):
            if amounts[index] and not may_share_device:
                continue
            has_room = is_reported or free[index] - amounts[index] >= shares[index]
            if has_room or _became_unhealthy(state, devices[index], preferred, number, index):
                amounts[index] += shares[index]
                counts[index] += 1
                break
    return tuple(DeviceGrant(index, milli, replicas=counts[index]) for index, milli in enumerate(amounts) if milli)


def _guess_instances(
    state: NodeState, row: int, gpu: GpuRequest, preferred: tuple[int, ...]
) -> tuple[DeviceGrant, ...]:
    """MIG instances at the highest free slices; none where the MIG layout is fixed."""
    devices = state.devices(row)
    used = [int(state.device_occupancy[device, USED_SLICES]) for device in devices]
    grants = []
    for number in range(gpu.count):
        for index in _device_order(preferred, number, len(devices)):
            if _became_unhealthy(state, devices[index], preferred, number, index):
                break  # the instance stays there; its slices are accounted when the GPU is healthy again
            geometry = int(state.device_info[devices[index], GEOMETRY])
            profile = find_profile(geometry, gpu.profile)
            starts = profile.starts if profile else ()
            masks = {start: GEOMETRIES[geometry].mask(profile, start) for start in starts if profile}
            start = max((start for start, mask in masks.items() if not mask & used[index]), default=-1)
            if start >= 0:
                used[index] |= masks[start]
                grants.append(DeviceGrant(index, profile=gpu.profile, start=start))
                break
    return tuple(grants)


def _became_unhealthy(state: NodeState, device: int, preferred: tuple[int, ...], number: int, index: int) -> bool:
    """Whether the preferred GPU has become unhealthy: it had room when the pod was bound, and the pod has not moved."""
    return preferred[number : number + 1] == (index,) and not state.device_info[device, HEALTHY]


def _device_order(preferred: tuple[int, ...], number: int, devices: int) -> Iterator[int]:
    """Device indices to try for the pod's device of this number: the preferred one, then all from the lowest. Where
    fewer are named than the pod has, it has several replicas of these."""
    named = preferred[number : number + 1] or preferred
    yield from (index for index in named if index < devices)
    yield from range(devices)


def device_share_milli(state: NodeState, device: int, gpu: GpuRequest, replicas: int) -> int:
    """A request's share of this device: as declared, or computed from the memory that it requests."""
    if gpu.memory_mib:
        return -(-gpu.memory_mib * MILLI_PER_GPU // max(1, int(state.device_info[device, MEMORY_MIB])))
    return max(1, MILLI_PER_GPU // replicas) if gpu.milli == MILLI_PER_GPU else gpu.milli
