"""RBAC as pure functions: what a rule allows, whether rules cover others, which subjects a binding names, what a
request does.

`server.authorization` applies them to the stored roles and bindings. The rules are Kubernetes' own: there are only
permissions, no denials, and nobody may grant what they don't have.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from windlass.model.unstructured import Unstructured

RBAC_GROUP = "rbac.authorization.k8s.io"
ALL = "*"
MASTERS = "system:masters"
"""The group that may do everything, whatever the roles say."""
MAX_COVERED = 50_000
"""Combinations of verb, group and resource of one rule that are compared."""
_NAMESPACE_SUBRESOURCES = ("status", "finalize")
_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """What a request does: a verb on a resource, or on a path that is about none."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def combined_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def request_attributes(method: str, path: str, query: Mapping[str, str]) -> Attributes:
    """What a request asks for, by its path alone, as Kubernetes reads it."""
    parts = [part for part in path.split("/") if part]
    start = {"api": 2, "apis": 3}.get(parts[0] if parts else "", math.inf)
    if len(parts) <= start:
        return Attributes(verb=method.lower(), path=path)
    rest, verb = parts[int(start) :], _VERBS.get(method, method.lower())
    if rest[0] == "watch" and len(rest) > 1:  # the deprecated path
        rest, verb = rest[1:], "watch" if verb == "get" else verb
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
            rest = rest[2:]
    resource, name, subresource = (*rest, "", "")[:3]
    if not name:
        verb = {"get": "watch" if _is_set(query.get("watch")) else "list", "delete": "deletecollection"}.get(verb, verb)
        name = _selected_name(query.get("fieldSelector", ""))
    group = parts[1] if start == 3 else ""
    return Attributes(
        verb=verb, group=group, resource=resource, subresource=subresource, namespace=namespace, name=name
    )


def _is_set(value: str | None) -> bool:
    return value is not None and value.lower() not in ("false", "0")


def _selected_name(selector: str) -> str:
    for term in selector.split(","):
        path, equals, name = term.partition("=")
        if path == "metadata.name" and equals:
            return name.removeprefix("=")
    return ""


def rule_allows(rule: Unstructured, attributes: Attributes) -> bool:
    if not _has(rule.get("verbs"), attributes.verb):
        return False
    if attributes.path:
        return any(_path_matches(path, attributes.path) for path in rule.get("nonResourceURLs") or ())
    names = rule.get("resourceNames") or ()
    return (
        _has(rule.get("apiGroups"), attributes.group)
        and _resource_matches(rule.get("resources") or (), attributes.combined_resource, attributes.subresource)
        and (not names or attributes.name in names)
    )


def _has(values: Sequence[str] | None, value: str) -> bool:
    return values is not None and (ALL in values or value in values)


def _resource_matches(resources: Sequence[str], combined: str, subresource: str) -> bool:
    return ALL in resources or combined in resources or bool(subresource and f"*/{subresource}" in resources)


def _path_matches(pattern: str, path: str) -> bool:
    return pattern in (ALL, path) or (pattern.endswith(ALL) and path.startswith(pattern[:-1]))


def uncovered(owned: Iterable[Unstructured], wanted: Iterable[Unstructured]) -> str:
    """What of the wanted rules goes beyond the owned ones, in words; empty if nothing does."""
    owned = list(owned)
    for rule in wanted:
        verbs, names = rule.get("verbs") or (), rule.get("resourceNames") or ("",)
        parts = (rule.get("apiGroups") or (), rule.get("resources") or (), rule.get("nonResourceURLs") or ())
        if len(verbs) * len(names) * (len(parts[0]) * len(parts[1]) + len(parts[2])) > MAX_COVERED:
            return "a rule has too many combinations to compare"
        for attributes in _atoms(verbs, names, *parts):
            if not any(rule_allows(mine, attributes) for mine in owned):  # a `*` is covered by a `*` only
                return _describe(attributes)
    return ""


def _atoms(
    verbs: Sequence[str], names: Sequence[str], groups: Sequence[str], resources: Sequence[str], paths: Sequence[str]
) -> Iterator[Attributes]:
    for verb, group, resource, name in itertools.product(verbs, groups, resources, names):
        main, _, sub = resource.partition("/")
        yield Attributes(verb=verb, group=group, resource=main, subresource=sub, name=name)
    for verb, path in itertools.product(verbs, paths):
        yield Attributes(verb=verb, path=path)


def _describe(attributes: Attributes) -> str:
    if attributes.path:
        return f'{{NonResourceURLs:["{attributes.path}"], Verbs:["{attributes.verb}"]}}'
    names = f', ResourceNames:["{attributes.name}"]' if attributes.name else ""
    return (
        f'{{APIGroups:["{attributes.group}"], Resources:["{attributes.combined_resource}"]{names}, '
        f'Verbs:["{attributes.verb}"]}}'
    )


def names_user(binding: Unstructured, name: str, groups: Sequence[str]) -> bool:
    """Whether one of its subjects is the user, a group of theirs, or their service account."""
    own = binding["metadata"].get("namespace", "")
    for subject in binding.get("subjects") or ():
        kind, subject_name = subject.get("kind"), subject.get("name", "")
        if kind == "User" and subject_name == name:
            return True
        if kind == "Group" and subject_name in groups:
            return True
        if kind == "ServiceAccount":
            namespace = subject.get("namespace") or own
            if name == f"system:serviceaccount:{namespace}:{subject_name}":
                return True
    return False
