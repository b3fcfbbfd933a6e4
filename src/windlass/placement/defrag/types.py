"""Data types of defragmentation: pods that may be moved, pods that need a node, and the moves that a search found.

`movable`, `demand`, `move_search` and `exact_solver` make them and read them.
"""

from __future__ import annotations

import msgspec

from windlass.cluster.node_columns import Bools
from windlass.cluster.shape import Shape
from windlass.model.decision import DeviceGrant
from windlass.model.pod import Pod

POD_WEIGHT = 1
LOSS_WEIGHT = 1 << 20
"""The weight of moves is one number: lost milli-GPU-seconds × LOSS_WEIGHT + moved pods × POD_WEIGHT. So lost work
counts first, and the number of pods breaks ties (there are fewer than 2^20 of them)."""

ANY_DEVICE = -1
WAITING = -1
"""`PodToPlace.pod_number` of a pod that waits."""


class GangLoss(msgspec.Struct, frozen=True):
    """What moving pods of a gang loses. It counts once, however many pods move: the whole gang stops without one."""

    workload: str
    loss: int
    """Milli-GPU-seconds."""
    share: int
    """The loss divided by the movable pods of the gang, rounded down: what one pod adds to a lower bound."""


class MovablePod(msgspec.Struct, frozen=True):
    """A running pod that may be moved."""

    number: int
    pod: Pod
    pod_row: int
    """Row of the snapshot's pod table."""
    shape: Shape
    grants: tuple[DeviceGrant, ...]
    node: int
    loss: int
    """Milli-GPU-seconds that moving this pod loses; 0 where `gang_loss` counts instead."""
    restart_loss: int
    """Milli-GPU-seconds that one more start costs."""
    gang_loss: int = -1
    """Index into `MovablePods.gang_losses`; -1: none."""
    budgets: tuple[int, ...] = ()
    """Indexes of the disruption budgets that cover it."""
    allowed: Bools | None = None
    """Nodes that its flavor and its gang's topology allow; None: all."""
    may_change_device: bool = False
    """Whether it may move to another device of its own node: it holds a share or a MIG instance."""

    @property
    def weight(self) -> int:
        return self.loss * LOSS_WEIGHT + POD_WEIGHT


class MovablePods(msgspec.Struct, frozen=True):
    """All pods that may be moved."""

    pods: tuple[MovablePod, ...]
    gang_losses: tuple[GangLoss, ...] = ()
    budgets: tuple[int, ...] = ()
    """Disruptions that each budget allows now."""
    on_node: dict[int, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """Node → numbers of the movable pods on it."""

    def min_weight(self, number: int) -> int:
        """Lower bound of one pod's weight: any set of moves weighs at least the sum over its pods."""
        movable = self.pods[number]
        return movable.weight + (
            self.gang_losses[movable.gang_loss].share * LOSS_WEIGHT if movable.gang_loss >= 0 else 0
        )

    def total_weight(self, numbers: set[int] | frozenset[int]) -> int:
        """The weight of moving these pods; a gang's loss counts once."""
        gangs = {self.pods[number].gang_loss for number in numbers} - {-1}
        return sum(self.pods[number].weight for number in numbers) + LOSS_WEIGHT * sum(
            self.gang_losses[gang].loss for gang in gangs
        )


class PodToPlace(msgspec.Struct, frozen=True):
    """A pod that needs a node: one that waits, or one that has to leave its node."""

    pod: Pod
    shape: Shape
    row: int
    """Row of the score table."""
    pod_number: int = WAITING
    pod_set: int = 0
    """Index of the pod set; waiting pods of one set are equal."""
    allowed: Bools | None = None


class Relocation(msgspec.Struct, frozen=True):
    """The node, and perhaps the device, that a pod moves to."""

    pod_number: int
    node: int
    device: int = ANY_DEVICE
    """Device of the node, for a share; ANY_DEVICE: the one that placement picks."""


class SearchLimits(msgspec.Struct, frozen=True):
    """Budget of a search. Counted in steps, not in seconds, so that the answer is the same on every machine."""

    max_moves: int = 16
    steps: int = 4000
    """Placements and removals for one waiting workload."""
    nodes: int = 24
    """Nodes that are considered for one pod, the most promising first."""
    subsets: int = 8
    """Sets of pods that are considered to clear one node for one pod."""
    targets: int = 16
    """Waiting workloads that are considered where none is named."""


class MoveSearchResult(msgspec.Struct, frozen=True):
    """The best set of moves that a search has found."""

    relocations: tuple[Relocation, ...]
    weight: int
    bound: int
    """Lower bound: no set of moves weighs less."""
    steps: int = 0
