"""OpenAPI documents, v2 and v3, of all served kinds.

`server.non_resource_paths` serves them and caches them while `kinds.generation` is unchanged; `kubectl explain`,
`kubectl apply` (merge keys, and whether the server validates fields) and client generators read them. They are
built on request from the schemas, in milliseconds. Descriptions are Windlass's own (`schemas/words.json`), for the
most used fields.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.machinery import Machinery
from windlass.embedded.api.schema import OBJECT_META, RawSchema, definition_name, definitions
from windlass.model.unstructured import Unstructured

VERSION = "1.36"
_V3 = "#/components/schemas/"
_V2 = "#/definitions/"
_LIST_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
_OWN_KEYS = ("x-go", "$ref", "items", "additionalProperties", "properties")


@cache
def descriptions() -> dict[str, dict[str, str]]:
    """One-line descriptions by definition and field; the empty field is the definition itself."""
    file = resources.files("windlass.embedded.api") / "schemas" / "words.json"
    loaded: dict[str, dict[str, str]] = msgspec.json.decode(file.read_bytes())
    return loaded


# ---- the documents


def v3_index(machinery: Machinery) -> Unstructured:
    """`/openapi/v3`: the documents' paths, with hashes that change with their content."""
    paths = {}
    for group, version in _group_versions(machinery):
        path = f"apis/{group}/{version}" if group else f"api/{version}"
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={_hash(machinery, group, version)}"}
    return {"paths": paths}


def _group_versions(machinery: Machinery) -> list[tuple[str, str]]:
    return sorted({(kind.group, kind.version) for kind in machinery.kinds})


def _hash(machinery: Machinery, group: str, version: str) -> str:
    custom = [kind for kind in machinery.kinds if kind.custom and kind.group == group]
    schemas = [msgspec.json.encode(machinery.schema(kind).raw) for kind in custom]
    text = b"\0".join([VERSION.encode(), group.encode(), version.encode(), *schemas])
    return hashlib.sha256(text).hexdigest().upper()


def v3(machinery: Machinery, group: str, version: str) -> Unstructured | None:
    """`/openapi/v3/apis/GROUP/VERSION`; None if it is not served."""
    kinds = [kind for kind in machinery.kinds if (kind.group, kind.version) == (group, version)]
    if not kinds:
        return None
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION},
        "paths": dict(path for kind in kinds for path in _paths(kind, _V3)),
        "components": {"schemas": _schemas(machinery, kinds, _V3)},
    }


def v2(machinery: Machinery) -> Unstructured:
    """`/openapi/v2`: everything in one document."""
    kinds = list(machinery.kinds)
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": VERSION},
        "paths": dict(path for kind in kinds for path in _paths(kind, _V2)),
        "definitions": _schemas(machinery, kinds, _V2),
    }


# ---- schemas


def _schemas(machinery: Machinery, kinds: Iterable[Kind], prefix: str) -> dict[str, RawSchema]:
    schemas: dict[str, RawSchema] = {}
    roots: set[str] = set()
    for kind in kinds:
        if kind.custom:
            name = custom_name(kind)
            schemas[name] = _custom_schema(machinery.schema(kind).raw, kind, prefix)
            roots.add(OBJECT_META)
        else:
            name = definition_name(kind)
            roots.add(name)
        schemas[name + "List"] = _list_schema(kind, name, prefix)
        roots.add(_LIST_META)
    for name in _reachable(roots):
        schemas[name] = _definition(name, prefix)
    return schemas


def custom_name(kind: Kind) -> str:
    """The name of a custom kind's definition: reversed group, version, kind."""
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def _list_schema(kind: Kind, name: str, prefix: str) -> RawSchema:
    item = {"$ref": prefix + name}
    return {
        "description": f"A list of {kind.kind} objects.",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"$ref": prefix + _LIST_META},
            "items": {"type": "array", "items": item},
        },
        "x-kubernetes-group-version-kind": [
            {"group": kind.group, "version": kind.version, "kind": kind.list_kind_name}
        ],
    }


def _custom_schema(raw: RawSchema, kind: Kind, prefix: str) -> RawSchema:
    schema: RawSchema = dict(raw) or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    metadata_descriptions = descriptions().get(OBJECT_META, {})
    schema["properties"] = {
        **(raw.get("properties") or {}),
        "apiVersion": {"type": "string", "description": _COMMON_DESCRIPTIONS["apiVersion"]},
        "kind": {"type": "string", "description": _COMMON_DESCRIPTIONS["kind"]},
        "metadata": _reference(prefix, OBJECT_META, metadata_descriptions.get("", "")),
    }
    schema["x-kubernetes-group-version-kind"] = [{"group": kind.group, "version": kind.version, "kind": kind.kind}]
    return schema


