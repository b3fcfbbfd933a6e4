"""OpenAPI documents, v2 and v3, of everything that is served, custom kinds included.

Fed by the server with its `Machinery`; read by `kubectl explain`, `kubectl apply` (merge keys, and whether the server
checks fields) and client generators. Made on request from the schemas, in some milliseconds; the server keeps them
while `kinds.generation` stands still. Descriptions are Windlass's own (`schemas/words.json`), for the fields that
people look up.
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
    """`/openapi/v3`: where the documents are, with a hash that changes when one does."""
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
    """`/openapi/v3/apis/GROUP/VERSION`; none where nothing of it is served."""
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
    made: dict[str, RawSchema] = {}
    roots: set[str] = set()
    for kind in kinds:
        if kind.custom:
            name = custom_name(kind)
            made[name] = _custom_schema(machinery.schema(kind).raw, kind, prefix)
            roots.add(OBJECT_META)
        else:
            name = definition_name(kind)
            roots.add(name)
        made[name + "List"] = _list_schema(kind, name, prefix)
        roots.add(_LIST_META)
    for name in _reached(roots):
        made[name] = _definition(name, prefix)
    return made


def custom_name(kind: Kind) -> str:
    """The name of a custom kind's definition: the group backwards, the version, the kind."""
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
    made: RawSchema = dict(raw) or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    own = descriptions().get(OBJECT_META, {})
    made["properties"] = {
        **(raw.get("properties") or {}),
        "apiVersion": {"type": "string", "description": _COMMON["apiVersion"]},
        "kind": {"type": "string", "description": _COMMON["kind"]},
        "metadata": _reference(prefix, OBJECT_META, own.get("", "")),
    }
    made["x-kubernetes-group-version-kind"] = [
        {"group": kind.group, "version": kind.version, "kind": kind.kind}
    ]
    return made


_COMMON = {
    "apiVersion": "Group and version of the kind, such as apps/v1.",
    "kind": "The kind of object.",
    "metadata": "Name, namespace, labels and the like.",
    "spec": "What is wanted.",
    "status": "What is; written by the cluster.",
}


def _definition(name: str, prefix: str) -> RawSchema:
    raw, said = definitions()[name], descriptions().get(name, {})
    made = _expanded(raw, prefix, said.get("", ""))
    if "properties" in raw:
        made["properties"] = {
            field: _expanded(each, prefix, _said(said, field, each))
            for field, each in raw["properties"].items()
        }
    return made


def _said(said: dict[str, str], field: str, raw: RawSchema) -> str:
    """Of a field itself, else of what it refers to, else of fields of this name in general."""
    return said.get(field) or descriptions().get(raw.get("$ref", ""), {}).get("") or _COMMON.get(field, "")


def _expanded(raw: RawSchema, prefix: str, description: str) -> RawSchema:
    """A place as OpenAPI writes it; in version 3 a reference stands below `allOf` beside its description."""
    made: RawSchema = {"description": description} if description else {}
    made |= {key: value for key, value in raw.items() if key not in _OWN_KEYS}
    if "$ref" in raw:
        made |= _reference(prefix, raw["$ref"], description)
    for inner in ("items", "additionalProperties"):
        if inner in raw:
            made[inner] = _expanded(raw[inner], prefix, "")
    if prefix == _V2 and "oneOf" in made:
        del made["oneOf"]
        made["type"] = "string"
    return made


def _reference(prefix: str, name: str, description: str) -> RawSchema:
    said = {"description": description} if description else {}
    if prefix == _V2:
        return {**said, "$ref": prefix + name}
    return {**said, "default": {}, "allOf": [{"$ref": prefix + name}]}


def _reached(roots: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in seen and name in definitions():
            seen.add(name)
            waiting += _references_of(name)
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
    "dryRun": "`All`: everything is done but the writing.",
    "fieldManager": "Who makes the change, for `managedFields`.",
    "fieldValidation": "What becomes of unknown fields: Ignore, Warn or Strict.",
    "force": "Take over fields that others own (server-side apply).",
    "labelSelector": "Only objects whose labels match.",
    "fieldSelector": "Only objects whose fields match.",
    "limit": "At most so many; the answer says how to go on.",
    "watch": "Changes as they happen.",
}
_WRITE = ("dryRun", "fieldManager", "fieldValidation")


def _paths(kind: Kind, prefix: str) -> Iterator[tuple[str, Unstructured]]:
    inside, collection = kind.namespace_collection("{namespace}"), {}
    if "list" in kind.verbs:
        listed = ("labelSelector", "fieldSelector", "limit", "watch")
        collection["get"] = _operation(kind, "list", listed, prefix)
        if kind.namespaced:
            yield kind.collection, {"get": _operation(kind, "list", listed, prefix)}
    if "create" in kind.verbs:
        collection["post"] = _operation(kind, "post", _WRITE, prefix)
    yield inside, collection
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
        yield f"{inside}/{{name}}", item


def _operation(kind: Kind, action: str, query: Iterable[str], prefix: str) -> Unstructured:
    def parameter(name: str) -> Unstructured:
        shape: Unstructured = {"type": "string", "uniqueItems": True}
        common = {"name": name, "in": "query", "description": _QUERY[name]}
        return {**common, **shape} if prefix == _V2 else {**common, "schema": shape}

    named = kind.api_version.replace("/", "_").replace(".", "_").replace("-", "_")
    return {
        "operationId": f"{action}_{named}_{kind.plural}",
        "parameters": [parameter(name) for name in query],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {
            "group": kind.group,
            "version": kind.version,
            "kind": kind.kind,
        },
    }
