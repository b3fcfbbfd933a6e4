"""Functions that build OpenAPI schemas, for `install_crds`."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


def string(*, pattern: str = "", max_length: int = 253, **more: Any) -> Schema:
    schema: Schema = {"type": "string", "maxLength": max_length, **more}
    return {**schema, "pattern": pattern} if pattern else schema


def name(**more: Any) -> Schema:
    return string(pattern=NAME_PATTERN, **more)


def enum(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def integer(minimum: int | None = None, maximum: int | None = None) -> Schema:
    schema: Schema = {"type": "integer"}
    if minimum is not None:
        schema["minimum"] = minimum
    if maximum is not None:
        schema["maximum"] = maximum
    return schema


def boolean() -> Schema:
    return {"type": "boolean"}


def date_time() -> Schema:
    return {"type": "string", "format": "date-time"}


def quantity() -> Schema:
    return {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|"
        r"(\.[0-9]+))))?$",
        "x-kubernetes-int-or-string": True,
    }


def object_schema(required: str = "", /, **fields: Schema) -> Schema:
    """`required`: the names of fields, with blanks between them."""
    schema: Schema = {"type": "object", "properties": fields}
    return {**schema, "required": required.split()} if required else schema


def nullable(schema: Schema) -> Schema:
    return {**schema, "nullable": True}


def array(items: Schema, max_items: int, *, min_items: int = 0, map_keys: tuple[str, ...] = ()) -> Schema:
    schema: Schema = {"type": "array", "items": items, "maxItems": max_items}
    if min_items:
        schema["minItems"] = min_items
    if map_keys:
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(map_keys)}
    return schema


def map_of(values: Schema, max_properties: int | None = None) -> Schema:
    schema: Schema = {"type": "object", "additionalProperties": values}
    return {**schema, "maxProperties": max_properties} if max_properties is not None else schema


def preserve_unknown_fields() -> Schema:
    """An object that Windlass passes on without reading it."""
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def label_selector() -> Schema:
    expression = object_schema(
        "key operator",
        key=string(max_length=317),
        operator=enum("In", "NotIn", "Exists", "DoesNotExist"),
        values=array(string(max_length=63), 1000),
    )
    return nullable(object_schema(matchLabels=map_of(string(max_length=63)), matchExpressions=array(expression, 100)))


def conditions() -> Schema:
    condition = object_schema(
        "type status lastTransitionTime",
        type=string(max_length=316),
        status=enum("True", "False", "Unknown"),
        reason=string(max_length=1024),
        message=string(max_length=32768),
        lastTransitionTime=date_time(),
        observedGeneration=integer(0),
    )
    return array(condition, 16, map_keys=("type",))
