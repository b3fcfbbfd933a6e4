"""Decodes JSON into the object that the API server would return: types checked, empty values dropped, numbers
canonical.

`machinery` passes what a client sent; defaulting and validation can rely on every type afterwards. A kind's decoder
is compiled once from its schema into closures, since it runs on every write. Built-in kinds only: custom kinds have
other rules (`structural_schema`).
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
    """A value of the wrong type. The path is built while the stack unwinds, so that valid input costs nothing."""

    def __init__(self, value: object, wanted: str, message: str = "") -> None:
        super().__init__(message)
        self.value = value
        self.wanted = wanted
        self._message = message
        self.struct = ""
        self.path: list[str] = []

    def message(self) -> str:
        if self._message:
            return self._message
        where = f"Go struct field {self.struct}.{'.'.join(self.path)}" if self.path else "Go value"
        found = json_type_name(self.value)
        if found == "number" and self.wanted in _RANGES:
            found = f"number {quoted(self.value)}"
        return f"json: cannot unmarshal {found} into {where} of type {self.wanted}"


class _DecodeState:
    """Options and findings of one decoding."""

    __slots__ = ("as_written", "unknown")

    def __init__(self, as_written: bool = False) -> None:
        self.unknown = False
        self.as_written = as_written
        """Whether nothing is filled in and nothing empty is dropped."""


Decoder = Callable[[Any, _DecodeState], Any]


def decode(
    kind: Kind, obj: object, field_validation: str = "Ignore", *, patched: bool = False
) -> tuple[Unstructured, list[str]]:
    """The object in canonical form, and warnings.

    Unknown fields are dropped silently (`Ignore`), with a warning each (`Warn`), or refused with a 400 (`Strict`).
    A value of the wrong type is always a 400. `patched`: the object is the result of a patch, which changes the
    message.
    """
    head = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
    if not isinstance(obj, dict):
        wanted = f"Go value of type {kind.version}.{kind.kind}"
        raise ApiError.bad_request(f"{head}json: cannot unmarshal {json_type_name(obj)} into {wanted}")
    state = _DecodeState()
    head = "" if patched else head
    try:
        decoded: Unstructured = decoder_of(kind)(obj, state)
    except TypeMismatch as problem:
        raise ApiError.bad_request(head + problem.message()) from None
    decoded["apiVersion"], decoded["kind"] = kind.api_version, kind.kind
    if not state.unknown or field_validation == "Ignore":
        return decoded, []
    unknown = [f"unknown field {quoted(path)}" for path in unknown_fields(kind_schema(kind), obj)]
    if field_validation == "Strict" and unknown:
        raise ApiError.bad_request(f"{head}strict decoding error: {', '.join(unknown)}")
    return decoded, unknown


def decode_as_written(kind: Kind, obj: Unstructured) -> Unstructured:
    """Types checked and numbers canonical, with nothing filled in or dropped. Raises `TypeMismatch`."""
    state = _DecodeState(as_written=True)
    decoded: Unstructured = decoder_of(kind)(obj, state)
    if state.unknown:
        for path in unknown_fields(kind_schema(kind), obj):
            raise TypeMismatch(None, "", f".{path}: field not declared in schema")
    return decoded


def decode_metadata(metadata: object, unknown: list[str]) -> Unstructured:
    """Metadata of a custom object; unknown fields are added to `unknown`."""
    state = _DecodeState()
    node = definition_schema(OBJECT_META)
    try:
        decoded: Unstructured = _decoder(node)(metadata, state)
    except TypeMismatch as problem:
        problem.path.insert(0, "metadata")
        raise
    if state.unknown:
        unknown += unknown_fields(node, metadata, "metadata")
    return decoded


@cache
def decoder_of(kind: Kind) -> Decoder:
    """The decoder of a built-in kind."""
    return _decoder(kind_schema(kind))


def unknown_fields(node: SchemaNode, value: object, path: str = "") -> Iterator[str]:
    """Paths of fields that the schema does not have; only called if a decoder has found one."""
    if node.type == "struct" and isinstance(value, dict):
        for name, item in value.items():
            inner = f"{path}.{name}" if path else name
            child = node.fields.get(name)
            if child is not None:
                yield from unknown_fields(child, item, inner)
            elif not node.preserves_unknown_fields:
                yield inner
    elif node.type == "map" and isinstance(value, dict):
        for name, item in value.items():
            yield from unknown_fields(node.values, item, f"{path}.{name}" if path else name)
    elif node.type == "list" and isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown_fields(node.items, item, f"{path}[{index}]")


# ---- decoders by type


def _decoder(node: SchemaNode) -> Decoder:
    return _decoder_of(node.name) if node.name else _compile(node)


@cache
def _decoder_of(definition: str) -> Decoder:
    return _compile(definition_schema(definition))


def _compile(node: SchemaNode) -> Decoder:
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
    return _SIMPLE.get(node.type, _anything)


def _compile_fields(node: SchemaNode, known: dict[str, tuple[Decoder, bool]], always_written: dict[str, Any]) -> None:
    """Fills in each field's decoder, whether a zero is dropped, and what is written if the field is absent."""
    for field, child in node.fields.items():
        drops = child.omit_rule == "zero" or (child.omit_rule == "" and child.type in ("list", "map"))
        known[field] = (_decoder(child), drops)
        if child.omit_rule in ("always", "null"):
            always_written[field] = _zero(child) if child.omit_rule == "always" else None


