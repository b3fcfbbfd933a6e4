"""From JSON to an object as the API server would write it back: types checked, empty values dropped, numbers canonical.

Fed with what a client sent; feeds defaulting and validation, which can trust every type after it. A kind's decoder is
compiled once from its schema into closures, since it runs on every write. Only built-in kinds come here: custom ones
have rules of their own (`api.structural`).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from windlass.embedded.api.errors import ApiError, quoted
from windlass.embedded.api.json_trees import exceeds_depth
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.quantities import NO_MATCH, InvalidQuantity, canonical
from windlass.embedded.api.schema import OBJECT_META, SchemaNode, definition_schema, kind_schema
from windlass.embedded.api.timestamps import InvalidTimestamp, canonical_micro_time, canonical_time
from windlass.model.unstructured import Unstructured

_RANGES = {"int32": 2**31, "int64": 2**63}


class TypeMismatch(Exception):
    """A value of the wrong type. The path is put together while the stack unwinds, so that good input costs nothing."""

    def __init__(self, value: object, wanted: str, why: str = "") -> None:
        super().__init__(why)
        self.value = value
        self.wanted = wanted
        self.why = why
        self.struct = ""
        self.path: list[str] = []

    def message(self) -> str:
        if self.why:
            return self.why
        where = f"Go struct field {self.struct}.{'.'.join(self.path)}" if self.path else "Go value"
        found = json_type_name(self.value)
        if found == "number" and self.wanted in _RANGES:
            found = f"number {quoted(self.value)}"
        return f"json: cannot unmarshal {found} into {where} of type {self.wanted}"


class _Notes:
    """What a decoder found besides the object."""

    __slots__ = ("bare", "unknown")

    def __init__(self, bare: bool = False) -> None:
        self.unknown = False
        self.bare = bare
        """Only what was given: nothing filled in, nothing empty left out."""


Decoder = Callable[[Any, _Notes], Any]


def decode(
    kind: Kind, obj: object, field_validation: str = "Ignore", *, patched: bool = False
) -> tuple[Unstructured, list[str]]:
    """The object in canonical form, and the warnings that go with it.

    Unknown fields are dropped: silently, with a warning each (`Warn`), or not at all (`StrictStruct`: 400). A value
    of the wrong type is a 400 always. `patched`: the object came out of a patch, which words the refusal differently.
    """
    if not isinstance(obj, dict):
        raise ApiError.bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            f"json: cannot unmarshal {json_type_name(obj)} into Go value of type {_go_package(kind)}.{kind.kind}"
        )
    notes = _Notes()
    head = "" if patched else f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
    try:
        made: Unstructured = decoder_of(kind)(obj, notes)
    except TypeMismatch as problem:
        raise ApiError.bad_request(head + problem.message()) from None
    made["apiVersion"], made["kind"] = kind.api_version, kind.kind
    if not notes.unknown or field_validation == "Ignore":
        return made, []
    unknown = [f"unknown field {quoted(path)}" for path in unknown_fields(kind_schema(kind), obj)]
    if field_validation == "Strict" and unknown:
        raise ApiError.bad_request(f"{head}strict decoding error: {', '.join(unknown)}")
    return made, unknown


def decode_as_written(kind: Kind, obj: Unstructured) -> Unstructured:
    """Types checked and numbers canonical, with nothing filled in or left out. Raises `TypeMismatch`."""
    notes = _Notes(bare=True)
    made: Unstructured = decoder_of(kind)(obj, notes)
    if notes.unknown:
        for path in unknown_fields(kind_schema(kind), obj):
            raise TypeMismatch(None, "", f".{path}: field not declared in schema")
    return made


def decode_metadata(metadata: object, unknown: list[str]) -> Unstructured:
    """Metadata of a custom object, which has the same shape everywhere; unknown fields are added to `unknown`."""
    notes = _Notes()
    node = definition_schema(OBJECT_META)
    try:
        made: Unstructured = _decoder(node)(metadata, notes)
    except TypeMismatch as problem:
        problem.path.insert(0, "metadata")
        raise
    if notes.unknown:
        unknown += unknown_fields(node, metadata, "metadata")
    return made


@cache
def decoder_of(kind: Kind) -> Decoder:
    """The decoder of a built-in kind."""
    return _decoder(kind_schema(kind))


def unknown_fields(node: SchemaNode, value: object, path: str = "") -> Iterator[str]:
    """The paths of fields that the schema doesn't know; walked only where a decoder has met one."""
    if node.type == "struct" and isinstance(value, dict):
        for name, each in value.items():
            inner = f"{path}.{name}" if path else name
            child = node.fields.get(name)
            if child is not None:
                yield from unknown_fields(child, each, inner)
            elif not node.preserves_unknown_fields:
                yield inner
    elif node.type == "map" and isinstance(value, dict):
        for name, each in value.items():
            yield from unknown_fields(node.values, each, f"{path}.{name}" if path else name)
    elif node.type == "list" and isinstance(value, list):
        for index, each in enumerate(value):
            yield from unknown_fields(node.items, each, f"{path}[{index}]")


