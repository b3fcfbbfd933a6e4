"""Custom objects against their structural schema: pruning, defaulting and validation.

Used by `custom_kind`. CEL rules (`x-kubernetes-validations`) are stored and returned, not evaluated. Messages are
the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from windlass.embedded.api.bounded_cache import bounded_cache
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
from windlass.embedded.api.timestamps import canonical_time

_MAX_DEPTH = 64
_SHOWN_CHOICES = 100
"""Of an enum, in a message."""
_FEW_CHOICES = 16
_MOST_KNOWN = 256
_KNOWN_TEXTS: dict[int, tuple[list[Any], frozenset[str]]] = {}
"""id() of a long enum → the enum, kept so that its id is not reused, and its texts."""
_PATTERN_STEPS = 20
"""What matching a pattern costs, compiling it included."""


def prune(value: Any, node: SchemaNode, path: str, unknown: list[str]) -> Any:
    """A copy without fields that are not in the schema; their paths are added to `unknown`."""
    if isinstance(value, dict):
        return _pruned_object(value, node, path, unknown)
    if isinstance(value, list):
        items = node.items if node.type == "list" else _ANY_VALUE
        return [prune(item, items, f"{path}[{index}]", unknown) for index, item in enumerate(value)]
    return value


def _pruned_object(value: RawSchema, node: SchemaNode, path: str, unknown: list[str]) -> RawSchema:
    pruned = {}
    for name, item in value.items():
        inner = f"{path}.{name}" if path else name
        child = node.child(name)
        if child is not None:
            pruned[name] = prune(item, child, inner, unknown)
        elif node.preserves_unknown_fields or node.type in ("any", "int-or-string"):
            pruned[name] = deep_copy(item)
        elif node.type in ("struct", "map"):
            unknown.append(inner)
        else:
            pruned[name] = deep_copy(item)  # wrong type; validation reports it
    return pruned


_ANY_VALUE = SchemaNode({"x-kubernetes-preserve-unknown-fields": True})


def fill_defaults(value: Any, node: SchemaNode) -> None:
    """Sets missing fields to their defaults, in place. A null in a non-nullable field counts as missing."""
    if isinstance(value, dict):
        for name, child in node.fields.items():
            if "default" not in child.resolved:
                continue
            if name not in value or (value[name] is None and not child.resolved.get("nullable")):
                value[name] = deep_copy(child.resolved["default"])
        for name, item in value.items():
            child_node = node.child(name)
            if child_node is not None:
                fill_defaults(item, child_node)
    elif isinstance(value, list) and node.type == "list":
        for item in value:
            fill_defaults(item, node.items)


def drop_nulls(value: Any, node: SchemaNode) -> None:
    """Removes nulls of non-nullable fields, in place."""
    if isinstance(value, dict):
        for name in [name for name, item in value.items() if item is None]:
            child = node.child(name)
            if child is not None and not child.resolved.get("nullable") and child.type != "any":
                del value[name]
        for name, item in value.items():
            child_node = node.child(name)
            if child_node is not None:
                drop_nulls(item, child_node)
    elif isinstance(value, list) and node.type == "list":
        for item in value:
            drop_nulls(item, node.items)


# ---- validation


class TooExpensive(Exception):
    """Validating the object takes more steps than it may."""


class Walk:
    """How deep a validation is, and how many steps it may still take: object and schema multiply."""

    __slots__ = ("depth", "steps_left")

    def __init__(self, steps: int) -> None:
        self.depth, self.steps_left = 0, steps

    def spend(self, steps: int) -> None:
        self.steps_left -= steps
        if self.steps_left < 0:
            raise TooExpensive


def schema_errors(value: Any, raw: RawSchema, path: str, walk: Walk) -> Iterator[FieldError]:
    """All violations of the schema. Raises `TooExpensive`."""
    walk.spend(1)
    if walk.depth > _MAX_DEPTH or (value is None and raw.get("nullable")):
        return
    walk.depth += 1
    try:
        yield from _errors(value, raw, path, walk)
    finally:
        walk.depth -= 1


def _errors(value: Any, raw: RawSchema, path: str, walk: Walk) -> Iterator[FieldError]:
    mismatch = _type_error(value, raw, path)
    if mismatch is not None:
        yield mismatch
    if "enum" in raw:
        walk.spend(len(raw["enum"]) // 8)
        yield from _enum_errors(value, raw, path, walk)
    if mismatch is not None:
        return
    if isinstance(value, str):
        walk.spend(_PATTERN_STEPS if "pattern" in raw else 0)
        yield from _string_errors(value, raw, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_errors(value, raw, path)
    elif isinstance(value, list):
        yield from _list_errors(value, raw, path, walk)
    elif isinstance(value, dict):
        yield from _object_errors(value, raw, path, walk)
    yield from _combined_errors(value, raw, path, walk)


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


def _enum_errors(value: Any, raw: RawSchema, path: str, walk: Walk) -> Iterator[FieldError]:
    if not _is_choice(value, raw["enum"]):
        walk.spend(_SHOWN_CHOICES)
        yield unsupported(path, value, [str(choice) for choice in raw["enum"][:_SHOWN_CHOICES]])


def _is_choice(value: Any, choices: list[Any]) -> bool:
    if isinstance(value, str) and len(choices) > _FEW_CHOICES:
        return value in _texts(choices)
    return any(value == choice and type(value) is type(choice) for choice in choices)


def _texts(choices: list[Any]) -> frozenset[str]:
    """Of a long list, which is looked at once for all values."""
    known = _KNOWN_TEXTS.get(id(choices))
    if known is None:
        if len(_KNOWN_TEXTS) >= _MOST_KNOWN:
            _KNOWN_TEXTS.clear()
        found = frozenset(choice for choice in choices if isinstance(choice, str))
        known = _KNOWN_TEXTS[id(choices)] = choices, found
    return known[1]


def _string_errors(value: str, raw: RawSchema, path: str) -> Iterator[FieldError]:
    if "maxLength" in raw and len(value) > raw["maxLength"]:
        yield too_long(path, raw["maxLength"])
    if len(value) < raw.get("minLength", 0):
        yield invalid(path, value, f"{path} in body should be at least {raw['minLength']} chars long")
    if "pattern" in raw and not _matches_pattern(raw["pattern"], value):
        yield invalid(path, value, f"{path} in body should match '{raw['pattern']}'")
    check = _FORMATS.get(raw.get("format", ""))
    if check is not None and not check(value):
        yield invalid(path, value, f'{path} in body must be of type {raw["format"]}: "{value}"')


@bounded_cache(1024)
def _compiled(pattern: str) -> Any:
    """A matcher with linear time, since clients may write any pattern; None for one that it can't parse."""
    import jsonschema_rs  # takes 0.1 s, so only if there are patterns

    try:
        return jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions())
    except ValueError:
        return None


