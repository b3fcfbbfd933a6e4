"""How much of the benchmark to run: everything that is published, or a look at it."""

from __future__ import annotations

import msgspec

from windlass_bench.published import SEEDS, published_lists


class Scale(msgspec.Struct, frozen=True):
    lists: tuple[str, ...]
    """Pod lists of openb with published results."""
    seeds: tuple[int, ...]
    own_seeds: tuple[int, ...]
    """Of the traces that we draw ourselves."""
    repetitions: int
    """Of every measurement of speed."""
    copies: tuple[int, ...]
    """How many times over the park is repeated, to see how the cost of a decision grows."""


def full_scale() -> Scale:
    return Scale(published_lists(), SEEDS, (1, 2, 3, 4, 5), repetitions=5, copies=(1, 2, 4, 8))


def quick_scale() -> Scale:
    lists = ("default", "cpu250", "gpushare100", "gpuspec33", "multigpu50")
    return Scale(lists, (42, 47), (1,), repetitions=1, copies=(1, 4))
