"""What the plugin process knows about health, in a file that the rest of the agent reads.

The plugin writes it after every change; the reporter makes node Events and annotations of it, the exporter metrics. The
file is replaced as a whole, so a reader never sees half of it, and a dead reader never holds the plugin up.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from windlass.node.atomic_file import write_atomically
from windlass.node.health import HealthChange

MOST_CHANGES = 200


class HealthJournalEntry(msgspec.Struct, frozen=True):
    number: int
    change: HealthChange


class HealthJournal(msgspec.Struct, kw_only=True):
    """The state now, and the latest changes by number."""

    unhealthy: dict[str, str] = {}
    """Why each device can't be used, in a person's words."""
    actions: dict[str, str] = {}
    """What would help each of them."""
    ailments: dict[str, list[str]] = {}
    """The same in kinds: `xid-48`, `heat`."""
    entries: list[HealthJournalEntry] = []
    last: int = 0

    def add(self, change: HealthChange) -> None:
        self.last += 1
        self.entries = [*self.entries, HealthJournalEntry(self.last, change)][-MOST_CHANGES:]

    def since(self, number: int) -> list[HealthJournalEntry]:
        return [entry for entry in self.entries if entry.number > number]


def read_journal(path: Path) -> HealthJournal:
    """Empty where there is none, or none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=HealthJournal)
    except (OSError, msgspec.MsgspecError):
        return HealthJournal()


def write_journal(path: Path, journal: HealthJournal) -> None:
    write_atomically(path, msgspec.json.encode(journal))
