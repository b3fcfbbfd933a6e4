"""What a part of a device is worth, given the sizes of pods that are expected.

`placement.workload_mix` asks with the demand by size; the `windlass` scorer reads the answer. The question is the
cutting-stock problem: pack the whole demand on as few devices as possible. The dual prices of its linear relaxation
say which share of a device one pod of each size really costs: with halves and thirds about, ½ + ½ and ⅓ + ⅔ lose
nothing, ½ + ⅓ loses a sixth of a device; and a remainder that no size fills is worth nothing, so that filling it
costs nothing.

Solved by column generation in exact rational arithmetic: no rounding decides anything, on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import gcd, lcm

DEVICE_MILLI = 1000
MAX_PATTERNS = 400
"""Patterns tried at the most; the prices are usable at every step, and the real mixes end far earlier."""


@lru_cache(maxsize=64)
def device_values(demand: tuple[tuple[int, int], ...], scale: int) -> tuple[int, ...]:
    """For each free amount 0…1000 of a device: the price of its best filling, in units of `scale` a device.

    `demand` is (milli-GPU, how many), in order of size.
    """
    prices = device_prices(dict(demand))
    sizes = sorted(prices, reverse=True)
    unit = lcm(*(price.denominator for price in prices.values()))
    best, _ = _best_filling(sizes, [int(prices[size] * unit) for size in sizes], DEVICE_MILLI)
    return tuple(value * scale // unit for value in best)


def device_prices(demand: Mapping[int, int]) -> dict[int, Fraction]:
    """The share of a device that one pod of each size costs when the demand is packed on as few as possible."""
    if not demand:
        return {}
    sizes = sorted(demand, reverse=True)
    grain = gcd(DEVICE_MILLI, *sizes)
    packing = _Packing(
        [size // grain for size in sizes], [demand[size] for size in sizes], DEVICE_MILLI // grain
    )
    for _ in range(MAX_PATTERNS):
        if not packing.improve():
            break
    return dict(zip(sizes, packing.prices, strict=True))


class _Packing:
    """The linear relaxation: how many devices are cut by which pattern. Starts with one size a device."""

    def __init__(self, sizes: list[int], demand: list[int], capacity: int) -> None:
        self._sizes, self._capacity = sizes, capacity
        fits = [capacity // size for size in sizes]
        self._cut = [Fraction(count, fit) for count, fit in zip(demand, fits, strict=True)]
        self._inverse = [
            [Fraction(1, fit) if i == j else Fraction(0) for j in range(len(sizes))]
            for i, fit in enumerate(fits)
        ]
        self.prices = [Fraction(1, fit) for fit in fits]

    def improve(self) -> bool:
        """Bring in the pattern that is worth most at the present prices; False if none beats a device's price."""
        unit = lcm(*(price.denominator for price in self.prices))
        best, pattern = _best_filling(
            self._sizes, [int(price * unit) for price in self.prices], self._capacity
        )
        if best[self._capacity] <= unit:
            return False
        used = [j for j, count in enumerate(pattern) if count]
        column = [sum((row[j] * pattern[j] for j in used), Fraction(0)) for row in self._inverse]
        leaving = min(
            (i for i, part in enumerate(column) if part > 0), key=lambda i: (self._cut[i] / column[i], i)
        )
        self._pivot(leaving, column, 1 - Fraction(best[self._capacity], unit))
        return True

    def _pivot(self, leaving: int, column: list[Fraction], reduced_cost: Fraction) -> None:
        amount = self._cut[leaving] / column[leaving]
        row = [value / column[leaving] for value in self._inverse[leaving]]
        for i, part in enumerate(column):
            if i != leaving and part:
                self._inverse[i] = [old - part * new for old, new in zip(self._inverse[i], row, strict=True)]
                self._cut[i] -= part * amount
        self._inverse[leaving], self._cut[leaving] = row, amount
        self.prices = [price + reduced_cost * value for price, value in zip(self.prices, row, strict=True)]


def _best_filling(sizes: Sequence[int], worth: Sequence[int], capacity: int) -> tuple[list[int], list[int]]:
    """Unbounded knapsack: the most that fits into 0…capacity, and how many of each size fill all of it."""
    best, pick = [0] * (capacity + 1), [-1] * (capacity + 1)
    for room in range(1, capacity + 1):
        best[room] = best[room - 1]
        for j, size in enumerate(sizes):
            if size <= room and best[room - size] + worth[j] > best[room]:
                best[room], pick[room] = best[room - size] + worth[j], j
    counts, room = [0] * len(sizes), capacity
    while room > 0:
        if pick[room] < 0:
            room -= 1
        else:
            counts[pick[room]] += 1
            room -= sizes[pick[room]]
    return best, counts
