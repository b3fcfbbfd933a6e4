"""The state on disk: a log of objects that a write reaches before it is acknowledged.

    state-000003.log   all objects as of its beginning, then every change since
    state.last         how far the log was acknowledged (`last_commit`)

A write is appended and synced, then remembered in `state.last` and synced, then acknowledged. When the log has grown
enough, a new one begins with the current objects (a checkpoint): it counts from the moment that `state.last` names it.
Opening reads everything: what was acknowledged is there and whole, or `StateDamaged` is raised. What a write left
behind that was cut off before it was acknowledged is removed, with a message. `journal` writes, from its thread;
[decision 0037](../../../../docs/decisions/0037-state-on-disk.md) says why.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import msgspec

from windlass.embedded.store.last_commit import LAST_FILE, LastCommit, read_last, write_last
from windlass.embedded.store.records import (
    FORMAT_VERSION,
    FoundRecord,
    LogHeader,
    ObjectRecord,
    encode_record,
    read_records,
)
from windlass.embedded.store.store import FIRST_VERSION
from windlass.model.errors import ClusterUnreachable, InputError
from windlass.storage.disk import Disk

log = logging.getLogger(__name__)

CHECKPOINT_BYTES = 32 << 20
"""Growth of a log after which the next one is begun, unless its first objects are more than that."""
WRITE_BYTES = 1 << 20
"""Of a checkpoint at a time."""
_NEW_LAST_FILE = "state.last.new"

ObjectKey = tuple[str, str, str]
Objects = dict[ObjectKey, ObjectRecord]


class StateDamaged(ClusterUnreachable):
    """The state can't be read as it was acknowledged. `name` is the file, `detail` what is wrong with it."""

    def __init__(self, disk: Disk, name: str, detail: str) -> None:
        folder = disk.folder
        super().__init__(
            f"{folder / name}: the cluster's state is damaged: {detail} (restore {folder} from a copy, or run windlass "
            f"up --state {folder} --repair, which lists what is lost and asks before it changes anything)"
        )
        self.name, self.detail = name, detail


class StateLog:
    def __init__(
        self, disk: Disk, commit: LastCommit, objects: Objects, checkpoint_bytes: int = CHECKPOINT_BYTES
    ) -> None:
        self._disk, self.commit, self.objects = disk, commit, objects
        self._checkpoint_bytes = checkpoint_bytes
        self._checkpoint_length = 0
        """Bytes of the log's first objects; those of one that was opened count as growth."""

    @property
    def version(self) -> int:
        return self.commit.version

    def append(self, records: Sequence[ObjectRecord], version: int) -> None:
        """One write: all of it or nothing is there later. Returns when it is on disk.

        After an error the log must not be used any more.
        """
        commit = self.commit
        records = [*(msgspec.structs.replace(record, more=True) for record in records[:-1]), records[-1]]
        data = b"".join(encode_record(commit.records + index, record) for index, record in enumerate(records))
        name = log_name(commit.generation)
        self._disk.write(name, commit.length, data)
        self._disk.sync(name)
        self._remember(commit.generation, commit.length + len(data), commit.records + len(records), version)
        replay(self.objects, records)
        growth = self.commit.length - self._checkpoint_length
        if growth > max(self._checkpoint_bytes, self._checkpoint_length):
            self.checkpoint()

    def checkpoint(self) -> None:
        """Begins the next log with the current objects."""
        disk, old, generation = self._disk, self.commit.generation, self.commit.generation + 1
        length, count = write_log(disk, generation, self.version, self.objects.values())
        for _ in range(2):  # in both slots, since the old log goes
            self._remember(generation, length, count, self.version)
        self._checkpoint_length = length
        if old:
            disk.remove(log_name(old))

    def close(self) -> None:
        self._disk.close()

    def _remember(self, generation: int, length: int, records: int, version: int) -> None:
        commit = LastCommit(self.commit.serial + 1, generation, length, records, version)
        write_last(self._disk, commit)
        self.commit = commit


def open_log(disk: Disk, checkpoint_bytes: int = CHECKPOINT_BYTES) -> StateLog:
    """The log of a folder; a new one in an empty folder."""
    last = read_last(disk)
    if last is None:
        last = _first_commit(disk)
    if last.format != FORMAT_VERSION:
        raise InputError(
            f"has format {last.format}, and this Windlass reads {FORMAT_VERSION}",
            file=str(disk.folder / LAST_FILE),
            remedy="start it with the release that wrote it",
        )
    if not last.generation:
        state = StateLog(disk, last, {}, checkpoint_bytes)
        state.checkpoint()
        return state
    found = _read_acknowledged(disk, last)
    state = _adopt(disk, last, found, checkpoint_bytes)
    _remove_other_logs(disk, last.generation)
    return state


