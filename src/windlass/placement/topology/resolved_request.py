"""A topology request in the levels of a tree: which level is searched, and what one unit is at each level.

`search.resolve_in_tree` and `replacement` call `resolve_request`; counting and search work with level numbers. Requests
that no cluster could satisfy are refused here, in Kueue's wording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from windlass.model.workload import TopologyRequest


class ImpossibleRequest(Exception):
    """The request contradicts itself or the topology, whatever is free."""


@dataclass(frozen=True, slots=True)
class ResolvedRequest:
    """A request in level numbers, 0 being the widest."""

    level: int
    """The level of which one domain has to hold everything."""
    slice_level: int
    """Each slice stays in one domain of this level."""
    slice_size: int
    """Pods per slice; 1 without slices."""
    pods_multiple: tuple[int, ...]
    """By layer: below the slice level, pods are placed in multiples of this."""
    slice_layers: tuple[tuple[int, int], ...]
    """(level, size) of every layer of slices, where there are several."""
    required: bool
    unconstrained: bool

    @property
    def unit(self) -> str:
        return "pod" if self.slice_size == 1 else "slice"


def resolve_request(request: TopologyRequest | None, levels: Sequence[str], layers: int) -> ResolvedRequest:
    """The request in level numbers, for a tree of `layers` layers (with one for the nodes below the lowest level)."""
    slices = _slices(request)
    mode = request.mode if request else "unconstrained"
    lowest = len(levels) - 1
    if mode not in ("required", "preferred", "unconstrained"):
        raise ImpossibleRequest(f"unknown topology mode: {mode}")
    if request and mode != "unconstrained":
        level = _level_of(request.level, levels, "no requested topology level")
    else:
        # Without a level, slices may be anywhere, so the search starts at the top; pods start at the lowest level.
        level = 0 if slices else lowest
    slice_level, slice_size = lowest, 1
    if slices:
        slice_level = _level_of(slices[0][0], levels, "no requested topology level for slices")
        slice_size = slices[0][1]
    if level > slice_level:
        raise ImpossibleRequest(
            f"podset slice topology {levels[slice_level]} is above the podset topology {levels[level]}"
        )
    inner = _inner_layers(slices, levels)
    return ResolvedRequest(
        level=level,
        slice_level=slice_level,
        slice_size=slice_size,
        pods_multiple=_pod_multiples(inner, slice_level, layers),
        slice_layers=((slice_level, slice_size), *inner) if inner else (),
        required=mode == "required",
        unconstrained=mode == "unconstrained",
    )


def _slices(request: TopologyRequest | None) -> tuple[tuple[str, int], ...]:
    if request is None or not request.slice_level:
        return ()
    if request.slice_size <= 0:
        raise ImpossibleRequest("slice topology requested, but slice size not provided")
    return (request.slice_level, request.slice_size), *request.inner_slices


def _level_of(label: str, levels: Sequence[str], otherwise: str) -> int:
    if label not in levels:
        raise ImpossibleRequest(f"{otherwise}: {label}")
    return levels.index(label)


def _inner_layers(slices: Sequence[tuple[str, int]], levels: Sequence[str]) -> tuple[tuple[int, int], ...]:
    layers: list[tuple[int, int]] = []
    for (outer_label, outer_size), (label, size) in pairwise(slices):
        level = _level_of(label, levels, "no requested topology level for additional slice layer")
        if level <= levels.index(outer_label):
            raise ImpossibleRequest(
                f"additional slice layer topology {label} must be at a lower level than {outer_label}"
            )
        if size <= 0 or outer_size % size:
            raise ImpossibleRequest(
                f"additional slice layer size {size} must evenly divide parent layer size {outer_size}"
            )
        layers.append((level, size))
    return tuple(layers)


def _pod_multiples(inner: Sequence[tuple[int, int]], slice_level: int, layers: int) -> tuple[int, ...]:
    """Levels between two layers of slices also count in multiples of the inner slice, since a domain there has to
    hold whole inner slices."""
    multiples = [1] * layers
    outer = slice_level
    for level, size in inner:
        multiples[outer + 1 : level + 1] = [size] * (level - outer)
        outer = level
    return tuple(multiples)
