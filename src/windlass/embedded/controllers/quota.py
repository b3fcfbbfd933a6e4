"""ResourceQuota status: what is used, counted again whenever something that counts comes, goes or ends.

Admission keeps the count while objects are made (`api.quota.charge`); this gives back what is gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.embedded.api.quota import usage
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.carry import Carrier
from windlass.embedded.controllers.doors import Door
from windlass.embedded.controllers.objects import Tree, key_of, namespace_of
from windlass.embedded.controllers.outcome import Outcome, Status
from windlass.embedded.controllers.pods import is_finished

RESOURCE = "resourcequotas"
_COUNTED = (
    "pods",
    "services",
    "persistentvolumeclaims",
    "configmaps",
    "secrets",
    "jobs.batch",
    "deployments.apps",
    "replicasets.apps",
    "statefulsets.apps",
)


class QuotaWorker:
    name = "resourcequota-controller"
    resources = (RESOURCE, *_COUNTED)

    def __init__(self, door: Door, cache: Cache) -> None:
        self._door, self._cache = door, cache
        self._carrier = Carrier(door, self.name)

    def keys(self, resource: str, kind: str, new: Tree, old: Tree | None) -> Iterator[str]:
        if resource == RESOURCE:
            yield key_of(new)
        elif kind != "MODIFIED" or (
            resource == "pods" and old is not None and is_finished(new) != is_finished(old)
        ):
            quotas = self._cache.orphans(RESOURCE, namespace_of(new))
            yield from (key_of(quota) for quota in quotas)

    def work(self, key: str, now: float) -> float | None:
        quota = self._cache.get(RESOURCE, key)
        if quota is None:
            return None
        status = {"hard": quota["spec"].get("hard") or {}, "used": usage(quota, self)}
        self._carrier.carry_out(Outcome((Status(RESOURCE, quota, status),)), now)
        return None

    def get(self, resource: str, namespace: str, name: str) -> Tree | None:
        """For `usage`, which looks things up here."""
        return next(
            (each for each in self.list(resource, namespace) if each["metadata"]["name"] == name), None
        )

    def list(self, resource: str, namespace: str = "") -> list[Tree]:
        return self._door.list(resource, namespace)
