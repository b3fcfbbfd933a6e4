"""Objects of custom kinds against their structural schema: pruning, defaults, and validation in Kubernetes' words.

Fed by `api.custom` with what a client sent. Rules in CEL (`x-kubernetes-validations`) are kept and shown, not
evaluated. The wording is the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from windlass.embedded.api.errors import (
    FieldError,
    duplicate,
    invalid,
    required,
    too_long,
    too_many,
    unsupported,
)
from windlass.embedded.api.json_trees import deep_copy, hash_key
from windlass.embedded.api.schema import RawSchema, SchemaNode
from windlass.embedded.api.timestamps import InvalidTimestamp, canonical_time

_DEEPEST = 64


def prune(value: Any, node: SchemaNode, path: str, unknown: list[str]) -> Any:
    """A copy without the fields that the schema doesn't know; their paths are added to `unknown`."""
    if isinstance(value, dict):
        return _pruned_object(value, node, path, unknown)
    if isinstance(value, list):
        items = node.items if node.type == "list" else _FREE
        return [prune(each, items, f"{path}[{index}]", unknown) for index, each in enumerate(value)]
    return value


def _pruned_object(value: RawSchema, node: SchemaNode, path: str, unknown: list[str]) -> RawSchema:
    made = {}
    for name, each in value.items():
        inner = f"{path}.{name}" if path else name
        child = node.child(name)
        if child is not None:
            made[name] = prune(each, child, inner, unknown)
        elif node.preserves_unknown_fields or node.type in ("any", "int-or-string"):
            made[name] = deep_copy(each)
        elif node.type in ("struct", "map"):
            unknown.append(inner)
        else:
            made[name] = deep_copy(each)  # of the wrong type altogether: validation will say so
    return made


_FREE = SchemaNode({"x-kubernetes-preserve-unknown-fields": True})


def fill_defaults(value: Any, node: SchemaNode) -> None:
    """Put defaults where nothing stands, in place. A null that may not be one counts as nothing."""
    if isinstance(value, dict):
        for name, child in node.fields.items():
            if "default" not in child.resolved:
                continue
            if name not in value or (value[name] is None and not child.resolved.get("nullable")):
                value[name] = deep_copy(child.resolved["default"])
        for name, each in value.items():
            below = node.child(name)
            if below is not None:
                fill_defaults(each, below)
    elif isinstance(value, list) and node.type == "list":
        for each in value:
            fill_defaults(each, node.items)


def drop_nulls(value: Any, node: SchemaNode) -> None:
    """A null where none may be is as good as absent, in place."""
    if isinstance(value, dict):
        for name in [name for name, each in value.items() if each is None]:
            child = node.child(name)
            if child is not None and not child.resolved.get("nullable") and child.type != "any":
                del value[name]
        for name, each in value.items():
            below = node.child(name)
            if below is not None:
                drop_nulls(each, below)
    elif isinstance(value, list) and node.type == "list":
        for each in value:
            drop_nulls(each, node.items)


# ---- validation


def schema_errors(value: Any, raw: RawSchema, path: str, depth: int = 0) -> Iterator[FieldError]:
    """Everything about a value that its schema forbids."""
    if depth > _DEEPEST:
        return
    if value is None and raw.get("nullable"):
        return
    mismatch = _type_error(value, raw, path)
    if mismatch is not None:
        yield mismatch
        if "enum" in raw:
            yield from _enum_errors(value, raw, path)
        return
    if "enum" in raw:
        yield from _enum_errors(value, raw, path)
    if isinstance(value, str):
        yield from _string_errors(value, raw, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_errors(value, raw, path)
    elif isinstance(value, list):
        yield from _list_errors(value, raw, path, depth)
    elif isinstance(value, dict):
        yield from _object_errors(value, raw, path, depth)
    yield from _combined_errors(value, raw, path, depth)


def _type_error(value: Any, raw: RawSchema, path: str) -> FieldError | None:
    found = _type_name(value)
    if raw.get("x-kubernetes-int-or-string"):
        if found in ("integer", "string"):
            return None
        return invalid(path, found, f'{path} in body must be of type integer,string: "{found}"')
    wanted = raw.get("type")
    if not wanted or wanted == found or (wanted == "number" and found == "integer"):
        return None
    return invalid(path, found, f'{path} in body must be of type {wanted}: "{found}"')


def _type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float):
        return "integer" if value.is_integer() and abs(value) < 2**53 else "number"
    names = {int: "integer", str: "string", list: "array", dict: "object", type(None): "null"}
    return names.get(type(value), "object")


