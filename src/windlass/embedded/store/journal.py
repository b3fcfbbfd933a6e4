"""The store on disk: an SQLite file that a write reaches before anybody is told of it.

    loop's thread   append(change) ─► queue
    own thread      takes all that is queued ─► one transaction, one sync to disk ─► tells the store, on the loop

Many writes share one sync, so that durable writes cost little more than the disk's own time. Killed at any moment, the
file holds whole transactions only: every write that was acknowledged, and perhaps some that were about to be.
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
"""Rows in one statement. Between statements the loop's thread has to let this one in, which takes it a moment."""
SWITCH_SECONDS = 0.001
CHECKPOINT_PAGES = 8000
"""Of the log, 32 MiB, before they are carried over into the file; that holds up the writes that come then."""
_META = "insert or replace into meta values (?, ?)"


class Journal:
    """Writes changes in the background. One for a store, on the loop that runs when it is started."""

    def __init__(self, connection: sqlite3.Connection, store: Store) -> None:
        self._connection, self._store = connection, store
        self._queue: deque[Change] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="windlass-journal", daemon=True)

    def start(self) -> None:
        """Begin to write, and tell the store on the running loop."""
        self._loop = asyncio.get_running_loop()
        sys.setswitchinterval(SWITCH_SECONDS)
        self._thread.start()

    def append(self, change: Change) -> None:
        self._queue.append(change)
        self._wake.set()

    async def close(self) -> None:
        """Write what is queued, and let go of the file."""
        self._closing = True
        self._wake.set()
        if self._loop is not None:
            await asyncio.to_thread(self._thread.join)
        self._connection.close()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            batch = self._taken()
            if batch:
                try:
                    self._commit(batch)
                except sqlite3.Error as error:
                    log.error("the state can't be written: %s", error)
                    self._tell(self._store.on_journal_failed, f"the state can't be written: {error}")
                    return
                self._tell(self._store.on_committed, batch[-1].version)
            elif self._closing:
                return
            if self._closing or self._queue:
                self._wake.set()

    def _taken(self) -> list[Change]:
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

    def _execute(self, head: str, row: str, tail: str, rows: list[tuple[object, ...]]) -> None:
        for at in range(0, len(rows), ROWS_PER_STATEMENT):
            part = rows[at : at + ROWS_PER_STATEMENT]
            statement = head + ", ".join([row] * len(part)) + tail
            self._connection.execute(statement, [value for one in part for value in one])

    def _tell(self, what: object, *arguments: object) -> None:
        assert self._loop is not None  # the thread was started by `start`
        try:
            self._loop.call_soon_threadsafe(what, *arguments)  # type: ignore[arg-type]
        except RuntimeError:  # the loop has ended; nobody waits any more
            return


def open_state(folder: Path, max_changes: int = MAX_CHANGES) -> tuple[Store, Journal]:
    """The store of a folder, with all that was acknowledged, and its journal, which is to be started on the loop.

    Exits with a message (`InputError`) where the folder can't be used, or another process uses it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        connection = _connect(folder / STATE_FILE)
    except (OSError, sqlite3.Error) as error:
        raise InputError(f"can't be used for the cluster's state: {error}", file=str(folder)) from None
    row = connection.execute("select value from meta where name = 'version'").fetchone()
    version = int(row[0]) if row is not None else FIRST_VERSION
    store = Store(version, max_changes)
    kept: dict[str, list[StoredObject]] = {}
    for resource, namespace, name, at, raw in connection.execute(
        "select resource, namespace, name, version, raw from objects"
    ):
        stored = StoredObject((namespace, name), at, bytes(raw))
        stored.keep_tree()
        kept.setdefault(resource, []).append(stored)
    for resource, items in kept.items():
        store.storage(resource).restore(items)
    journal = Journal(connection, store)
    store.journal = journal
    return store, journal


def _connect(file: Path) -> sqlite3.Connection:
    os.close(
        os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    )  # there are secrets in it; its log takes its mode over
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=2.0)
    connection.execute("pragma locking_mode = exclusive")
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.execute(f"pragma wal_autocheckpoint = {CHECKPOINT_PAGES}")
    connection.executescript(_TABLES)
    with connection:
        connection.execute("begin immediate")  # takes the lock: one process a folder
        row = connection.execute("select value from meta where name = 'format'").fetchone()
        if row is None:
            connection.execute(_META, ("format", FORMAT_VERSION))
        elif row[0] != FORMAT_VERSION:
            raise sqlite3.DatabaseError(f"it has format {row[0]}; this program knows {FORMAT_VERSION}")
    return connection