def _matches_pattern(pattern: str, value: str) -> bool:
    compiled = _compiled(pattern)
    return compiled is None or bool(compiled.is_valid(value))


def _number_errors(value: float, raw: RawSchema, path: str) -> Iterator[FieldError]:
    minimum, maximum = raw.get("minimum"), raw.get("maximum")
    if minimum is not None:
        if raw.get("exclusiveMinimum") and value <= minimum:
            yield invalid(path, value, f"{path} in body should be greater than {minimum:g}")
        elif value < minimum:
            yield invalid(path, value, f"{path} in body should be greater than or equal to {minimum:g}")
    if maximum is not None:
        if raw.get("exclusiveMaximum") and value >= maximum:
            yield invalid(path, value, f"{path} in body should be less than {maximum:g}")
        elif value > maximum:
            yield invalid(path, value, f"{path} in body should be less than or equal to {maximum:g}")
    factor = raw.get("multipleOf")
    if factor and (value / factor) % 1:
        yield invalid(path, value, f"{path} in body should be a multiple of {factor:g}")
    width = {"int32": 31, "int64": 63}.get(raw.get("format", ""))
    if width and raw.get("type") == "integer" and not -(2**width) <= value < 2**width:
        yield _object_error(f"Checked value must be of type integer with format {raw['format']} in {path}")


