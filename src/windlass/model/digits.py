"""Whether a text is a number that `int` reads.

`str.isdigit` is not enough: it is true for "²", which `int` refuses, and for texts that are too long for it.
"""

from __future__ import annotations

MAX_DIGITS = 18


def is_digits(text: str) -> bool:
    """ASCII digits, at least one, and no more than a 64-bit integer has."""
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
