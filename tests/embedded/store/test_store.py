"""The store: a list at a version shows the state at that version, whatever has happened since."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import sqlite3
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.embedded.store.journal import lock_folder, open_state
from windlass.embedded.store.resource_storage import Compacted
from windlass.embedded.store.state_log import StateDamaged
from windlass.embedded.store.state_repair import plan_repair, repair_state
from windlass.embedded.store.store import FIRST_VERSION, Store
from windlass.embedded.store.stored_object import ADDED, DELETED, MODIFIED, Change
from windlass.model.errors import InputError
from windlass.model.unstructured import Unstructured

NAMES = st.sampled_from(["a", "b", "c", "d"])
SPACES = st.sampled_from(["x", "y"])
STEPS = st.lists(st.tuples(st.sampled_from(["put", "put", "remove"]), SPACES, NAMES), max_size=40)


def tree(namespace: str, name: str, value: int) -> Unstructured:
    return {"metadata": {"namespace": namespace, "name": name}, "value": value}


def played(store: Store, steps: list[tuple[str, str, str]]) -> dict[int, dict[tuple[str, str], int]]:
    """What is there after each version."""
    seen: dict[tuple[str, str], int] = {}
    history = {store.version: dict(seen)}
    for number, (what, namespace, name) in enumerate(steps):
        key = namespace, name
        if what == "put":
            store.put("things", key, tree(namespace, name, number))
            seen[key] = number
        elif key in seen:
            store.remove("things", key)
            del seen[key]
        history[store.version] = dict(seen)
    return history


@given(STEPS)
def test_every_version_can_be_seen_again(steps: list[tuple[str, str, str]]) -> None:
    store = Store()
    shelf = store.storage("things")
    for version, expected in played(store, steps).items():
        found = list(shelf.list_at(version))
        assert [item.key for item in found] == sorted(expected)
        assert {item.key: item.tree["value"] for item in found} == expected
        assert [stored.key for stored in shelf.list_at(version, "x")] == [
            key for key in sorted(expected) if key[0] == "x"
        ]


@given(STEPS, st.integers(1, 10))
def test_changes_after_a_version_lead_from_it_to_now(steps: list[tuple[str, str, str]], most: int) -> None:
    store = Store(max_changes=most)
    shelf = store.storage("things")
    states = played(store, steps)
    for version, state in states.items():
        if version < shelf.compacted_version:
            with pytest.raises(Compacted):
                shelf.changes_since(version)
            continue
        changes = shelf.changes_since(version)
        for change in changes:
            assert (change.type == ADDED) == (change.key not in state and change.type != DELETED)
            if change.type == DELETED:
                assert change.new.tree["metadata"]["resourceVersion"] == str(change.version)
                del state[change.key]
            else:
                assert change.type == (MODIFIED if change.key in state else ADDED)
                state[change.key] = change.new.tree["value"]
        assert state == {stored.key: stored.tree["value"] for stored in shelf.list_current()}


@given(STEPS, SPACES, NAMES)
def test_a_list_goes_on_after_a_key(steps: list[tuple[str, str, str]], namespace: str, name: str) -> None:
    store = Store()
    played(store, steps)
    shelf = store.storage("things")
    everything = [stored.key for stored in shelf.list_current()]
    after = (namespace, name)
    assert [stored.key for stored in shelf.list_current("", after)] == [key for key in everything if key > after]
    assert [stored.key for stored in shelf.list_current(namespace, after)] == [
        key for key in everything if key > after and key[0] == namespace
    ]


def test_listeners_hear_changes_in_order_even_those_they_make() -> None:
    store = Store()
    heard: list[tuple[str, int]] = []

    def first(change: Change) -> None:
        heard.append(("first", change.version))
        if change.key == ("x", "a") and change.type == ADDED:
            store.put("things", ("x", "b"), tree("x", "b", 0))

    far: list[int] = []
    store.subscribe_durable("things", lambda change: far.append(change.version))
    store.subscribe("things", first)
    store.subscribe("things", lambda change: heard.append(("second", change.version)))
    store.put("things", ("x", "a"), tree("x", "a", 0))
    one, two = FIRST_VERSION + 1, FIRST_VERSION + 2
    assert far == [one, two]
    assert store.is_durable
    assert heard == [("first", one), ("second", one), ("first", two), ("second", two)]


def test_a_listener_that_fails_harms_nobody() -> None:
    store = Store()
    heard: list[int] = []

    def broken(change: Change) -> None:
        raise ValueError("mine alone")

    store.subscribe("things", broken)
    stop = store.subscribe("things", lambda change: heard.append(change.version))
    store.put("things", ("x", "a"), tree("x", "a", 0))
    stop()
    store.put("things", ("x", "b"), tree("x", "b", 0))
    assert heard == [FIRST_VERSION + 1]


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    async def write() -> tuple[int, list[int]]:
        store, journal = open_state(tmp_path)
        journal.start()
        told: list[int] = []
        store.subscribe_durable("things", lambda change: told.append(change.version))
        for number in range(50):
            store.put("things", ("x", f"n{number}"), tree("x", f"n{number}", number))
        store.remove("things", ("x", "n7"))
        assert told == []  # nobody is told before it is on disk
        await store.wait_durable()
        assert told == list(range(FIRST_VERSION + 1, FIRST_VERSION + 52))
        version = store.version
        await journal.close()
        return version, told

    version, _ = asyncio.run(write())
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in tmp_path.iterdir())
    store, journal = open_state(tmp_path)
    assert store.version == version
    assert {stored.key[1]: stored.tree["value"] for stored in store.storage("things").list_current()} == {
        f"n{number}": number for number in range(50) if number != 7
    }
    with pytest.raises(Compacted):
        store.storage("things").changes_since(FIRST_VERSION)
    assert store.storage("things").changes_since(version) == []
    with pytest.raises(InputError, match="can't be used for the cluster's state"):
        open_state(tmp_path, lock_seconds=0)  # one process a folder
    asyncio.run(journal.close())


def test_a_disk_that_fails_is_never_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def write() -> None:
        store, journal = open_state(tmp_path)
        journal.start()
        store.put("things", ("x", "a"), tree("x", "a", 0))
        await store.wait_durable()
        monkeypatch.setattr("windlass.storage.disk.os.fdatasync", full)
        store.put("things", ("x", "b"), tree("x", "b", 0))
        with pytest.raises(OSError, match="can't be written"):
            await store.wait_durable()
        with pytest.raises(OSError, match="can't be written"):
            await store.wait_durable()  # nor may anybody read what is not on disk
        with pytest.raises(OSError, match="can't be written"):
            store.put("things", ("x", "c"), tree("x", "c", 0))
        await journal.close()

    asyncio.run(write())
    monkeypatch.undo()
    store, journal = open_state(tmp_path)
    assert ("x", "a") in store.storage("things").items
    asyncio.run(journal.close())


def test_a_folder_that_can_not_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(InputError, match="can't be used for the cluster's state"):
        open_state(tmp_path / "file")


def write_old_state(folder: Path, count: int) -> None:
    """As releases before the log wrote it."""
    with contextlib.closing(sqlite3.connect(folder / "state.sqlite")) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute(
            "create table objects (resource text not null, namespace text not null, name text not null, "
            "version integer not null, raw blob not null, primary key (resource, namespace, name)) without rowid"
        )
        connection.execute("create table meta (name text primary key, value integer not null) without rowid")
        connection.execute("insert into meta values ('format', 1), ('version', ?)", (FIRST_VERSION + count + 5,))
        for number in range(count):
            row = "things", "x", f"n{number}", FIRST_VERSION + number, b'{"metadata":{},"value":%d}' % number
            connection.execute("insert into objects values (?, ?, ?, ?, ?)", row)
        connection.commit()


def test_a_state_of_the_old_format_is_moved_to_the_new_one(tmp_path: Path) -> None:
    write_old_state(tmp_path, 5)
    for _ in range(2):
        store, journal = open_state(tmp_path)
        assert store.version == FIRST_VERSION + 10
        values = {stored.key[1]: stored.tree["value"] for stored in store.storage("things").list_current()}
        assert values == {f"n{number}": number for number in range(5)}
        asyncio.run(journal.close())
    assert (tmp_path / "state.sqlite.migrated").exists()
    assert not (tmp_path / "state.sqlite").exists()


@pytest.mark.parametrize("damage", ["empty", "text", "middle"])
def test_a_damaged_state_of_the_old_format_is_refused(tmp_path: Path, damage: str) -> None:
    write_old_state(tmp_path, 200)
    file = tmp_path / "state.sqlite"
    data = file.read_bytes()
    middle = data[:5000] + bytes(range(256)) * 20 + data[5000 + 5120 :]
    file.write_bytes({"empty": b"", "text": b"not a database" * 500, "middle": middle}[damage])
    with pytest.raises(StateDamaged, match=r"state\.sqlite: the cluster's state is damaged") as caught:
        open_state(tmp_path)
    assert caught.value.exit_code == 3
    assert f"windlass up --state {tmp_path} --repair" in str(caught.value)
    disk = lock_folder(tmp_path)
    plan = plan_repair(disk)
    assert plan.losses[0].startswith("state.sqlite: ")
    repair_state(disk, plan)
    disk.close()
    store, journal = open_state(tmp_path)
    assert store.version > FIRST_VERSION
    asyncio.run(journal.close())