def _struct(node: SchemaNode) -> Decoder:
    name, wanted = node.name.rpartition(".")[2], _go_type(node)
    # Filled at first use, since definitions refer to themselves.
    known: dict[str, tuple[Decoder, bool]] = {}
    always_written: dict[str, Any] = {}

    def decode_struct(value: Any, state: _DecodeState) -> Any:
        if type(value) is not dict:
            raise TypeMismatch(value, wanted)
        if len(known) < len(node.fields):
            _compile_fields(node, known, always_written)
        decoded = {}
        for field, item in value.items():
            found = known.get(field)
            if found is None:
                state.unknown = True
                continue
            if item is None:
                continue
            try:
                inner = found[0](item, state)
            except TypeMismatch as problem:
                problem.struct = problem.struct or name
                problem.path.insert(0, field)
                raise
            if inner or not found[1] or state.as_written:
                decoded[field] = inner
        if state.as_written:
            return decoded
        for field, zero in always_written.items():
            if field not in decoded:
                decoded[field] = zero() if callable(zero) else zero
        return decoded

    return decode_struct


_ZEROS = {"string": "", "integer": 0, "number": 0, "boolean": False, "quantity": "0", "int-or-string": 0}


def zero_value(node: SchemaNode) -> Any:
    """What Go writes for a field that was never set."""
    found = _zero(node)
    return found() if callable(found) else found


def _zero(node: SchemaNode) -> Any:
    if node.type == "struct":
        decode_zero = _decoder(node)
        return lambda: decode_zero({}, _DecodeState())
    return _ZEROS.get(node.type)


def _list(node: SchemaNode) -> Decoder:
    wanted = _go_type(node)
    inner: list[Decoder] = []

    def decode_list(value: Any, state: _DecodeState) -> Any:
        if type(value) is not list:
            raise TypeMismatch(value, wanted)
        if not inner:
            inner.append(_decoder(node.items))
        inner_decode = inner[0]
        return [zero_value(node.items) if item is None else inner_decode(item, state) for item in value]

    return decode_list


def _map(node: SchemaNode) -> Decoder:
    wanted = _go_type(node)
    inner: list[Decoder] = []

    def decode_map(value: Any, state: _DecodeState) -> Any:
        if type(value) is not dict:
            raise TypeMismatch(value, wanted)
        if not inner:
            inner.append(_decoder(node.values))
        decoder = inner[0]
        return {key: zero_value(node.values) if item is None else decoder(item, state) for key, item in value.items()}

    return decode_map


def _string(value: Any, state: _DecodeState) -> Any:
    if type(value) is not str:
        raise TypeMismatch(value, "string")
    return value


def _bytes(value: Any, state: _DecodeState) -> Any:
    if type(value) is not str:
        raise TypeMismatch(value, "[]uint8")
    value = value.replace("\r", "").replace("\n", "")  # as Go reads it: `base64` wraps its lines
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        illegal = re.search(r"[^A-Za-z0-9+/]", value)
        position = illegal.start() if illegal else len(value)
        raise TypeMismatch(value, "", f"illegal base64 data at input byte {position}") from None
    return value


def _integer(width: str) -> Decoder:
    limit = _RANGES.get(width, 2**63)

    def decode_integer(value: Any, state: _DecodeState) -> Any:
        if type(value) is not int or not -limit <= value < limit:
            raise TypeMismatch(value, width)
        return value

    return decode_integer


def _plain(wanted: str, *types: type) -> Decoder:
    def decode_plain(value: Any, state: _DecodeState) -> Any:
        if type(value) not in types:
            raise TypeMismatch(value, wanted)
        return value

    return decode_plain


def _quantity(value: Any, state: _DecodeState) -> Any:
    if isinstance(value, dict | list):
        raise TypeMismatch(value, "", NO_MATCH)
    try:
        return canonical(value)
    except InvalidQuantity as problem:
        raise TypeMismatch(value, "resource.Quantity", str(problem)) from None


def _int_or_string(value: Any, state: _DecodeState) -> Any:
    if type(value) is str:
        return value
    if type(value) is not int or not -(2**31) <= value < 2**31:
        raise TypeMismatch(value, "int32")
    return value


def _timestamp(read: Callable[[str], str]) -> Decoder:
    def decode_timestamp(value: Any, state: _DecodeState) -> Any:
        if type(value) is not str:
            raise TypeMismatch(value, "string")
        try:
            return read(value)
        except InvalidTimestamp as problem:
            raise TypeMismatch(value, "", str(problem)) from None

    return decode_timestamp


def _anything(value: Any, state: _DecodeState) -> Any:
    if isinstance(value, dict | list) and exceeds_depth(value):
        raise TypeMismatch(value, "", "exceeded max depth")
    return value


_SIMPLE: dict[str, Decoder] = {
    "boolean": _plain("bool", bool),
    "number": _plain("float64", int, float),
    "quantity": _quantity,
    "int-or-string": _int_or_string,
    "time": _timestamp(canonical_time),
    "microtime": _timestamp(canonical_micro_time),
}


# ---- names in Go's error messages


def json_type_name(value: object) -> str:
    """The JSON type of a value, as in Go's messages."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    names = {str: "string", list: "array", dict: "object", type(None): "null"}
    return names.get(type(value), "value")


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
    names = {"boolean": "bool", "integer": str(node.resolved.get("format") or "int64"), "number": "float64"}
    return names.get(node.type, "string")
