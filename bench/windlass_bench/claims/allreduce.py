"""How long an all-reduce takes: a stated model of rings and trees over NVLink, PCIe and a network.

Fed by `locality` with how many GPUs a job has on which nodes and racks; every time is in seconds, every bandwidth in
bytes a second and direction.

    in a node    ring over its g GPUs:             2·(g−1)/g · S/b  + 2·(g−1)·α
    over nodes   each GPU holds a g-th after the reduce-scatter; ring over the n nodes, all ports of a node at once:
                                                   2·(n−1)/n · S/B  + 2·(n−1)·α        B = ports · port / o
    a tree       up and down once:                 2 · S/B          + 2·⌈log₂ n⌉·α     (latency bound: small messages)
    the whole    in the node, then the shorter of ring and tree over nodes (they don't overlap)

B is the bandwidth of the narrowest node: fewer GPUs on a node have fewer ports. o is the oversubscription of the links
between racks, for a job that is in more than one: under load, every flow that leaves its rack gets 1/o of its port.
Step time is compute plus all-reduce, less what overlaps. Protocol losses are left out: real numbers are some 10 to 20 %
worse everywhere, which ratios don't see.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

GB = 1e9
NVLINK_4 = 900 * GB / 2
"""900 GB/s is both directions together."""
PCIE_4 = 32 * GB
HDR_PORT = 25 * GB
"""A port of HDR InfiniBand, 200 Gbit/s."""


def ethernet(gigabits: float) -> float:
    return gigabits / 8 * GB


class Fabric(msgspec.Struct, frozen=True):
    """What connects the GPUs."""

    intra_node_bandwidth: float = NVLINK_4
    """Between the GPUs of a node, each GPU and direction."""
    port_bandwidth: float = HDR_PORT
    ports: int = 8
    """Of a full node; a job with fewer of its GPUs has fewer of them, and at least one."""
    gpus_per_node: int = 8
    oversubscription: float = 1.0
    """Of the links between racks."""
    inside_delay: float = 3e-6
    network_delay: float = 10e-6


class JobPlacement(msgspec.Struct, frozen=True):
    """Where a job is: GPUs by (rack, node)."""

    gpus: Mapping[tuple[str, str], int]

    @property
    def total(self) -> int:
        return sum(self.gpus.values())

    @property
    def racks(self) -> int:
        return len({rack for rack, _ in self.gpus})


def ring_seconds(members: int, size: float, bandwidth: float, delay: float) -> float:
    if members < 2:
        return 0.0
    return 2 * (members - 1) / members * size / bandwidth + 2 * (members - 1) * delay


def tree_seconds(members: int, size: float, bandwidth: float, delay: float) -> float:
    if members < 2:
        return 0.0
    return 2 * size / bandwidth + 2 * math.ceil(math.log2(members)) * delay


def inter_node_seconds(spot: JobPlacement, size: float, fabric: Fabric) -> float:
    """Over the nodes of the job, by the shorter of ring and tree."""
    nodes = len(spot.gpus)
    if nodes < 2:
        return 0.0
    fewest = min(spot.gpus.values())
    ports = max(1, fabric.ports * fewest // fabric.gpus_per_node)
    narrowing = fabric.oversubscription if spot.racks > 1 else 1.0
    bandwidth = ports * fabric.port_bandwidth / narrowing
    return min(way(nodes, size, bandwidth, fabric.network_delay) for way in (ring_seconds, tree_seconds))


def all_reduce_seconds(spot: JobPlacement, size: float, fabric: Fabric) -> float:
    """Seconds for `size` bytes."""
    inside = max(
        ring_seconds(many, size, fabric.intra_node_bandwidth, fabric.inside_delay) for many in spot.gpus.values()
    )
    return inside + inter_node_seconds(spot, size, fabric)


def step_seconds(spot: JobPlacement, size: float, fabric: Fabric, compute: float, overlap: float = 0.0) -> float:
    """One step of training: compute, and the part of the all-reduce that does not hide behind it."""
    exchange = all_reduce_seconds(spot, size, fabric)
    return compute + exchange - min(overlap * exchange, compute)
