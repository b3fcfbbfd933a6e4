"""What the plugin process knows about health, in a file that the rest of the agent reads.

The plugin writes it after every change; the reporter makes node Events and annotations of it, the exporter metrics. The
file is replaced as a whole, so a reader never sees half of it, and a dead reader never holds the plugin up.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from windlass.node.health import Change
from windlass.node.whole_file import write_whole

MOST_CHANGES = 200


class Entry(msgspec.Struct, frozen=True):
    number: int
    change: Change


class Journal(msgspec.Struct, kw_only=True):
    """The state now, and the latest changes by number."""

    unhealthy: dict[str, str] = {}
    """Why each device can't be used, in a person's words."""
    actions: dict[str, str] = {}
    """What would help each of them."""
    ailments: dict[str, list[str]] = {}
    """The same in kinds: `xid-48`, `heat`."""
    entries: list[Entry] = []
    last: int = 0

    def add(self, change: Change) -> None:
        self.last += 1
        self.entries = [*self.entries, Entry(self.last, change)][-MOST_CHANGES:]

    def since(self, number: int) -> list[Entry]:
        return [entry for entry in self.entries if entry.number > number]


def read_journal(path: Path) -> Journal:
    """Empty where there is none, or none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Journal)
    except (OSError, msgspec.MsgspecError):
        return Journal()


def write_journal(path: Path, journal: Journal) -> None:
    write_whole(path, msgspec.json.encode(journal))
