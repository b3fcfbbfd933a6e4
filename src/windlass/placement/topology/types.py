"""Input and output of the topology search.

`placement.gang` and `timeplan` make the requests of a workload's pod sets and implement `NodeCapacity`; `plan` answers
with one placement per pod set, or with the failure that becomes a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from windlass.model.workload import TopologyRequest

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class TopologyPodSetRequest:
    """One pod set that needs nodes."""

    name: str
    count: int
    request: TopologyRequest | None = None
    """None: anywhere, as for `unconstrained`."""
    score: Ints | None = None
    """By node row, higher is better: decides between nodes that are equal for the topology. These are the nodes of one
    lowest domain or, where the lowest level is the node, nodes with the same capacity."""


class NodeCapacity(Protocol):
    """How many pods fit where, as the search goes on. Requests are given by index; arrays are by node row."""

    def pods_per_node(self, request: int) -> Ints:
        """How many pods of this request each node takes now."""

    def pods_beside_leader(self, request: int, leader: int) -> tuple[Bools, Ints]:
        """Which nodes take one pod of `leader` now, and how many pods of `request` each node takes beside it (nodes
        that don't take the leader: as many as `pods_per_node` says)."""

    def reserve(self, request: int, rows: Ints, pods: Ints) -> None:
        """Subtract these pods from the capacity."""

    def excluded_nodes(self, request: int) -> Mapping[str, int]:
        """Nodes that take no pod at all, counted by reason in Kueue's words (`nodeSelector`, `resource "cpu"`)."""


@dataclass(frozen=True, slots=True, eq=False)
class PodSetPlacement:
    """The nodes of the pods of one set."""

    name: str
    rows: Ints
    """Node rows, ascending."""
    pods: Ints
    """Pods on each of these nodes, never 0."""
    level: str
    """The level whose domains were searched: the requested one, or a wider one for a preference that can't be met."""
    domains: int
    """Number of domains of that level that are used."""

    def by_node(self, names: Sequence[str]) -> dict[str, int]:
        """Node name → pods."""
        return {names[row]: count for row, count in zip(self.rows.tolist(), self.pods.tolist(), strict=True)}


@dataclass(frozen=True, slots=True, eq=False)
class TopologyPlan:
    """One placement per request, in the order of the requests."""

    placements: tuple[PodSetPlacement, ...]


@dataclass(frozen=True, slots=True)
class TopologyFailure:
    """Why there is no plan. What was reserved in the `NodeCapacity` before the failure stays reserved there."""

    pod_set: str
    message: str
    level: str = ""
    """The level at which it doesn't fit; empty where the request itself is impossible."""
    fits: int = 0
    """Units that fit there at most."""
    needed: int = 0
    unit: str = "pod"
    """`pod` or `slice`."""
