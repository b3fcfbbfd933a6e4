"""GPU devices inside one node: whether a pod fits, which devices it gets, and their release.

Called by `placement_loop`, `fit_counts` and the scorers for one shape (row `s`) on one node (`n`). Amounts are in
milli-GPU; 1000 is a whole device. A grant is packed into 64 bits: one hexadecimal digit a device (how many shares of
it), or for MIG one byte an instance (see `pick_instances`).
"""

from __future__ import annotations

import numpy as np

from windlass.cluster.node_state import (
    ALIGNMENT,
    DEV_END,
    DEV_FIRST,
    FREE_MILLI,
    GEOMETRY,
    HEALTHY,
    ISLAND,
    MEMORY_MIB,
    MODEL,
    REPLICAS,
    USED_SLICES,
    Ints,
    NodeState,
)
from windlass.model.numa_alignment import ANY_NUMA_NODES, ONE_NUMA_NODE
from windlass.model.reasons import (
    WHY_GPU_ALIGNMENT,
    WHY_GPU_DEVICE_ROOM,
    WHY_GPU_MEMORY,
    WHY_GPU_MODEL,
    WHY_GPU_UNHEALTHY,
    WHY_MIG_NO_ROOM,
)
from windlass.placement.kernel_arrays import FIRST_MIG, GPU_MEMORY, GPU_MILLI, GPUS, MIG_REQUEST, MODELS

WHOLE_MILLI = 1000
MAX_SHARES = 15
"""The most shares of one device for one pod: what a hexadecimal digit of a packed grant can hold."""
MAX_INSTANCES = 8
"""The most MIG instances for one pod: the bytes of a packed grant."""
INSTANCE_BIT = 8
"""Set in every byte in use: tells an instance at slice 0 of the first device from no instance."""
NO_ROOM = np.uint64(WHY_GPU_DEVICE_ROOM)
NOT_ALIGNED = np.uint64(WHY_GPU_ALIGNMENT)
NO_MEMORY = np.uint64(WHY_GPU_MEMORY)
NO_MODEL = np.uint64(WHY_GPU_MODEL)
NOT_HEALTHY = np.uint64(WHY_GPU_UNHEALTHY)
NO_MIG_ROOM = np.uint64(WHY_MIG_NO_ROOM)
FITS = np.uint64(0)


