"""ResourceQuota status: what is used, counted again whenever something that counts comes, goes or ends.

Admission keeps the count while objects are made (`api.quota.charge`); this gives back what is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from windlass.embedded.api.quota import usage
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.carry import Carrier
from windlass.embedded.controllers.garbage import Everything
from windlass.embedded.controllers.objects import Tree, key_of, namespace_of
from windlass.embedded.controllers.outcome import Outcome, Status
from windlass.embedded.controllers.pods import is_finished

RESOURCE = "resourcequotas"


class QuotaWorker:
    name = "resourcequota-controller"
    resources = (RESOURCE,)

    def __init__(self, verbs: Everything, cache: Cache) -> None:
        self._verbs, self._cache = verbs, cache
        self._carrier = Carrier(verbs, self.name)
        self._wake: Callable[[str], None] = lambda key: None
        self._stop: Callable[[], None] = lambda: None

    def start(self, wake: Callable[[str], None]) -> None:
        """Hear of every kind, since a quota may count any (`count/…`); `wake` puts a key into the loop's queue."""
        self._wake = wake
        self._stop = self._verbs.subscribe_all(self._hear)

    def stop(self) -> None:
        self._stop()

    def keys(self, resource: str, kind: str, new: Tree, old: Tree | None) -> Iterator[str]:
        yield key_of(new)

    def _hear(self, resource: str, kind: str, new: Tree, old: Tree | None) -> None:
        if kind == "MODIFIED" and not (
            resource == "pods" and old is not None and is_finished(new) != is_finished(old)
        ):
            return
        if resource in (RESOURCE, "events"):
            return
        for quota in self._cache.orphans(RESOURCE, namespace_of(new)):
            self._wake(key_of(quota))

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
        return self._verbs.list(resource, namespace)
