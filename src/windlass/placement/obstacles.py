"""Room that is promised to others, put up on the overlay while something is placed, and taken down afterwards.

`placement.timeplan` makes them from planned starts and reservations; `placement.site` places around them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from windlass.model.pod import Pod
from windlass.placement.overlay import Overlay, Placing


class Seat(NamedTuple):
    """A place on a node for a pod that is not there yet."""

    pod: Pod
    row: int
    """Of the table."""
    node: int


class Obstacles:
    """Seats that are taken, and nodes that are closed."""

    def __init__(self, seats: Iterable[Seat] = (), closed: Iterable[int] = ()) -> None:
        self._seats, self._closed = tuple(seats), tuple(closed)
        self._taken: list[Placing] = []
        self._shut: list[int] = []

    @property
    def is_empty(self) -> bool:
        return not self._seats and not self._closed

    def put_up(self, overlay: Overlay) -> None:
        """A seat for which there is no room any more is left out: what is there already can't be kept free."""
        self._taken = [placing for seat in self._seats if (placing := try_seat(overlay, seat)) is not None]
        self._shut = list(self._closed)
        for node in self._shut:
            overlay.close(node)

    def take_down(self, overlay: Overlay) -> None:
        for placing in self._taken:
            overlay.unseat(placing)
        for node in self._shut:
            overlay.close(node, -1)
        self._taken, self._shut = [], []


def try_seat(overlay: Overlay, seat: Seat) -> Placing | None:
    """The pod on the node, if the node itself has room for it."""
    overlay.refresh(seat.row)
    if overlay.table.cells.why[seat.row, seat.node]:
        return None
    return overlay.take(seat.pod, seat.row, seat.node)
