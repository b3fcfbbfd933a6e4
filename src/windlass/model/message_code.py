"""What programs read in the message of a hold: its code, at the end, and its planned start.

`apply.messages` writes and reads the code; `kube.events` keeps it where an event is too long. The page reads both: a
condition has no other field for them.
"""

from __future__ import annotations

import re

from windlass.model.times import parse_timestamp

CODE_AT_END = re.compile(r" \(([A-Z][A-Z0-9_]+)\)$")

_PLANNED_START = re.compile(r"planned\sto\sstart\sat\s([0-9TZ:-]{20})")


def planned_start_of(message: str) -> int:
    """Seconds since 1970; 0 if it names none. `model.verdict` writes it."""
    found = _PLANNED_START.search(message)
    return parse_timestamp(found[1]) if found else 0


def shorten_message(message: str, length: int) -> str:
    """The message within the length; what is cut is never the code at its end, which programs read."""
    if len(message) <= length:
        return message
    found = CODE_AT_END.search(message)
    code = found[0] if found else ""
    return message[: length - len(code)] + code
