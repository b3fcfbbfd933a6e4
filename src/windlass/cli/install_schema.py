"""Words to write OpenAPI schemas with, for `install_crds`."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


def text(*, pattern: str = "", most: int = 253, **more: Any) -> Schema:
    schema: Schema = {"type": "string", "maxLength": most, **more}
    return {**schema, "pattern": pattern} if pattern else schema


def name(**more: Any) -> Schema:
    return text(pattern=NAME, **more)


def choice(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def number(least: int | None = None, most: int | None = None) -> Schema:
    schema: Schema = {"type": "integer"}
    if least is not None:
        schema["minimum"] = least
    if most is not None:
        schema["maximum"] = most
    return schema


def flag() -> Schema:
    return {"type": "boolean"}


def time() -> Schema:
    return {"type": "string", "format": "date-time"}


def quantity() -> Schema:
    return {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|"
        r"(\.[0-9]+))))?$",
        "x-kubernetes-int-or-string": True,
    }


def record(fields: dict[str, Schema], *required: str) -> Schema:
    schema: Schema = {"type": "object", "properties": fields}
    return {**schema, "required": list(required)} if required else schema


def listed(items: Schema, most: int, *, least: int = 0, keys: tuple[str, ...] = ()) -> Schema:
    schema: Schema = {"type": "array", "items": items, "maxItems": most}
    if least:
        schema["minItems"] = least
    if keys:
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    return schema


def mapped(values: Schema, most: int | None = None) -> Schema:
    schema: Schema = {"type": "object", "additionalProperties": values}
    return {**schema, "maxProperties": most} if most is not None else schema


def anything() -> Schema:
    """What Windlass hands on and doesn't look into."""
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def selector() -> Schema:
    expression = record(
        {
            "key": text(most=317),
            "operator": choice("In", "NotIn", "Exists", "DoesNotExist"),
            "values": listed(text(most=63), 1000),
        },
        "key",
        "operator",
    )
    return {
        **record({"matchLabels": mapped(text(most=63)), "matchExpressions": listed(expression, 100)}),
        "nullable": True,
    }


def conditions() -> Schema:
    condition = record(
        {
            "type": text(most=316),
            "status": choice("True", "False", "Unknown"),
            "reason": text(most=1024),
            "message": text(most=32768),
            "lastTransitionTime": time(),
            "observedGeneration": number(0),
        },
        "type",
        "status",
        "lastTransitionTime",
    )
    return listed(condition, 16, keys=("type",))
