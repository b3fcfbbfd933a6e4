"""Booking a pod on a node: what it takes from the arrays, and how the same is given back.

Used by the store for pods that are bound; the compiled placement kernels book the same way inside a decision.
"""

from __future__ import annotations

from windlass.cluster.columns import instance_mask, profile_in
from windlass.cluster.resources import ResourceBook
from windlass.cluster.shape import Shape
from windlass.cluster.state import NodeState, kind_of
from windlass.model.decision import DeviceGrant


def book(
    state: NodeState, row: int, shape: Shape, grants: tuple[DeviceGrant, ...], resources: ResourceBook, sign: int = 1
) -> None:
    """Take the pod's request (`sign` 1) from node `row`, or give it back (`sign` -1)."""
    for name, amount in shape.requests:
        state.free[row, resources.column(name)] -= sign * amount
    first = int(state.dev_start[row])
    for grant in grants:
        device = first + grant.index
        if device >= int(state.dev_start[row + 1]):
            continue  # the device is gone since (a node that came back smaller)
        if grant.profile:
            _book_slices(state, device, grant, sign)
        else:
            state.dev_free[device] -= sign * grant.milli
    if shape.gpu:
        state.kinds[row, kind_of(shape.gpu.count, shape.gpu.milli)] += sign


def _book_slices(state: NodeState, device: int, grant: DeviceGrant, sign: int) -> None:
    geometry = int(state.dev_geometry[device])
    profile = profile_in(geometry, grant.profile)
    if profile is None or grant.start < 0:
        return
    mask = instance_mask(geometry, profile, grant.start)
    if sign > 0:
        state.dev_slices[device] |= mask
    else:
        state.dev_slices[device] &= ~mask


def guess_grants(state: NodeState, row: int, shape: Shape, wish: tuple[int, ...]) -> tuple[DeviceGrant, ...]:
    """Devices of a bound pod that nobody has reported: those it was meant to get, else the first with room.

    The kubelet decides which devices a pod gets; until the node agent reports it, this is an assumption.
    """
    gpu = shape.gpu
    if gpu is None or gpu.profile:
        return ()
    first, end = int(state.dev_start[row]), int(state.dev_start[row + 1])
    replicas = int(state.replicas[row])
    grants: list[DeviceGrant] = []
    given = dict.fromkeys(range(end - first), 0)
    for _ in range(gpu.count):
        best = -1
        for index in (*wish, *range(end - first)):
            if index not in given or (given[index] and replicas == 1):
                continue
            milli = _milli_on(state, first + index, gpu.milli, gpu.memory_mib, replicas)
            if state.dev_free[first + index] - given[index] >= milli:
                best = index
                break
        if best < 0:
            break
        milli = _milli_on(state, first + best, gpu.milli, gpu.memory_mib, replicas)
        given[best] += milli
        grants.append(DeviceGrant(best, milli))
    return tuple(grants)


def _milli_on(state: NodeState, device: int, milli: int, memory_mib: int, replicas: int) -> int:
    """A request's share of this device: given, or worked out from the memory it needs."""
    if memory_mib:
        size = max(1, int(state.dev_memory[device]))
        return min(1001, -(-memory_mib * 1000 // size))
    return milli // replicas if milli == 1000 else milli
