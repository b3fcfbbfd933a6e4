"""Booking a pod on a node: what it takes from the arrays, and how the same is given back.

Used by the store for pods that are bound; the compiled placement kernels book the same way inside a decision.
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

ALLOCATED_DEVICES = "windlass.dev/allocated-devices"
ASSIGNED_DEVICES = "windlass.dev/devices"
MILLI_PER_GPU = 1000


def account_pod(
    state: NodeState,
    row: int,
    shape: Shape,
    grants: tuple[DeviceGrant, ...],
    resources: ResourceColumns,
    sign: int = 1,
) -> None:
    """Take the pod's request (`sign` 1) from node `row`, or give it back (`sign` -1)."""
    for name, amount in shape.requests:
        state.free[row, resources.column(name)] -= sign * amount
    devices = state.devices(row)
    for grant in grants:
        if grant.index >= len(devices):
            continue  # the device is gone since (a node that came back smaller)
        device = devices[grant.index]
        if grant.profile:
            _book_slices(state, device, grant, sign)
        elif state.device_info[device, HEALTHY]:
            # One that fell ill under its pod has no room to give, neither before nor after.
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
    """Take the requests of many pods, each from its node; those whose node is below 0 take nothing."""
    if not len(state.node_info):
        return
    known: dict[int, tuple[Ints, int]] = {}
    taken, nodes, kinds, devices, milli = [], [], [], [], []
    ranges = state.node_info[:, (DEV_FIRST, DEV_END)][np.maximum(rows, 0)].tolist()
    for row, shape, granted, (first, end) in zip(rows, shapes, grants, ranges, strict=True):
        if row < 0:
            continue
        if granted and (granted[0].profile or first + max(grant.index for grant in granted) >= end):
            account_pod(state, row, shape, granted, resources)
            continue
        asks = known.get(shape.number)
        if asks is None:
            asks = known[shape.number] = _asks(shape, resources, state.free.shape[1])
        nodes.append(row)
        taken.append(asks[0])
        kinds.append(asks[1])
        for grant in granted:
            devices.append(first + grant.index)
            milli.append(grant.milli)
    if nodes:
        np.subtract.at(state.free, nodes, np.array(taken))
        kind = np.array(kinds)
        np.add.at(state.gpu_pod_counts, (np.array(nodes)[kind >= 0], kind[kind >= 0]), 1)
    if devices:
        np.subtract.at(
            state.device_occupancy[:, FREE_MILLI], devices, milli * state.device_info[devices, HEALTHY]
        )


def _asks(shape: Shape, resources: ResourceColumns, width: int) -> tuple[Ints, int]:
    """What the shape asks for, resource by resource, and the kind of its GPUs (-1: it asks for none)."""
    amounts = np.zeros(width, dtype=np.int64)
    for name, amount in shape.requests:
        amounts[resources.column(name)] = amount
    return amounts, gpu_pod_kind(shape.gpu.count, shape.gpu.milli) if shape.gpu else -1


def _book_slices(state: NodeState, device: int, grant: DeviceGrant, sign: int) -> None:
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
    """The devices of a bound pod: as the node agent reports them, as we gave them, or as they likely are."""
    reported = _indices(annotations.get(ALLOCATED_DEVICES))
    if previous and (not reported or sorted(reported) == sorted(grant.index for grant in previous)):
        return previous
    wish = reported or _indices(annotations.get(ASSIGNED_DEVICES))
    return assume_grants(state, row, shape, wish, bool(reported))


def _indices(text: str | None) -> tuple[int, ...]:
    if not text:
        return ()
    parts = (part.strip() for part in text.split(","))
    return tuple(int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 9)


def assume_grants(
    state: NodeState, row: int, shape: Shape, preferred: tuple[int, ...], reported: bool = False
) -> tuple[DeviceGrant, ...]:
    """Devices of a bound pod: those that were `reported`, else those it was meant to get, else the first with room.

    The kubelet decides which devices a pod gets; until the node agent reports it, this is an assumption.
    """
    gpu = shape.gpu
    if gpu is None:
        return ()
    if gpu.profile:
        return _guess_instances(state, row, gpu, preferred)
    return _guess_shares(state, row, gpu, preferred, reported and len(preferred) == gpu.count)


def _guess_shares(
    state: NodeState, row: int, gpu: GpuRequest, wish: tuple[int, ...], certain: bool
) -> tuple[DeviceGrant, ...]:
    """What is `certain` is believed even where the books have no room: then another pod's entry is out of date."""
    devices = state.devices(row)
    replicas = int(state.node_info[row, REPLICAS])
    stacks = certain or (replicas > 1 and gpu.milli == MILLI_PER_GPU)
    taken = [0] * len(devices)
    for number in range(gpu.count):
        for index in _in_order(wish, number, len(devices)):
            milli = device_share_milli(state, devices[index], gpu, replicas)
            room = certain or int(state.device_occupancy[devices[index], FREE_MILLI]) - taken[index] >= milli
            room = room or _fell_ill(state, devices[index], wish, number, index)
            if room and (stacks or not taken[index]):
                taken[index] += milli
                break
    return tuple(DeviceGrant(index, milli) for index, milli in enumerate(taken) if milli)


def _guess_instances(
    state: NodeState, row: int, gpu: GpuRequest, wish: tuple[int, ...]
) -> tuple[DeviceGrant, ...]:
    """MIG instances at the highest slices that are free; none where the layout is fixed."""
    devices = state.devices(row)
    used = [int(state.device_occupancy[device, USED_SLICES]) for device in devices]
    grants = []
    for number in range(gpu.count):
        for index in _in_order(wish, number, len(devices)):
            if _fell_ill(state, devices[index], wish, number, index):
                break  # it is there still; where its slices are is a question for when the GPU is well again
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


def _fell_ill(state: NodeState, device: int, wish: tuple[int, ...], number: int, index: int) -> bool:
    """A GPU that the pod was sent to is ill by now: it had room for it then, and nothing has moved the pod since."""
    return wish[number : number + 1] == (index,) and not state.device_info[device, HEALTHY]


def _in_order(wish: tuple[int, ...], number: int, devices: int) -> Iterator[int]:
    """Device indices for the pod's share of this number: the one that is wished for, then from the lowest."""
    if number < len(wish) and wish[number] < devices:
        yield wish[number]
    yield from range(devices)


def device_share_milli(state: NodeState, device: int, gpu: GpuRequest, replicas: int) -> int:
    """A request's share of this device: given, or worked out from the memory it needs."""
    if gpu.memory_mib:
        return -(-gpu.memory_mib * MILLI_PER_GPU // max(1, int(state.device_info[device, MEMORY_MIB])))
    return max(1, MILLI_PER_GPU // replicas) if gpu.milli == MILLI_PER_GPU else gpu.milli
