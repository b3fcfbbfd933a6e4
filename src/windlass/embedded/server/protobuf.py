"""Kubernetes' protobuf bodies as JSON trees. Read only: answers are JSON, which every client takes.

Newer kubectl and client-go send built-in kinds this way and in no other. `server.bodies` calls it; the field numbers
are in `messages.json`, made by `tools/make_wire_messages.py`. Input is anybody's, so every length is checked.
"""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from windlass.model.unstructured import Unstructured

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"
MAX_DEPTH = 100
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_RAW = "io.k8s.apimachinery.pkg.runtime.RawExtension"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Malformed(ValueError):
    """Not what it says it is."""


class Field(msgspec.Struct, frozen=True, array_like=True):
    name: str
    type: str
    repeated: bool
    key: str
    """The type of a map's keys; empty where it is none."""
    inline: bool
    """JSON writes what is in it in its place."""


@cache
def _messages() -> dict[str, dict[int, Field]]:
    file = resources.files("windlass.embedded.server") / "messages.json"
    loaded = msgspec.json.decode(file.read_bytes(), type=dict[str, dict[str, Field]])
    return {name: {int(number): field for number, field in fields.items()} for name, fields in loaded.items()}


@cache
def _by_kind() -> dict[tuple[str, str], str]:
    """(version, kind) → messages of that name; the group is the package's last part but one."""
    found: dict[tuple[str, str], str] = {}
    for name in _messages():
        *_, group, version, kind = name.split(".")
        found[f"{group}/{version}", kind] = name
    return found


_GROUPS = {"": "core", "rbac.authorization.k8s.io": "rbac"}


