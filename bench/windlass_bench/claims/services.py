"""Inference services that are fixed by a seed, and the requests that they get.

Fed to `sharing`. A service needs 10 or 20 GB, and a compute share: the part of the time that it would keep a whole GPU
busy if it were alone on it, drawn from 5 to 25 %. For a tenth of the time, at a moment of its own in every cycle, its
requests come twice as fast. Every request is the same piece of work.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from windlass.simulate.random_stream import RandomStream

GPU_GB = 80
REQUEST_S = 0.02
"""Seconds that a request takes on a whole GPU with nobody else on it."""
CYCLE_S, BURST_S, BURST = 100, 10, 2
"""In every cycle, so many seconds at so many times the usual rate."""
MEAN_RATE = (CYCLE_S - BURST_S + BURST * BURST_S) / CYCLE_S
"""1.1 times the usual rate, over a whole cycle."""
LATENCY, THROUGHPUT, TRYOUT = "latency", "throughput", "tryout"
CLASS_WEIGHTS = ((LATENCY, 40), (THROUGHPUT, 40), (TRYOUT, 20))
MEMORY, SHARES, CLASSES, PHASES, REQUESTS = range(5)
"""The streams of draws of one seed."""

Floats = NDArray[np.float64]


class Service(msgspec.Struct, frozen=True):
    name: str
    memory_gb: int
    share_milli: int
    """Outside of bursts."""
    kind: str
    phase: float
    """Where in the cycle its burst begins, 0 to 1."""

    @property
    def mean_share(self) -> float:
        return self.share_milli / 1000 * MEAN_RATE


def draw_services(count: int, seed: int) -> list[Service]:
    """The first services of a longer list are those of a shorter one."""
    memory = RandomStream(seed, MEMORY).integers_below(2, count).tolist()
    shares = RandomStream(seed, SHARES).integers_below(201, count).tolist()
    kinds = RandomStream(seed, CLASSES).weighted_choice([weight for _, weight in CLASS_WEIGHTS], count).tolist()
    phases = RandomStream(seed, PHASES).uniform(count).tolist()
    return [
        Service(f"service-{n:03}", 10 + 10 * memory[n], 50 + shares[n], CLASS_WEIGHTS[kinds[n]][0], phases[n])
        for n in range(count)
    ]


def request_times(service: Service, seconds: int, seed: int) -> Floats:
    """When its requests come: as many as its share asks for, independent of one another but for the cycle."""
    cycles = seconds / CYCLE_S
    count = round(service.mean_share * seconds / REQUEST_S)
    # Time is stretched to where the rate is even, drawn from there, and folded back.
    usual, burst = CYCLE_S - BURST_S, BURST * BURST_S
    drawn = np.sort(RandomStream(seed, _stream(service)).uniform(count)) * cycles * (usual + burst)
    cycle, at = np.divmod(drawn, usual + burst)
    at = np.where(at < burst, at / BURST, at - burst + BURST_S)
    found: Floats = np.sort((cycle * CYCLE_S + at + service.phase * CYCLE_S) % seconds)
    return found


def total_memory_gb(services: Sequence[Service]) -> int:
    return sum(service.memory_gb for service in services)


def _stream(service: Service) -> int:
    return 1000 * REQUESTS + int(service.name.rpartition("-")[2])
