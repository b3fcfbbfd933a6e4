"""Booking a pod on a node: what it takes from the arrays, and how the same is given back.

Used by the store for pods that are bound; the compiled placement kernels book the same way inside a decision.
"""

from __future__ import annotations

from windlass.cluster.resources import ResourceBook
from windlass.cluster.shape import Shape
from windlass.cluster.state import FREE, GEOMETRY, MEMORY_MIB, REPLICAS, SLICES, NodeState, kind_of
from windlass.model.decision import DeviceGrant
from windlass.model.gpu import GpuRequest
from windlass.model.mig import GEOMETRIES, find_profile


def book(
    state: NodeState,
    row: int,
    shape: Shape,
    grants: tuple[DeviceGrant, ...],
    resources: ResourceBook,
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
        else:
            state.room[device, FREE] -= sign * grant.milli
    if shape.gpu:
        state.kinds[row, kind_of(shape.gpu.count, shape.gpu.milli)] += sign


def _book_slices(state: NodeState, device: int, grant: DeviceGrant, sign: int) -> None:
    geometry = int(state.device[device, GEOMETRY])
    profile = find_profile(geometry, grant.profile)
    if profile is None or grant.start < 0:
        return
    mask = GEOMETRIES[geometry].mask(profile, grant.start)
    if sign > 0:
        state.room[device, SLICES] |= mask
    else:
        state.room[device, SLICES] &= ~mask


def guess_grants(state: NodeState, row: int, shape: Shape, wish: tuple[int, ...]) -> tuple[DeviceGrant, ...]:
    """Devices of a bound pod that nobody has reported: those it was meant to get, else the first with room.

    The kubelet decides which devices a pod gets; until the node agent reports it, this is an assumption.
    """
    gpu = shape.gpu
    if gpu is None or gpu.profile:
        return ()
    devices = state.devices(row)
    replicas = int(state.node[row, REPLICAS])
    taken = [0] * len(devices)
    order = [index for index in (*wish, *range(len(devices))) if index < len(devices)]
    for _ in range(gpu.count):
        for index in order:
            milli = _milli_on(state, devices[index], gpu, replicas)
            if (replicas > 1 or not taken[index]) and state.room[devices[index], FREE] - taken[
                index
            ] >= milli:
                taken[index] += milli
                break
    return tuple(DeviceGrant(index, milli) for index, milli in enumerate(taken) if milli)


def _milli_on(state: NodeState, device: int, gpu: GpuRequest, replicas: int) -> int:
    """A request's share of this device: given, or worked out from the memory it needs."""
    if gpu.memory_mib:
        return -(-gpu.memory_mib * 1000 // max(1, int(state.device[device, MEMORY_MIB])))
    return gpu.milli // replicas if gpu.milli == 1000 else gpu.milli
