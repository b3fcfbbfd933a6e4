"""Decodes Kubernetes' protobuf bodies into objects. Responses are always JSON, which every client accepts.

Newer kubectl and client-go send built-in kinds only this way. `request_body` calls it; the field numbers are in
`messages.json`, made by `tools/make_wire_messages.py`. The input is untrusted, so every length is checked.
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


MAX_FIELDS = 200_000
"""Of a body. Each takes about a microsecond, on the loop."""


class _Budget:
    """What the body that is being decoded may still have; one body at a time, on the loop."""

    fields_left = MAX_FIELDS


_budget = _Budget()


class Malformed(ValueError):
    """The body is not a valid message."""


class Field(msgspec.Struct, frozen=True, array_like=True):
    name: str
    type: str
    repeated: bool
    key: str
    """Key type of a map; empty for other fields."""
    inline: bool
    """Whether JSON inlines its fields into the parent."""


@cache
def _messages() -> dict[str, dict[int, Field]]:
    file = resources.files("windlass.embedded.server") / "messages.json"
    loaded = msgspec.json.decode(file.read_bytes(), type=dict[str, dict[str, Field]])
    return {name: {int(number): field for number, field in fields.items()} for name, fields in loaded.items()}


@cache
def _by_kind() -> dict[tuple[str, str], str]:
    """(group/version, kind) → message name; the group is the second last part of the package."""
    found: dict[tuple[str, str], str] = {}
    for name in _messages():
        *_, group, version, kind = name.split(".")
        found[f"{group}/{version}", kind] = name
    return found


_GROUPS = {"": "core", "rbac.authorization.k8s.io": "rbac"}


def decode(body: bytes, default: tuple[str, str]) -> Unstructured:
    """The object in an envelope. `default`: apiVersion and kind if the envelope has none."""
    _budget.fields_left = MAX_FIELDS
    if not body.startswith(MAGIC):
        raise Malformed("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    version, kind, raw = "", "", b""
    for number, wire, value in _fields(memoryview(body)[len(MAGIC) :]):
        if number == 1 and wire == _BYTES:
            version, kind = _decode_type_meta(value)
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


def _decode_type_meta(data: memoryview) -> tuple[str, str]:
    found = {number: _text(value) for number, wire, value in _fields(data) if wire == _BYTES}
    return found.get(1, ""), found.get(2, "")


def _object(data: Any, message: str, depth: int) -> Unstructured:
    if depth > MAX_DEPTH:
        raise Malformed("exceeded max depth")
    fields = _messages().get(message, {})
    decoded: Unstructured = {}
    for number, wire, value in _fields(data):
        field = fields.get(number)
        if field is None:
            continue
        if field.key:
            key, item = _entry(value, field, depth)
            decoded.setdefault(field.name, {})[key] = item
        elif field.inline:
            decoded.update(_object(_nested(value, wire), field.type, depth + 1))
        elif field.repeated:
            decoded.setdefault(field.name, []).append(_value(field.type, wire, value, depth))
        else:
            item = _value(field.type, wire, value, depth)
            if item is not None:
                decoded[field.name] = item
    return decoded


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
        return _SPECIAL[kind]({number: (wire_type, content) for number, wire_type, content in _fields(data)})
    decoded = _object(data, kind, depth + 1)
    if kind.endswith(".ExtraValue"):
        return decoded.get("items", [])
    return decoded


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


FieldsByNumber = dict[int, tuple[int, Any]]


def _quantity(found: FieldsByNumber) -> str:
    return _text(found[1][1]) if 1 in found and found[1][0] == _BYTES else "0"


def _int_or_string(found: FieldsByNumber) -> int | str:
    if found.get(1, (0, 0))[1] == 1:
        return _text(found[3][1]) if 3 in found and found[3][0] == _BYTES else ""
    return _signed(found[2][1]) if 2 in found and found[2][0] == _VARINT else 0


def _time(found: FieldsByNumber) -> str | None:
    if not found:
        return None
    seconds = _signed(found[1][1]) if 1 in found and found[1][0] == _VARINT else 0
    if not 0 <= seconds < 253402300800:
        raise Malformed("a time is out of range")
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _micro_time(found: FieldsByNumber) -> str | None:
    seconds_text = _time(found)
    if seconds_text is None:
        return None
    nanos = found[2][1] if 2 in found and found[2][0] == _VARINT else 0
    return f"{seconds_text[:-1]}.{min(nanos // 1000, 999_999):06}Z"


def _embedded(found: FieldsByNumber) -> Any:
    raw = bytes(found[1][1]) if 1 in found and found[1][0] == _BYTES else b""
    try:
        return msgspec.json.decode(raw) if raw else None
    except msgspec.MsgspecError as error:
        raise Malformed(f"embedded JSON: {error}") from None


def _duration(found: FieldsByNumber) -> str:
    nanos = _signed(found[1][1]) if 1 in found and found[1][0] == _VARINT else 0
    return f"{nanos / 1e9:g}s"


_SPECIAL = {
    _QUANTITY: _quantity,
    _INT_OR_STRING: _int_or_string,
    f"{_META}.Time": _time,
    f"{_META}.MicroTime": _micro_time,
    f"{_META}.Duration": _duration,
    f"{_META}.FieldsV1": _embedded,
    _RAW: _embedded,
}


def _fields(data: Any) -> Iterator[tuple[int, int, Any]]:
    """(number, wire type, value) of each field: varints as int, everything else as bytes."""
    view, position, end = memoryview(data), 0, len(data)
    while position < end:
        _budget.fields_left -= 1
        if _budget.fields_left < 0:
            raise Malformed(f"the body has more than {MAX_FIELDS} fields")
        tag, position = _varint(view, position, end)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _varint(view, position, end)
            yield number, wire, value
            continue
        if wire == _BYTES:
            size, position = _varint(view, position, end)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise Malformed(f"illegal wireType {wire}")
        if size > end - position:
            raise Malformed("unexpected EOF")
        yield number, wire, view[position : position + size]
        position += size


def _varint(view: memoryview, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 70:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
    raise Malformed("unexpected EOF" if position >= end else "integer overflow")


def _text(data: Any) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        raise Malformed("a string is not UTF-8") from None