def _enum_errors(value: Any, raw: RawSchema, path: str) -> Iterator[FieldError]:
    if not any(value == each and type(value) is type(each) for each in raw["enum"]):
        yield unsupported(path, value, [str(each) for each in raw["enum"]])


def _string_errors(value: str, raw: RawSchema, path: str) -> Iterator[FieldError]:
    if "maxLength" in raw and len(value) > raw["maxLength"]:
        yield too_long(path, raw["maxLength"])
    if len(value) < raw.get("minLength", 0):
        yield invalid(path, value, f"{path} in body should be at least {raw['minLength']} chars long")
    if "pattern" in raw and not _found(raw["pattern"], value):
        yield invalid(path, value, f"{path} in body should match '{raw['pattern']}'")
    check = _FORMATS.get(raw.get("format", ""))
    if check is not None and not check(value):
        yield invalid(path, value, f'{path} in body must be of type {raw["format"]}: "{value}"')


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    """A matcher whose time grows with the text and no faster, whatever the pattern: anybody may write one.

    None for a pattern that it can't read; such a one holds nobody up.
    """
    import jsonschema_rs  # a tenth of a second, which only users of patterns should pay

    try:
        return jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions())
    except ValueError:
        return None


def _found(pattern: str, value: str) -> bool:
    compiled = _compiled(pattern)
    return compiled is None or bool(compiled.is_valid(value))


def _number_errors(value: float, raw: RawSchema, path: str) -> Iterator[FieldError]:
    least, most = raw.get("minimum"), raw.get("maximum")
    if least is not None:
        if raw.get("exclusiveMinimum") and value <= least:
            yield invalid(path, value, f"{path} in body should be greater than {least:g}")
        elif value < least:
            yield invalid(path, value, f"{path} in body should be greater than or equal to {least:g}")
    if most is not None:
        if raw.get("exclusiveMaximum") and value >= most:
            yield invalid(path, value, f"{path} in body should be less than {most:g}")
        elif value > most:
            yield invalid(path, value, f"{path} in body should be less than or equal to {most:g}")
    factor = raw.get("multipleOf")
    if factor and (value / factor) % 1:
        yield invalid(path, value, f"{path} in body should be a multiple of {factor:g}")
    width = {"int32": 31, "int64": 63}.get(raw.get("format", ""))
    if width and raw.get("type") == "integer" and not -(2**width) <= value < 2**width:
        what = f"Checked value must be of type integer with format {raw['format']} in {path}"
        yield FieldError("<nil>", "FieldValueInvalid", f'Invalid value: "": {what}')


def _list_errors(value: list[Any], raw: RawSchema, path: str, depth: int) -> Iterator[FieldError]:
    if "maxItems" in raw and len(value) > raw["maxItems"]:
        yield too_many(path, len(value), raw["maxItems"])
    if len(value) < raw.get("minItems", 0):
        least = raw["minItems"]
        yield invalid(path, len(value), f"{path} in body should have at least {least} items")
    if raw.get("uniqueItems") and len(set(map(hash_key, value))) < len(value):
        yield invalid(path, value, f"{path} in body shouldn't contain duplicates")
    for index, each in enumerate(value):
        yield from schema_errors(each, raw.get("items") or {}, f"{path}[{index}]", depth + 1)
    yield from _list_type_errors(value, raw, path)


