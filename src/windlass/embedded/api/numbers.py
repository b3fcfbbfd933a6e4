"""Numbers in texts that anybody may write: annotations, names, statuses.

`str.isdigit` accepts digits that `int` refuses, and `int` refuses more than 4,300 of them; both would end the sync of a
controller with an exception. Used by `api`, `controllers` and `runtime`.
"""

from __future__ import annotations

MAX_DIGITS = 18
"""More don't fit into 64 bits."""


def parse_decimal(text: str) -> int | None:
    """A whole number without sign; None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else None


def parse_signed(text: str) -> int | None:
    """The same with an optional minus sign."""
    found = parse_decimal(text.removeprefix("-"))
    return -found if found is not None and text.startswith("-") else found
