"""One version of a kind that a CustomResourceDefinition defines: schema, subresources, columns, selectable fields.

`CustomKind.versions_of(crd)` creates them; `machinery` holds them and uses them where it uses `decode` and
`validation` for built-in kinds. All served versions share one stored object, without conversion.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

from windlass.embedded.api.decode import TypeMismatch, decode_metadata
from windlass.embedded.api.errors import MAX_ERRORS, ApiError, FieldError, forbidden_field, quoted
from windlass.embedded.api.json_trees import exceeds_depth
from windlass.embedded.api.jsonpath import BadPath, find
from windlass.embedded.api.kinds import Kind, Subresource
from windlass.embedded.api.schema import OBJECT_META, RawSchema, SchemaNode, definition_schema
from windlass.embedded.api.structural_schema import TooExpensive, Walk, drop_nulls, fill_defaults, prune, schema_errors
from windlass.embedded.api.tables import Column, Columns
from windlass.embedded.api.timestamps import age
from windlass.model.unstructured import Unstructured

MAX_STEPS = 300_000
"""Of a validation, each about a microsecond."""
_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
_SCALE = Subresource("scale", "Scale", group="autoscaling", version="v1")


class CustomKind:
    """One version of a custom kind."""

    def __init__(self, kind: Kind, version: Unstructured) -> None:
        self.kind = kind
        self.raw_schema: RawSchema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        self.schema = _CustomNode(self.raw_schema)
        self.selectable_fields = tuple(
            str(field.get("jsonPath", "")).lstrip(".") for field in version.get("selectableFields") or ()
        )
        scale = (version.get("subresources") or {}).get("scale")
        self.scale: Unstructured | None = scale
        self.columns = _printer_columns(version.get("additionalPrinterColumns") or [_AGE])
        self._checked = {key: value for key, value in self.raw_schema.items() if key != "properties"}
        self._checked["properties"] = {
            name: schema
            for name, schema in (self.raw_schema.get("properties") or {}).items()
            if name not in ("metadata", "apiVersion", "kind")
        }

    @staticmethod
    def versions_of(crd: Unstructured) -> list[CustomKind]:
        """Every served version, the preferred one first."""
        spec = crd["spec"]
        names = {**spec["names"], **(crd.get("status") or {}).get("acceptedNames", {})}
        stored_as = f"{names['plural']}.{spec['group']}"
        served = [version for version in spec["versions"] if version.get("served")]
        served.sort(key=lambda version: version_order(version["name"]))
        return [CustomKind(_kind(spec, names, version, stored_as), version) for version in served]

    def decode(self, obj: object, field_validation: str) -> tuple[Unstructured, list[str]]:
        """A pruned copy with defaults, and warnings about pruned fields."""
        kind = self.kind
        head = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
        if not isinstance(obj, dict):
            raise ApiError.bad_request(head + "json: cannot unmarshal into Go value of type map[string]interface {}")
        if exceeds_depth(obj):
            raise ApiError.bad_request(head + "exceeded max depth")
        unknown: list[str] = []
        body = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
        decoded: Unstructured = {"apiVersion": kind.api_version, "kind": kind.kind}
        try:
            decoded["metadata"] = decode_metadata(obj.get("metadata") or {}, unknown)
        except TypeMismatch as problem:
            raise ApiError.bad_request(head + problem.message()) from None
        decoded.update(prune(body, self.schema, "", unknown))
        drop_nulls(decoded, self.schema)
        fill_defaults(decoded, self.schema)
        found = [f"unknown field {quoted(path)}" for path in sorted(unknown)]
        if field_validation == "Strict" and found:
            raise ApiError.bad_request(f"{head}strict decoding error: {', '.join(found)}")
        return decoded, found if field_validation == "Warn" else []

    def errors(self, obj: Unstructured) -> list[FieldError]:
        """Violations of the schema."""
        body = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
        try:
            return list(itertools.islice(schema_errors(body, self._checked, "", Walk(MAX_STEPS)), MAX_ERRORS))
        except TooExpensive:
            message = f"the object is too large for its schema: validating it takes more than {MAX_STEPS} steps"
            return [forbidden_field("", message)]


class _CustomNode(SchemaNode):
    """The schema of a custom kind, with the fields that every object has."""

    def __init__(self, raw: RawSchema) -> None:
        super().__init__(raw)
        self.fields = {
            **{name: SchemaNode(property_schema) for name, property_schema in (raw.get("properties") or {}).items()},
            "apiVersion": SchemaNode({"type": "string"}),
            "kind": SchemaNode({"type": "string"}),
            "metadata": definition_schema(OBJECT_META),
        }
        self.type = "struct"


def _kind(spec: Unstructured, names: Unstructured, version: Unstructured, stored_as: str) -> Kind:
    declared = version.get("subresources") or {}
    subresources = [Subresource("status", names["kind"])] if declared.get("status") is not None else []
    if declared.get("scale") is not None:
        subresources.append(_SCALE)
    return Kind(
        names["kind"],
        names["plural"],
        spec["group"],
        version["name"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=tuple(subresources),
        singular=names.get("singular") or names["kind"].lower(),
        list_kind=names.get("listKind") or names["kind"] + "List",
        stored_as=stored_as,
        custom=True,
    )


def version_order(name: str) -> tuple[int, int, int, str]:
    """Kubernetes' order of versions: v2, v1, v1beta2, v1alpha1, then anything else by name."""
    match = re.fullmatch(r"v([0-9]{1,18})(?:(alpha|beta)([0-9]{1,18}))?", name)
    if match is None:
        return (3, 0, 0, name)
    major, stage, minor = match.groups()
    return ({None: 0, "beta": 1, "alpha": 2}[stage], -int(major), -int(minor or 0), name)


def _printer_columns(definitions: list[Unstructured]) -> Columns:
    columns = [Column("Name", "string", "name")]
    readers = []
    for item in definitions:
        path = str(item.get("jsonPath", ""))
        text = item.get("description") or f"Custom resource definition column (in JSONPath format): {path}"
        kind = str(item.get("type", "string"))
        columns.append(Column(item["name"], kind, item.get("format", ""), item.get("priority", 0), text))
        readers.append(_reader(path, kind))

    def cells(obj: Unstructured, now: float) -> list[Any]:
        return [obj["metadata"].get("name", ""), *(read(obj, now) for read in readers)]

    return Columns(tuple(columns), cells)


def _reader(path: str, kind: str) -> Callable[[Unstructured, float], Any]:
    def read(obj: Unstructured, now: float) -> Any:
        try:
            found = find(obj, path)
        except BadPath:
            return "<error>"
        if not found or found[0] is None:
            return None
        return _cell(found, kind, now)

    return read


def _cell(found: list[Any], kind: str, now: float) -> Any:
    value = found[0]
    if kind == "date":
        return age(value, now) if isinstance(value, str) else "<invalid>"
    if kind == "integer":
        return int(value) if isinstance(value, int | float) else None
    if kind == "number":
        return value if isinstance(value, int | float) else None
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    return ",".join(item if isinstance(item, str) else quoted(item) for item in found)
