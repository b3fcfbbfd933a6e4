"""Finds why an object can't be converted into a struct: the field's path, the expected type, the value found.

Called by `model.convert` after the fast decoder has failed. msgspec does not say where in a map an error is; this walks
the object along its type and names the field as Kubernetes would. It also handles `null` as Kubernetes does: a null
field is absent, a null entry of a map is the empty value.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import inspect

from windlass.model.errors import InputError

TypeInfo = inspect.Type


@lru_cache(maxsize=64)
def type_info(kind: type) -> TypeInfo:
    return inspect.type_info(kind)


def without_nulls(raw: Any, info: TypeInfo) -> Any:
    """A copy of `raw` with nulls replaced as Kubernetes reads them; only fields of the type are kept."""
    info = _not_null(info)
    if isinstance(info, inspect.StructType) and isinstance(raw, Mapping):
        known = {field.encode_name: field.type for field in info.fields}
        strict = _forbids_unknown(info)
        return {
            key: without_nulls(value, known[key]) if key in known else value
            for key, value in raw.items()
            if value is not None and (strict or not isinstance(key, str) or key in known)
        }
    if isinstance(info, inspect.DictType) and isinstance(raw, Mapping):
        empty = _empty(info.value_type)
        return {key: empty if value is None else without_nulls(value, info.value_type) for key, value in raw.items()}
    if isinstance(info, inspect.VarTupleType) and isinstance(raw, list | tuple):
        empty = _empty(info.item_type)
        return [empty if item is None else without_nulls(item, info.item_type) for item in raw]
    if isinstance(info, inspect.StrType) and hasattr(raw, "isoformat"):
        # YAML readers turn a bare date into an object; for Kubernetes it is text.
        return raw.isoformat()
    return raw


def _empty(info: TypeInfo) -> Any:
    """What Kubernetes makes of a null inside a map or a list: the empty value of its type."""
    if isinstance(info, inspect.StructType):
        return {}
    return "" if isinstance(info, inspect.StrType) else "0"


def find_decode_error(raw: Any, info: TypeInfo, path: str = "") -> InputError | None:
    """The first field of `raw` that doesn't fit its type, as an error with its path."""
    info = _not_null(info)
    if isinstance(info, inspect.StructType):
        return _struct_fault(raw, info, path)
    if isinstance(info, inspect.DictType):
        return _map_fault(raw, info, path)
    if isinstance(info, inspect.VarTupleType):
        return _list_fault(raw, info, path)
    if isinstance(info, inspect.UnionType):
        faults = [find_decode_error(raw, member, path) for member in info.types]
        return None if None in faults else _mismatch(raw, _described(info), path)
    return None if _is_scalar(raw, info) else _mismatch(raw, _described(info), path)


def unknown_fields(raw: Any, info: TypeInfo, path: str = "") -> Iterator[str]:
    """Paths of the fields that are set and that the type doesn't know; the type must fit otherwise."""
    info = _not_null(info)
    if isinstance(info, inspect.StructType) and isinstance(raw, Mapping):
        known = {field.encode_name: field.type for field in info.fields}
        for key, value in raw.items():
            if key in known:
                yield from unknown_fields(value, known[key], _join(path, key))
            elif value not in (None, "", (), [], {}):
                yield _join(path, str(key))
    elif isinstance(info, inspect.VarTupleType) and isinstance(raw, list | tuple):
        for index, item in enumerate(raw):
            yield from unknown_fields(item, info.item_type, f"{path}[{index}]")


def _struct_fault(raw: Any, info: inspect.StructType, path: str) -> InputError | None:
    if not isinstance(raw, Mapping):
        return _mismatch(raw, "a mapping", path)
    known = {field.encode_name: field for field in info.fields}
    for key, value in raw.items():
        if not isinstance(key, str):
            return _key_fault(key, path)
        if key in known:
            fault = find_decode_error(value, known[key].type, _join(path, key))
            if fault is not None:
                return fault
        elif _forbids_unknown(info):
            return _unknown_field(key, list(known), path)
    for name, field in known.items():
        if field.required and name not in raw:
            return InputError("required field is missing", path=_join(path, name), remedy=f"add {name}")
    return None


