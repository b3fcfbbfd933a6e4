"""Everything that went into the decisions of a live scheduler, and the decisions, as JSON lines; and played again.

`--record DIR` writes `DIR/record.jsonl`: a header with the settings, then a line each time the store was brought up to
date. `windlass simulate DIR` plays it: the same changes, times and settings through the same store and engine give
the same decisions byte for byte, or the first difference is shown.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from windlass.cluster.delta import Assume, Deleted, Delta, Forget, Put, Refused
from windlass.cluster.store import Store
from windlass.engine import EngineCache, decide
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
    """An object that could not be read, as far as it was understood."""

    error: str
    kind: str = ""
    namespace: str = ""
    name: str = ""
    node_name: str = ""


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One delta; one of the fields is set."""

    put: dict[str, Any] | None = None
    odd: UnreadableObject | None = None
    gone: Deleted | None = None
    assume: Assume | None = None
    forget: str = ""
    refused: Refusal | None = None


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    now: int
    changes: tuple[Change, ...] = ()
    decisions: tuple[dict[str, Any], ...] | None = None
    """As in `plan -o json`; None where nothing was decided."""


class RecordWriter:
    """The witness of a loop: writes what it sees."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _set_aside(folder)
            self._file = (folder / RECORD_FILE).open("wb")
        except OSError as error:
            why = f"the record can't be written: {error.strerror}"
            raise InputError(why, file=str(folder), remedy="check --record") from None
        self._is_broken = False
        self._write(Header(settings))

    def on_cycle(self, now: int, deltas: Sequence[Delta], plan: Plan | None) -> None:
        if deltas or plan is not None:
            decisions = None if plan is None else tuple(map(decision_document, plan.decisions))
            self._write(Line(now, tuple(map(_change, deltas)), decisions))

    def on_assume(self, now: int, binds: Sequence[Assume]) -> None:
        """Binds that the store was told of when they were sent."""
        if binds:
            self._write(Line(now, tuple(map(_change, binds))))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()

    def _write(self, line: Header | Line) -> None:
        """A disk that is full ends the record, and nothing else."""
        if self._is_broken:
            return
        try:
            self._file.write(msgspec.json.encode(line) + b"\n")
            self._file.flush()
        except OSError as error:
            self._is_broken = True
            log.error("the record ends here: %s", error.strerror)  # no bug of ours


def _set_aside(folder: Path) -> None:
    """The record of an earlier run is kept, in a folder of its own that can be played like this one."""
    old = folder / RECORD_FILE
    if old.is_file() and old.stat().st_size:
        aside = folder / f"until-{format_timestamp(int(old.stat().st_mtime)).replace(':', '')}"
        aside.mkdir(exist_ok=True)
        old.replace(aside / RECORD_FILE)


class ReplayResult(msgspec.Struct, frozen=True):
    lines: int
    decisions: int
    """How often something was decided."""
    difference: str = ""
    """The first decision that came out otherwise; empty where none did."""


def replay(folder: Path) -> ReplayResult:
    """Play a record; stops at the first difference."""
    path = folder / RECORD_FILE
    store, memo = Store(), EngineCache()
    lines = _lines(path)
    header: Header = _decode(next(lines, b""), Header, path, 1)
    if header.kind != KIND:
        raise InputError(f"holds a {header.kind or 'file'} and no {KIND}", file=str(path))
    if header.api_version != API_VERSION:
        remedy = "replay it with the release that wrote it"
        raise InputError(
            f"is a record of {header.api_version}, not {API_VERSION}", file=str(path), remedy=remedy
        )
    config = engine_config(header.settings)
    number, decided = 1, 0
    for number, raw in enumerate(lines, start=2):
        line: Line = _decode(raw, Line, path, number)
        store.apply(map(_delta, line.changes))
        if line.decisions is None:
            continue
        snapshot = store.snapshot(line.now)
        plan = decide(snapshot, config, line.now, memo)
        store.mark_decided(snapshot.pods.pending())
        decided += 1
        found = msgspec.json.encode(tuple(map(decision_document, plan.decisions)))
        expected = msgspec.json.encode(line.decisions)
        if found != expected:
            return ReplayResult(number, decided, _difference(line.decisions, found, f"{path}:{number}"))
    return ReplayResult(number, decided)


def is_record(path: Path) -> bool:
    return (path / RECORD_FILE).is_file()


def _change(delta: Delta) -> Change:
    match delta:
        case Put(object=Unreadable() as odd):
            return Change(
                odd=UnreadableObject(str(odd.error), odd.kind, odd.namespace, odd.name, odd.node_name)
            )
        case Put(object=thing):
            return Change(put=to_unstructured(thing))
        case Deleted():
            return Change(gone=delta)
        case Assume():
            return Change(assume=delta)
        case Forget():
            return Change(forget=delta.pod)
        case Refused():
            return Change(refused=delta.refusal)


def _delta(change: Change) -> Delta:
    if change.put is not None:
        return Put(_object(change.put))
    if change.odd is not None:
        odd = change.odd
        error = InputError(odd.error)
        return Put(Unreadable(error, odd.kind, odd.namespace, odd.name, odd.node_name))
    if change.refused is not None:
        return Refused(change.refused)
    return change.gone or change.assume or Forget(change.forget)


def _object(tree: dict[str, Any]) -> object:
    thing = decode_kind(msgspec.json.encode(tree), tree["kind"], tree["apiVersion"])
    if isinstance(thing, QueueObject):
        # What nobody read of it was noted when it was first decoded, and is not in the record.
        return msgspec.structs.replace(thing, unread_fields=tuple(tree.get("unreadFields", ())))
    return thing


def _difference(expected: Sequence[dict[str, Any]], found: bytes, where: str) -> str:
    made: list[dict[str, Any]] = msgspec.json.decode(found)
    for was, is_ in zip(expected, made, strict=False):
        if was != is_:
            return f"{where}: decided {_short(was)}, now {_short(is_)}"
    return f"{where}: {len(expected)} decisions, now {len(made)}"


def _short(tree: dict[str, Any]) -> str:
    return msgspec.json.encode(tree).decode()[:300]


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file


def _decode(raw: bytes, struct: type[Any], path: Path, line: int) -> Any:
    try:
        return msgspec.json.decode(raw, type=struct)
    except msgspec.MsgspecError as error:
        remedy = "the last line of a record may be cut off if the scheduler was killed: delete it"
        raise InputError(f"can't be read: {error}", file=str(path), line=line, remedy=remedy) from None
