"""Nodes, devices and pod shapes as the arrays that the placement kernels read, for tests that call kernels one by one.

`Machine`s become a `NodeState`, `Request`s become rows of the shape array.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest

from windlass.cluster.node_state import GPU_POD_KINDS, Ints, NodeState
from windlass.model.numa_alignment import ANY_NUMA_NODES
from windlass.placement.kernel_arrays import (
    FIRST_MIG,
    FIRST_REQUEST,
    GPU_MEMORY,
    GPU_MILLI,
    GPUS,
    KIND,
    MIG_REQUEST,
    MILLI_CPU,
    MODELS,
    REQUEST_COUNT,
    SCORER,
    MixArrays,
)

WHOLE = 1000
GEOMETRIES = 3
COLUMNS = 6


@dataclass
class Device:
    free: int = WHOLE
    model: int = 0
    memory: int = 80_000
    healthy: bool = True
    island: int = 0
    geometry: int = -1
    used: int = 0
    """Mask of the MIG slices in use."""


@dataclass
class Machine:
    devices: list[Device] = field(default_factory=list)
    free: tuple[int, ...] = (16_000, 64, 0, 110, 4, 4)
    """By resource column: CPU, memory, storage, pods, and two others."""
    total: tuple[int, ...] = (16_000, 64, 0, 110, 4, 4)
    replicas: int = 1
    blocked: int = 0
    kinds: dict[int, int] = field(default_factory=dict)
    """GPU pods on it by kind of request."""


@dataclass
class Request:
    gpus: int = 0
    milli: int = WHOLE
    memory: int = 0
    models: int = (1 << 16) - 1
    cpu: int = 0
    asks: tuple[tuple[int, int], ...] = ()
    """(resource column, amount)."""
    mig: int = -1
    """Which of `asks` is the MIG resource."""
    profiles: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Geometry → slices of the profile at start 0, allowed starts, bit of the media engines; masks."""
    kind: int = 0
    scorer: int = 0


def node_state(machines: Sequence[Machine]) -> NodeState:
    devices = [device for machine in machines for device in machine.devices]
    info, at = [], 0
    for machine in machines:
        info.append([at, at + len(machine.devices), machine.replicas, machine.blocked, ANY_NUMA_NODES])
        at += len(machine.devices)
    counts = np.zeros((len(machines), GPU_POD_KINDS), dtype=np.int64)
    for n, machine in enumerate(machines):
        for kind, pods in machine.kinds.items():
            counts[n, kind] = pods
    rows = [[d.model, d.memory, int(d.healthy), d.island, d.geometry] for d in devices]
    return NodeState(
        free=ints([machine.free for machine in machines]),
        allocatable=ints([machine.total for machine in machines]),
        node_info=ints(info),
        device_occupancy=ints([[d.free, d.used] for d in devices]).reshape(-1, 2),
        device_info=ints(rows).reshape(-1, 5),
        gpu_pod_counts=counts,
    )


def shape_rows(*requests: Request) -> Ints:
    rows = np.zeros((len(requests), FIRST_MIG + 3 * GEOMETRIES), dtype=np.int64)
    for row, request in zip(rows, requests, strict=True):
        row[REQUEST_COUNT], row[MILLI_CPU], row[MIG_REQUEST] = len(request.asks), request.cpu, request.mig
        row[GPUS], row[GPU_MILLI], row[GPU_MEMORY] = request.gpus, request.milli, request.memory
        row[MODELS], row[KIND], row[SCORER] = request.models, request.kind, request.scorer
        for j, (column, amount) in enumerate(request.asks):
            row[FIRST_REQUEST + 2 * j : FIRST_REQUEST + 2 * j + 2] = column, amount
        for geometry, masks in request.profiles.items():
            row[FIRST_MIG + 3 * geometry : FIRST_MIG + 3 * geometry + 3] = masks
    return rows


def ints(values: object) -> Ints:
    return np.array(values, dtype=np.int64)


