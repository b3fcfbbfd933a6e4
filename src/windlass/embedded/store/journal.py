"""Writes the store's changes to disk in the background, and opens a state folder.

    loop's thread     append(change) ─► queue
    journal's thread  takes all queued changes ─► `state_log`: one write, synced ─► notifies the store, on the loop

Many writes share one sync, so durable writes cost little more than the disk's own time.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections import deque
from pathlib import Path

from windlass.embedded.pki import check_private
from windlass.embedded.store.last_commit import read_last
from windlass.embedded.store.records import ObjectRecord
from windlass.embedded.store.resource_storage import MAX_CHANGES
from windlass.embedded.store.sqlite_state import SQLITE_FILE, read_sqlite_state
from windlass.embedded.store.state_log import Objects, StateDamaged, StateLog, open_log, replace_log
from windlass.embedded.store.store import Store
from windlass.embedded.store.stored_object import DELETED, Change, StoredObject
from windlass.model.errors import InputError
from windlass.storage.disk import LOCK_SECONDS, Disk

log = logging.getLogger(__name__)

SWITCH_SECONDS = 0.001
"""The longest that this thread waits for the GIL."""
MIGRATED_FILE = f"{SQLITE_FILE}.migrated"


class Journal:
    """Writes changes in the background. One per store, on the loop that runs when it is started."""

    def __init__(self, state: StateLog, store: Store) -> None:
        self._state, self._store = state, store
        self._queue: deque[Change] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="windlass-journal", daemon=True)

    def start(self) -> None:
        """Starts writing; the store is notified on the running loop."""
        self._loop = asyncio.get_running_loop()
        sys.setswitchinterval(SWITCH_SECONDS)
        self._thread.start()

    def append(self, change: Change) -> None:
        self._queue.append(change)
        self._wake.set()

    async def close(self) -> None:
        """Writes what is queued, and closes the files."""
        self._closing = True
        self._wake.set()
        if self._loop is not None:
            await asyncio.to_thread(self._thread.join)
        self._state.close()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            batch = self._drain_queue()
            if batch:
                try:
                    self._commit(batch)
                except Exception as error:  # whatever it is: without this thread every write would wait for ever
                    log.error("the cluster's state can't be written: %s", error)
                    self._call(self._store.on_journal_failed, f"the cluster's state can't be written: {error}")
                    return
                self._call(self._store.on_committed, batch[-1].version)
            elif self._closing:
                return
            if self._closing or self._queue:
                self._wake.set()

    def _drain_queue(self) -> list[Change]:
        batch = []
        while self._queue:
            batch.append(self._queue.popleft())
        return batch

    def _commit(self, batch: list[Change]) -> None:
        """Of several changes of one object only the last is written."""
        last = {(change.resource, change.key): change for change in batch}
        records = [
            ObjectRecord(resource, *key, change.version, b"" if change.type == DELETED else change.new.raw)
            for (resource, key), change in last.items()
        ]
        self._state.append(records, batch[-1].version)

    def _call(self, callback: object, *arguments: object) -> None:
        assert self._loop is not None  # the thread was started by `start`
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)  # type: ignore[arg-type]
        except RuntimeError:  # the loop has ended; nothing waits any more
            return


def open_state(
    folder: Path, max_changes: int = MAX_CHANGES, lock_seconds: float = LOCK_SECONDS
) -> tuple[Store, Journal]:
    """The store of a folder, with everything that was acknowledged, and its journal, to be started on the loop.

    Raises an `InputError` if the folder can't be used, or another process uses it, and `StateDamaged` if something
    that was acknowledged can't be read.
    """
    disk = lock_folder(folder, lock_seconds)
    try:
        _migrate(disk)
        state = open_log(disk)
    except OSError as error:
        disk.close()
        raise _unusable(folder, error) from None
    except Exception:
        disk.close()
        raise
    store = Store(state.version, max_changes)
    _restore(store, state.objects)
    journal = Journal(state, store)
    store.journal = journal
    return store, journal


def lock_folder(folder: Path, seconds: float = LOCK_SECONDS) -> Disk:
    """The folder, made if it doesn't exist, for this process alone."""
    disk = Disk(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        check_private(folder.resolve(), 0o002)
        disk.lock(seconds)
    except BlockingIOError:
        disk.close()
        raise InputError(
            "can't be used for the cluster's state: another windlass up uses it",
            file=str(folder),
            remedy="stop that one, or choose another folder with --state",
        ) from None
    except OSError as error:
        disk.close()
        raise _unusable(folder, error) from None
    return disk


def _unusable(folder: Path, error: OSError) -> InputError:
    return InputError(f"can't be used for the cluster's state: {error.strerror or error}", file=str(folder))


def _migrate(disk: Disk) -> None:
    """Moves the state of format 1 to the current format; the old file is kept beside it."""
    if SQLITE_FILE not in disk.names():
        return
    if read_last(disk) is None:
        old = read_sqlite_state(disk.folder)
        if old.problem:
            raise StateDamaged(disk, SQLITE_FILE, old.problem)
        replace_log(disk, 1, old.version, old.records)
        log.warning("%s: moved to the current format; the old file is %s", disk.folder, MIGRATED_FILE)
    disk.rename(SQLITE_FILE, MIGRATED_FILE)
    disk.sync_folder()


def _restore(store: Store, objects: Objects) -> None:
    items_by_resource: dict[str, list[StoredObject]] = {}
    for (resource, namespace, name), record in objects.items():
        stored = StoredObject((namespace, name), record.version, record.raw)
        stored.keep_tree()
        items_by_resource.setdefault(resource, []).append(stored)
    for resource, items in items_by_resource.items():
        store.storage(resource).restore(items)
