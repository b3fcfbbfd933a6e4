"""What sharing a GPU does to latency: a stated model, fitted to one measurement.

The measurement (an H200; each tenant runs 20 small half-precision products over and over, in a closed loop; medians):
alone 249 µs; seven tenants 1,860 µs with time-slicing, 1,090 µs under MPS, 570 µs in seven 1g MIG instances.

The model says how much longer a piece of work takes than alone on a whole GPU:

    time-slicing   a·(1 + s) with a ≥ 2 tenants at work: they take turns, and a turn costs s of its length
    MPS            1 + c·(a − 1): they run side by side, and each of the others takes c of the work's own time
    MIG            1 + p·(7/g − 1) in an instance of g compute slices, whatever the neighbours do: the part p of
                   the work is spread over the whole GPU and takes longer on a part of it, the rest is not

Each has one constant, which the measurement gives: s = 0.067, c = 0.563, p = 0.215. It is for small kernels: work that
fills a GPU has p near 1, so that 1g takes seven times as long, and c near 1, so that MPS is no better than turns.
`WIDE` is that other end. Numbers of tenants in between are interpolated. A later record of thirteen kinds of kernels
(docs/records) has MPS on such a line for most kinds, from flat (narrow kernels) to `WIDE`, and a turn of time-slicing
at some 0.1 ms whatever is done in it: s stands for work that is long against that.

Read by `simulate.tradeoffs` and by the claims of `bench`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

EXCLUSIVE, TIME_SLICING, MPS, MIG = "exclusive", "time-slicing", "mps", "mig"
SHARING_STRATEGIES = (EXCLUSIVE, TIME_SLICING, MPS, MIG)
COMPUTE_SLICES = 7
"""Compute slices of a GPU that can be partitioned."""
EXCLUSIVE_US = 249
SEVEN_TENANTS_US = {TIME_SLICING: 1_860, MPS: 1_090, MIG: 570}


class InterferenceModel(msgspec.Struct, frozen=True):
    """The three constants."""

    switch_overhead: float
    contention: float
    parallel_fraction: float

    def slowdown(self, strategy: str, active: int, slices: int = COMPUTE_SLICES) -> float:
        """How many times as long work takes with so many tenants at work on the GPU, itself included."""
        if strategy == MIG:
            return 1 + self.parallel_fraction * (COMPUTE_SLICES / slices - 1)
        if strategy == EXCLUSIVE or active <= 1:
            return 1.0
        return (
            active * (1 + self.switch_overhead)
            if strategy == TIME_SLICING
            else 1 + self.contention * (active - 1)
        )

    def capacity(self, strategy: str, tenants: int, slices: int = COMPUTE_SLICES) -> float:
        """Work done per second by so many tenants that never pause, in seconds of work alone on a whole GPU."""
        return tenants / self.slowdown(strategy, tenants, slices)


def fit_model(alone_us: float, seven_us: dict[str, float]) -> InterferenceModel:
    """The constants that give exactly the measured medians."""
    others = COMPUTE_SLICES - 1
    return InterferenceModel(
        switch_overhead=seven_us[TIME_SLICING] / (COMPUTE_SLICES * alone_us) - 1,
        contention=(seven_us[MPS] / alone_us - 1) / others,
        parallel_fraction=(seven_us[MIG] / alone_us - 1) / others,
    )


MEASURED_MODEL = fit_model(EXCLUSIVE_US, {way: float(us) for way, us in SEVEN_TENANTS_US.items()})
WIDE_KERNEL_MODEL = InterferenceModel(
    switch_overhead=MEASURED_MODEL.switch_overhead, contention=1.0, parallel_fraction=1.0
)
"""Work that fills a whole GPU by itself: nothing runs side by side with it for free."""


def expected_slowdown(
    strategy: str, shares: Sequence[float], model: InterferenceModel = MEASURED_MODEL
) -> list[float]:
    """Each tenant's mean slow-down where tenant i is at work for the part `shares[i]` of the time, independently.

    Exact over the number of others at work, which is a sum of independent draws.
    """
    means = []
    for index in range(len(shares)):
        chance = [1.0]
        for other, share in enumerate(shares):
            if other != index:
                busy = min(1.0, share)
                chance = [
                    a * (1 - busy) + b * busy for a, b in zip([*chance, 0.0], [0.0, *chance], strict=True)
                ]
        means.append(sum(part * model.slowdown(strategy, many + 1) for many, part in enumerate(chance)))
    return means