def _list_type_errors(value: list[Any], raw: RawSchema, path: str) -> Iterator[FieldError]:
    kind = raw.get("x-kubernetes-list-type")
    if kind not in ("set", "map"):
        return
    keys = raw.get("x-kubernetes-list-map-keys") or ()
    seen = set()
    for index, each in enumerate(value):
        identity = each
        if kind == "map":
            if not isinstance(each, dict):
                continue
            identity = {key: each[key] for key in keys if key in each}
            if not identity:
                continue
        if hash_key(identity) in seen:
            yield duplicate(f"{path}[{index}]", identity)
        seen.add(hash_key(identity))


def _object_errors(value: RawSchema, raw: RawSchema, path: str, depth: int) -> Iterator[FieldError]:
    if "maxProperties" in raw and len(value) > raw["maxProperties"]:
        yield too_many(path, len(value), raw["maxProperties"])
    if len(value) < raw.get("minProperties", 0):
        least = raw["minProperties"]
        yield invalid(path, len(value), f"{path} in body should have at least {least} properties")
    for name in raw.get("required") or ():
        if name not in value:
            yield required(f"{path}.{name}" if path else name)
    known, others = raw.get("properties") or {}, raw.get("additionalProperties")
    for name, each in value.items():
        inner = f"{path}.{name}" if path else name
        if name in known:
            yield from schema_errors(each, known[name], inner, depth + 1)
        elif isinstance(others, dict):
            yield from schema_errors(each, others, inner, depth + 1)


def _combined_errors(value: Any, raw: RawSchema, path: str, depth: int) -> Iterator[FieldError]:
    """allOf, anyOf, oneOf and not."""
    for inner in raw.get("allOf") or ():
        yield from schema_errors(value, inner, path, depth + 1)
    for word, wanted in (("anyOf", "at least one schema"), ("oneOf", "one and only one schema")):
        choices = raw.get(word)
        if not choices:
            continue
        found = [list(schema_errors(value, each, path, depth + 1)) for each in choices]
        fitting = sum(not each for each in found)
        if not fitting or (word == "oneOf" and fitting > 1):
            how = f"Found {fitting} valid alternatives" if fitting else "Found none valid"
            more = f" ({word}). {how}" if word == "oneOf" else f" ({word})"
            yield _about_object(f'"{path}" must validate {wanted}{more}')
            if not fitting:
                yield from found[0]
    if "not" in raw and not list(schema_errors(value, raw["not"], path, depth + 1)):
        yield _about_object(f'"{path}" must not validate the schema (not)')


def _about_object(what: str) -> FieldError:
    return FieldError("<nil>", "FieldValueInvalid", f'Invalid value: "": {what}')


# ---- formats


def _is_address(version: int) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            return ipaddress.ip_address(value).version == version
        except ValueError:
            return False

    return check


def _is_time(value: str) -> bool:
    try:
        canonical_time(value)
    except InvalidTimestamp:
        return False
    return True


def _is_network(value: str) -> bool:
    try:
        ipaddress.ip_network(value, strict=False)
    except ValueError:
        return False
    return "/" in value


def _is_base64(value: str) -> bool:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _like(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda value: compiled.fullmatch(value) is not None


_FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": _is_time,
    "date": _like(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"),
    "duration": _like(r"-?([0-9]+(\.[0-9]+)?\s*(ns|us|µs|ms|s|m|h|d|w|hr|min|sec|days?|hours?|weeks?))+|0"),
    "byte": _is_base64,
    "ipv4": _is_address(4),
    "ipv6": _is_address(6),
    "cidr": _is_network,
    "uuid": _like(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"),
    "hostname": _like(r"(?i)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"),
    "email": _like(r"[^@\s]+@[^@\s]+"),
}
