"""The store on disk: an SQLite file that a write reaches before it is acknowledged.

    loop's thread     append(change) ─► queue
    journal's thread  takes all queued changes ─► one transaction, one sync to disk ─► notifies the store, on the loop

Many writes share one sync, so durable writes cost little more than the disk's own time. After a kill at any moment
the file has whole transactions only: every acknowledged write, and perhaps some that were about to be acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import sys
import threading
from collections import deque
from pathlib import Path

from windlass.embedded.store.resource_storage import MAX_CHANGES
from windlass.embedded.store.store import FIRST_VERSION, Store
from windlass.embedded.store.stored_object import DELETED, Change, StoredObject
from windlass.model.errors import InputError

log = logging.getLogger(__name__)

STATE_FILE = "state.sqlite"
FORMAT_VERSION = 1
_TABLES = """
create table if not exists objects (
    resource text not null, namespace text not null, name text not null, version integer not null, raw blob not null,
    primary key (resource, namespace, name)
) without rowid;
create table if not exists meta (name text primary key, value integer not null) without rowid;
"""
_ROW, _KEY = "(?, ?, ?, ?, ?)", "(?, ?, ?)"
_PUT = "insert or replace into objects values "
_REMOVE = "delete from objects where (resource, namespace, name) in (values "
ROWS_PER_STATEMENT = 100
"""Rows per statement. Between statements this thread has to wait for the GIL."""
SWITCH_SECONDS = 0.001
CHECKPOINT_PAGES = 8000
"""Size of the write-ahead log (32 MiB) that triggers a checkpoint, which delays concurrent writes."""
_META = "insert or replace into meta values (?, ?)"


class Journal:
    """Writes changes in the background. One per store, on the loop that runs when it is started."""

    def __init__(self, connection: sqlite3.Connection, store: Store) -> None:
        self._connection, self._store = connection, store
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
        """Writes what is queued, and closes the file."""
        self._closing = True
        self._wake.set()
        if self._loop is not None:
            await asyncio.to_thread(self._thread.join)
        self._connection.close()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            batch = self._drain_queue()
            if batch:
                try:
                    self._commit(batch)
                except sqlite3.Error as error:
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
        puts: list[tuple[object, ...]] = []
        removes: list[tuple[object, ...]] = []
        for (resource, key), change in last.items():
            if change.type == DELETED:
                removes.append((resource, *key))
            else:
                puts.append((resource, *key, change.version, change.new.raw))
        with self._connection:
            self._connection.execute("begin immediate")
            self._execute(_REMOVE, _KEY, ")", removes)
            self._execute(_PUT, _ROW, "", puts)
            self._connection.execute(_META, ("version", batch[-1].version))

    def _execute(self, prefix: str, row: str, suffix: str, rows: list[tuple[object, ...]]) -> None:
        for start in range(0, len(rows), ROWS_PER_STATEMENT):
            chunk = rows[start : start + ROWS_PER_STATEMENT]
            statement = prefix + ", ".join([row] * len(chunk)) + suffix
            self._connection.execute(statement, [value for values in chunk for value in values])

    def _call(self, callback: object, *arguments: object) -> None:
        assert self._loop is not None  # the thread was started by `start`
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)  # type: ignore[arg-type]
        except RuntimeError:  # the loop has ended; nothing waits any more
            return


def open_state(folder: Path, max_changes: int = MAX_CHANGES) -> tuple[Store, Journal]:
    """The store of a folder, with everything that was acknowledged, and its journal, to be started on the loop.

    Raises an `InputError` if the folder can't be used, or another process uses it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        connection = _connect(folder / STATE_FILE)
    except (OSError, sqlite3.Error) as error:
        raise InputError(f"can't be used for the cluster's state: {error}", file=str(folder)) from None
    row = connection.execute("select value from meta where name = 'version'").fetchone()
    version = int(row[0]) if row is not None else FIRST_VERSION
    store = Store(version, max_changes)
    items_by_resource: dict[str, list[StoredObject]] = {}
    for resource, namespace, name, object_version, raw in connection.execute(
        "select resource, namespace, name, version, raw from objects"
    ):
        stored = StoredObject((namespace, name), object_version, bytes(raw))
        stored.keep_tree()
        items_by_resource.setdefault(resource, []).append(stored)
    for resource, items in items_by_resource.items():
        store.storage(resource).restore(items)
    journal = Journal(connection, store)
    store.journal = journal
    return store, journal


def _connect(file: Path) -> sqlite3.Connection:
    # The file contains Secrets, so only its owner may read it; SQLite gives its log the same mode.
    os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=2.0)
    connection.execute("pragma locking_mode = exclusive")
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.execute(f"pragma wal_autocheckpoint = {CHECKPOINT_PAGES}")
    connection.executescript(_TABLES)
    with connection:
        connection.execute("begin immediate")  # takes the lock: one process per folder
        row = connection.execute("select value from meta where name = 'format'").fetchone()
        if row is None:
            connection.execute(_META, ("format", FORMAT_VERSION))
        elif row[0] != FORMAT_VERSION:
            raise sqlite3.DatabaseError(f"the file has format {row[0]}, this Windlass reads {FORMAT_VERSION}")
    return connection
