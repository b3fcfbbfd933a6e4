"""Keys of pieces: the parts of an elastic workload that are decided, counted and evicted on their own.

`placement.workload_pieces` makes the pieces; queueing knows from the key that members above the minimum go with it.
"""

from __future__ import annotations

from windlass.model.digits import is_digits

PIECE_SEPARATOR = "#"
"""The minimum has the key of its workload, other pieces `key#number` or `key#missing`."""


def workload_key(piece: str) -> str:
    """Key of the workload that the piece belongs to."""
    return piece.partition(PIECE_SEPARATOR)[0]


def is_above_minimum(piece: str) -> bool:
    # Asked of everything that is pending or runs; hardly any has pieces.
    return PIECE_SEPARATOR in piece and is_digits(piece.partition(PIECE_SEPARATOR)[2])
