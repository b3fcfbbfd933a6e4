"""Validation of metadata and of selectors inside specs. Called by `validation` and the other `validate_` modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from windlass.embedded.api.errors import FieldError, invalid, required, too_long
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.names import (
    dns_1123_service_problems,
    dns_label_problems,
    dns_subdomain_problems,
    label_key_problems,
    label_value_problems,
    path_segment_problems,
)
from windlass.model.unstructured import Unstructured

MAX_ANNOTATION_BYTES = 256 * 1024
_STANDARD_FINALIZERS = {"orphan", "foregroundDeletion", "kubernetes"}

_NAMES: dict[tuple[str, str], Callable[[str], list[str]]] = {
    ("", "Namespace"): dns_label_problems,
    ("", "Service"): dns_1123_service_problems,
    ("rbac.authorization.k8s.io", "Role"): path_segment_problems,
    ("rbac.authorization.k8s.io", "RoleBinding"): path_segment_problems,
    ("rbac.authorization.k8s.io", "ClusterRole"): path_segment_problems,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): path_segment_problems,
}


def metadata_errors(kind: Kind, metadata: Unstructured) -> Iterator[FieldError]:
    """Everything that must hold on every write."""
    yield from _name_errors(kind, metadata)
    labels = metadata.get("labels")
    if labels:
        yield from label_errors(labels, "metadata.labels")
    annotations = metadata.get("annotations")
    if annotations:
        yield from annotation_errors(annotations, "metadata.annotations")
    if metadata.get("finalizers"):
        yield from _finalizer_errors(metadata["finalizers"], "metadata.finalizers")
    owners = metadata.get("ownerReferences")
    if owners:
        yield from _owner_errors(owners)


def _name_errors(kind: Kind, metadata: Unstructured) -> Iterator[FieldError]:
    name = metadata.get("name")
    if not name:
        yield required("metadata.name", "name or generateName is required")
        return
    check = _NAMES.get((kind.group, kind.kind), dns_subdomain_problems)
    for problem in check(name):
        yield invalid("metadata.name", name, problem)


def label_errors(labels: Mapping[str, str], path: str) -> Iterator[FieldError]:
    for key, value in labels.items():
        for problem in label_key_problems(key):
            yield invalid(path, key, problem)
        for problem in label_value_problems(value):
            yield invalid(path, value, problem)


def annotation_errors(annotations: Mapping[str, str], path: str) -> Iterator[FieldError]:
    total = 0
    for key, value in annotations.items():
        for problem in label_key_problems(key.lower()):
            yield invalid(path, key, problem)
        total += len(key) + (len(value) if value.isascii() else len(value.encode()))
    if total > MAX_ANNOTATION_BYTES:
        yield too_long(path, MAX_ANNOTATION_BYTES)


def _finalizer_errors(names: list[str], path: str) -> Iterator[FieldError]:
    for name in names:
        for problem in label_key_problems(name):
            yield invalid(path, name, problem)
    for index, name in enumerate(names):
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid(f"{path}[{index}]", name, detail)


def _owner_errors(owners: list[Unstructured]) -> Iterator[FieldError]:
    path = "metadata.ownerReferences"
    for owner in owners:
        if not owner.get("apiVersion"):
            yield invalid(f"{path}.apiVersion", "", "version must not be empty")
        for name in ("kind", "name", "uid"):
            if not owner.get(name):
                yield invalid(f"{path}.{name}", "", "must not be empty")
    controllers = [owner.get("name") for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        yield invalid(
            path,
            owners,
            "Only one reference can have Controller set to true. "
            f'Found "true" in references for {controllers[0]} and {controllers[1]}',
        )


# ---- selectors inside specs


def selector_errors(selector: Unstructured | None, path: str) -> Iterator[FieldError]:
    """Validates a LabelSelector."""
    if not selector:
        return
    yield from label_errors(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        yield from expression_errors(expression, f"{path}.matchExpressions[{index}]")


def expression_errors(expression: Unstructured, path: str) -> Iterator[FieldError]:
    operator, values = expression.get("operator"), expression.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden_values(f"{path}.values")
    else:
        yield invalid(f"{path}.operator", operator or "", "not a valid selector operator")
    for problem in label_key_problems(expression.get("key", "")):
        yield invalid(f"{path}.key", expression.get("key", ""), problem)
    for index, value in enumerate(values):
        for problem in label_value_problems(value):
            yield invalid(f"{path}.values[{index}]", value, problem)


def forbidden_values(path: str) -> FieldError:
    return FieldError(
        path,
        "FieldValueForbidden",
        "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
    )


# ---- helper for the other modules


def minimum_errors(tree: Unstructured, name: str, path: str, minimum: int = 0) -> Iterator[FieldError]:
    """A number that must not be below a minimum."""
    value = tree.get(name)
    if value is not None and value < minimum:
        yield invalid(f"{path}.{name}", value, f"must be greater than or equal to {minimum}")
