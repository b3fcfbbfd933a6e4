"""The ClusterRole aggregation controller: a ClusterRole with an aggregationRule gets the rules of all that it selects.

`controller_manager` creates it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windlass.embedded.api.selectors import matches_selector
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.objects import key_of, labels_of, name_of
from windlass.model.unstructured import Unstructured

RESOURCE = "clusterroles.rbac.authorization.k8s.io"


class RoleAggregationController:
    name = "clusterrole-aggregation-controller"
    resources: Sequence[str] = (RESOURCE,)

    def __init__(self, client: Client, cache: Cache) -> None:
        self._client, self._cache = client, cache

    def keys_for(self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None) -> Iterator[str]:
        yield from (key_of(role) for role in self._cache.all(RESOURCE) if role.get("aggregationRule"))

    def sync(self, key: str, now: float) -> float | None:
        role = self._cache.get(RESOURCE, key)
        if role is None or not role.get("aggregationRule"):
            return None
        rules = aggregated_rules(role, list(self._cache.all(RESOURCE)))
        if rules != (role.get("rules") or []):
            self._client.patch(RESOURCE, "", name_of(role), {"rules": rules})
        return None


def aggregated_rules(role: Unstructured, roles: Sequence[Unstructured]) -> list[Unstructured]:
    """The rules of the selected roles, in the order of their names, each once."""
    selectors = role["aggregationRule"].get("clusterRoleSelectors") or ()
    found: list[Unstructured] = []
    for other in sorted(roles, key=name_of):
        is_selected = any(matches_selector(selector, labels_of(other)) for selector in selectors)
        if is_selected and name_of(other) != name_of(role):
            found += [rule for rule in other.get("rules") or () if rule not in found]
    return found
