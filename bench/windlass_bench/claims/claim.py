"""A claim and what became of it, as data: what the modules of this folder make, and `report` prints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import msgspec

from windlass_bench.section import Section

HOLDS, PARTLY, FAILS = "holds", "holds partly", "does not hold"


class Series(msgspec.Struct, frozen=True):
    """A line of a plot."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


class Panel(msgspec.Struct, frozen=True):
    """One picture of a plot."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Series, ...]
    steps: bool = False
    """A state that lasts, rather than points of a curve."""


class Claim(msgspec.Struct, frozen=True):
    part: str
    """What the command line calls it."""
    claim: str
    found: str
    verdict: str
    """`holds`, `holds partly` or `does not hold`."""
    conditions: tuple[str, ...]
    """What it was checked under, and under which conditions it would hold or fail."""
    sections: tuple[Section, ...]
    panels: tuple[Panel, ...] = ()


OnProgress = Callable[[float], None]
"""Told the part of the work that is done, 0 to 1."""


def percentile(values: Iterable[float], percent: float) -> float:
    """The smallest value that so many percent of them don't exceed; 0 of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else 0.0
