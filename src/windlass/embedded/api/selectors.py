"""Label and field selectors of list and watch requests: text in, a function on objects out.

Fed by the server and the in-process verbs (`selector=…, fields=…`). A bad selector is a 400 with Kubernetes' words.
Parsed selectors are kept: watchers and controllers ask the same few over and over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from windlass.embedded.api.errors import ApiError, FieldError, quoted
from windlass.embedded.api.json_trees import nested_value
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.names import label_key_problems, label_value_problems
from windlass.model.unstructured import Unstructured

Labels = Mapping[str, str]
Match = Callable[[Unstructured], bool]
_Requirement = Callable[[Labels], bool]

_TOKENS = re.compile(r"\s*(==|=|!=|!|,|\(|\)|<|>|[^\s=!,()<>]+)")


_SIGNS = ("=", "==", "!=", ",", "(", ")", "<", ">")


def label_selector(text: str) -> Match | None:
    """A function on objects; none where everything matches."""
    requirements = parse_labels(text)
    if not requirements:
        return None

    def matches(obj: Unstructured) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(each(labels) for each in requirements)

    return matches


@lru_cache(maxsize=1024)
def parse_labels(text: str) -> tuple[_Requirement, ...]:
    """The requirements of `a=b,c in (d,e),!f`; all of them must hold."""
    tokens = _TOKENS.findall(text)
    requirements: list[_Requirement] = []
    at = 0
    while at < len(tokens):
        requirement, at = _requirement(tokens, at)
        requirements.append(requirement)
        if at < len(tokens):
            if tokens[at] != ",":
                raise ApiError.bad_request(f"found '{tokens[at]}', expected: ',' or 'end of string'")
            at += 1
            if at == len(tokens) or tokens[at] in _SIGNS:
                found = tokens[at] if at < len(tokens) else ""
                raise ApiError.bad_request(f"found '{found}', expected: identifier after ','")
    return tuple(requirements)


def _unparsable(what: str) -> ApiError:
    return ApiError.bad_request(f"unable to parse requirement: {what}")


def _requirement(tokens: list[str], at: int) -> tuple[_Requirement, int]:
    absent = tokens[at] == "!"
    at += absent
    key = tokens[at] if at < len(tokens) else ""
    if absent and (not key or key in ("!", *_SIGNS)):
        raise _unparsable(f"found '{key}', expected: identifier")
    if key in _SIGNS:
        raise ApiError.bad_request(f"found '{key}', expected: !, identifier, or 'end of string'")
    _check(label_key_problems(key), "<nil>", key)  # the API server has no better name for it
    at += 1
    operator = tokens[at] if at < len(tokens) else ""
    if absent:
        return (lambda labels: key not in labels), at
    if operator in ("", ","):
        return (lambda labels: key in labels), at
    if operator in ("=", "==", "!="):
        value, at = _exact(tokens, at + 1)
        return _compared(key, operator, value), at
    if operator in ("in", "notin"):
        values, at = _values(tokens, at + 1)
        for value in values:
            _check(label_value_problems(value), f"values[{values.index(value)}][{key}]", value)
        return _among(key, frozenset(values), operator == "in"), at
    if operator in ("<", ">"):
        value, at = _exact(tokens, at + 1)
        return _ordered(key, operator, value), at
    raise _unparsable(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")


def _check(problems: list[str], field: str, value: str) -> None:
    if problems:
        error = FieldError(
            field, "FieldValueInvalid", f"Invalid value: {quoted(value)}: {'; '.join(problems)}"
        )
        raise _unparsable(str(error))


def _exact(tokens: list[str], at: int) -> tuple[str, int]:
    if at >= len(tokens) or tokens[at] == ",":
        return "", at
    if tokens[at] in ("!", *_SIGNS):
        raise _unparsable(f"found '{tokens[at]}', expected: identifier")
    return tokens[at], at + 1


def _values(tokens: list[str], at: int) -> tuple[list[str], int]:
    if at >= len(tokens) or tokens[at] != "(":
        raise _unparsable(f"found '{tokens[at] if at < len(tokens) else ''}' expected: '('")
    values, at, fresh = [], at + 1, True
    while at < len(tokens) and tokens[at] != ")":
        if tokens[at] == ",":
            if fresh:
                values.append("")
            fresh = True
        elif not fresh:
            raise _unparsable(f"found '{tokens[at]}', expected: ',' or ')'")
        else:
            values.append(tokens[at])
            fresh = False
        at += 1
    if at >= len(tokens):
        raise _unparsable("found '', expected: ',' or ')'")
    return values or [""], at + 1


def _compared(key: str, operator: str, value: str) -> _Requirement:
    _check(label_value_problems(value), f"values[0][{key}]", value)
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def _among(key: str, values: frozenset[str], inside: bool) -> _Requirement:
    if inside:
        return lambda labels: labels.get(key) in values
    return lambda labels: labels.get(key) not in values


def _ordered(key: str, operator: str, value: str) -> _Requirement:
    limit = _whole(value)
    if limit is None:
        what = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise _unparsable(f"values[0]: Invalid value: {quoted(value)}: {what}")

    def holds(labels: Labels) -> bool:
        found = _whole(labels.get(key, ""))
        if found is None:
            return False
        return found > limit if operator == ">" else found < limit

    return holds


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None


# ---- selectors inside objects


def matches_selector(selector: Mapping[str, Any] | None, labels: Labels) -> bool:
    """A LabelSelector of a spec: none matches nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expression(each, labels) for each in selector.get("matchExpressions") or ())


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
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ),
    ("", "Node"): ("spec.unschedulable",),
    ("", "Namespace"): ("status.phase",),
    ("", "Secret"): ("type",),
    ("", "Service"): ("spec.clusterIP", "spec.type"),
    ("", "Event"): (
        *(f"involvedObject.{each}" for each in _INVOLVED),
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    ("events.k8s.io", "Event"): (
        *(f"regarding.{each}" for each in _INVOLVED),
        "reason",
        "reportingController",
        "type",
    ),
    ("apps", "ReplicaSet"): ("status.replicas",),
    ("batch", "Job"): ("status.successful",),
}
_BOOLEANS = {"spec.unschedulable", "spec.hostNetwork"}
_NUMBERS = {"status.successful", "status.replicas"}
_RENAMED = {"status.successful": "status.succeeded", "reportingController": "reportingComponent"}


def field_selector(text: str, kind: Kind, selectable: tuple[str, ...] = ()) -> Match | None:
    """A function on stored objects; none where everything matches. `selectable`: more paths, from a custom kind."""
    if not text:
        return None
    terms = [_term(kind, selectable, *each) for each in _split_fields(text)]
    return lambda obj: all(each(obj) for each in terms)


@lru_cache(maxsize=1024)
def _split_fields(text: str) -> tuple[tuple[str, str, str], ...]:
    """`a=b,c!=d` as (path, operator, value); a backslash frees a comma, an equals sign or a backslash."""
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
        return lambda obj: str(
            nested_value(obj, "source", "component") or obj.get("reportingComponent") or ""
        )
    names = _RENAMED.get(path, path).replace("regarding.", "involvedObject.").split(".")
    zero = "false" if path in _BOOLEANS else "0" if path in _NUMBERS else ""

    def read(obj: Unstructured) -> str:
        found = nested_value(obj, *names)
        if found is None:
            return zero
        return str(found).lower() if isinstance(found, bool) else str(found)

    return read