def write_log(disk: Disk, generation: int, version: int, records: Iterable[ObjectRecord]) -> tuple[int, int]:
    """Writes and syncs a whole log; (bytes, records). It doesn't count until `state.last` names it."""
    name = log_name(generation)
    disk.truncate(name, 0)  # one that a crash left unfinished
    data = bytearray(encode_record(0, LogHeader(FORMAT_VERSION, generation, version)))
    length, count = 0, 1
    for record in records:
        data += encode_record(count, msgspec.structs.replace(record, more=False) if record.more else record)
        count += 1
        if len(data) >= WRITE_BYTES:
            disk.write(name, length, bytes(data))
            length += len(data)
            data.clear()
    disk.write(name, length, bytes(data))
    disk.sync(name)
    disk.sync_folder()
    return length + len(data), count


def replace_log(disk: Disk, generation: int, version: int, records: Iterable[ObjectRecord]) -> None:
    """Writes a new log and, when it is on disk, makes it the one that counts, whatever was there before."""
    length, count = write_log(disk, generation, version, records)
    disk.truncate(_NEW_LAST_FILE, 0)
    write_last(disk, LastCommit(0, generation, length, count, version), _NEW_LAST_FILE)
    disk.rename(_NEW_LAST_FILE, LAST_FILE)
    disk.sync_folder()


def replay(objects: Objects, records: Iterable[ObjectRecord]) -> None:
    """Applies changes in order."""
    for record in records:
        key = record.resource, record.namespace, record.name
        if record.raw:
            objects[key] = record
        else:
            objects.pop(key, None)


def log_name(generation: int) -> str:
    return f"state-{generation:06d}.log"


def log_generation(name: str) -> int:
    """0 if the file is not a log."""
    number = name.removeprefix("state-").removesuffix(".log")
    is_log = number.isascii() and number.isdigit() and name == log_name(int(number))
    return int(number) if is_log else 0


def _first_commit(disk: Disk) -> LastCommit:
    logs = [name for name in disk.names() if log_generation(name)]
    if logs:
        raise StateDamaged(disk, LAST_FILE, f"it can't be read, so the expected length of {logs[-1]} is not known")
    last = LastCommit(version=FIRST_VERSION)
    write_last(disk, last)
    disk.sync_folder()
    return last


def _read_acknowledged(disk: Disk, last: LastCommit) -> list[FoundRecord]:
    """The log's records: all that were acknowledged, and perhaps some that were about to be."""
    name = log_name(last.generation)
    try:
        data = disk.read(name)
    except FileNotFoundError:
        raise StateDamaged(disk, name, f"it is missing, and had {last.records} records") from None
    found = list(read_records(data))
    while len(found) > last.records and isinstance(found[-1].record, ObjectRecord) and found[-1].record.more:
        found.pop()  # the end of its write is missing
    end = found[-1].end if found else 0
    if len(found) < last.records or found[last.records - 1].end != last.length:
        raise StateDamaged(
            disk, name, f"record {len(found)} at byte {end} can't be read, and {last.records} records were acknowledged"
        )
    head = found[0].record
    if not isinstance(head, LogHeader) or head.generation != last.generation:
        raise StateDamaged(disk, name, f"it is not the log that {LAST_FILE} describes")
    if end < len(data):
        log.warning(
            "%s: removed the last %d bytes, a write that was cut off before its client had an answer",
            disk.folder / name,
            len(data) - end,
        )
        disk.truncate(name, end)
    return found


def _adopt(disk: Disk, last: LastCommit, found: list[FoundRecord], checkpoint_bytes: int) -> StateLog:
    """From now on readers see what was found, so all of it counts as acknowledged."""
    objects: Objects = {}
    records = [item.record for item in found if isinstance(item.record, ObjectRecord)]
    replay(objects, records)
    state = StateLog(disk, last, objects, checkpoint_bytes)
    if len(found) > last.records:
        version = max(last.version, *(record.version for record in records))
        disk.sync(log_name(last.generation))
        state._remember(last.generation, found[-1].end, len(found), version)
    return state


def _remove_other_logs(disk: Disk, generation: int) -> None:
    for name in disk.names():
        if log_generation(name) not in (0, generation):
            disk.remove(name)
