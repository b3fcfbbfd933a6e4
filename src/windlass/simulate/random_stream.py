"""Random draws that are the same on every machine and with every version of numpy.

numpy guarantees the raw words of PCG64, but not the results of `Generator`'s methods, and libm doesn't guarantee the
last bit of a logarithm. So everything here uses raw words, integer arithmetic, and single multiplications and
additions. `simulate.synthetic` and `simulate.traces.arrivals` draw from it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from windlass.model.errors import InputError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class RandomStream:
    """A stream of draws; two streams of one seed are independent of each other."""

    def __init__(self, seed: int, stream: int = 0) -> None:
        if seed < 0:
            raise InputError(f"a seed is a whole number of 0 or more, got {seed}")
        self._words = np.random.PCG64([seed, stream])

    def permutation(self, size: int) -> Ints:
        """A random order of 0 … size-1, sorted by one 64-bit key each."""
        return np.argsort(self._raw(size), kind="stable")

    def integers_below(self, bound: int, size: int) -> Ints:
        """Whole numbers in [0, bound), with a bias of less than bound / 2³²."""
        high = self._raw(size) >> np.uint64(32)
        return ((high * np.uint64(bound)) >> np.uint64(32)).astype(np.int64)

    def uniform(self, size: int) -> Floats:
        """Numbers in [0, 1), 53 bits each."""
        return (self._raw(size) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def weighted_choice(self, weights: Sequence[int], size: int) -> Ints:
        """Indices into `weights`, in proportion to the weights."""
        upper = np.cumsum(np.asarray(weights, dtype=np.int64))
        return np.searchsorted(upper, self.integers_below(int(upper[-1]), size), side="right").astype(np.int64)

    def from_quantiles(self, shares: Sequence[float], values: Sequence[float], size: int) -> Floats:
        """Draws from the distribution with `values` at the cumulative `shares` (0 … 1), linear in between."""
        at, x = self.uniform(size), np.asarray(shares, dtype=np.float64)
        y = np.asarray(values, dtype=np.float64)
        left = np.searchsorted(x, at, side="right") - 1
        part = (at - x[left]) / (x[left + 1] - x[left])
        return y[left] + (y[left + 1] - y[left]) * part

    def _raw(self, size: int) -> NDArray[np.uint64]:
        # random_raw returns a plain int for size None, else an array.
        return np.asarray(self._words.random_raw(size), dtype=np.uint64)


def mean_of_quantiles(shares: Sequence[float], values: Sequence[float]) -> float:
    """Of what `from_quantiles` draws."""
    pairs = itertools.pairwise(zip(shares, values, strict=True))
    return sum((after - before) * (low + high) / 2 for (before, low), (after, high) in pairs)
