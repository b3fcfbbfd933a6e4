"""The printed roles for a user of the tests: all of them, or all but one right; and what the scheduler asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.real_cluster.api import Api, Object, until

from windlass.cli.install_manifests import InstallOptions, manifests

Right = tuple[str, str, str]
"""API group, resource, verb."""
USER = "scheduler-under-test"
REQUEST = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (/\S+) (\{.*\}) → (\d+)")
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def granted(rules: list[dict[str, Any]]) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def asked(log: str) -> Iterator[tuple[Right, int]]:
    """What the scheduler sent, as rights, with the answers."""
    for method, path, query, code in REQUEST.findall(log):
        parts = path.strip("/").split("/")
        if len(parts) <= 3 and "namespaces" not in parts and parts[0] == "apis":
            continue  # discovery is everybody's
        if parts == ["api", "v1"]:
            continue
        group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
        if rest[0] == "namespaces" and len(rest) > 2:
            rest = rest[2:]
        resource = "/".join([rest[0], *rest[2:]])
        verb = VERBS.get(method) or ("watch" if "'watch'" in query else "get" if len(rest) > 1 else "list")
        yield (group, resource, verb), int(code)
        if method == "PATCH" and code == "201":  # what is applied and isn't there yet is created, which is a right, too
            yield (group, resource, "create"), int(code)


class Roles:
    """The roles that `windlass install` prints, bound to the user of the tests."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._roles = [one for one in manifests(InstallOptions()) if one["kind"] in ("ClusterRole", "Role")]
        for one in manifests(InstallOptions()):
            if one["kind"] in ("Namespace", "ClusterRole", "Role"):
                api.create(one)
            elif one["kind"] in ("ClusterRoleBinding", "RoleBinding"):
                subject = {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
                api.create({**one, "subjects": [subject]})
        for right in self.rights:
            until(lambda right=right: self._is_allowed(right), what=f"{right} is given")

    @property
    def rights(self) -> list[Right]:
        return sorted({right for one in self._roles for right in granted(one["rules"])})

    def without(self, right: Right | None) -> None:
        """From now on the user has all rights but this one; returns when the API server sees it so."""
        for one in self._roles:
            path = self._api.path_of(one)
            self._api.put(path, {**_less(one, right), "metadata": self._api.get(path)["metadata"]})
        for other in self.rights:
            if other == right or other[:2] == (right or ("", ""))[:2]:
                until(lambda other=other: self._is_allowed(other) == (other != right), what=str(other))

    def back(self, right: Right) -> None:
        """All rights again; returns when the API server sees it so."""
        self.without(None)
        until(lambda: self._is_allowed(right), what=f"{right} is back")

    def _is_allowed(self, right: Right) -> bool:
        group, resource, verb = right
        what, _, sub = resource.partition("/")
        attributes = {"group": group, "resource": what, "subresource": sub, "verb": verb}
        return any(self._may(attributes | scope) for scope in self._scopes(right))

    def _scopes(self, right: Right) -> list[dict[str, str]]:
        """Where a right holds: everywhere, or for names and in a namespace that its rule says."""
        scopes: list[dict[str, str]] = []
        for one in self._roles:
            inside = {"namespace": one["metadata"]["namespace"]} if one["kind"] == "Role" else {}
            for rule in one["rules"]:
                if right in granted([rule]):
                    scopes += [inside | {"name": name} for name in rule.get("resourceNames", [""])]
        return scopes

    def _may(self, attributes: dict[str, str]) -> bool:
        question = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
        body = {**question, "spec": {"user": USER, "resourceAttributes": attributes}}
        answer = self._api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        return bool(answer["status"]["allowed"])


def _less(role: Object, without: Right | None) -> Object:
    if without is None:
        return role
    group, resource, verb = without
    rules = []
    for rule in role["rules"]:
        for each in rule["resources"]:
            verbs = [one for one in rule["verbs"] if (rule["apiGroups"][0], each, one) != (group, resource, verb)]
            rules += [{**rule, "resources": [each], "verbs": verbs}] if verbs else []
    return {**role, "rules": rules}
