"""Label and field selectors of list and watch requests: parses text into a predicate on objects.

Used by `registry.selection` and the controllers' subresources. An invalid selector is a 400 with Kubernetes'
message. Parsed selectors are cached, since watchers and controllers use the same few again and again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from windlass.embedded.api.bounded_cache import bounded_cache
from windlass.embedded.api.errors import ApiError, FieldError, quoted
from windlass.embedded.api.json_trees import nested_value
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.names import label_key_problems, label_value_problems
from windlass.model.unstructured import Unstructured

Labels = Mapping[str, str]
Match = Callable[[Unstructured], bool]
_Requirement = Callable[[Labels], bool]

_TOKENS = re.compile(r"\s*(==|=|!=|!|,|\(|\)|<|>|[^\s=!,()<>]+)")


MAX_REQUIREMENTS = 200
"""Each is applied to every object of a list; the values of an `in` cost nothing more."""
_OPERATORS = ("=", "==", "!=", ",", "(", ")", "<", ">")


def label_selector(text: str) -> Match | None:
    """A predicate; None if everything matches."""
    requirements = parse_labels(text)
    if not requirements:
        return None

    def matches(obj: Unstructured) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(requirement(labels) for requirement in requirements)

    return matches


@bounded_cache(1024)
def parse_labels(text: str) -> tuple[_Requirement, ...]:
    """The requirements of `a=b,c in (d,e),!f`; all of them must hold."""
    tokens = _TOKENS.findall(text)
    requirements: list[_Requirement] = []
    position = 0
    while position < len(tokens):
        requirement, position = _requirement(tokens, position)
        requirements.append(requirement)
        if len(requirements) > MAX_REQUIREMENTS:
            raise ApiError.bad_request(f"a label selector may have at most {MAX_REQUIREMENTS} requirements")
        if position < len(tokens):
            if tokens[position] != ",":
                raise ApiError.bad_request(f"found '{tokens[position]}', expected: ',' or 'end of string'")
            position += 1
            if position == len(tokens) or tokens[position] in _OPERATORS:
                found = tokens[position] if position < len(tokens) else ""
                raise ApiError.bad_request(f"found '{found}', expected: identifier after ','")
    return tuple(requirements)


def _unparsable(detail: str) -> ApiError:
    return ApiError.bad_request(f"unable to parse requirement: {detail}")


def _requirement(tokens: list[str], position: int) -> tuple[_Requirement, int]:
    absent = tokens[position] == "!"
    position += absent
    key = tokens[position] if position < len(tokens) else ""
    if absent and (not key or key in ("!", *_OPERATORS)):
        raise _unparsable(f"found '{key}', expected: identifier")
    if key in _OPERATORS:
        raise ApiError.bad_request(f"found '{key}', expected: !, identifier, or 'end of string'")
    _raise_problems(label_key_problems(key), "<nil>", key)  # the API server has no better name for this field
    position += 1
    operator = tokens[position] if position < len(tokens) else ""
    if absent:
        return (lambda labels: key not in labels), position
    if operator in ("", ","):
        return (lambda labels: key in labels), position
    if operator in ("=", "==", "!="):
        value, position = _parse_value(tokens, position + 1)
        return _equality(key, operator, value), position
    if operator in ("in", "notin"):
        values, position = _parse_values(tokens, position + 1)
        for index, value in enumerate(values):
            _raise_problems(label_value_problems(value), f"values[{index}][{key}]", value)
        return _set_membership(key, frozenset(values), operator == "in"), position
    if operator in ("<", ">"):
        value, position = _parse_value(tokens, position + 1)
        return _comparison(key, operator, value), position
    raise _unparsable(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")


def _raise_problems(problems: list[str], field: str, value: str) -> None:
    if problems:
        error = FieldError(field, "FieldValueInvalid", f"Invalid value: {quoted(value)}: {'; '.join(problems)}")
        raise _unparsable(str(error))


def _parse_value(tokens: list[str], position: int) -> tuple[str, int]:
    if position >= len(tokens) or tokens[position] == ",":
        return "", position
    if tokens[position] in ("!", *_OPERATORS):
        raise _unparsable(f"found '{tokens[position]}', expected: identifier")
    return tokens[position], position + 1


def _parse_values(tokens: list[str], position: int) -> tuple[list[str], int]:
    if position >= len(tokens) or tokens[position] != "(":
        raise _unparsable(f"found '{tokens[position] if position < len(tokens) else ''}' expected: '('")
    values, position, expects_value = [], position + 1, True
    while position < len(tokens) and tokens[position] != ")":
        if tokens[position] == ",":
            if expects_value:
                values.append("")
            expects_value = True
        elif not expects_value:
            raise _unparsable(f"found '{tokens[position]}', expected: ',' or ')'")
        else:
            values.append(tokens[position])
            expects_value = False
        position += 1
    if position >= len(tokens):
        raise _unparsable("found '', expected: ',' or ')'")
    return values or [""], position + 1


def _equality(key: str, operator: str, value: str) -> _Requirement:
    _raise_problems(label_value_problems(value), f"values[0][{key}]", value)
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def _set_membership(key: str, values: frozenset[str], inside: bool) -> _Requirement:
    if inside:
        return lambda labels: labels.get(key) in values
    return lambda labels: labels.get(key) not in values


def _comparison(key: str, operator: str, value: str) -> _Requirement:
    limit = _parse_int(value)
    if limit is None:
        detail = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise _unparsable(f"values[0]: Invalid value: {quoted(value)}: {detail}")

    def holds(labels: Labels) -> bool:
        found = _parse_int(labels.get(key, ""))
        if found is None:
            return False
        return found > limit if operator == ">" else found < limit

    return holds


def _parse_int(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None


# ---- selectors inside objects


def matches_selector(selector: Mapping[str, Any] | None, labels: Labels) -> bool:
    """A LabelSelector of a spec: None matches nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expression(expression, labels) for expression in selector.get("matchExpressions") or ())


