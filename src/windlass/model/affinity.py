"""Node selectors and node affinity, with kube-scheduler's meaning.

Pure functions on `model.pod` structs, one node at a time: the reference that the vectorised filter is tested against,
and what volumes and explanations use directly.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.model.errors import InputError
from windlass.model.labels import check_operator, check_value_count, unknown_operator
from windlass.model.pod import NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod
from windlass.model.taints import parse_integer

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
NAME_FIELD = "metadata.name"


def matches_required_node_affinity(pod: Pod, node_labels: Mapping[str, str], node_name: str) -> bool:
    """Both `spec.nodeSelector` and the required node affinity of the pod."""
    for key, value in pod.spec.node_selector.items():
        if node_labels.get(key) != value:
            return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return required is None or matches_node_selector(required, node_labels, node_name)


def matches_node_selector(selector: NodeSelector, node_labels: Mapping[str, str], node_name: str) -> bool:
    """Any of the terms; a selector without terms matches nothing."""
    return any(matches_node_term(term, node_labels, node_name) for term in selector.node_selector_terms)


def matches_node_term(term: NodeSelectorTerm, node_labels: Mapping[str, str], node_name: str) -> bool:
    """All expressions and all fields of the term; an empty term matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    return all(matches_requirement(part, node_labels) for part in term.match_expressions) and all(
        matches_requirement(part, {NAME_FIELD: node_name}) for part in term.match_fields
    )


def matches_requirement(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """One expression; Gt and Lt match only where both sides are integers."""
    operator = requirement.operator
    value = labels.get(requirement.key)
    if operator == "NotIn":
        return value is None or value not in requirement.values
    if operator == "DoesNotExist":
        return value is None
    if value is None:
        return False
    if operator == "In":
        return value in requirement.values
    if operator == "Exists":
        return True
    if operator in ("Gt", "Lt"):
        return _compares(operator, value, requirement.values)
    raise unknown_operator(operator, OPERATORS)


def _compares(operator: str, value: str, values: tuple[str, ...]) -> bool:
    number = parse_integer(value)
    bound = parse_integer(values[0]) if len(values) == 1 else None
    if number is None or bound is None:
        return False
    return number > bound if operator == "Gt" else number < bound


def check_node_affinity(affinity: NodeAffinity | None, path: str) -> None:
    """Raises an `InputError` that names the term which Kubernetes would refuse."""
    if affinity is None:
        return
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is not None:
        check_node_selector(required, f"{path}.requiredDuringSchedulingIgnoredDuringExecution")
    for index, preferred in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        where = f"{path}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        check_weight(preferred.weight, where)
        _check_term(preferred.preference, f"{where}.preference")


def check_node_selector(selector: NodeSelector, path: str) -> None:
    if not selector.node_selector_terms:
        raise InputError(
            "a required node selector needs at least one term",
            path=f"{path}.nodeSelectorTerms",
            remedy="add a term, or remove the selector",
        )
    for index, term in enumerate(selector.node_selector_terms):
        _check_term(term, f"{path}.nodeSelectorTerms[{index}]")


def check_weight(weight: int, where: str) -> None:
    if not 1 <= weight <= 100:
        raise InputError(f"weight {weight} is out of range", path=f"{where}.weight", remedy="use 1 to 100")


def _check_term(term: NodeSelectorTerm, path: str) -> None:
    for index, expression in enumerate(term.match_expressions):
        where = f"{path}.matchExpressions[{index}]"
        check_operator(expression.operator, OPERATORS, where)
        check_value_count(expression.operator, len(expression.values), where)
        _check_number(expression, where)
    for index, field in enumerate(term.match_fields):
        _check_field(field, f"{path}.matchFields[{index}]")


def _check_number(expression: NodeSelectorRequirement, where: str) -> None:
    if expression.operator not in ("Gt", "Lt"):
        return
    if len(expression.values) != 1 or parse_integer(expression.values[0]) is None:
        raise InputError(
            f"{expression.operator} compares with one integer, found {list(expression.values)}",
            path=f"{where}.values",
            remedy='write a single whole number in quotes, such as ["40000"]',
        )


def _check_field(field: NodeSelectorRequirement, where: str) -> None:
    if field.key != NAME_FIELD:
        raise InputError(
            f"nodes can't be selected by the field {field.key!r}", path=f"{where}.key", remedy=f"use {NAME_FIELD}"
        )
    check_operator(field.operator, ("In", "NotIn"), where)
    if len(field.values) != 1:
        raise InputError(
            f"a field is matched by exactly one value, found {len(field.values)}",
            path=f"{where}.values",
            remedy="write one term per node name",
        )