_COMMON_DESCRIPTIONS = {
    "apiVersion": "Group and version of the kind, such as apps/v1.",
    "kind": "The kind of object.",
    "metadata": "Name, namespace, labels and the like.",
    "spec": "The desired state.",
    "status": "The observed state, written by the cluster.",
}


def _definition(name: str, prefix: str) -> RawSchema:
    raw, field_descriptions = definitions()[name], descriptions().get(name, {})
    schema = _to_openapi(raw, prefix, field_descriptions.get("", ""))
    if "properties" in raw:
        schema["properties"] = {
            field: _to_openapi(property_schema, prefix, _field_description(field_descriptions, field, property_schema))
            for field, property_schema in raw["properties"].items()
        }
    return schema


def _field_description(field_descriptions: dict[str, str], field: str, raw: RawSchema) -> str:
    """Of the field itself, else of the definition that it refers to, else of fields of this name in general."""
    return (
        field_descriptions.get(field)
        or descriptions().get(raw.get("$ref", ""), {}).get("")
        or _COMMON_DESCRIPTIONS.get(field, "")
    )


def _to_openapi(raw: RawSchema, prefix: str, description: str) -> RawSchema:
    """A schema as OpenAPI writes it; in version 3 a reference is below `allOf`, next to its description."""
    schema: RawSchema = {"description": description} if description else {}
    schema |= {key: value for key, value in raw.items() if key not in _OWN_KEYS}
    if "$ref" in raw:
        schema |= _reference(prefix, raw["$ref"], description)
    for inner in ("items", "additionalProperties"):
        if inner in raw:
            schema[inner] = _to_openapi(raw[inner], prefix, "")
    if prefix == _V2 and "oneOf" in schema:
        del schema["oneOf"]
        schema["type"] = "string"
    return schema


def _reference(prefix: str, name: str, description: str) -> RawSchema:
    described = {"description": description} if description else {}
    if prefix == _V2:
        return {**described, "$ref": prefix + name}
    return {**described, "default": {}, "allOf": [{"$ref": prefix + name}]}


def _reachable(roots: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name not in seen and name in definitions():
            seen.add(name)
            pending += _references_of(name)
    return sorted(seen)


@cache
def _references_of(name: str) -> tuple[str, ...]:
    return tuple(_references(definitions()[name]))


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


# ---- paths

_QUERY = {
    "dryRun": "`All`: the request is processed but nothing is stored.",
    "fieldManager": "Name of the client that makes the change, for `managedFields`.",
    "fieldValidation": "How unknown fields are treated: Ignore, Warn or Strict.",
    "force": "Take over fields that others own (server-side apply).",
    "labelSelector": "Only objects whose labels match.",
    "fieldSelector": "Only objects whose fields match.",
    "limit": "Maximum number of objects; the response has a token for the next page.",
    "watch": "Changes as they happen.",
}
_WRITE = ("dryRun", "fieldManager", "fieldValidation")


def _paths(kind: Kind, prefix: str) -> Iterator[tuple[str, Unstructured]]:
    namespaced_path, collection = kind.namespace_collection("{namespace}"), {}
    if "list" in kind.verbs:
        list_parameters = ("labelSelector", "fieldSelector", "limit", "watch")
        collection["get"] = _operation(kind, "list", list_parameters, prefix)
        if kind.namespaced:
            yield kind.collection, {"get": _operation(kind, "list", list_parameters, prefix)}
    if "create" in kind.verbs:
        collection["post"] = _operation(kind, "post", _WRITE, prefix)
    yield namespaced_path, collection
    item = {}
    for method, verb, query in (
        ("get", "get", ()),
        ("put", "update", _WRITE),
        ("patch", "patch", (*_WRITE, "force")),
        ("delete", "delete", ("dryRun",)),
    ):
        if verb in kind.verbs:
            action = "put" if verb == "update" else verb
            item[method] = _operation(kind, action, query, prefix)
    if item:
        yield f"{namespaced_path}/{{name}}", item


def _operation(kind: Kind, action: str, query: Iterable[str], prefix: str) -> Unstructured:
    def parameter(name: str) -> Unstructured:
        schema: Unstructured = {"type": "string", "uniqueItems": True}
        common = {"name": name, "in": "query", "description": _QUERY[name]}
        return {**common, **schema} if prefix == _V2 else {**common, "schema": schema}

    identifier = kind.api_version.replace("/", "_").replace(".", "_").replace("-", "_")
    return {
        "operationId": f"{action}_{identifier}_{kind.plural}",
        "parameters": [parameter(name) for name in query],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
    }
