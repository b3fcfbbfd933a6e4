"""Validation of a Job's podFailurePolicy and successPolicy.

Called by `validate_workloads`. Messages are the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.embedded.api.errors import FieldError, duplicate, invalid, required, unsupported
from windlass.embedded.api.field_checks import minimum_errors, problem_errors
from windlass.embedded.api.names import label_key_problems
from windlass.model.digits import is_digits
from windlass.model.unstructured import Unstructured

_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")


def failure_policy_errors(spec: Unstructured, path: str) -> Iterator[FieldError]:
    names = {
        container.get("name")
        for field in ("containers", "initContainers")
        for container in spec["template"]["spec"].get(field) or ()
    }
    for index, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or ()):
        itempath = f"{path}.podFailurePolicy.rules[{index}]"
        yield from _action_errors(rule, itempath, spec)
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
        if codes is not None:
            yield from _exit_code_errors(codes, f"{itempath}.onExitCodes", names)
        for number, pattern in enumerate(conditions):
            where = f"{itempath}.onPodConditions[{number}].type"
            yield from problem_errors(where, pattern.get("type", ""), label_key_problems)
        if codes is not None and conditions:
            yield _itemerror(itempath, "specifying both OnExitCodes and OnPodConditions is not supported")
        if codes is None and not conditions:
            yield _itemerror(itempath, "specifying one of OnExitCodes and OnPodConditions is required")


def _itemerror(path: str, detail: str) -> FieldError:
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {detail}")


def _action_errors(rule: Unstructured, path: str, spec: Unstructured) -> Iterator[FieldError]:
    action = rule.get("action", "")
    if not action:
        choices = " ".join(f'"{choice}"' for choice in _ACTIONS)
        yield required(f"{path}.action", f"valid values: [{choices}]")
    elif action not in _ACTIONS:
        yield unsupported(f"{path}.action", action, _ACTIONS)
    elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        yield invalid(f"{path}.action", action, "requires the backoffLimitPerIndex to be set")


def _exit_code_errors(codes: Unstructured, path: str, names: set[str]) -> Iterator[FieldError]:
    operator, values = codes.get("operator", ""), codes.get("values") or []
    if not operator:
        yield required(f"{path}.operator", 'valid values: ["In" "NotIn"]')
    elif operator not in _OPERATORS:
        yield unsupported(f"{path}.operator", operator, _OPERATORS)
    if codes.get("containerName") and codes["containerName"] not in names:
        detail = "must be one of the container or initContainer names in the pod template"
        yield invalid(f"{path}.containerName", codes["containerName"], detail)
    if not values:
        yield invalid(f"{path}.values", [], "at least one value is required")
    for index, value in enumerate(values):
        if value == 0 and operator == "In":
            yield invalid(f"{path}.values[{index}]", value, "must not be 0 for the In operator")
        elif value in values[:index]:
            yield duplicate(f"{path}.values[{index}]", value)


def success_policy_errors(spec: Unstructured, path: str) -> Iterator[FieldError]:
    policy = spec.get("successPolicy")
    if policy is None:
        return
    if spec.get("completionMode") != "Indexed":
        rules = [
            {"SucceededIndexes": item.get("succeededIndexes"), "SucceededCount": item.get("succeededCount")}
            for item in policy.get("rules") or ()
        ]
        yield invalid(f"{path}.successPolicy", {"Rules": rules}, "requires indexed completion mode")
        return
    where = f"{path}.successPolicy.rules"
    if not policy.get("rules"):
        yield required(where, "at least one rules must be specified when the successPolicy is specified")
    for index, rule in enumerate(policy.get("rules") or ()):
        count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
        if count is None and indexes is None:
            detail = "at least one of succeededCount or succeededIndexes must be specified"
            yield required(f"{where}[{index}]", detail)
        yield from minimum_errors(rule, "succeededCount", f"{where}[{index}]")
        if indexes is not None:
            yield from _index_errors(indexes, f"{where}[{index}].succeededIndexes")


def _index_errors(indexes: str, path: str) -> Iterator[FieldError]:
    """Numbers and ranges: `0,3-5`."""
    for part in indexes.split(",") if indexes else ():
        for number in part.split("-"):
            if not is_digits(number):
                why = f'cannot convert string to integer for index: "{number}"'
                yield invalid(path, indexes, f"error parsing succeededIndexes: {why}")
                return
