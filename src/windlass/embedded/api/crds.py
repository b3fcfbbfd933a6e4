"""CustomResourceDefinitions: validation, names and conditions.

`api.validation` calls the checks, `registry.admission_chain` calls `with_status`; `Machinery.serve_crd` then serves
the kind. Messages are the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windlass.embedded.api.errors import FieldError, forbidden_field, invalid, required, unsupported
from windlass.embedded.api.field_checks import choice_errors, name_errors, problem_errors
from windlass.embedded.api.json_trees import deep_copy, nested_value
from windlass.embedded.api.kinds import Kinds
from windlass.embedded.api.names import dns_1035_problems, dns_subdomain_problems
from windlass.model.unstructured import Unstructured

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_SCOPES = ("Cluster", "Namespaced")
_ESTABLISHED = "InitialNamesAccepted", "the initial names have been accepted"
_NOT_ESTABLISHED = "NotAccepted", "not all names are accepted"
_STILL_STORED = (
    "missing from spec.versions; {0} was previously a storage version, and must remain in spec.versions until a "
    "storage migration ensures no data remains persisted in {0} and removes {0} from status.storedVersions"
)


def definition_errors(crd: Unstructured) -> Iterator[FieldError]:
    """Validation of a definition."""
    spec, names = crd["spec"], crd["spec"]["names"]
    if crd["metadata"].get("name") != f"{names.get('plural', '')}.{spec.get('group', '')}":
        name = crd["metadata"].get("name", "")
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    yield from _name_errors(spec)
    yield from choice_errors(spec, "scope", "spec", _SCOPES)
    versions = spec.get("versions") or []
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid("spec.versions", versions, "must have exactly one version marked as storage version")
    seen: set[str] = set()
    for index, version in enumerate(versions):
        yield from _version_errors(version, f"spec.versions[{index}]", seen)


def definition_update_errors(new: Unstructured, old: Unstructured) -> Iterator[FieldError]:
    """Fields that may not change because objects are stored by them."""
    if is_established(old):
        for path in (("scope",), ("names", "kind")):
            value = nested_value(new["spec"], *path)
            if value != nested_value(old["spec"], *path):
                yield invalid(".".join(("spec", *path)), value, "field is immutable")
    served = {served_version.get("name") for served_version in new["spec"].get("versions") or ()}
    for index, version in enumerate((old.get("status") or {}).get("storedVersions") or ()):
        if version not in served:
            yield invalid(f"status.storedVersions[{index}]", version, _STILL_STORED.format(version))


def _name_errors(spec: Unstructured) -> Iterator[FieldError]:
    group, names = spec.get("group", ""), spec["names"]
    yield from name_errors("spec.group", group, dns_subdomain_problems)
    if group and "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")
    for field in ("plural", "singular", "kind", "listKind"):
        name = names.get(field, "")
        if not name:
            yield required(f"spec.names.{field}")
            continue
        for problem in dns_1035_problems(name.lower()):
            yield invalid(f"spec.names.{field}", name, problem)


def _version_errors(version: Unstructured, path: str, seen: set[str]) -> Iterator[FieldError]:
    name = version.get("name", "")
    yield from problem_errors(f"{path}.name", name, dns_1035_problems)
    if name in seen:
        yield invalid(f"{path}.name", name, "must be unique")
    seen.add(name)
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    schema_path = f"{path}.schema.openAPIV3Schema"
    if schema is None:
        yield required(schema_path)
        return
    if not schema.get("type"):
        yield required(f"{schema_path}.type", "must not be empty at the root")
    elif schema["type"] != "object":
        yield invalid(f"{schema_path}.type", schema["type"], "must be object at the root")
    yield from _schema_errors(schema, schema_path, root=True)


def _schema_errors(schema: Unstructured, path: str, root: bool = False) -> Iterator[FieldError]:
    """Checks that a schema is structural: every field has a type."""
    if not isinstance(schema, dict) or not isinstance(schema.get("properties") or {}, dict):
        yield invalid(path, schema, "must be a schema")
        return
    kind = schema.get("type")
    untyped = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string")
    if not root and not kind and not untyped:
        yield required(f"{path}.type", "must not be empty for specified object fields")
    if kind and kind not in _TYPES:
        yield unsupported(f"{path}.type", kind, _TYPES)
    for name, property_schema in (schema.get("properties") or {}).items():
        if not (root and name in ("apiVersion", "kind", "metadata")):
            yield from _schema_errors(property_schema, f"{path}.properties[{name}]")
    items = schema.get("items")
    if kind == "array":
        if not isinstance(items, dict):
            yield required(f"{path}.items", "must be specified")
        else:
            yield from _schema_errors(items, f"{path}.items")
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        yield from _schema_errors(additional, f"{path}.additionalProperties")
    if additional is not None and schema.get("properties"):
        detail = "additionalProperties and properties are mutual exclusive"
        yield forbidden_field(f"{path}.additionalProperties", detail)
    if schema.get("x-kubernetes-list-type") == "map" and not schema.get("x-kubernetes-list-map-keys"):
        yield required(f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")


def with_status(crd: Unstructured, kinds: Kinds, now: str) -> Unstructured:
    """A copy with the status that Kubernetes' controller would write: names accepted, established, stored versions."""
    result: Unstructured = deep_copy(crd)
    status = result.get("status") or {}
    storage = next(item["name"] for item in result["spec"]["versions"] if item.get("storage"))
    stored = list(dict.fromkeys([*(status.get("storedVersions") or ()), storage]))
    conflict = _conflict(result["spec"], kinds)
    before = {item["type"]: item for item in status.get("conditions") or ()}
    reasons = conflict or ("NoConflicts", "no conflicts found")
    accepted = _condition("NamesAccepted", not conflict, *reasons, now, before)
    reasons = _NOT_ESTABLISHED if conflict else _ESTABLISHED
    established = _condition("Established", not conflict, *reasons, now, before)
    others = [item for name, item in before.items() if name not in ("NamesAccepted", "Established")]
    result["status"] = {
        "conditions": [accepted, established, *others],
        "acceptedNames": deep_copy(result["spec"]["names"]) if not conflict else {"kind": "", "plural": ""},
        "storedVersions": stored,
    }
    return result


def is_established(crd: Unstructured) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)


def _conflict(spec: Unstructured, kinds: Kinds) -> tuple[str, str] | None:
    """The reason and message if another resource of the group has one of the names."""
    group, names = spec["group"], spec["names"]
    other_kinds = [kind for kind in kinds if kind.group == group and kind.plural != names["plural"]]
    for field, reason in (("kind", "KindConflict"), ("singular", "SingularConflict")):
        wanted = names.get(field)
        if any(wanted == (kind.kind if field == "kind" else kind.singular_name) for kind in other_kinds):
            return reason, f'"{wanted}" is already in use'
    return None


def _condition(kind: str, true: bool, reason: str, message: str, now: str, before: dict[str, Any]) -> Unstructured:
    status = "True" if true else "False"
    previous = before.get(kind)
    since = previous["lastTransitionTime"] if previous and previous.get("status") == status else now
    return {"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}