def mix_rows(*classes: tuple[int, int, int, int, int], totals: tuple[int, int, int] = (1, 1, 1)) -> MixArrays:
    """Classes as (pods, milli-CPU, GPUs, milli-GPU, mask of models); prices and premiums are easy to tell apart."""
    pods = max(1, sum(found[0] for found in classes))
    columns = [ints([found[i] for found in classes]) for i in range(5)]
    return MixArrays(
        cpu=columns[1],
        gpus=columns[2],
        milli=columns[3],
        models=columns[4],
        weight=columns[0],
        share=columns[0] / pods,
        totals=ints(totals),
        price=ints([free * free // 300 for free in range(WHOLE + 1)]),
        scarce=ints([40 * model for model in range(16)]),
    )


# Random ones. Amounts are few, so that equal ones are common.


def draws(cases: int | range) -> Iterator[Random]:
    """Sources of random cases, the same in every run."""
    return (Random(seed) for seed in (range(cases) if isinstance(cases, int) else cases))


def in_parts(count: int, size: int = 20) -> pytest.MarkDecorator:
    """For a test of so many `cases`: a few at a time, so that what one of them notices is noticed soon."""
    parts = [range(first, min(first + size, count)) for first in range(0, count, size)]
    return pytest.mark.parametrize("cases", parts, ids=lambda cases: f"from {cases.start}")


def any_device(random: Random) -> Device:
    healthy = random.random() < 0.85
    return Device(
        free=random.choice((-100, 0, 99, 100, 250, 500, 999, 1000, 1000)) if healthy else 0,
        model=random.randrange(3),
        memory=random.choice((0, 10_000, 16_384)),
        healthy=healthy,
        island=random.randrange(3),
    )


def any_machine(random: Random, least: int = 0, most: int = 5) -> Machine:
    return Machine(
        devices=[any_device(random) for _ in range(random.randint(least, most))],
        free=tuple(random.choice((-1, 0, 1, 2, 3, 1000, 4000)) for _ in range(COLUMNS)),
        total=tuple(random.choice((0, 40, 4000, 7000)) for _ in range(COLUMNS)),
        replicas=random.choice((1, 1, 1, 2, 3, 20, 1001)),
        blocked=random.choice((0, 0, 0, 1)),
        kinds={kind: random.randrange(3) for kind in range(4) if random.random() < 0.4},
    )


def any_request(random: Random) -> Request:
    """Whole GPUs, shares, or shares by memory."""
    memory = random.choice((0, 0, 0, 1, 5000, 10_000, 10_001))
    return Request(
        gpus=random.choice((1, 1, 1, 2, 2, 3, 4, 16, 18)),
        milli=0 if memory else random.choice((100, 250, 500, 999, 1000, 1000)),
        memory=memory,
        models=random.choice((7, 7, 1, 3, 6, 4)),
        cpu=random.choice((0, 1, 500, 1000)),
        kind=random.randrange(4),
    )


def any_mig_machine(random: Random) -> Machine:
    used = (0, 0, 1, 1 << 8, 0b1000, 0b11, 0b1111, 0b1100_0000)
    return Machine(
        [
            Device(
                free=0,
                model=random.randrange(3),
                geometry=random.randint(-1, GEOMETRIES - 1),
                used=random.choice(used),
            )
            for _ in range(random.randrange(4))
        ],
        free=(1000, 2, 2, 2, 1, 0),
    )


PROFILES = (
    (0b1, 0b0111_1111, 0),
    (0b1, 0b0111_1111, 1 << 8),
    (0b11, 0b0101_0101, 0),
    (0b1111, 0b0001_0001, 0),
    (0b1111_1111, 0b1, 0),
    (0b1, 0b1000_0000, 0),
)


def any_mig_request(random: Random) -> Request:
    geometries = [number for number in range(GEOMETRIES) if random.random() < 0.7]
    gpus, mig = random.choice((1, 1, 2, 3, 8, 9)), random.randrange(2)
    return Request(
        gpus=gpus,
        models=random.choice((7, 7, 3, 4)),
        asks=((3, 1), (5, gpus)) if mig else ((5, gpus), (3, 1)),
        mig=mig,
        profiles={geometry: random.choice(PROFILES) for geometry in geometries},
    )
