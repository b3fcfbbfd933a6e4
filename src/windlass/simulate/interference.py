"""A model of how GPU sharing slows down work, fitted to one measurement.

The measurement (an H200; each tenant runs 20 small half-precision products over and over, in a closed loop; medians):
exclusive 249 µs; seven tenants 1,860 µs with time-slicing, 1,090 µs under MPS, 570 µs in seven 1g MIG instances.

The slowdown, relative to exclusive use of a whole GPU, is:

    time-slicing   a·(1 + s) with a ≥ 2 active tenants: they take turns, and switching costs s of a turn
    MPS            1 + c·(a − 1): they run concurrently, and each other tenant adds c of the work's own time
    MIG            1 + p·(7/g − 1) in an instance of g compute slices, independent of the neighbours: the fraction p
                   of the work uses the whole GPU and takes longer on a part of it

The measurement gives the constants: s = 0.067, c = 0.563, p = 0.215. They are for small kernels. For work that fills a
GPU, p is near 1, so that 1g takes seven times as long, and c is near 1, so that MPS is no better than time-slicing;
that is `WIDE_KERNEL_MODEL`. A later record of thirteen kinds of kernels (docs/records) has MPS on such a line for most
kinds, between flat (narrow kernels) and `WIDE_KERNEL_MODEL`, and a switch of time-slicing at some 0.1 ms whatever the
work: s is for work that is long compared with that.

Used by `simulate.tradeoffs` and by the claims of `bench`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

EXCLUSIVE, TIME_SLICING, MPS, MIG = "exclusive", "time-slicing", "mps", "mig"
COMPUTE_SLICES = 7
"""Compute slices of a MIG-capable GPU."""
EXCLUSIVE_US = 249
SEVEN_TENANTS_US = {TIME_SLICING: 1_860, MPS: 1_090, MIG: 570}


class InterferenceModel(msgspec.Struct, frozen=True):
    """The constants s, c and p of the model."""

    switch_overhead: float
    contention: float
    parallel_fraction: float

    def slowdown(self, strategy: str, active: int, slices: int = COMPUTE_SLICES) -> float:
        """Factor by which work takes longer with `active` tenants on the GPU, itself included."""
        if strategy == MIG:
            return 1 + self.parallel_fraction * (COMPUTE_SLICES / slices - 1)
        if strategy == EXCLUSIVE or active <= 1:
            return 1.0
        if strategy == TIME_SLICING:
            return active * (1 + self.switch_overhead)
        return 1 + self.contention * (active - 1)

    def capacity(self, strategy: str, tenants: int, slices: int = COMPUTE_SLICES) -> float:
        """Throughput of tenants that never pause, relative to exclusive use of a whole GPU."""
        return tenants / self.slowdown(strategy, tenants, slices)


def fit_model(alone_us: float, seven_us: dict[str, float]) -> InterferenceModel:
    """The constants that reproduce the measured medians exactly."""
    others = COMPUTE_SLICES - 1
    return InterferenceModel(
        switch_overhead=seven_us[TIME_SLICING] / (COMPUTE_SLICES * alone_us) - 1,
        contention=(seven_us[MPS] / alone_us - 1) / others,
        parallel_fraction=(seven_us[MIG] / alone_us - 1) / others,
    )


MEASURED_MODEL = fit_model(EXCLUSIVE_US, {strategy: float(us) for strategy, us in SEVEN_TENANTS_US.items()})
WIDE_KERNEL_MODEL = InterferenceModel(
    switch_overhead=MEASURED_MODEL.switch_overhead, contention=1.0, parallel_fraction=1.0
)
"""Work that fills a whole GPU by itself, so that nothing runs concurrently for free."""


def expected_slowdown(strategy: str, shares: Sequence[float], model: InterferenceModel = MEASURED_MODEL) -> list[float]:
    """Each tenant's mean slowdown if tenant i is active for the fraction `shares[i]` of the time, independently."""
    means = []
    for index in range(len(shares)):
        probabilities = [1.0]  # of 0, 1, … other active tenants: exact, by adding one tenant after the other
        for other, share in enumerate(shares):
            if other != index:
                busy = min(1.0, share)
                pairs = zip([*probabilities, 0.0], [0.0, *probabilities], strict=True)
                probabilities = [idle * (1 - busy) + active * busy for idle, active in pairs]
        means.append(sum(chance * model.slowdown(strategy, others + 1) for others, chance in enumerate(probabilities)))
    return means
