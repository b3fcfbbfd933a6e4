"""The health state of the plugin process, in a file that the rest of the agent reads.

The plugin writes it after every change; `reporter` turns it into node Events and annotations, the exporter into
metrics. The file is replaced in one step, so readers never see half of it and can't block the plugin.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from windlass.node.atomic_file import write_atomically
from windlass.node.health import HealthChange

MAX_CHANGES = 200


class HealthJournalEntry(msgspec.Struct, frozen=True):
    number: int
    change: HealthChange


class HealthJournal(msgspec.Struct, kw_only=True):
    """The current state, and the latest changes by number."""

    unhealthy: dict[str, str] = {}
    """Why each unhealthy device can't be used, by UUID."""
    actions: dict[str, str] = {}
    """What to do about each of them."""
    ailments: dict[str, list[str]] = {}
    """Their kinds of problems: `xid-48`, `heat`."""
    entries: list[HealthJournalEntry] = []
    last: int = 0

    def add(self, change: HealthChange) -> None:
        self.last += 1
        self.entries = [*self.entries, HealthJournalEntry(self.last, change)][-MAX_CHANGES:]

    def since(self, number: int) -> list[HealthJournalEntry]:
        return [entry for entry in self.entries if entry.number > number]


def read_journal(path: Path) -> HealthJournal:
    """Empty if the file is missing or can't be decoded."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=HealthJournal)
    except (OSError, msgspec.MsgspecError):
        return HealthJournal()


def write_journal(path: Path, journal: HealthJournal) -> None:
    write_atomically(path, msgspec.json.encode(journal))
