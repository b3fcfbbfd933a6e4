"""Schemas of objects as a tree of `SchemaNode`s: fields, types, enums, patch strategies, list types.

Built-in kinds come from `schemas/kubernetes.json` (made by `tools/make_api_schemas.py`, loaded at first use),
custom kinds from their structural schema; both use one class, so that decoding, patches, server-side apply and
OpenAPI are written once.
"""

from __future__ import annotations

from functools import cache, cached_property
from importlib import resources
from typing import Any

import msgspec

from windlass.embedded.api.kinds import Kind

RawSchema = dict[str, Any]

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
OBJECT_META = f"{_META}.ObjectMeta"
_SPECIAL = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    f"{_META}.Time": "time",
    f"{_META}.MicroTime": "microtime",
}
_SCALARS = ("string", "integer", "number", "boolean")


@cache
def definitions() -> dict[str, RawSchema]:
    """All definitions of built-in kinds, by OpenAPI name."""
    file = resources.files("windlass.embedded.api") / "schemas" / "kubernetes.json"
    loaded: dict[str, dict[str, RawSchema]] = msgspec.json.decode(file.read_bytes())
    return loaded["definitions"]


@cache
def _names() -> dict[tuple[str, str, str], str]:
    return {
        (gvk["group"], gvk["version"], gvk["kind"]): name
        for name, raw in definitions().items()
        for gvk in raw.get("x-kubernetes-group-version-kind", ())
    }


def definition_name(kind: Kind) -> str:
    """The OpenAPI name of a built-in kind's definition, such as `io.k8s.api.core.v1.Pod`."""
    return _names()[kind.group, kind.version, kind.kind]


@cache
def definition_schema(name: str) -> SchemaNode:
    """The node of a definition, shared by all references to it."""
    return SchemaNode(definitions()[name], name)


def kind_schema(kind: Kind) -> SchemaNode:
    """The node of a built-in kind."""
    return definition_schema(definition_name(kind))


class SchemaNode:
    """One field of an object: its type, the fields below it, and how changes to it are merged.

    `type` is one of struct, map, list, string, integer, number, boolean, quantity, int-or-string, time, microtime,
    any.
    """

    def __init__(self, raw: RawSchema, name: str = "") -> None:
        self.raw = raw
        """The field's own schema: merge strategy, list type, presence."""
        reference: str = raw.get("$ref", "")
        self.name = name or reference
        """The OpenAPI name of the definition that it refers to, if any."""
        self.resolved: RawSchema = definitions()[reference] if reference else raw

    @cached_property
    def type(self) -> str:
        target = self.resolved
        if self.name in _SPECIAL:
            return _SPECIAL[self.name]
        if target.get("x-kubernetes-int-or-string"):
            return "int-or-string"
        kind = target.get("type")
        if kind == "object" or "properties" in target:
            if "additionalProperties" in target and "properties" not in target:
                return "map"
            known = "properties" in target or self.is_embedded_resource
            opaque = self.name or self.preserves_unknown_fields
            return "any" if opaque and not known else "struct"
        if kind == "array":
            return "list"
        return kind if kind in _SCALARS else "any"

    @cached_property
    def fields(self) -> dict[str, SchemaNode]:
        """Fields of a struct. An embedded object also has the standard fields."""
        if self.type != "struct":
            return {}
        found = {name: SchemaNode(raw) for name, raw in self.resolved.get("properties", {}).items()}
        if self.is_embedded_resource:
            found["apiVersion"] = found["kind"] = SchemaNode({"type": "string"})
            found["metadata"] = definition_schema(OBJECT_META)
        return found

    @cached_property
    def items(self) -> SchemaNode:
        """The elements of a list."""
        return SchemaNode(self.resolved.get("items") or {})

    @cached_property
    def values(self) -> SchemaNode:
        """The values of a map."""
        found = self.resolved.get("additionalProperties")
        return SchemaNode(found if isinstance(found, dict) else {})

    @property
    def preserves_unknown_fields(self) -> bool:
        """Whether fields that are not in the schema are kept."""
        return bool(self.resolved.get("x-kubernetes-preserve-unknown-fields"))

    @property
    def is_embedded_resource(self) -> bool:
        return bool(self.resolved.get("x-kubernetes-embedded-resource"))

    @property
    def omit_rule(self) -> str:
        """`always`: written even when empty; `null`: null when absent; `zero`: dropped when zero; else dropped."""
        return str(self.raw.get("x-go", ""))

    # ---- strategic merge

    @cached_property
    def patch_strategies(self) -> tuple[str, ...]:
        return tuple(str(self.raw.get("x-kubernetes-patch-strategy", "")).split(","))

    @property
    def merge_key(self) -> str:
        return str(self.raw.get("x-kubernetes-patch-merge-key", ""))

    # ---- server-side apply

    @cached_property
    def list_type(self) -> str:
        """atomic, set or map."""
        return str(self._own_or_resolved("x-kubernetes-list-type") or "atomic")

    @cached_property
    def list_keys(self) -> tuple[str, ...]:
        return tuple(self._own_or_resolved("x-kubernetes-list-map-keys") or ())

    @cached_property
    def is_atomic(self) -> bool:
        """Whether a map or struct is owned as a whole."""
        return bool(self._own_or_resolved("x-kubernetes-map-type") == "atomic")

    @property
    def default(self) -> Any:
        return self._own_or_resolved("default")

    def _own_or_resolved(self, key: str) -> Any:
        return self.raw.get(key, self.resolved.get(key))

    def child(self, name: str) -> SchemaNode | None:
        """The node of a field of a struct or map; None if the schema does not have it."""
        if self.type == "struct":
            return self.fields.get(name)
        return self.values if self.type == "map" else None
