"""The words that defragmentation speaks in: what may move, what needs a place, what was found.

Made by `movable`, `demand`, `search` and `exact`; read by all of them.
"""

from __future__ import annotations

import msgspec

from windlass.cluster.node_columns import Bools
from windlass.cluster.shape import Shape
from windlass.model.decision import DeviceGrant
from windlass.model.pod import Pod

POD_WEIGHT = 1
LOSS_WEIGHT = 1 << 20
"""Weights are one number: lost milli-GPU-seconds times LOSS plus moved pods times POD, so that lost work counts first
and the number of pods breaks ties (there are fewer than 2^20 of them)."""

ANY_DEVICE = -1
WAITING = -1
"""`Item.movable` of a pod that waits."""


class GangLoss(msgspec.Struct, frozen=True):
    """What moving any pods of a gang loses, once: without one member the others stop too."""

    workload: str
    loss: int
    """Milli-GPU-seconds."""
    share: int
    """A part of the loss such that all pods that can be moved hold no more than the loss together."""


class MovablePod(msgspec.Struct, frozen=True):
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
    restart_loss: int
    """Milli-GPU-seconds that one more start costs."""
    gang_loss: int = -1
    """Which charge its move causes; -1: none."""
    budgets: tuple[int, ...] = ()
    """The disruption budgets that cover it."""
    allowed: Bools | None = None
    """Nodes that it may go to as far as its flavor and its gang's topology are concerned; None: any."""
    may_change_device: bool = False
    """Other devices of its own node can be a way out: it holds a share or a MIG instance."""

    @property
    def weight(self) -> int:
        return self.loss * LOSS_WEIGHT + POD_WEIGHT


class MovablePods(msgspec.Struct, frozen=True):
    """Everything that may be moved."""

    pods: tuple[MovablePod, ...]
    gang_losses: tuple[GangLoss, ...] = ()
    budgets: tuple[int, ...] = ()
    """How many covered pods each disruption budget lets go."""
    on_node: dict[int, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """Node → numbers of the pods on it that may be moved."""

    def min_weight(self, number: int) -> int:
        """A weight such that any set of moves weighs at least the sum of its pods' floors."""
        one = self.pods[number]
        return one.weight + (self.gang_losses[one.gang_loss].share * LOSS_WEIGHT if one.gang_loss >= 0 else 0)

    def total_weight(self, numbers: set[int] | frozenset[int]) -> int:
        """What moving these pods weighs."""
        charged = {self.pods[number].gang_loss for number in numbers} - {-1}
        return sum(self.pods[number].weight for number in numbers) + LOSS_WEIGHT * sum(
            self.gang_losses[charge].loss for charge in charged
        )


class PodToPlace(msgspec.Struct, frozen=True):
    """A pod that needs a place: one that waits, or one that was taken off its node."""

    pod: Pod
    shape: Shape
    row: int
    """Of the score table."""
    pod_number: int = WAITING
    pod_set: int = 0
    """Waiting pods of one part are equal."""
    allowed: Bools | None = None


class Relocation(msgspec.Struct, frozen=True):
    """Where a pod goes."""

    pod_number: int
    node: int
    device: int = ANY_DEVICE
    """Which device of the node, for a share; ANY: as placement picks it."""


class SearchLimits(msgspec.Struct, frozen=True):
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


class MoveSearchResult(msgspec.Struct, frozen=True):
    """The best set of moves that a search has come to."""

    relocations: tuple[Relocation, ...]
    weight: int
    bound: int
    """No set of moves weighs less."""
    steps: int = 0
