"""Prices of free parts of a device, given the expected sizes of pods.

`placement.workload_mix` asks with the demand by size; the `windlass` scorer uses the prices. This is the cutting-stock
problem: pack the whole demand on as few devices as possible. The dual prices of its linear relaxation say which share
of a device one pod of each size costs: with demand for halves and thirds, ½ + ½ and ⅓ + ⅔ lose nothing, ½ + ⅓ loses a
sixth of a device; a remainder that no size fills is worth nothing.

Solved by column generation in exact rational arithmetic, so that the result is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import gcd, lcm

DEVICE_MILLI = 1000
MAX_PATTERNS = 400
"""The most patterns to try; the prices are usable after every step, and real mixes end far earlier."""


@lru_cache(maxsize=64)
def device_values(demand: tuple[tuple[int, int], ...], scale: int) -> tuple[int, ...]:
    """For each free amount 0…1000 of a device: the price of its best filling; `scale` is the price of a device.

    `demand`: (milli-GPU, number of pods), in order of size.
    """
    prices = device_prices(dict(demand))
    sizes = sorted(prices, reverse=True)
    unit = lcm(*(price.denominator for price in prices.values()))
    best, _ = _best_filling(sizes, [int(prices[size] * unit) for size in sizes], DEVICE_MILLI)
    return tuple(value * scale // unit for value in best)


def device_prices(demand: Mapping[int, int]) -> dict[int, Fraction]:
    """The share of a device that one pod of each size costs when the demand is packed on as few devices as possible."""
    if not demand:
        return {}
    sizes = sorted(demand, reverse=True)
    grain = gcd(DEVICE_MILLI, *sizes)  # coarser units make the knapsack smaller
    packing = _Packing([size // grain for size in sizes], [demand[size] for size in sizes], DEVICE_MILLI // grain)
    for _ in range(MAX_PATTERNS):
        if not packing.improve():
            break
    return dict(zip(sizes, packing.prices, strict=True))


class _Packing:
    """Revised simplex on the linear relaxation (how many devices are filled by which pattern); starts with patterns of
    one size each. `prices` are the dual values."""

    def __init__(self, sizes: list[int], demand: list[int], capacity: int) -> None:
        self._sizes, self._capacity = sizes, capacity
        fits = [capacity // size for size in sizes]
        self._devices = [Fraction(count, fit) for count, fit in zip(demand, fits, strict=True)]
        self._inverse = [
            [Fraction(1, fit) if i == j else Fraction(0) for j in range(len(sizes))] for i, fit in enumerate(fits)
        ]
        self.prices = [Fraction(1, fit) for fit in fits]

    def improve(self) -> bool:
        """Enter the pattern with the highest value at the present prices; False if none is worth more than a device."""
        unit = lcm(*(price.denominator for price in self.prices))
        best, pattern = _best_filling(self._sizes, [int(price * unit) for price in self.prices], self._capacity)
        if best[self._capacity] <= unit:
            return False
        used = [j for j, count in enumerate(pattern) if count]
        column = [sum((row[j] * pattern[j] for j in used), Fraction(0)) for row in self._inverse]
        # Ties by position, so that the prices depend on the demand alone.
        leaving = min((i for i, part in enumerate(column) if part > 0), key=lambda i: (self._devices[i] / column[i], i))
        self._pivot(leaving, column, 1 - Fraction(best[self._capacity], unit))
        return True

    def _pivot(self, leaving: int, column: list[Fraction], reduced_cost: Fraction) -> None:
        """Replace the leaving pattern; the usual update of basis inverse, solution and dual prices."""
        amount = self._devices[leaving] / column[leaving]
        row = [value / column[leaving] for value in self._inverse[leaving]]
        for i, part in enumerate(column):
            if i != leaving and part:
                self._inverse[i] = [old - part * new for old, new in zip(self._inverse[i], row, strict=True)]
                self._devices[i] -= part * amount
        self._inverse[leaving], self._devices[leaving] = row, amount
        self.prices = [price + reduced_cost * value for price, value in zip(self.prices, row, strict=True)]


def _best_filling(sizes: Sequence[int], worth: Sequence[int], capacity: int) -> tuple[list[int], list[int]]:
    """Unbounded knapsack: the highest value for each capacity 0…`capacity`, and the counts by size for all of it."""
    best, pick = [0] * (capacity + 1), [-1] * (capacity + 1)
    for space in range(1, capacity + 1):
        best[space] = best[space - 1]
        for j, size in enumerate(sizes):
            if size <= space and best[space - size] + worth[j] > best[space]:
                best[space], pick[space] = best[space - size] + worth[j], j
    counts, space = [0] * len(sizes), capacity
    while space > 0:
        if pick[space] < 0:
            space -= 1
        else:
            counts[pick[space]] += 1
            space -= sizes[pick[space]]
    return best, counts
