"""What the search is asked and what it answers.

`engine` makes the asks of a workload's pod sets and supplies the room; `plan` answers with one placement a pod set,
or with the failure that a verdict is made of.
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
    """One pod set that wants places."""

    name: str
    count: int
    request: TopologyRequest | None = None
    """None: anywhere, as for `unconstrained`."""
    score: Ints | None = None
    """By node row, higher is better: decides between nodes that the topology holds equal. Nodes of one lowest domain
    are equal where that domain isn't a node itself; otherwise those with the same room are."""


class NodeCapacity(Protocol):
    """How many pods fit where, as the search goes on. Asks are known by their position; arrays are by node row."""

    def pods_per_node(self, request: int) -> Ints:
        """How many pods of this ask each node takes now."""

    def pods_beside_leader(self, request: int, leader: int) -> tuple[Bools, Ints]:
        """Which nodes take one pod of `leader` now, and how many pods of `ask` each node takes beside it (where it
        doesn't take the leader: as many as `pods` says)."""

    def reserve(self, request: int, rows: Ints, pods: Ints) -> None:
        """From now on, these pods are there."""

    def excluded_nodes(self, request: int) -> Mapping[str, int]:
        """Nodes that take no pod at all, counted by reason in Kueue's words (`nodeSelector`, `resource "cpu"`)."""


@dataclass(frozen=True, slots=True, eq=False)
class PodSetPlacement:
    """Where the pods of one set go."""

    name: str
    rows: Ints
    """Node rows, ascending."""
    pods: Ints
    """How many on each of them, never 0."""
    level: str
    """The level whose domains were searched: the requested one, or a wider one for a preference that can't be met."""
    domains: int
    """How many domains of that level it takes."""

    def by_node(self, names: Sequence[str]) -> dict[str, int]:
        """Node name → pods."""
        return {names[row]: count for row, count in zip(self.rows.tolist(), self.pods.tolist(), strict=True)}


@dataclass(frozen=True, slots=True, eq=False)
class TopologyPlan:
    """One placement an ask, in the order of the asks."""

    placements: tuple[PodSetPlacement, ...]


@dataclass(frozen=True, slots=True)
class TopologyFailure:
    """Why there is no plan. Nothing was taken that the caller would have to give back but on the room itself."""

    pod_set: str
    message: str
    level: str = ""
    """The level that binds; empty where the request itself is impossible."""
    fits: int = 0
    """How many units fit there at most."""
    needed: int = 0
    unit: str = "pod"
    """`pod` or `slice`."""
