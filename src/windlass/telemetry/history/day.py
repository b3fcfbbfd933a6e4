"""One day of history: what its journal has, and its closed file.

    20260131.journal   frames as they came: names of series, rows of values, facts, events
    20260131.day       a frame per series, then facts and events, an index, and where the index begins

`store` writes the journal during the day and the closed file after it. A value belongs to a series and a slot; of two
values for one slot the later one counts, so that nothing counts twice, whatever the clock or a crash has done. Frames
that can't be read are passed over: their slots are unmeasured.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator
from typing import Any

import msgspec

from windlass.storage.frames import Frame, encode_frame, frame_at, intact_frames
from windlass.telemetry.history.series_codec import Block, decode_values, encode_values

FORMAT_VERSION = 1
_TRAILER = struct.Struct("<Q4s")
_TRAILER_MAGIC = b"WLdy"


class Names(msgspec.Struct, array_like=True, tag="names", frozen=True):
    """Names of the series with the numbers from `first` on."""

    session: int
    """Each opening of the journal numbers its series anew: the number of its first frame."""
    first: int
    names: tuple[str, ...]


class Row(msgspec.Struct, array_like=True, tag="row", frozen=True):
    session: int
    slot: int
    """Of the day."""
    ids: bytes
    """Numbers of the series, 4 bytes each."""
    values: tuple[int, ...]


class Facts(msgspec.Struct, array_like=True, tag="facts", frozen=True):
    """What a series is about: the serial number and place of a GPU, the prices."""

    facts: dict[str, dict[str, str]]


class Event(msgspec.Struct, array_like=True, tag="event", frozen=True):
    at: int
    kind: str
    fields: dict[str, Any]


JournalRecord = Names | Row | Facts | Event
_encode = msgspec.msgpack.Encoder().encode
_journal_decoder: msgspec.msgpack.Decoder[JournalRecord] = msgspec.msgpack.Decoder(JournalRecord)


class SeriesBlock(msgspec.Struct, array_like=True, tag="series", frozen=True):
    name: str
    count: int
    total: int
    block: Block


class DayEvents(msgspec.Struct, array_like=True, tag="events", frozen=True):
    data: bytes
    """Compressed list of events."""


class IndexEntry(msgspec.Struct, array_like=True, frozen=True):
    offset: int
    length: int
    count: int
    total: int
    """Sum of the values."""


class Index(msgspec.Struct, array_like=True, tag="index", frozen=True):
    format: int
    series: dict[str, IndexEntry]
    others: tuple[tuple[int, int], ...]
    """(offset, length) of the frames with facts and events."""


DayRecord = SeriesBlock | Facts | DayEvents | Index
_day_decoder: msgspec.msgpack.Decoder[DayRecord] = msgspec.msgpack.Decoder(DayRecord)
_event_decoder: msgspec.msgpack.Decoder[list[Event]] = msgspec.msgpack.Decoder(list[Event])


class Day(msgspec.Struct):
    """Everything that is known of a day."""

    series: dict[str, dict[int, int]] = {}
    """Name → slot of the day → value."""
    facts: dict[str, dict[str, str]] = {}
    events: list[Event] = []

    def put(self, name: str, slot: int, value: int) -> None:
        self.series.setdefault(name, {})[slot] = value

    def merge(self, later: Day) -> None:
        for name, values in later.series.items():
            self.series.setdefault(name, {}).update(values)
        self.facts |= later.facts
        known = {_encode(event) for event in self.events}
        self.events += [event for event in later.events if _encode(event) not in known]


def encode_journal_record(number: int, record: JournalRecord) -> bytes:
    return encode_frame(number, _encode(record))


def read_journal(data: bytes) -> Day:
    day = Day()
    names: dict[tuple[int, int], str] = {}
    for record in _records(data):
        match record:
            case Names():
                numbers = range(record.first, record.first + len(record.names))
                names.update(zip(((record.session, number) for number in numbers), record.names, strict=True))
            case Row():
                ids = array("I")
                ids.frombytes(record.ids[: len(record.ids) // 4 * 4])
                for number, value in zip(ids, record.values, strict=False):
                    name = names.get((record.session, number))
                    if name is not None:
                        day.put(name, record.slot, value)
            case Facts():
                day.facts |= record.facts
            case Event():
                day.events.append(record)
    return day


def _records(data: bytes) -> Iterator[JournalRecord]:
    for _, frame in intact_frames(data):
        try:
            yield _journal_decoder.decode(frame.payload)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue


def encode_day(day: Day) -> bytes:
    parts: list[bytes] = []
    length = 0
    series: dict[str, IndexEntry] = {}
    others: list[tuple[int, int]] = []
    for number, name in enumerate(sorted(day.series)):
        values = day.series[name]
        total = sum(values.values())
        part = encode_frame(number, _encode(SeriesBlock(name, len(values), total, encode_values(values))))
        series[name] = IndexEntry(length, len(part), len(values), total)
        parts.append(part)
        length += len(part)
    for record in (Facts(day.facts), DayEvents(zlib.compress(_encode(day.events)))):
        part = encode_frame(len(parts), _encode(record))
        others.append((length, len(part)))
        parts.append(part)
        length += len(part)
    index = encode_frame(len(parts), _encode(Index(FORMAT_VERSION, series, tuple(others))))
    return b"".join((*parts, index, _TRAILER.pack(length, _TRAILER_MAGIC)))


def read_index(tail: bytes, length: int) -> Index | None:
    """The index of a file of that length, from its last bytes; None if it is damaged or `tail` is too short."""
    offset = index_offset(tail, length)
    if offset is None or length - offset > len(tail):
        return None
    found = _day_record(frame_at(tail, len(tail) - (length - offset)))
    return found if isinstance(found, Index) else None


def index_offset(tail: bytes, length: int) -> int | None:
    """Where the index begins."""
    if len(tail) < _TRAILER.size:
        return None
    offset, magic = _TRAILER.unpack_from(tail, len(tail) - _TRAILER.size)
    return int(offset) if magic == _TRAILER_MAGIC and offset < length else None


def scan_index(data: bytes) -> Index:
    """The index of a damaged file: of those frames that can be read."""
    series: dict[str, IndexEntry] = {}
    others: list[tuple[int, int]] = []
    for offset, frame in intact_frames(data):
        found = _day_record(frame)
        if isinstance(found, SeriesBlock):
            series[found.name] = IndexEntry(offset, frame.end - offset, found.count, found.total)
        elif isinstance(found, Facts | DayEvents):
            others.append((offset, frame.end - offset))
    return Index(FORMAT_VERSION, series, tuple(others))


def read_block(data: bytes) -> tuple[list[int], list[int]]:
    """(slots, values) of the series whose frame this is; empty if it is damaged."""
    found = _day_record(frame_at(data, 0))
    if not isinstance(found, SeriesBlock):
        return [], []
    try:
        return decode_values(found.block)
    except ValueError:
        return [], []


def read_other(data: bytes) -> Day:
    """Facts or events, of the frame that this is."""
    found = _day_record(frame_at(data, 0))
    if isinstance(found, Facts):
        return Day(facts=found.facts)
    if isinstance(found, DayEvents):
        try:
            return Day(events=_event_decoder.decode(zlib.decompress(found.data)))
        except (zlib.error, msgspec.MsgspecError):
            return Day()
    return Day()


def _day_record(frame: Frame | None) -> DayRecord | None:
    if frame is None:
        return None
    try:
        return _day_decoder.decode(frame.payload)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
