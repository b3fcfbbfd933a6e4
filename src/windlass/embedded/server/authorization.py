"""Authorisation: which requests the stored roles and bindings allow a user.

`server` asks for every request, `reviews` for `kubectl auth can-i`, and `write_handlers` before a role is written
or a binding: nobody may grant what they don't have, unless they have the verb `escalate` or `bind`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.rbac import (
    ALL,
    MASTERS,
    RBAC_GROUP,
    Attributes,
    names_user,
    rule_allows,
    uncovered,
)
from windlass.embedded.registry.registry import Registry
from windlass.embedded.server.authentication import User
from windlass.model.unstructured import Unstructured

_EVERYTHING = (
    {"verbs": [ALL], "apiGroups": [ALL], "resources": [ALL]},
    {"verbs": [ALL], "nonResourceURLs": [ALL]},
)
_CLUSTER_ROLES, _ROLES = f"clusterroles.{RBAC_GROUP}", f"roles.{RBAC_GROUP}"
_CLUSTER_BINDINGS, _BINDINGS = f"clusterrolebindings.{RBAC_GROUP}", f"rolebindings.{RBAC_GROUP}"


class Authorizer:
    def __init__(self, registry: Registry) -> None:
        self._store = registry.store

    def check(self, user: User, attributes: Attributes) -> None:
        """Raises a 403 with Kubernetes' words unless it is allowed."""
        if not self.allows(user, attributes):
            raise forbidden(user, attributes)

    def allows(self, user: User, attributes: Attributes) -> bool:
        return MASTERS in user.groups or any(
            rule_allows(rule, attributes) for rule in self.rules(user, attributes.namespace)
        )

    def rules(self, user: User, namespace: str) -> Iterator[Unstructured]:
        """All rules that hold for a user in a namespace, and everywhere."""
        if MASTERS in user.groups:
            yield from _EVERYTHING
            return
        for stored in self._store.storage(_CLUSTER_BINDINGS).list_current():
            if names_user(stored.tree, user.name, user.groups):
                yield from self._role_rules(stored.tree["roleRef"], "")
        if namespace:
            for stored in self._store.storage(_BINDINGS).list_current(namespace):
                if names_user(stored.tree, user.name, user.groups):
                    yield from self._role_rules(stored.tree["roleRef"], namespace)

    def check_grant(self, user: User, kind: Kind, new: Unstructured, old: Unstructured | None) -> None:
        """Raises a 403 if a role or a binding gives more than its writer has."""
        if MASTERS in user.groups or kind.group != RBAC_GROUP:
            return
        namespace, name = new["metadata"].get("namespace", ""), new["metadata"].get("name", "")
        granted, verb = self._grant(new, namespace)
        if old is not None and self._grant(old, namespace)[0] == granted and old.get("subjects") == new.get("subjects"):
            return
        role_kind = "clusterroles" if kind.plural == "clusterroles" else "roles"
        target_name = name
        if verb == "bind":
            role_kind = "clusterroles" if new["roleRef"]["kind"] == "ClusterRole" else "roles"
            target_name = new["roleRef"]["name"]
        special = Attributes(verb=verb, group=RBAC_GROUP, resource=role_kind, namespace=namespace, name=target_name)
        if self.allows(user, special):
            return
        missing = uncovered(self.rules(user, namespace), granted)
        if missing:
            reason = f'user "{user.name}" (groups={list(user.groups)}) is attempting to grant RBAC permissions not '
            raise ApiError.forbidden(kind, name, f"{reason}currently held:\n{missing}".replace("'", '"'))

    def _grant(self, tree: Unstructured, namespace: str) -> tuple[Sequence[Unstructured], str]:
        """The rules that an object gives, and the verb that allows to write it without having them."""
        if "roleRef" in tree:
            return list(self._role_rules(tree["roleRef"], namespace)), "bind"
        return _EVERYTHING if tree.get("aggregationRule") else tree.get("rules") or (), "escalate"

    def _role_rules(self, reference: Unstructured, namespace: str) -> Sequence[Unstructured]:
        is_cluster_role = reference.get("kind") == "ClusterRole"
        key = ("" if is_cluster_role else namespace, str(reference.get("name", "")))
        stored = self._store.storage(_CLUSTER_ROLES if is_cluster_role else _ROLES).items.get(key)
        return (stored.tree.get("rules") or ()) if stored is not None else ()


def forbidden(user: User, attributes: Attributes) -> ApiError:
    if attributes.path:
        message = f'forbidden: User "{user.name}" cannot {attributes.verb} path "{attributes.path}"'
        return ApiError(403, "Forbidden", message, {})
    resource, name = attributes.resource, attributes.name
    subject = f"{resource}.{attributes.group}" if attributes.group else resource
    where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    message = (
        f'{subject}{f" {chr(34)}{name}{chr(34)}" if name else ""} is forbidden: User "{user.name}" cannot '
        f'{attributes.verb} resource "{attributes.combined_resource}" in API group "{attributes.group}" {where}'
    )
    details = {"name": name, "group": attributes.group, "kind": resource}
    return ApiError(403, "Forbidden", message, {key: value for key, value in details.items() if value})
