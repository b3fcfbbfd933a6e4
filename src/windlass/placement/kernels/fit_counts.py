"""How many pods of one shape each node takes now: the capacities for gangs and the topology search.

Called by `placement.gang` and `placement.combination_search` on the overlay's state, in which pods assumed by the
decision count.
"""

from __future__ import annotations

from windlass.cluster.node_state import (
    ALIGNMENT,
    DEV_END,
    DEV_FIRST,
    FREE_MILLI,
    HEALTHY,
    ISLAND,
    USED_SLICES,
    Ints,
    NodeState,
)
from windlass.model.numa_alignment import ANY_NUMA_NODES
from windlass.placement.kernel_arrays import FIRST_REQUEST, GPUS, MIG_REQUEST, REQUEST_COUNT, Cells
from windlass.placement.kernels.devices import (
    FITS,
    device_reasons,
    has_geometry,
    max_shares_of_device,
    mig_mask,
    mig_start,
    milli_needed,
    model_allowed,
)
from windlass.placement.kernels.placement_loop import add_pod_to_node, node_reasons, remove_pod_from_node

UNLIMITED_PODS = 1 << 31


def fit_count(nodes: NodeState, shapes: Ints, s: int, n: int) -> int:
    """The most pods of shape `s` that the resources and devices of node `n` allow."""
    most = UNLIMITED_PODS
    for j in range(shapes[s, REQUEST_COUNT]):
        if j == shapes[s, MIG_REQUEST] and has_geometry(nodes, n):
            continue  # instances are created on demand, so none are advertised
        most = min(most, nodes.free[n, shapes[s, FIRST_REQUEST + 2 * j]] // shapes[s, FIRST_REQUEST + 2 * j + 1])
    if shapes[s, GPUS] > 0:
        most = min(most, device_count(nodes, shapes, s, n))
    # Free is below 0 on an over-committed node.
    return max(0, most)


def device_count(nodes: NodeState, shapes: Ints, s: int, n: int) -> int:
    """The most pods of shape `s` that the devices of node `n` allow."""
    per_pod = shapes[s, GPUS]
    if shapes[s, MIG_REQUEST] >= 0:
        return instance_count(nodes, shapes, s, n) // per_pod if has_geometry(nodes, n) else UNLIMITED_PODS
    if per_pod > 1 and nodes.node_info[n, ALIGNMENT] != ANY_NUMA_NODES:
        return aligned_pod_count(nodes, shapes, s, n)
    # Replicas of one device may go to one pod, so that a plain sum is right for them.
    if per_pod > 1 and max_shares_of_device(nodes, shapes, s, n) == 1:
        return multi_device_pod_count(nodes, shapes, s, n, -1)
    return total_shares(nodes, shapes, s, n, -1) // per_pod


def total_shares(nodes: NodeState, shapes: Ints, s: int, n: int, island: int) -> int:
    """Shares of the shape that all devices have room for, or those of one island."""
    total = 0
    for device in range(nodes.node_info[n, DEV_FIRST], nodes.node_info[n, DEV_END]):
        if island < 0 or nodes.device_info[device, ISLAND] == island:
            total += shares_on_device(nodes, shapes, s, n, device)
    return total


def aligned_pod_count(nodes: NodeState, shapes: Ints, s: int, n: int) -> int:
    """Pods whose devices are of one NUMA node each. One that needs several is counted once, though more might fit."""
    pods, first, end = 0, nodes.node_info[n, DEV_FIRST], nodes.node_info[n, DEV_END]
    for device in range(first, end):
        island, is_first = nodes.device_info[device, ISLAND], True
        for other in range(first, device):
            is_first = is_first and nodes.device_info[other, ISLAND] != island
        if is_first and max_shares_of_device(nodes, shapes, s, n) == 1:
            pods += multi_device_pod_count(nodes, shapes, s, n, island)
        elif is_first:
            pods += total_shares(nodes, shapes, s, n, island) // shapes[s, GPUS]
    if pods == 0 and device_reasons(nodes, shapes, s, n) == FITS:
        return 1
    return pods


def shares_on_device(nodes: NodeState, shapes: Ints, s: int, n: int, device: int) -> int:
    """How many shares of the shape one device has room for."""
    if nodes.device_info[device, HEALTHY] == 0 or not model_allowed(nodes, shapes, s, device):
        return 0
    return max(0, nodes.device_occupancy[device, FREE_MILLI] // milli_needed(nodes, shapes, s, n, device))


def multi_device_pod_count(nodes: NodeState, shapes: Ints, s: int, n: int, island: int) -> int:
    """Pods that need k different devices each, of one island or, with -1, of any: the largest t with
    Σ min(shares on device, t) ≥ k·t, since t pods can use at most t shares of one device."""
    pods = 0
    while True:
        usable_shares = 0
        for device in range(nodes.node_info[n, DEV_FIRST], nodes.node_info[n, DEV_END]):
            if island < 0 or nodes.device_info[device, ISLAND] == island:
                usable_shares += min(shares_on_device(nodes, shapes, s, n, device), pods + 1)
        if usable_shares < shapes[s, GPUS] * (pods + 1):
            return pods
        pods += 1


def instance_count(nodes: NodeState, shapes: Ints, s: int, n: int) -> int:
    """MIG instances that can be created, over all devices."""
    found = 0
    for device in range(nodes.node_info[n, DEV_FIRST], nodes.node_info[n, DEV_END]):
        used = nodes.device_occupancy[device, USED_SLICES]
        while True:
            start = mig_start(nodes, shapes, s, device, used)
            if start < 0:
                break
            used |= mig_mask(nodes, shapes, s, device, start)
            found += 1
    return found


def count_fits(nodes: NodeState, shapes: Ints, cells: Cells, s: int, into: Ints) -> None:
    """For every node, how many pods of the shape it takes now, node-local filters included."""
    for n in range(into.shape[0]):
        fits = node_reasons(nodes, shapes, s, n, cells.static[s, n]) == FITS
        into[n] = fit_count(nodes, shapes, s, n) if fits else 0


def count_beside_leader(nodes: NodeState, shapes: Ints, cells: Cells, s: int, leader: int, into: Ints) -> None:
    """As `count_fits`, with one pod of the leader's shape on the node; -1 where the leader doesn't fit."""
    for n in range(into.shape[0]):
        if node_reasons(nodes, shapes, leader, n, cells.static[leader, n]) != FITS:
            into[n] = -1
            continue
        # Undone below, before anything else reads the node: digest and cells need no refresh.
        packed = add_pod_to_node(nodes, shapes, leader, n, -1, False)
        fits = node_reasons(nodes, shapes, s, n, cells.static[s, n]) == FITS
        into[n] = fit_count(nodes, shapes, s, n) if fits else 0
        remove_pod_from_node(nodes, shapes, leader, n, packed)