# ---- decoders by type


def _decoder(node: SchemaNode) -> Decoder:
    if node.name:
        return _decoder_of(node.name)
    return _made(node)


@cache
def _decoder_of(definition: str) -> Decoder:
    return _made(definition_schema(definition))


def _made(node: SchemaNode) -> Decoder:
    if node.type == "struct":
        return _struct(node)
    if node.type == "list":
        return _list(node)
    if node.type == "map":
        return _map(node)
    if node.type == "string":
        return _bytes if node.resolved.get("format") == "byte" else _string
    if node.type == "integer":
        return _integer(node.resolved.get("format") or "int64")
    simple: dict[str, Decoder] = {
        "boolean": _boolean,
        "number": _number,
        "quantity": _quantity,
        "int-or-string": _int_or_string,
        "time": _time,
        "microtime": _microtime,
    }
    return simple.get(node.type, _anything)


def _struct(node: SchemaNode) -> Decoder:
    """Fields are compiled at first use: definitions refer to themselves."""
    name = node.name.rpartition(".")[2]
    wanted = _go_type(node)
    known: dict[str, tuple[Decoder, bool]] = {}
    always: list[tuple[str, Any]] = []
    ready = False

    def prepare() -> None:
        nonlocal ready
        for field, child in node.fields.items():
            drops = child.omit_rule == "zero" or (child.omit_rule == "" and child.type in ("list", "map"))
            known[field] = (_decoder(child), drops)
            if child.omit_rule == "always":
                always.append((field, _zero(child)))
            elif child.omit_rule == "null":
                always.append((field, None))
        ready = True

    def decode_struct(value: Any, notes: _Notes) -> Any:
        if type(value) is not dict:
            raise TypeMismatch(value, wanted)
        if not ready:
            prepare()
        made = {}
        for field, each in value.items():
            found = known.get(field)
            if found is None:
                notes.unknown = True
                continue
            if each is None:
                continue
            try:
                inner = found[0](each, notes)
            except TypeMismatch as problem:
                problem.struct = problem.struct or name
                problem.path.insert(0, field)
                raise
            if inner or not found[1] or notes.bare:
                made[field] = inner
        if notes.bare:
            return made
        for field, zero in always:
            if field not in made:
                made[field] = zero() if callable(zero) else zero
        return made

    return decode_struct


def zero_value(node: SchemaNode) -> Any:
    """What Go writes for a field that was never set."""
    found = _zero(node)
    return found() if callable(found) else found


def _zero(node: SchemaNode) -> Any:
    if node.type == "struct":
        made = _decoder(node)
        return lambda: made({}, _Notes())
    return {
        "string": "",
        "integer": 0,
        "number": 0,
        "boolean": False,
        "quantity": "0",
        "int-or-string": 0,
    }.get(node.type)


