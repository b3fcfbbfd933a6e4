"""Checks of what a Job says about failure and success of its pods.

Fed by `check_workloads`. The wording is the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.embedded.api.errors import FieldError, duplicate, invalid, required, unsupported
from windlass.embedded.api.names import label_key_problems
from windlass.model.unstructured import Unstructured

_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")


def failure_policy_errors(spec: Unstructured, path: str) -> Iterator[FieldError]:
    names = {
        each.get("name")
        for listed in ("containers", "initContainers")
        for each in spec["template"]["spec"].get(listed) or ()
    }
    for index, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or ()):
        where = f"{path}.podFailurePolicy.rules[{index}]"
        yield from _action_errors(rule, where, spec)
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
        if codes is not None:
            yield from _exit_code_errors(codes, f"{where}.onExitCodes", names)
        for number, pattern in enumerate(conditions):
            for problem in label_key_problems(pattern.get("type", "")):
                yield invalid(f"{where}.onPodConditions[{number}].type", pattern.get("type", ""), problem)
        if codes is not None and conditions:
            yield _about_rule(where, "specifying both OnExitCodes and OnPodConditions is not supported")
        if codes is None and not conditions:
            yield _about_rule(where, "specifying one of OnExitCodes and OnPodConditions is required")


def _about_rule(where: str, what: str) -> FieldError:
    return FieldError(where, "FieldValueInvalid", f"Invalid value: {what}")


def _action_errors(rule: Unstructured, where: str, spec: Unstructured) -> Iterator[FieldError]:
    action = rule.get("action", "")
    if not action:
        shown = " ".join(f'"{each}"' for each in _ACTIONS)
        yield required(f"{where}.action", f"valid values: [{shown}]")
    elif action not in _ACTIONS:
        yield unsupported(f"{where}.action", action, _ACTIONS)
    elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        yield invalid(f"{where}.action", action, "requires the backoffLimitPerIndex to be set")


def _exit_code_errors(codes: Unstructured, where: str, names: set[str]) -> Iterator[FieldError]:
    operator, values = codes.get("operator", ""), codes.get("values") or []
    if not operator:
        yield required(f"{where}.operator", 'valid values: ["In" "NotIn"]')
    elif operator not in _OPERATORS:
        yield unsupported(f"{where}.operator", operator, _OPERATORS)
    if codes.get("containerName") and codes["containerName"] not in names:
        what = "must be one of the container or initContainer names in the pod template"
        yield invalid(f"{where}.containerName", codes["containerName"], what)
    if not values:
        yield invalid(f"{where}.values", [], "at least one value is required")
    for index, value in enumerate(values):
        if value == 0 and operator == "In":
            yield invalid(f"{where}.values[{index}]", value, "must not be 0 for the In operator")
        elif value in values[:index]:
            yield duplicate(f"{where}.values[{index}]", value)


def success_policy_errors(spec: Unstructured, path: str) -> Iterator[FieldError]:
    policy = spec.get("successPolicy")
    if policy is None:
        return
    if spec.get("completionMode") != "Indexed":
        rules = [
            {"SucceededIndexes": each.get("succeededIndexes"), "SucceededCount": each.get("succeededCount")}
            for each in policy.get("rules") or ()
        ]
        yield invalid(f"{path}.successPolicy", {"Rules": rules}, "requires indexed completion mode")
        return
    where = f"{path}.successPolicy.rules"
    if not policy.get("rules"):
        yield required(where, "at least one rules must be specified when the successPolicy is specified")
    for index, rule in enumerate(policy.get("rules") or ()):
        count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
        if count is None and indexes is None:
            what = "at least one of succeededCount or succeededIndexes must be specified"
            yield required(f"{where}[{index}]", what)
        if count is not None and count < 0:
            yield invalid(f"{where}[{index}].succeededCount", count, "must be greater than or equal to 0")
        if indexes is not None:
            yield from _index_errors(indexes, f"{where}[{index}].succeededIndexes")


def _index_errors(indexes: str, where: str) -> Iterator[FieldError]:
    """Numbers and ranges: `0,3-5`."""
    for part in indexes.split(",") if indexes else ():
        for number in part.split("-"):
            if not number.isdigit():
                what = (
                    f'error parsing succeededIndexes: cannot convert string to integer for index: "{number}"'
                )
                yield invalid(where, indexes, what)
                return
