"""A plan of moves of running pods with which pending workloads can start.

Made by `windlass.defrag`, printed by `windlass plan defrag`. Windlass does not execute it.
"""

from __future__ import annotations

import msgspec

from windlass.model.decision import DeviceGrant


class Move(msgspec.Struct, frozen=True):
    """A pod leaves its node and is placed on another one, or on other devices of the same."""

    pod: str
    from_node: str
    to_node: str
    devices: tuple[DeviceGrant, ...] = ()
    lost_milli_seconds: int = 0
    """Milli-GPU-seconds of work that this move loses, restart included."""
    for_workload: str = ""
    is_stop: bool = False
    """An intermediate stop, since pods block each other's targets."""


class Start(msgspec.Struct, frozen=True):
    """A workload that starts once the moves for it are made."""

    workload: str
    pods: int
    gpu_milli: int
    moves: int
    lost_milli_seconds: int
    bound_milli_seconds: int
    """Lower bound of the loss, given the moves before it."""
    bound_moves: int
    """Lower bound of the number of moves among those with the least loss."""
    is_proven: bool = False
    """Optimal: the search was exhaustive, or the bound is reached."""
    steps: int = 0
    by: str = "search"
    """`search`, or `exact` for the solver."""


class NoMovesFound(msgspec.Struct, frozen=True):
    """A workload for which no moves were found."""

    workload: str
    message: str


class DefragPlan(msgspec.Struct, frozen=True):
    moves: tuple[Move, ...] = ()
    """In the order of execution."""
    starts: tuple[Start, ...] = ()
    waits: tuple[NoMovesFound, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def lost_milli_seconds(self) -> int:
        return sum(move.lost_milli_seconds for move in self.moves)

    @property
    def bound_milli_seconds(self) -> int:
        return sum(start.bound_milli_seconds for start in self.starts)

    @property
    def bound_moves(self) -> int:
        return sum(start.bound_moves for start in self.starts)