def _list(node: SchemaNode) -> Decoder:
    wanted = _go_type(node)
    inner: list[Decoder] = []

    def decode_list(value: Any, notes: _Notes) -> Any:
        if type(value) is not list:
            raise TypeMismatch(value, wanted)
        if not inner:
            inner.append(_decoder(node.items))
        each = inner[0]
        return [zero_value(node.items) if item is None else each(item, notes) for item in value]

    return decode_list


def _map(node: SchemaNode) -> Decoder:
    wanted = _go_type(node)
    inner: list[Decoder] = []

    def decode_map(value: Any, notes: _Notes) -> Any:
        if type(value) is not dict:
            raise TypeMismatch(value, wanted)
        if not inner:
            inner.append(_decoder(node.values))
        each = inner[0]
        return {
            key: zero_value(node.values) if item is None else each(item, notes) for key, item in value.items()
        }

    return decode_map


def _string(value: Any, notes: _Notes) -> Any:
    if type(value) is not str:
        raise TypeMismatch(value, "string")
    return value


def _bytes(value: Any, notes: _Notes) -> Any:
    if type(value) is not str:
        raise TypeMismatch(value, "[]uint8")
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        bad = re.search(r"[^A-Za-z0-9+/]", value)
        raise TypeMismatch(
            value, "", f"illegal base64 data at input byte {bad.start() if bad else len(value)}"
        ) from None
    return value


def _integer(width: str) -> Decoder:
    limit = _RANGES.get(width, 2**63)

    def decode_integer(value: Any, notes: _Notes) -> Any:
        if type(value) is not int or not -limit <= value < limit:
            raise TypeMismatch(value, width)
        return value

    return decode_integer


def _boolean(value: Any, notes: _Notes) -> Any:
    if type(value) is not bool:
        raise TypeMismatch(value, "bool")
    return value


def _number(value: Any, notes: _Notes) -> Any:
    if type(value) is not int and type(value) is not float:
        raise TypeMismatch(value, "float64")
    return value


def _quantity(value: Any, notes: _Notes) -> Any:
    if isinstance(value, dict | list):
        raise TypeMismatch(value, "", NO_MATCH)
    try:
        return canonical(value)
    except InvalidQuantity as problem:
        raise TypeMismatch(value, "resource.Quantity", str(problem)) from None


def _int_or_string(value: Any, notes: _Notes) -> Any:
    if type(value) is str:
        return value
    if type(value) is not int or not -(2**31) <= value < 2**31:
        raise TypeMismatch(value, "int32")
    return value


def _time(value: Any, notes: _Notes) -> Any:
    return _moment(value, canonical_time)


def _microtime(value: Any, notes: _Notes) -> Any:
    return _moment(value, canonical_micro_time)


def _moment(value: Any, read: Callable[[str], str]) -> Any:
    if type(value) is not str:
        raise TypeMismatch(value, "string")
    try:
        return read(value)
    except InvalidTimestamp as problem:
        raise TypeMismatch(value, "", str(problem)) from None


def _anything(value: Any, notes: _Notes) -> Any:
    if isinstance(value, dict | list) and exceeds_depth(value):
        raise TypeMismatch(value, "", "exceeded max depth")
    return value


# ---- Go's words for things


def json_type_name(value: object) -> str:
    """What JSON calls a value, as Go's messages have it."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    names = {str: "string", list: "array", dict: "object", type(None): "null"}
    return names.get(type(value), "value")


def _go_package(kind: Kind) -> str:
    return kind.version


def _go_type(node: SchemaNode) -> str:
    if node.type == "list":
        return f"[]{_go_type(node.items)}"
    if node.type == "map":
        return "v1.ResourceList" if node.values.type == "quantity" else f"map[string]{_go_type(node.values)}"
    if node.resolved.get("format") == "byte":
        return "[]uint8"
    if node.name:
        *_, version, name = node.name.split(".")
        return f"{version}.{name}"
    plain = {"boolean": "bool", "integer": str(node.resolved.get("format") or "int64"), "number": "float64"}
    return plain.get(node.type, "string")
