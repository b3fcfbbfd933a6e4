"""A plan of moves: which running pods go where, so that something that waits can start.

Made by `windlass.defrag`, printed by `windlass plan defrag`. Nothing here is carried out.
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
    """A stop on the way, since pods stood in each other's way."""


class Start(msgspec.Struct, frozen=True):
    """A workload that starts once the moves for it are made."""

    workload: str
    pods: int
    gpu_milli: int
    moves: int
    lost_milli_seconds: int
    bound_milli_seconds: int
    """No set of moves loses less (with what was moved before taken as given)."""
    bound_moves: int
    """No set of moves that loses as little as the bound has fewer."""
    is_proven: bool = False
    """Nothing better exists: everything was looked at, or the bound is reached."""
    steps: int = 0
    by: str = "search"
    """`search`, or `exact` for the solver."""


class NoMovesFound(msgspec.Struct, frozen=True):
    """A workload for which no moves were found."""

    workload: str
    message: str


class DefragPlan(msgspec.Struct, frozen=True):
    moves: tuple[Move, ...] = ()
    """In an order in which they can be carried out."""
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
