"""Matching labels by selectors, as Kubernetes means it.

Pure functions on `model.meta` structs; inter-pod affinity, topology spread and the embedded API server call them.
Selectors are checked once, when an object is decoded (`check_selector`), so matching itself trusts its operators.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.model.errors import InputError
from windlass.model.meta import LabelSelector, LabelSelectorRequirement

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def matches_selector(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """No selector matches nothing, an empty one matches everything."""
    if selector is None:
        return False
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    return all(matches_expression(expression, labels) for expression in selector.match_expressions)


def matches_expression(expression: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """`NotIn` and `DoesNotExist` also match where the label is absent."""
    operator = expression.operator
    value = labels.get(expression.key)
    if operator == "In":
        return value is not None and value in expression.values
    if operator == "NotIn":
        return value is None or value not in expression.values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    raise unknown_operator(operator, OPERATORS)


def check_selector(selector: LabelSelector | None, path: str) -> None:
    """Raises an `InputError` that names the expression which Kubernetes would refuse."""
    if selector is None:
        return
    for index, expression in enumerate(selector.match_expressions):
        where = f"{path}.matchExpressions[{index}]"
        check_operator(expression.operator, OPERATORS, where)
        check_value_count(expression.operator, len(expression.values), where)


def check_operator(operator: str, known: tuple[str, ...], where: str) -> None:
    if operator not in known:
        raise unknown_operator(operator, known).with_context(path=f"{where}.operator")


def check_value_count(operator: str, count: int, where: str) -> None:
    """In and NotIn need values, Exists and DoesNotExist take none."""
    if operator in ("In", "NotIn") and not count:
        raise InputError(f"{operator} needs at least one value", path=f"{where}.values", remedy="add a value")
    if operator in ("Exists", "DoesNotExist") and count:
        raise InputError(
            f"{operator} takes no values",
            path=f"{where}.values",
            remedy="remove the values, or use In or NotIn",
        )


def unknown_operator(operator: str, known: tuple[str, ...]) -> InputError:
    return InputError(f"unknown operator {operator!r}", remedy=f"use one of {', '.join(known)}")
