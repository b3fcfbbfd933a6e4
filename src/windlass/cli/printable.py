"""Texts that a terminal only shows: names in dumps and manifests are others', and must not move its cursor or title.

`errors`, `output` and the commands that print findings call it on what they print.
"""

from __future__ import annotations

import re

_CONTROL = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""All but tab, line feed and colours, and what changes the direction of writing."""


def printable(text: str) -> str:
    """The text with control characters spelled out, as `\\x1b`. Colours stay: they are our own, or harmless."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
