"""Validation of a pod's scheduling fields: tolerations, node selectors, affinity, topology spread, scheduling
gates.

Called by `validate_pod`. Messages are the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.embedded.api.errors import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid,
    required,
    unsupported,
)
from windlass.embedded.api.field_checks import choice_errors, problem_errors
from windlass.embedded.api.names import label_key_problems, label_value_problems
from windlass.embedded.api.validate_metadata import NO_VALUES_MESSAGE, label_errors, selector_errors
from windlass.model.unstructured import Unstructured

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")


def placement_errors(spec: Unstructured, path: str) -> Iterator[FieldError]:
    if "nodeSelector" in spec:
        yield from label_errors(spec["nodeSelector"], f"{path}.nodeSelector")
    if "affinity" in spec:
        yield from _affinity_errors(spec["affinity"], f"{path}.affinity")
    for index, toleration in enumerate(spec.get("tolerations", ())):
        yield from _toleration_errors(toleration, f"{path}.tolerations[{index}]")
    for index, constraint in enumerate(spec.get("topologySpreadConstraints", ())):
        yield from _spread_errors(constraint, f"{path}.topologySpreadConstraints[{index}]")
    if "schedulingGates" in spec:
        yield from _gate_errors(spec, path)


def _toleration_errors(toleration: Unstructured, path: str) -> Iterator[FieldError]:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    if key:
        yield from problem_errors(f"{path}.key", key, label_key_problems)
    elif operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid(f"{path}.operator", operator, detail)
    effect, value = toleration.get("effect", ""), toleration.get("value", "")
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        yield invalid(f"{path}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
    if operator in ("", "Equal"):
        yield from problem_errors(f"{path}.operator", value, label_value_problems)
    elif operator == "Exists":
        if value:
            yield invalid(f"{path}.operator", value, "value must be empty when `operator` is 'Exists'")
    else:
        yield unsupported(f"{path}.operator", operator, ("Equal", "Exists"))
    if effect and effect not in EFFECTS:
        yield unsupported(f"{path}.effect", effect, EFFECTS)


def _affinity_errors(affinity: Unstructured, path: str) -> Iterator[FieldError]:
    node = affinity.get("nodeAffinity") or {}
    if _REQUIRED in node:
        term_path = f"{path}.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
        terms = node[_REQUIRED].get("nodeSelectorTerms") or []
        if not terms:
            yield required(term_path, "must have at least one node selector term")
        for index, term in enumerate(terms):
            yield from node_term_errors(term, f"{term_path}[{index}]")
    for index, weighted in enumerate(node.get(_PREFERRED) or ()):
        term_path = f"{path}.nodeAffinity.{_PREFERRED}[{index}]"
        yield from _weight_errors(weighted, term_path)
        yield from node_term_errors(weighted.get("preference") or {}, f"{term_path}.preference")
    for name in ("podAffinity", "podAntiAffinity"):
        affinity_terms = affinity.get(name) or {}
        for index, term in enumerate(affinity_terms.get(_REQUIRED) or ()):
            yield from _pod_term_errors(term, f"{path}.{name}.{_REQUIRED}[{index}]")
        for index, weighted in enumerate(affinity_terms.get(_PREFERRED) or ()):
            term_path = f"{path}.{name}.{_PREFERRED}[{index}]"
            yield from _weight_errors(weighted, term_path)
            yield from _pod_term_errors(weighted.get("podAffinityTerm") or {}, f"{term_path}.podAffinityTerm")


def _weight_errors(term: Unstructured, path: str) -> Iterator[FieldError]:
    if not 1 <= term.get("weight", 0) <= 100:
        yield invalid(f"{path}.weight", term.get("weight", 0), "must be in the range 1-100")


def node_term_errors(term: Unstructured, path: str) -> Iterator[FieldError]:
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        yield from _node_expression_errors(expression, f"{path}.matchExpressions[{index}]")
    for index, expression in enumerate(term.get("matchFields") or ()):
        if expression.get("key") != "metadata.name":
            key = expression.get("key", "")
            yield invalid(f"{path}.matchFields[{index}].key", key, "not a valid field selector key")


def _node_expression_errors(expression: Unstructured, path: str) -> Iterator[FieldError]:
    operator, values = expression.get("operator", ""), expression.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden_field(f"{path}.values", NO_VALUES_MESSAGE)
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    yield from problem_errors(f"{path}.key", expression.get("key", ""), label_key_problems)


def _pod_term_errors(term: Unstructured, path: str) -> Iterator[FieldError]:
    yield from selector_errors(term.get("labelSelector"), f"{path}.labelSelector")
    yield from selector_errors(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    key = term.get("topologyKey", "")
    if not key:
        yield required(f"{path}.topologyKey", "can not be empty")
    yield from problem_errors(f"{path}.topologyKey", key, label_key_problems)


def _spread_errors(constraint: Unstructured, path: str) -> Iterator[FieldError]:
    if constraint.get("maxSkew", 0) <= 0:
        yield invalid(f"{path}.maxSkew", constraint.get("maxSkew", 0), "must be greater than zero")
    key = constraint.get("topologyKey", "")
    if not key:
        yield required(f"{path}.topologyKey", "can not be empty")
    else:
        yield from problem_errors(f"{path}.topologyKey", key, label_key_problems)
    yield from choice_errors(constraint, "whenUnsatisfiable", path, _UNSATISFIABLE)
    yield from selector_errors(constraint.get("labelSelector"), f"{path}.labelSelector")


def _gate_errors(spec: Unstructured, path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, gate in enumerate(spec["schedulingGates"]):
        name = gate.get("name", "")
        yield from problem_errors(f"{path}.schedulingGates[{index}]", name, label_key_problems)
        if name in seen:
            yield duplicate(f"{path}.schedulingGates[{index}]", name)
        seen.add(name)
    if spec.get("nodeName"):
        yield forbidden_field(f"{path}.nodeName", "cannot be set until all schedulingGates have been cleared")
