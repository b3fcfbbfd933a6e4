"""How many pods of one shape a node takes now: what gangs and topology search count with.

Called by `placement.gang`; the room is the overlay's, so pods that are already placed count.
"""

from __future__ import annotations

from windlass.cluster.state import DEV_END, DEV_FIRST, FREE, HEALTHY, REPLICAS, SLICES, Ints, NodeState
from windlass.placement.arrays import ASKED, GPUS, MIG_REQUEST, REQUESTS, Cells
from windlass.placement.kernels.devices import (
    FITS,
    has_geometry,
    may_use,
    mig_mask,
    mig_start,
    milli_needed,
)
from windlass.placement.kernels.queue import give_back, take, why_not

PLENTY = 1 << 31


def fit_count(nodes: NodeState, shapes: Ints, s: int, n: int) -> int:
    """The most pods of shape `s` that node `n` takes, node-local rules alone."""
    most = PLENTY
    for j in range(shapes[s, REQUESTS]):
        if j == shapes[s, MIG_REQUEST] and has_geometry(nodes, n):
            continue
        most = min(most, nodes.free[n, shapes[s, ASKED + 2 * j]] // shapes[s, ASKED + 2 * j + 1])
    if shapes[s, GPUS] > 0:
        most = min(most, device_count(nodes, shapes, s, n))
    return max(0, most)


def device_count(nodes: NodeState, shapes: Ints, s: int, n: int) -> int:
    """The same for the devices."""
    each = shapes[s, GPUS]
    if shapes[s, MIG_REQUEST] >= 0:
        return instance_count(nodes, shapes, s, n) // each if has_geometry(nodes, n) else PLENTY
    if each > 1 and nodes.node[n, REPLICAS] == 1:
        return distinct_count(nodes, shapes, s, n)
    total = 0
    for device in range(nodes.node[n, DEV_FIRST], nodes.node[n, DEV_END]):
        total += slots(nodes, shapes, s, n, device)
    return total // each


def slots(nodes: NodeState, shapes: Ints, s: int, n: int, device: int) -> int:
    """How many shares of the shape one device has room for."""
    if nodes.device[device, HEALTHY] == 0 or not may_use(nodes, shapes, s, device):
        return 0
    return max(0, nodes.room[device, FREE] // milli_needed(nodes, shapes, s, n, device))


def distinct_count(nodes: NodeState, shapes: Ints, s: int, n: int) -> int:
    """Pods that need several different devices each: the most, t, for which Σ min(slots, t) reaches t times as many."""
    pods = 0
    while True:
        places = 0
        for device in range(nodes.node[n, DEV_FIRST], nodes.node[n, DEV_END]):
            places += min(slots(nodes, shapes, s, n, device), pods + 1)
        if places < shapes[s, GPUS] * (pods + 1):
            return pods
        pods += 1


def instance_count(nodes: NodeState, shapes: Ints, s: int, n: int) -> int:
    """MIG instances that can be made, over all devices."""
    found = 0
    for device in range(nodes.node[n, DEV_FIRST], nodes.node[n, DEV_END]):
        used = nodes.room[device, SLICES]
        while True:
            start = mig_start(nodes, shapes, s, device, used)
            if start < 0:
                break
            used |= mig_mask(nodes, shapes, s, device, start)
            found += 1
    return found


def count_fits(nodes: NodeState, shapes: Ints, cells: Cells, s: int, into: Ints) -> None:
    """For every node how many pods of the shape it takes now."""
    for n in range(into.shape[0]):
        fits = why_not(nodes, shapes, s, n, cells.static[s, n]) == FITS
        into[n] = fit_count(nodes, shapes, s, n) if fits else 0


def count_beside(nodes: NodeState, shapes: Ints, cells: Cells, s: int, leader: int, into: Ints) -> None:
    """The same with one pod of another shape seated first; -1 where that one doesn't fit."""
    for n in range(into.shape[0]):
        if why_not(nodes, shapes, leader, n, cells.static[leader, n]) != FITS:
            into[n] = -1
            continue
        packed = take(nodes, shapes, leader, n, -1, False)
        fits = why_not(nodes, shapes, s, n, cells.static[s, n]) == FITS
        into[n] = fit_count(nodes, shapes, s, n) if fits else 0
        give_back(nodes, shapes, leader, n, packed)
