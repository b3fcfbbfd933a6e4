"""Records every input of a live scheduler's decisions, and the decisions, as JSON lines; and replays them.

`scheduler.scheduler` writes `DIR/record.jsonl` for `--record DIR`: a header with the settings, then one line per
update of the store. `windlass simulate DIR` (`cli.replay`) replays it: the same changes, times and settings through
the same store and engine give the same decisions byte for byte, or the first difference is shown.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from windlass.cluster.delta import Assume, Deleted, Delta, Forget, Nominated, Put, Refused
from windlass.cluster.store import Store
from windlass.isolation import IsolatingEngine
from windlass.model.codec import Unreadable, decode_kind, to_unstructured
from windlass.model.configuration import Settings
from windlass.model.decision_document import decision_document
from windlass.model.errors import InputError
from windlass.model.kueue.queue_wire import QueueObject
from windlass.model.plan import Plan
from windlass.model.refusal import Refusal
from windlass.model.times import format_timestamp
from windlass.planner import engine_config

log = logging.getLogger(__name__)

RECORD_FILE = "record.jsonl"
API_VERSION, KIND = "windlass.dev/v2", "SchedulerRecord"


class Header(msgspec.Struct, frozen=True, rename="camel"):
    settings: Settings
    api_version: str = API_VERSION
    kind: str = KIND


class UnreadableObject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is known of an object that could not be decoded."""

    error: str
    kind: str = ""
    namespace: str = ""
    name: str = ""
    node_name: str = ""


class Change(msgspec.Struct, frozen=True, omit_defaults=True, rename={"unreadable": "odd", "deleted": "gone"}):
    """One delta; exactly one of the fields is set. `odd` and `gone` are the names in the file format."""

    put: dict[str, Any] | None = None
    unreadable: UnreadableObject | None = None
    deleted: Deleted | None = None
    assume: Assume | None = None
    forget: str = ""
    refused: Refusal | None = None
    nominated: tuple[str, ...] | None = None


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    now: int
    changes: tuple[Change, ...] = ()
    decisions: tuple[dict[str, Any], ...] | None = None
    """As in `plan -o json`; None if nothing was decided."""


