"""Inside a node: is there room on its devices, which ones are taken, how are they given back.

Called by the table kernels for one shape (row `s`) on one node (`n`).
"""

from __future__ import annotations

import numpy as np

from windlass.cluster.state import Ints, NodeState
from windlass.model.reasons import (
    WHY_GPU_DEVICE_ROOM,
    WHY_GPU_MEMORY,
    WHY_GPU_MODEL,
    WHY_GPU_UNHEALTHY,
    WHY_MIG_NO_ROOM,
)
from windlass.placement.arrays import ShapeRows

WHOLE = 1000
NO_ROOM = np.uint64(WHY_GPU_DEVICE_ROOM)
NO_MEMORY = np.uint64(WHY_GPU_MEMORY)
NO_MODEL = np.uint64(WHY_GPU_MODEL)
NOT_HEALTHY = np.uint64(WHY_GPU_UNHEALTHY)
NO_MIG_ROOM = np.uint64(WHY_MIG_NO_ROOM)
FITS = np.uint64(0)


def milli_needed(nodes: NodeState, shapes: ShapeRows, s: int, n: int, device: int) -> int:
    """What one share of shape `s` takes of this device: as asked, or as much as its memory needs."""
    if shapes.memory[s] > 0:
        size = max(1, nodes.dev_memory[device])
        return -((-shapes.memory[s] * WHOLE) // size)
    if shapes.milli[s] == WHOLE:
        return WHOLE // nodes.replicas[n]
    return shapes.milli[s]


def device_reasons(nodes: NodeState, shapes: ShapeRows, s: int, n: int) -> np.uint64:
    """Why the devices of node `n` can't take shape `s`; 0 if they can."""
    if shapes.mig_request[s] >= 0:
        return mig_reasons(nodes, shapes, s, n)
    room, right_model, sick, big_enough = 0, 0, 0, 0
    replicas = nodes.replicas[n]
    for device in range(nodes.dev_start[n], nodes.dev_start[n + 1]):
        if shapes.allowed[s, nodes.dev_model[device]] == 0:
            continue
        right_model += 1
        need = milli_needed(nodes, shapes, s, n, device)
        if need > WHOLE:
            continue
        big_enough += 1
        if nodes.dev_healthy[device] == 0:
            sick += 1
        elif nodes.dev_free[device] >= need:
            room += nodes.dev_free[device] // need if replicas > 1 else 1
    wanted = shapes.gpus[s]
    if room >= wanted:
        return FITS
    if right_model == 0 and nodes.dev_start[n] < nodes.dev_start[n + 1]:
        return NO_MODEL
    if right_model > 0 and big_enough == 0:
        return NO_MEMORY
    if room + sick >= wanted:
        return NOT_HEALTHY
    return NO_ROOM


def has_geometry(nodes: NodeState, n: int) -> bool:
    """Whether MIG instances can be made on this node as they are asked for."""
    for device in range(nodes.dev_start[n], nodes.dev_start[n + 1]):
        if nodes.dev_geometry[device] >= 0:
            return True
    return False


def mig_reasons(nodes: NodeState, shapes: ShapeRows, s: int, n: int) -> np.uint64:
    """Room for the asked number of MIG instances; where layouts are fixed, the counted resource says it all."""
    if not has_geometry(nodes, n):
        return FITS
    found = 0
    for device in range(nodes.dev_start[n], nodes.dev_start[n + 1]):
        used = nodes.dev_slices[device]
        while found < shapes.gpus[s]:
            start = mig_start(nodes, shapes, s, device, used)
            if start < 0:
                break
            used |= mig_mask(nodes, shapes, s, device, start)
            found += 1
    return FITS if found >= shapes.gpus[s] else NO_MIG_ROOM


def mig_start(nodes: NodeState, shapes: ShapeRows, s: int, device: int, used: int) -> int:
    """The highest slice where an instance fits (the low slices suit the large profiles), or -1."""
    geometry = nodes.dev_geometry[device]
    if geometry < 0 or shapes.mig_slices[s, geometry] == 0:
        return -1
    if shapes.allowed[s, nodes.dev_model[device]] == 0:
        return -1
    for start in range(7, -1, -1):
        if (shapes.mig_starts[s, geometry] >> start) & 1 and mig_mask(
            nodes, shapes, s, device, start
        ) & used == 0:
            return start
    return -1


def mig_mask(nodes: NodeState, shapes: ShapeRows, s: int, device: int, start: int) -> int:
    geometry = nodes.dev_geometry[device]
    return (shapes.mig_slices[s, geometry] << start) | shapes.mig_media[s, geometry]


def pick_devices(nodes: NodeState, shapes: ShapeRows, s: int, n: int, wish: int, islands: bool) -> np.uint64:
    """Take the devices of a pod that fits; returns them packed (one hexadecimal digit a device).

    `wish` is the device that the scorer chose for a share. Whole GPUs come from the lowest numbers, or, with
    `islands`, from the NVLink island that they fill best.
    """
    first, end = nodes.dev_start[n], nodes.dev_start[n + 1]
    island = best_island(nodes, shapes, s, n) if islands else -1
    packed = np.uint64(0)
    left = shapes.gpus[s]
    if wish >= 0:
        nodes.dev_free[first + wish] -= milli_needed(nodes, shapes, s, n, first + wish)
        packed += np.uint64(1) << np.uint64(4 * wish)
        left -= 1
    for turn in range(2):
        for device in range(first, end):
            if left == 0:
                break
            if turn == 0 and island >= 0 and nodes.dev_island[device] != island:
                continue
            if shapes.allowed[s, nodes.dev_model[device]] == 0:
                continue
            need = milli_needed(nodes, shapes, s, n, device)
            index = np.uint64(4 * (device - first))
            while left > 0 and nodes.dev_free[device] >= need:
                if nodes.replicas[n] == 1 and (packed >> index) & np.uint64(15):
                    break
                nodes.dev_free[device] -= need
                packed += np.uint64(1) << index
                left -= 1
    return packed


def best_island(nodes: NodeState, shapes: ShapeRows, s: int, n: int) -> int:
    """The NVLink island with the fewest free devices that still holds the whole pod, or -1."""
    best, best_room = -1, 1 << 30
    for device in range(nodes.dev_start[n], nodes.dev_start[n + 1]):
        island = nodes.dev_island[device]
        room = island_room(nodes, shapes, s, n, island)
        if shapes.gpus[s] <= room < best_room:
            best, best_room = island, room
    return best


def island_room(nodes: NodeState, shapes: ShapeRows, s: int, n: int, island: int) -> int:
    room = 0
    for device in range(nodes.dev_start[n], nodes.dev_start[n + 1]):
        if nodes.dev_island[device] != island or shapes.allowed[s, nodes.dev_model[device]] == 0:
            continue
        if nodes.dev_free[device] >= milli_needed(nodes, shapes, s, n, device):
            room += 1
    return room


def pick_instances(nodes: NodeState, shapes: ShapeRows, s: int, n: int) -> np.uint64:
    """Make the MIG instances of a pod that fits; returns them packed (one byte each: device, start)."""
    packed, found = np.uint64(0), 0
    for device in range(nodes.dev_start[n], nodes.dev_start[n + 1]):
        while found < min(shapes.gpus[s], 8):
            start = mig_start(nodes, shapes, s, device, nodes.dev_slices[device])
            if start < 0:
                break
            nodes.dev_slices[device] |= mig_mask(nodes, shapes, s, device, start)
            byte = np.uint64((device - nodes.dev_start[n]) * 16 + start)
            packed |= byte << np.uint64(8 * found)
            found += 1
    return packed


def return_devices(nodes: NodeState, shapes: ShapeRows, s: int, n: int, packed: np.uint64) -> None:
    """Undo `pick_devices` or `pick_instances`."""
    first = nodes.dev_start[n]
    if shapes.mig_request[s] >= 0:
        if has_geometry(nodes, n):
            for i in range(min(shapes.gpus[s], 8)):
                byte = (packed >> np.uint64(8 * i)) & np.uint64(255)
                device = first + np.int64(byte >> np.uint64(4))
                start = np.int64(byte & np.uint64(15))
                nodes.dev_slices[device] &= ~mig_mask(nodes, shapes, s, device, start)
        return
    for device in range(first, nodes.dev_start[n + 1]):
        shares = np.int64((packed >> np.uint64(4 * (device - first))) & np.uint64(15))
        if shares > 0:
            nodes.dev_free[device] += shares * milli_needed(nodes, shapes, s, n, device)


def free_gpu(nodes: NodeState, n: int) -> int:
    """Free milli-GPU of the node, over all its devices."""
    total = 0
    for device in range(nodes.dev_start[n], nodes.dev_start[n + 1]):
        total += nodes.dev_free[device]
    return total


def tightest_device(nodes: NodeState, shapes: ShapeRows, s: int, n: int) -> int:
    """For a share: the device with least room that still fits, the lowest number on ties; -1 for whole GPUs."""
    if shapes.gpus[s] != 1 or shapes.milli[s] == WHOLE or shapes.mig_request[s] >= 0:
        return -1
    first: int = nodes.dev_start[n]
    best = -1
    for device in range(first, nodes.dev_start[n + 1]):
        if shapes.allowed[s, nodes.dev_model[device]] == 0:
            continue
        if nodes.dev_free[device] < milli_needed(nodes, shapes, s, n, device):
            continue
        if best < 0 or nodes.dev_free[device] < nodes.dev_free[best]:
            best = device
    return best - first if best >= 0 else -1


def copy_free(nodes: NodeState, n: int, into: Ints) -> int:
    """The node's free milli-GPU by device into a scratch array; returns how many devices there are."""
    first = nodes.dev_start[n]
    count: int = nodes.dev_start[n + 1] - first
    for i in range(count):
        into[i] = nodes.dev_free[first + i]
    return count
