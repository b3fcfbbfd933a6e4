"""An acknowledged write is on the disk, not only in the page cache: both files are synced before the store is told."""

from __future__ import annotations

import asyncio

from tests.embedded.store.lossy_disk import LossyDisk

from windlass.embedded.store.journal import Journal
from windlass.embedded.store.state_log import open_log
from windlass.embedded.store.store import Store


def test_commits_are_synced_to_the_disk_before_they_are_acknowledged() -> None:
    disk = LossyDisk()
    done: list[str] = []

    async def write() -> None:
        state = open_log(disk)
        store = Store(state.version)
        store.journal = journal = Journal(state, store)
        disk.operations = done
        store.subscribe_durable("things", lambda change: done.append("acknowledged"))
        journal.start()
        store.put("things", ("x", "a"), {"metadata": {"name": "a"}})
        await store.wait_durable()
        await journal.close()

    asyncio.run(write())
    log, last = "state-000001.log", "state.last"
    assert done == [f"write {log}", f"sync {log}", f"write {last}", f"sync {last}", "acknowledged"]
