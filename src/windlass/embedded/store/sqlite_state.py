"""Reads the state of format 1, an SQLite file, so that `journal` can move it to the current format.

The file had no checksums: damage that SQLite notices is reported, other damage can't be seen.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from windlass.embedded.store.records import ObjectRecord
from windlass.embedded.store.store import FIRST_VERSION

SQLITE_FILE = "state.sqlite"
FORMAT_VERSION = 1


class SqliteState(msgspec.Struct):
    version: int
    records: list[ObjectRecord]
    problem: str = ""
    """What can't be read; the records are those that can."""


def read_sqlite_state(folder: Path) -> SqliteState:
    state = SqliteState(FIRST_VERSION, [])
    connection = sqlite3.connect(folder / SQLITE_FILE, isolation_level=None, timeout=2.0)
    try:
        connection.execute("pragma locking_mode = exclusive")
        connection.execute("begin immediate")  # an older Windlass must not write to it
        state.problem = _problem(connection)
        _read(connection, state)
    except (sqlite3.Error, ValueError, TypeError) as error:
        state.problem = state.problem or str(error)
    finally:
        connection.close()
    return state


def _problem(connection: sqlite3.Connection) -> str:
    (result,) = connection.execute("pragma integrity_check(1)").fetchone()
    if result != "ok":
        return str(result)
    meta = dict(connection.execute("select name, value from meta").fetchall())
    if not meta:
        return "it is empty"
    return "" if meta.get("format") == FORMAT_VERSION else f"it says that it has format {meta.get('format')}"


def _read(connection: sqlite3.Connection, state: SqliteState) -> None:
    for resource, namespace, name, version, raw in connection.execute(
        "select resource, namespace, name, version, raw from objects"
    ):
        try:
            record = ObjectRecord(str(resource), str(namespace), str(name), int(version), bytes(raw))
            msgspec.json.decode(record.raw, type=dict)
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            state.problem = state.problem or f"{resource} {namespace}/{name} can't be read: {error}"
            continue
        state.records.append(record)
        state.version = max(state.version, record.version)
    row = connection.execute("select value from meta where name = 'version'").fetchone()
    state.version = max(state.version, int(row[0]) if row is not None else 0)