class RecordWriter:
    """Observes the loop and the cache, and writes what they report."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _keep_earlier_record(folder)
            self._file = (folder / RECORD_FILE).open("wb")
        except OSError as error:
            problem = f"the record can't be written: {error.strerror}"
            raise InputError(problem, file=str(folder), remedy="check --record") from None
        self._is_broken = False
        self._write(Header(settings))

    def on_cycle(self, now: int, deltas: Sequence[Delta], plan: Plan | None) -> None:
        if deltas or plan is not None:
            decisions = None if plan is None else tuple(map(decision_document, plan.decisions))
            self._write(Line(now, tuple(map(_change_from_delta, deltas)), decisions))

    def on_assume(self, now: int, binds: Sequence[Assume]) -> None:
        """Binds that were assumed in the store between two cycles."""
        if binds:
            self._write(Line(now, tuple(map(_change_from_delta, binds))))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()

    def _write(self, line: Header | Line) -> None:
        """A write error, such as a full disk, ends the record but not the scheduler."""
        if self._is_broken:
            return
        try:
            self._file.write(msgspec.json.encode(line) + b"\n")
            self._file.flush()
        except OSError as error:
            self._is_broken = True
            log.error("recording has stopped: %s: %s", self._file.name, error.strerror)


def _keep_earlier_record(folder: Path) -> None:
    """Moves the record of an earlier run to a subfolder named after its last write, where it can be replayed."""
    record = folder / RECORD_FILE
    if record.is_file() and record.stat().st_size:
        subfolder = folder / f"until-{format_timestamp(int(record.stat().st_mtime)).replace(':', '')}"
        subfolder.mkdir(exist_ok=True)
        record.replace(subfolder / RECORD_FILE)


class ReplayResult(msgspec.Struct, frozen=True):
    lines: int
    decisions: int
    """Number of lines with a plan."""
    difference: str = ""
    """The first decision that differs; empty if none does."""


def replay(folder: Path) -> ReplayResult:
    """Replays a record up to the first difference."""
    path = folder / RECORD_FILE
    store, lines = Store(), _read_lines(path)
    engine = IsolatingEngine(engine_config(_read_header(next(lines, b""), path).settings))
    number, decided = 1, 0
    for number, raw in enumerate(lines, start=2):
        line: Line = _decode(raw, Line, path, number)
        store.apply(map(_delta_from_change, line.changes))
        if line.decisions is None:
            continue
        snapshot = store.snapshot(line.now)
        plan = engine.decide(snapshot, line.now)
        store.mark_decided(snapshot.pods.pending())
        decided += 1
        found = msgspec.json.encode(tuple(map(decision_document, plan.decisions)))
        expected = msgspec.json.encode(line.decisions)
        if found != expected:
            return ReplayResult(number, decided, _difference(line.decisions, found, f"{path}:{number}"))
    return ReplayResult(number, decided)


def _read_header(line: bytes, path: Path) -> Header:
    header: Header = _decode(line, Header, path, 1)
    if header.kind != KIND:
        raise InputError(f"holds a {header.kind or 'file'} and no {KIND}", file=str(path))
    if header.api_version != API_VERSION:
        problem = f"is a record of {header.api_version}, not {API_VERSION}"
        raise InputError(problem, file=str(path), remedy="replay it with the release that wrote it")
    return header


def _change_from_delta(delta: Delta) -> Change:
    match delta:
        case Put(object=Unreadable() as obj):
            return Change(unreadable=UnreadableObject(str(obj.error), obj.kind, obj.namespace, obj.name, obj.node_name))
        case Put(object=obj):
            return Change(put=to_unstructured(obj))
        case Deleted():
            return Change(deleted=delta)
        case Assume():
            return Change(assume=delta)
        case Forget():
            return Change(forget=delta.pod)
        case Refused():
            return Change(refused=delta.refusal)
        case Nominated():
            return Change(nominated=tuple(sorted(delta.workloads)))


def _delta_from_change(change: Change) -> Delta:
    if change.put is not None:
        return Put(_decode_recorded(change.put))
    if change.unreadable is not None:
        obj = change.unreadable
        return Put(Unreadable(InputError(obj.error), obj.kind, obj.namespace, obj.name, obj.node_name))
    if change.refused is not None:
        return Refused(change.refused)
    if change.nominated is not None:
        return Nominated(frozenset(change.nominated))
    return change.deleted or change.assume or Forget(change.forget)


def _decode_recorded(tree: dict[str, Any]) -> object:
    obj = decode_kind(msgspec.json.encode(tree), tree["kind"], tree["apiVersion"])
    if isinstance(obj, QueueObject):
        # The fields that Windlass ignores are not in the record, only their names from the first decoding.
        return msgspec.structs.replace(obj, unread_fields=tuple(tree.get("unreadFields", ())))
    return obj


def _difference(expected: Sequence[dict[str, Any]], found: bytes, where: str) -> str:
    replayed: list[dict[str, Any]] = msgspec.json.decode(found)
    for old, new in zip(expected, replayed, strict=False):
        if old != new:
            return f"{where}: recorded {_abbreviate(old)}, replayed {_abbreviate(new)}"
    return f"{where}: recorded {len(expected)} decisions, replayed {len(replayed)}"


def _abbreviate(tree: dict[str, Any]) -> str:
    return msgspec.json.encode(tree).decode()[:300]


def _read_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file


def _decode(raw: bytes, struct: type[Any], path: Path, line: int) -> Any:
    try:
        return msgspec.json.decode(raw, type=struct)
    except msgspec.MsgspecError as error:
        remedy = "the last line of a record may be cut off if the scheduler was killed: delete it"
        raise InputError(f"can't be read: {error}", file=str(path), line=line, remedy=remedy) from None
