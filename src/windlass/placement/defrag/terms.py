"""The words that defragmentation speaks in: what may move, what needs a place, what was found.

Made by `movable`, `demand`, `search` and `exact`; read by all of them.
"""

from __future__ import annotations

import msgspec

from windlass.cluster.facts import Bools
from windlass.cluster.shape import Shape
from windlass.model.decision import DeviceGrant
from windlass.model.pod import Pod

POD = 1
LOSS = 1 << 20
"""Weights are one number: lost milli-GPU-seconds times LOSS plus moved pods times POD, so that lost work counts first
and the number of pods breaks ties (there are fewer than 2^20 of them)."""

ANY = -1
DEMAND = -1
"""`Item.movable` of a pod that waits."""


class Charge(msgspec.Struct, frozen=True):
    """What moving any pods of a gang loses, once: without one member the others stop too."""

    workload: str
    loss: int
    """Milli-GPU-seconds."""
    share: int
    """A part of the loss such that all pods that can be moved hold no more than the loss together."""


class Movable(msgspec.Struct, frozen=True):
    """A running pod that may be moved."""

    number: int
    pod: Pod
    pod_row: int
    """Of the snapshot's pods."""
    shape: Shape
    grants: tuple[DeviceGrant, ...]
    node: int
    loss: int
    """Milli-GPU-seconds that this pod loses alone; 0 where `charge` counts for it."""
    restart: int
    """Milli-GPU-seconds that one more start costs."""
    charge: int = -1
    """Which charge its move causes; -1: none."""
    budgets: tuple[int, ...] = ()
    """The disruption budgets that cover it."""
    allowed: Bools | None = None
    """Nodes that it may go to as far as its flavor and its gang's topology are concerned; None: any."""
    within: bool = False
    """Other devices of its own node can be a way out: it holds a share or a MIG instance."""

    @property
    def weight(self) -> int:
        return self.loss * LOSS + POD


class Park(msgspec.Struct, frozen=True):
    """Everything that may be moved."""

    movables: tuple[Movable, ...]
    charges: tuple[Charge, ...] = ()
    budgets: tuple[int, ...] = ()
    """How many covered pods each disruption budget lets go."""
    on_node: dict[int, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """Node → numbers of the pods on it that may be moved."""

    def floor(self, number: int) -> int:
        """A weight such that any set of moves weighs at least the sum of its pods' floors."""
        one = self.movables[number]
        return one.weight + (self.charges[one.charge].share * LOSS if one.charge >= 0 else 0)

    def weigh(self, numbers: set[int] | frozenset[int]) -> int:
        """What moving these pods weighs."""
        charged = {self.movables[number].charge for number in numbers} - {-1}
        return sum(self.movables[number].weight for number in numbers) + LOSS * sum(
            self.charges[charge].loss for charge in charged
        )


class Item(msgspec.Struct, frozen=True):
    """A pod that needs a place: one that waits, or one that was taken off its node."""

    pod: Pod
    shape: Shape
    row: int
    """Of the score table."""
    movable: int = DEMAND
    part: int = 0
    """Waiting pods of one part are equal."""
    allowed: Bools | None = None


class Relocation(msgspec.Struct, frozen=True):
    """Where a pod goes."""

    movable: int
    node: int
    device: int = ANY
    """Which device of the node, for a share; ANY: as placement picks it."""


class Limits(msgspec.Struct, frozen=True):
    """How far to look. Steps are counted, never seconds, so that the answer is the same everywhere."""

    max_moves: int = 16
    steps: int = 4000
    """Placements and removals that may be tried for one waiting workload."""
    nodes: int = 24
    """Nodes that are considered for clearing for one pod, the most promising first."""
    subsets: int = 8
    """Ways to clear one node for one pod."""
    targets: int = 16
    """Waiting workloads that are looked at where none is named."""


class Found(msgspec.Struct, frozen=True):
    """The best set of moves that a search has come to."""

    relocations: tuple[Relocation, ...]
    weight: int
    bound: int
    """No set of moves weighs less."""
    steps: int = 0
