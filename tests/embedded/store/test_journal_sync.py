"""An acknowledged write is on the disk, not only in the page cache: the journal asks SQLite for that."""

from __future__ import annotations

import asyncio
from pathlib import Path

from windlass.embedded.store.journal import open_state

FULL = 2
"""`pragma synchronous`: SQLite syncs the write-ahead log at every commit."""


def test_commits_are_synced_to_the_disk(tmp_path: Path) -> None:
    async def level() -> int:
        _, journal = open_state(tmp_path)
        journal.start()
        found = int(journal._connection.execute("pragma synchronous").fetchone()[0])
        await journal.close()
        return found

    assert asyncio.run(level()) == FULL