def _list_errors(value: list[Any], raw: RawSchema, path: str, walk: Walk) -> Iterator[FieldError]:
    if "maxItems" in raw and len(value) > raw["maxItems"]:
        yield too_many(path, len(value), raw["maxItems"])
    if len(value) < raw.get("minItems", 0):
        minimum = raw["minItems"]
        yield invalid(path, len(value), f"{path} in body should have at least {minimum} items")
    if raw.get("uniqueItems") and len(set(map(hash_key, value))) < len(value):
        yield invalid(path, value, f"{path} in body shouldn't contain duplicates")
    for index, item in enumerate(value):
        yield from schema_errors(item, raw.get("items") or {}, f"{path}[{index}]", walk)
    yield from _list_type_errors(value, raw, path)


def _list_type_errors(value: list[Any], raw: RawSchema, path: str) -> Iterator[FieldError]:
    kind = raw.get("x-kubernetes-list-type")
    if kind not in ("set", "map"):
        return
    keys = raw.get("x-kubernetes-list-map-keys") or ()
    seen = set()
    for index, item in enumerate(value):
        identity = item
        if kind == "map":
            if not isinstance(item, dict):
                continue
            identity = {key: item[key] for key in keys if key in item}
            if not identity:
                continue
        if hash_key(identity) in seen:
            yield duplicate(f"{path}[{index}]", identity)
        seen.add(hash_key(identity))


def _object_errors(value: RawSchema, raw: RawSchema, path: str, walk: Walk) -> Iterator[FieldError]:
    if "maxProperties" in raw and len(value) > raw["maxProperties"]:
        yield too_many(path, len(value), raw["maxProperties"])
    if len(value) < raw.get("minProperties", 0):
        minimum = raw["minProperties"]
        yield invalid(path, len(value), f"{path} in body should have at least {minimum} properties")
    walk.spend(len(raw.get("required") or ()) // 8)
    for name in raw.get("required") or ():
        if name not in value:
            yield required(f"{path}.{name}" if path else name)
    known, additional = raw.get("properties") or {}, raw.get("additionalProperties")
    for name, item in value.items():
        inner = f"{path}.{name}" if path else name
        if name in known:
            yield from schema_errors(item, known[name], inner, walk)
        elif isinstance(additional, dict):
            yield from schema_errors(item, additional, inner, walk)


def _combined_errors(value: Any, raw: RawSchema, path: str, walk: Walk) -> Iterator[FieldError]:
    """allOf, anyOf, oneOf and not."""
    for inner in raw.get("allOf") or ():
        yield from schema_errors(value, inner, path, walk)
    for keyword, wanted in (("anyOf", "at least one schema"), ("oneOf", "one and only one schema")):
        choices = raw.get(keyword)
        if not choices:
            continue
        found = [list(schema_errors(value, choice, path, walk)) for choice in choices]
        valid_count = sum(not errors for errors in found)
        if not valid_count or (keyword == "oneOf" and valid_count > 1):
            found_text = f"Found {valid_count} valid alternatives" if valid_count else "Found none valid"
            suffix = f" ({keyword}). {found_text}" if keyword == "oneOf" else f" ({keyword})"
            yield _object_error(f'"{path}" must validate {wanted}{suffix}')
            if not valid_count:
                yield from found[0]
    if "not" in raw and not list(schema_errors(value, raw["not"], path, walk)):
        yield _object_error(f'"{path}" must not validate the schema (not)')


def _object_error(detail: str) -> FieldError:
    return FieldError("<nil>", "FieldValueInvalid", f'Invalid value: "": {detail}')


# ---- formats


def parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    """Whether a text is accepted by a function that raises `ValueError` for others."""

    def check(value: str) -> bool:
        try:
            parse(value)
        except ValueError:
            return False
        return True

    return check


_is_any_network = parses(partial(ipaddress.ip_network, strict=False))


def is_network(value: str) -> bool:
    return "/" in value and _is_any_network(value)


def _full_match(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda value: compiled.fullmatch(value) is not None


_FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": parses(canonical_time),
    "date": _full_match(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"),
    "duration": _full_match(r"-?([0-9]+(\.[0-9]+)?\s*(ns|us|µs|ms|s|m|h|d|w|hr|min|sec|days?|hours?|weeks?))+|0"),
    "byte": parses(partial(base64.b64decode, validate=True)),
    "ipv4": parses(ipaddress.IPv4Address),
    "ipv6": parses(ipaddress.IPv6Address),
    "cidr": is_network,
    "uuid": _full_match(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"),
    "hostname": _full_match(r"(?i)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"),
    "email": _full_match(r"[^@\s]+@[^@\s]+"),
}