def milli_needed(nodes: NodeState, shapes: Ints, s: int, n: int, device: int) -> int:
    """Milli-GPU that one share of shape `s` takes of this device: as requested, or by its memory, rounded up."""
    if shapes[s, GPU_MEMORY] > 0:
        # A device of unknown size (0) counts as 1 MiB, so that no request by memory fits on it.
        size = max(1, nodes.device_info[device, MEMORY_MIB])
        # Rounded up: rounding down would promise memory that the device does not have.
        return -((-shapes[s, GPU_MEMORY] * WHOLE_MILLI) // size)
    # On a time-sliced node a request for a whole GPU gets one replica.
    if shapes[s, GPU_MILLI] == WHOLE_MILLI and nodes.node_info[n, REPLICAS] > 1:
        # At least 1, for nodes with more than a thousand replicas: a share of 0 would fit without end.
        return max(1, WHOLE_MILLI // nodes.node_info[n, REPLICAS])
    return shapes[s, GPU_MILLI]


def max_shares_of_device(nodes: NodeState, shapes: Ints, s: int, n: int) -> int:
    """How many of its GPUs a pod may get from one device: one, or several replicas of a time-sliced one."""
    return MAX_SHARES if nodes.node_info[n, REPLICAS] > 1 and shapes[s, GPU_MILLI] == WHOLE_MILLI else 1


def shares_in(free: int, need: int, most: int) -> int:
    """How many GPUs the pod can get from a device with this much free."""
    if free < need:
        return 0
    return 1 if most == 1 else min(most, free // need)


def model_allowed(nodes: NodeState, shapes: Ints, s: int, device: int) -> bool:
    return (shapes[s, MODELS] >> nodes.device_info[device, MODEL]) & 1 != 0


def device_reasons(nodes: NodeState, shapes: Ints, s: int, n: int) -> np.uint64:
    """Why the devices of node `n` can't take shape `s`; 0 if they can. One reason, the most fundamental first."""
    if shapes[s, MIG_REQUEST] >= 0:
        return mig_reasons(nodes, shapes, s, n)
    # Shares on healthy devices, shares that repaired devices would add, devices of an allowed model, and large ones.
    shares, unhealthy_shares, right_model, large_enough = 0, 0, 0, 0
    most = max_shares_of_device(nodes, shapes, s, n)
    by_memory = shapes[s, GPU_MEMORY] > 0
    # Without memory the need is that of every device, so that any number will do.
    need = WHOLE_MILLI if by_memory else milli_needed(nodes, shapes, s, n, 0)
    for device in range(nodes.node_info[n, DEV_FIRST], nodes.node_info[n, DEV_END]):
        if not model_allowed(nodes, shapes, s, device):
            continue
        right_model += 1
        if by_memory:
            need = milli_needed(nodes, shapes, s, n, device)
            if need > WHOLE_MILLI:
                continue
        large_enough += 1
        if nodes.device_info[device, HEALTHY] == 0:
            unhealthy_shares += shares_in(WHOLE_MILLI, need, most)
        else:
            shares += shares_in(nodes.device_occupancy[device, FREE_MILLI], need, most)
    wanted = shapes[s, GPUS]
    if shares >= wanted:
        if wanted == 1 or nodes.node_info[n, ALIGNMENT] == ANY_NUMA_NODES or is_aligned(nodes, shapes, s, n):
            return FITS
        return NOT_ALIGNED
    # A node without any GPU has no wrong model: it lacks room.
    if right_model == 0 and nodes.node_info[n, DEV_FIRST] < nodes.node_info[n, DEV_END]:
        return NO_MODEL
    if right_model > 0 and large_enough == 0:
        return NO_MEMORY
    if shares + unhealthy_shares >= wanted:
        return NOT_HEALTHY
    return NO_ROOM


def is_aligned(nodes: NodeState, shapes: Ints, s: int, n: int) -> bool:
    """Whether the kubelet's topology manager admits the pod: its GPUs are free on one NUMA node, or, if none is ever
    large enough and the policy allows it, on several. Groups of devices are NUMA nodes here."""
    most, ever = max_shares_of_device(nodes, shapes, s, n), 0
    for device in range(nodes.node_info[n, DEV_FIRST], nodes.node_info[n, DEV_END]):
        island = nodes.device_info[device, ISLAND]
        if island_shares(nodes, shapes, s, n, island) >= shapes[s, GPUS]:
            return True
        in_island = 0
        for other in range(nodes.node_info[n, DEV_FIRST], nodes.node_info[n, DEV_END]):
            if nodes.device_info[other, ISLAND] == island and model_allowed(nodes, shapes, s, other):
                in_island += shares_in(WHOLE_MILLI, milli_needed(nodes, shapes, s, n, other), most)
        ever = max(ever, in_island)
    return nodes.node_info[n, ALIGNMENT] != ONE_NUMA_NODE and ever < shapes[s, GPUS]


def has_geometry(nodes: NodeState, n: int) -> bool:
    """Whether MIG instances are created on demand on this node (no fixed layout)."""
    for device in range(nodes.node_info[n, DEV_FIRST], nodes.node_info[n, DEV_END]):
        if nodes.device_info[device, GEOMETRY] >= 0:
            return True
    return False


def mig_reasons(nodes: NodeState, shapes: Ints, s: int, n: int) -> np.uint64:
    """Whether the requested number of MIG instances can be created."""
    if not has_geometry(nodes, n):
        return FITS  # a fixed layout: the advertised nvidia.com/mig-* resource decides
    # A packed grant has no byte for more.
    if shapes[s, GPUS] > MAX_INSTANCES:
        return NO_MIG_ROOM
    # The same greedy order as in `pick_instances`: what fits here can be taken there.
    found = 0
    for device in range(nodes.node_info[n, DEV_FIRST], nodes.node_info[n, DEV_END]):
        used = nodes.device_occupancy[device, USED_SLICES]
        while found < shapes[s, GPUS]:
            start = mig_start(nodes, shapes, s, device, used)
            if start < 0:
                break
            used |= mig_mask(nodes, shapes, s, device, start)
            found += 1
    return FITS if found >= shapes[s, GPUS] else NO_MIG_ROOM


def mig_start(nodes: NodeState, shapes: Ints, s: int, device: int, used: int) -> int:
    """The highest slice where an instance fits, or -1. High slices first: large profiles need the low ones."""
    geometry = nodes.device_info[device, GEOMETRY]
    if geometry < 0 or shapes[s, FIRST_MIG + 3 * geometry] == 0:
        return -1
    if not model_allowed(nodes, shapes, s, device):
        return -1
    # No geometry has more than eight memory slices, and a packed start has three bits.
    for start in range(7, -1, -1):
        if (shapes[s, FIRST_MIG + 3 * geometry + 1] >> start) & 1 and mig_mask(
            nodes, shapes, s, device, start
        ) & used == 0:
            return start
    return -1


def mig_mask(nodes: NodeState, shapes: Ints, s: int, device: int, start: int) -> int:
    """Slices that an instance at `start` takes, with the bit of the media engines where the profile has them."""
    geometry = nodes.device_info[device, GEOMETRY]
    return (shapes[s, FIRST_MIG + 3 * geometry] << start) | shapes[s, FIRST_MIG + 3 * geometry + 2]


def pick_devices(nodes: NodeState, shapes: Ints, s: int, n: int, preferred: int, islands: bool) -> np.uint64:
    """Take the devices of a pod that fits; returns them packed (one hexadecimal digit a device).

    `preferred` is the device that the scorer chose for a share, or -1. Whole GPUs come from the lowest numbers, or,
    with `islands`, from the NVLink island that they fill best.
    """
    first, end = nodes.node_info[n, DEV_FIRST], nodes.node_info[n, DEV_END]
    island = best_island(nodes, shapes, s, n) if islands or nodes.node_info[n, ALIGNMENT] != ANY_NUMA_NODES else -1
    packed = np.uint64(0)
    left, most = shapes[s, GPUS], max_shares_of_device(nodes, shapes, s, n)
    if preferred >= 0:
        nodes.device_occupancy[first + preferred, FREE_MILLI] -= milli_needed(nodes, shapes, s, n, first + preferred)
        packed += np.uint64(1) << np.uint64(4 * preferred)
        left -= 1
    # First within the chosen island, then anywhere.
    for attempt in range(2):
        for device in range(first, end):
            if left == 0:
                break
            if attempt == 0 and island >= 0 and nodes.device_info[device, ISLAND] != island:
                continue
            if not model_allowed(nodes, shapes, s, device):
                continue
            need = milli_needed(nodes, shapes, s, n, device)
            index = np.uint64(4 * (device - first))
            while left > 0 and nodes.device_occupancy[device, FREE_MILLI] >= need:
                # Two GPUs of a pod are two devices, unless replicas of one are what the node offers.
                if int((packed >> index) & np.uint64(15)) == most:
                    break
                nodes.device_occupancy[device, FREE_MILLI] -= need
                packed += np.uint64(1) << index
                left -= 1
    return packed


def best_island(nodes: NodeState, shapes: Ints, s: int, n: int) -> int:
    """The NVLink island with the fewest free shares that still holds the whole pod, or -1."""
    best, fewest = -1, 1 << 30
    for device in range(nodes.node_info[n, DEV_FIRST], nodes.node_info[n, DEV_END]):
        island = nodes.device_info[device, ISLAND]
        shares = island_shares(nodes, shapes, s, n, island)
        # Strictly fewer: of equal islands the one with the lowest device wins.
        if shapes[s, GPUS] <= shares < fewest:
            best, fewest = island, shares
    return best


def island_shares(nodes: NodeState, shapes: Ints, s: int, n: int, island: int) -> int:
    shares, most = 0, max_shares_of_device(nodes, shapes, s, n)
    for device in range(nodes.node_info[n, DEV_FIRST], nodes.node_info[n, DEV_END]):
        if nodes.device_info[device, ISLAND] == island and model_allowed(nodes, shapes, s, device):
            shares += shares_in(
                nodes.device_occupancy[device, FREE_MILLI], milli_needed(nodes, shapes, s, n, device), most
            )
    return shares


def pick_instances(nodes: NodeState, shapes: Ints, s: int, n: int) -> np.uint64:
    """Create the MIG instances of a pod, as many as fit; returns them packed, one byte each: device number in the high
    four bits, INSTANCE_BIT, start slice in the low three."""
    packed, found = np.uint64(0), 0
    for device in range(nodes.node_info[n, DEV_FIRST], nodes.node_info[n, DEV_END]):
        while found < min(shapes[s, GPUS], MAX_INSTANCES):
            start = mig_start(nodes, shapes, s, device, nodes.device_occupancy[device, USED_SLICES])
            if start < 0:
                break
            nodes.device_occupancy[device, USED_SLICES] |= mig_mask(nodes, shapes, s, device, start)
            byte = np.uint64((device - nodes.node_info[n, DEV_FIRST]) * 16 + INSTANCE_BIT + start)
            packed |= byte << np.uint64(8 * found)
            found += 1
    return packed


def release_or_retake_devices(nodes: NodeState, shapes: Ints, s: int, n: int, packed: np.uint64, sign: int) -> None:
    """Release what `pick_devices` or `pick_instances` took (`sign` 1), or take the same devices again (`sign` -1)."""
    first = nodes.node_info[n, DEV_FIRST]
    if shapes[s, MIG_REQUEST] >= 0:
        if has_geometry(nodes, n):
            for i in range(min(shapes[s, GPUS], MAX_INSTANCES)):
                byte = int((packed >> np.uint64(8 * i)) & np.uint64(255))
                # Instances are packed without gaps, so this is the end.
                if byte & INSTANCE_BIT == 0:
                    break
                device, start = first + (byte >> 4), byte & (INSTANCE_BIT - 1)
                mask = mig_mask(nodes, shapes, s, device, start)
                used = nodes.device_occupancy[device, USED_SLICES]
                nodes.device_occupancy[device, USED_SLICES] = used & ~mask if sign > 0 else used | mask
        return
    for device in range(first, nodes.node_info[n, DEV_END]):
        shares = int((packed >> np.uint64(4 * (device - first))) & np.uint64(15))
        if shares > 0:
            nodes.device_occupancy[device, FREE_MILLI] += sign * shares * milli_needed(nodes, shapes, s, n, device)


def free_gpu(nodes: NodeState, n: int) -> int:
    """Free milli-GPU of the node, over all its devices."""
    total = 0
    for device in range(nodes.node_info[n, DEV_FIRST], nodes.node_info[n, DEV_END]):
        total += nodes.device_occupancy[device, FREE_MILLI]
    return total


def tightest_device(nodes: NodeState, shapes: Ints, s: int, n: int) -> int:
    """For a share: the number of the device with least free that fits, the lowest on ties; -1 for whole GPUs and MIG
    instances, which have the milli-GPU of a whole one."""
    if shapes[s, GPUS] != 1 or shapes[s, GPU_MILLI] == WHOLE_MILLI:
        return -1
    first: int = nodes.node_info[n, DEV_FIRST]
    best = -1
    for device in range(first, nodes.node_info[n, DEV_END]):
        if not model_allowed(nodes, shapes, s, device):
            continue
        if nodes.device_occupancy[device, FREE_MILLI] < milli_needed(nodes, shapes, s, n, device):
            continue
        # The tightest one keeps larger remainders whole; strictly less, so that the lowest number wins ties.
        if best < 0 or nodes.device_occupancy[device, FREE_MILLI] < nodes.device_occupancy[best, FREE_MILLI]:
            best = device
    return best - first if best >= 0 else -1


def copy_free(nodes: NodeState, n: int, into: Ints) -> int:
    """Copies the node's free milli-GPU by device into a scratch array; returns the number of devices."""
    first = nodes.node_info[n, DEV_FIRST]
    count: int = nodes.node_info[n, DEV_END] - first
    for i in range(count):
        into[i] = nodes.device_occupancy[first + i, FREE_MILLI]
    return count


def has_equal_before(nodes: NodeState, first: int, free: Ints, i: int) -> bool:
    """Whether an equal device has a lower number: it scores the same, and the lower number wins."""
    model, memory = nodes.device_info[first + i, MODEL], nodes.device_info[first + i, MEMORY_MIB]
    for j in range(i):
        same_kind = nodes.device_info[first + j, MODEL] == model and nodes.device_info[first + j, MEMORY_MIB] == memory
        if same_kind and free[j] == free[i]:
            return True
    return False


def take_from_free(nodes: NodeState, shapes: Ints, s: int, n: int, free: Ints, islands: bool) -> None:
    """Subtract a pod's devices from the scratch array, in the order of `pick_devices`."""
    if shapes[s, GPUS] == 0 or shapes[s, MIG_REQUEST] >= 0:
        return
    first = nodes.node_info[n, DEV_FIRST]
    island = best_island(nodes, shapes, s, n) if islands or nodes.node_info[n, ALIGNMENT] != ANY_NUMA_NODES else -1
    left, most = shapes[s, GPUS], max_shares_of_device(nodes, shapes, s, n)
    for device in range(first, nodes.node_info[n, DEV_END]):
        # An island is chosen only if it holds the whole pod, so that nothing is left for the others.
        if island >= 0 and nodes.device_info[device, ISLAND] != island:
            continue
        if not model_allowed(nodes, shapes, s, device):
            continue
        need = milli_needed(nodes, shapes, s, n, device)
        taken = min(left, shares_in(free[device - first], need, most))
        free[device - first] -= taken * need
        left -= taken