def decode(body: bytes, default: tuple[str, str]) -> Unstructured:
    """The object in an envelope. `default`: apiVersion and kind where the envelope doesn't say."""
    if not body.startswith(MAGIC):
        raise Malformed(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    version, kind, raw = "", "", b""
    for number, wire, value in _fields(memoryview(body)[len(MAGIC) :]):
        if number == 1 and wire == _BYTES:
            version, kind = _type_of(value)
        elif number == 2 and wire == _BYTES:
            raw = value
    version, kind = version or default[0], kind or default[1]
    message = _message(version, kind)
    if message is None:
        raise Malformed(f'no kind "{kind}" is registered for version "{version}"')
    return {"apiVersion": version, "kind": kind, **_object(raw, message, 0)}


def _message(version: str, kind: str) -> str | None:
    group, _, number = version.rpartition("/")
    short = _GROUPS.get(group, group.partition(".")[0])
    found = _by_kind().get((f"{short}/{number}", kind))
    if found is None and kind == "DeleteOptions":
        return f"{_META}.DeleteOptions"
    return found


def _type_of(data: memoryview) -> tuple[str, str]:
    found = {number: _text(value) for number, wire, value in _fields(data) if wire == _BYTES}
    return found.get(1, ""), found.get(2, "")


def _object(data: Any, message: str, depth: int) -> Unstructured:
    if depth > MAX_DEPTH:
        raise Malformed("exceeded max depth")
    fields = _messages().get(message, {})
    made: Unstructured = {}
    for number, wire, value in _fields(data):
        field = fields.get(number)
        if field is None:
            continue
        if field.key:
            key, item = _entry(value, field, depth)
            made.setdefault(field.name, {})[key] = item
        elif field.inline:
            made.update(_object(_nested(value, wire), field.type, depth + 1))
        elif field.repeated:
            made.setdefault(field.name, []).append(_value(field.type, wire, value, depth))
        else:
            item = _value(field.type, wire, value, depth)
            if item is not None:
                made[field.name] = item
    return made


def _entry(data: Any, field: Field, depth: int) -> tuple[str, Any]:
    key: str = ""
    item: Any = "" if field.type == "string" else None
    for number, wire, value in _fields(_nested(data, _BYTES)):
        if number == 1:
            key = _text(value) if wire == _BYTES else str(value)
        elif number == 2:
            item = _value(field.type, wire, value, depth)
    if item is None:
        item = _value(field.type, _BYTES, memoryview(b""), depth)
    return key, item


def _value(kind: str, wire: int, value: Any, depth: int) -> Any:
    if kind in _SCALARS:
        return _scalar(kind, wire, value)
    data = _nested(value, wire)
    if kind in _SPECIAL:
        return _SPECIAL[kind]({number: (each, content) for number, each, content in _fields(data)})
    made = _object(data, kind, depth + 1)
    if kind.endswith(".ExtraValue"):
        return made.get("items", [])
    return made


def _nested(value: Any, wire: int) -> memoryview:
    if wire != _BYTES or not isinstance(value, memoryview):
        raise Malformed("a message is expected where there is none")
    return value


_SCALARS = {"string", "bool", "bytes", "int32", "int64", "uint32", "uint64", "double", "float"}


def _scalar(kind: str, wire: int, value: Any) -> Any:
    if kind in ("string", "bytes"):
        data = _nested(value, wire)
        return _text(data) if kind == "string" else base64.b64encode(data).decode()
    if kind == "double" and wire == _FIXED64:
        return struct.unpack("<d", value)[0]
    if kind == "float" and wire == _FIXED32:
        return struct.unpack("<f", value)[0]
    if wire != _VARINT:
        raise Malformed("a number is expected where there is none")
    if kind == "bool":
        return bool(value)
    return value if kind.startswith("u") else _signed(value)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


Found = dict[int, tuple[int, Any]]


def _quantity(found: Found) -> str:
    return _text(found[1][1]) if 1 in found and found[1][0] == _BYTES else "0"


def _int_or_string(found: Found) -> int | str:
    if found.get(1, (0, 0))[1] == 1:
        return _text(found[3][1]) if 3 in found and found[3][0] == _BYTES else ""
    return _signed(found[2][1]) if 2 in found and found[2][0] == _VARINT else 0


def _moment(found: Found) -> str | None:
    if not found:
        return None
    seconds = _signed(found[1][1]) if 1 in found and found[1][0] == _VARINT else 0
    if not 0 <= seconds < 253402300800:
        raise Malformed("a time is out of range")
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _exact_moment(found: Found) -> str | None:
    whole = _moment(found)
    if whole is None:
        return None
    nanos = found[2][1] if 2 in found and found[2][0] == _VARINT else 0
    return f"{whole[:-1]}.{min(nanos // 1000, 999_999):06}Z"


def _embedded(found: Found) -> Any:
    raw = bytes(found[1][1]) if 1 in found and found[1][0] == _BYTES else b""
    try:
        return msgspec.json.decode(raw) if raw else None
    except msgspec.MsgspecError as error:
        raise Malformed(f"embedded JSON: {error}") from None


def _duration(found: Found) -> str:
    nanos = _signed(found[1][1]) if 1 in found and found[1][0] == _VARINT else 0
    return f"{nanos / 1e9:g}s"


_SPECIAL = {
    _QUANTITY: _quantity,
    _INT_OR_STRING: _int_or_string,
    f"{_META}.Time": _moment,
    f"{_META}.MicroTime": _exact_moment,
    f"{_META}.Duration": _duration,
    f"{_META}.FieldsV1": _embedded,
    _RAW: _embedded,
}


def _fields(data: Any) -> Iterator[tuple[int, int, Any]]:
    """(number, wire type, value) of each field: numbers as int, everything else as bytes."""
    view, at, end = memoryview(data), 0, len(data)
    while at < end:
        tag, at = _varint(view, at, end)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(view, at, end)
            yield number, wire, value
            continue
        if wire == _BYTES:
            size, at = _varint(view, at, end)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise Malformed(f"illegal wireType {wire}")
        if size > end - at:
            raise Malformed("unexpected EOF")
        yield number, wire, view[at : at + size]
        at += size


def _varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise Malformed("unexpected EOF" if at >= end else "integer overflow")


def _text(data: Any) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        raise Malformed("a string is not UTF-8") from None