def _expression(expression: Mapping[str, Any], labels: Labels) -> bool:
    key, operator = expression.get("key", ""), expression.get("operator")
    values = expression.get("values") or ()
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    return (key in labels) == (operator == "Exists")


# ---- field selectors

_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_FIELDS: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "Pod"): (
        *("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
        *("spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName"),
    ),
    ("", "Node"): ("spec.unschedulable",),
    ("", "Namespace"): ("status.phase",),
    ("", "Secret"): ("type",),
    ("", "Service"): ("spec.clusterIP", "spec.type"),
    ("", "Event"): (
        *(f"involvedObject.{field}" for field in _INVOLVED),
        *("reason", "reportingComponent", "source", "type"),
    ),
    ("events.k8s.io", "Event"): (
        *(f"regarding.{field}" for field in _INVOLVED),
        *("reason", "reportingController", "type"),
    ),
    ("apps", "ReplicaSet"): ("status.replicas",),
    ("batch", "Job"): ("status.successful",),
}
_BOOLEANS = {"spec.unschedulable", "spec.hostNetwork"}
_NUMBERS = {"status.successful", "status.replicas"}
_RENAMED = {"status.successful": "status.succeeded", "reportingController": "reportingComponent"}


def field_selector(text: str, kind: Kind, selectable: tuple[str, ...] = ()) -> Match | None:
    """A predicate on stored objects; None if everything matches. `selectable`: more paths, of a custom kind."""
    if not text:
        return None
    parts = _split_fields(text)
    if len(parts) > MAX_REQUIREMENTS:
        raise ApiError.bad_request(f"a field selector may have at most {MAX_REQUIREMENTS} requirements")
    terms = [_term(kind, selectable, *part) for part in parts]
    return lambda obj: all(term(obj) for term in terms)


@bounded_cache(1024)
def _split_fields(text: str) -> tuple[tuple[str, str, str], ...]:
    """`a=b,c!=d` as (path, operator, value); a backslash escapes a comma, an equals sign or a backslash."""
    terms = []
    for part in re.findall(r"(?:\\.|[^,\\])+", text):
        match = re.fullmatch(r"((?:\\.|[^=!\\])*)(==|!=|=)((?:\\[,=\\]|[^,=\\])*)", part)
        if match is None:
            raise ApiError.bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        path, operator, value = match.groups()
        terms.append((path, operator, re.sub(r"\\(.)", r"\1", value)))
    return tuple(terms)


def _term(kind: Kind, selectable: tuple[str, ...], path: str, operator: str, value: str) -> Match:
    known = _FIELDS.get((kind.group, kind.kind))
    if path not in ("metadata.name", "metadata.namespace", *(known or ()), *selectable):
        if kind.group == "batch":
            raise ApiError.bad_request(f'field label "{path}" not supported for {kind.kind}')
        if known is None and not kind.custom:
            raise ApiError.bad_request(
                f'{quoted(path)} is not a known field selector: only "metadata.name", "metadata.namespace"'
            )
        raise ApiError.bad_request(f"field label not supported: {path}")
    read = _reader(path)
    if operator == "!=":
        return lambda obj: read(obj) != value
    return lambda obj: read(obj) == value


def _reader(path: str) -> Callable[[Unstructured], str]:
    if path == "status.podIPs":
        return lambda obj: str(nested_value(obj, "status", "podIP") or "")
    if path == "source":
        return lambda obj: str(nested_value(obj, "source", "component") or obj.get("reportingComponent") or "")
    names = _RENAMED.get(path, path).replace("regarding.", "involvedObject.").split(".")
    zero = "false" if path in _BOOLEANS else "0" if path in _NUMBERS else ""

    def read(obj: Unstructured) -> str:
        found = nested_value(obj, *names)
        if found is None:
            return zero
        return str(found).lower() if isinstance(found, bool) else str(found)

    return read
