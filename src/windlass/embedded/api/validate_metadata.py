"""Validation of metadata and of selectors inside specs. Called by `validation` and the other `validate_` modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from windlass.embedded.api.errors import FieldError, forbidden_field, invalid, required, too_long
from windlass.embedded.api.field_checks import problem_errors
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.names import (
    dns_label_problems,
    dns_subdomain_problems,
    label_key_problems,
    label_value_problems,
    path_segment_problems,
)
from windlass.model.unstructured import Unstructured

MAX_ANNOTATION_BYTES = 256 * 1024
NO_VALUES_MESSAGE = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
_STANDARD_FINALIZERS = {"orphan", "foregroundDeletion", "kubernetes"}

_NAMES: dict[tuple[str, str], Callable[[str], list[str]]] = {
    ("", "Namespace"): dns_label_problems,
    ("", "Service"): dns_label_problems,  # since Kubernetes 1.34
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
    yield from problem_errors("metadata.name", name, check)


def label_errors(labels: Mapping[str, str], path: str) -> Iterator[FieldError]:
    for key, value in labels.items():
        yield from problem_errors(path, key, label_key_problems)
        yield from problem_errors(path, value, label_value_problems)


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
        yield from problem_errors(path, name, label_key_problems)
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
            yield forbidden_field(f"{path}.values", NO_VALUES_MESSAGE)
    else:
        yield invalid(f"{path}.operator", operator or "", "not a valid selector operator")
    yield from problem_errors(f"{path}.key", expression.get("key", ""), label_key_problems)
    for index, value in enumerate(values):
        yield from problem_errors(f"{path}.values[{index}]", value, label_value_problems)