def _map_fault(raw: Any, info: inspect.DictType, path: str) -> InputError | None:
    if not isinstance(raw, Mapping):
        return _mismatch(raw, "a mapping", path)
    for key, value in raw.items():
        if not isinstance(key, str):
            return _key_fault(key, path)
        fault = find_decode_error(value, info.value_type, _join(path, key))
        if fault is not None:
            return fault
    return None


def _list_fault(raw: Any, info: inspect.VarTupleType, path: str) -> InputError | None:
    if not isinstance(raw, list | tuple):
        return _mismatch(raw, "a list", path)
    for index, item in enumerate(raw):
        fault = find_decode_error(item, info.item_type, f"{path}[{index}]")
        if fault is not None:
            return fault
    return None


def _is_scalar(raw: Any, info: TypeInfo) -> bool:
    if isinstance(info, inspect.StrType):
        return isinstance(raw, str)
    if isinstance(info, inspect.BoolType):
        return isinstance(raw, bool)
    if isinstance(info, inspect.IntType):
        return isinstance(raw, int) and not isinstance(raw, bool)
    if isinstance(info, inspect.FloatType):
        return isinstance(raw, int | float) and not isinstance(raw, bool)
    return False


def _not_null(info: TypeInfo) -> TypeInfo:
    """The type without its `| None`; nulls have been dealt with before."""
    if not isinstance(info, inspect.UnionType):
        return info
    members = tuple(member for member in info.types if not isinstance(member, inspect.NoneType))
    return members[0] if len(members) == 1 else inspect.UnionType(members)


_NAMES = {
    inspect.StrType: "a string",
    inspect.BoolType: "true or false",
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.StructType: "a mapping",
    inspect.DictType: "a mapping",
    inspect.VarTupleType: "a list",
}


def _described(info: TypeInfo) -> str:
    if isinstance(info, inspect.UnionType):
        names = [_described(member) for member in info.types if not isinstance(member, inspect.IntType)]
        return " or ".join(names)
    return _NAMES.get(type(info), "something else")


def describe_value(raw: Any) -> str:
    """A value in a few words, for a message."""
    if raw is None:
        return "nothing"
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, Mapping):
        return "a mapping"
    if isinstance(raw, list | tuple):
        return "a list"
    if isinstance(raw, int) and raw.bit_length() > 64:
        return "a number beyond 64 bits"
    text = repr(raw)
    return text if len(text) <= 60 else text[:57] + "…"


def _mismatch(raw: Any, expected: str, path: str) -> InputError:
    remedy = ""
    if expected == "a string" and isinstance(raw, bool | int | float):
        remedy = f'put it in quotes: "{describe_value(raw)}"'
    elif expected in ("a whole number", "true or false") and isinstance(raw, str):
        remedy = "write it without quotes"
    return InputError(f"expected {expected}, found {describe_value(raw)}", path=path, remedy=remedy)


def _key_fault(key: Any, path: str) -> InputError:
    shown = describe_value(key)
    return InputError(
        f"the key {shown} is not a string", path=_join(path, shown), remedy=f'put it in quotes: "{shown}"'
    )


def _unknown_field(key: str, known: list[str], path: str) -> InputError:
    near = difflib.get_close_matches(key[:64], known, n=1)
    remedy = f"did you mean {near[0]}?" if near else f"fields here: {', '.join(known)}"
    return InputError("unknown field", path=_join(path, key), remedy=remedy)


def _join(path: str, key: str) -> str:
    shown = key or '""'
    return f"{path}.{shown}" if path else shown


def _forbids_unknown(info: inspect.StructType) -> bool:
    config: msgspec.structs.StructConfig = info.cls.__struct_config__
    return config.forbid_unknown_fields
