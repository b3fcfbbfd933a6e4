"""The code of a hold at the end of its message.

`apply.messages` writes and reads it; `kube.events` keeps it where an event is too long.
"""

from __future__ import annotations

import re

CODE_AT_END = re.compile(r" \(([A-Z][A-Z0-9_]+)\)$")


def shorten_message(message: str, length: int) -> str:
    """The message within the length; what is cut is never the code at its end, which programs read."""
    if len(message) <= length:
        return message
    found = CODE_AT_END.search(message)
    code = found[0] if found else ""
    return message[: length - len(code)] + code
