"""ResourceQuota status: usage, counted again whenever a counted object is created, deleted or finished.

Run by `controller_manager`. Admission charges quotas when objects are created (`api.resource_quota`); this
controller releases what is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from windlass.embedded.api.resource_quota import usage
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.executor import ActionExecutor
from windlass.embedded.controllers.garbage_collector import AllKindsClient
from windlass.embedded.controllers.objects import key_of, namespace_of
from windlass.embedded.controllers.pod_state import is_finished
from windlass.embedded.controllers.reconcile_result import ReconcileResult, UpdateStatus
from windlass.model.unstructured import Unstructured

RESOURCE = "resourcequotas"


class ResourceQuotaController:
    name = "resourcequota-controller"
    resources = (RESOURCE,)

    def __init__(self, client: AllKindsClient, cache: Cache) -> None:
        self._client, self._cache = client, cache
        self._executor = ActionExecutor(client, self.name)
        self._enqueue: Callable[[str], None] = lambda key: None
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self, enqueue: Callable[[str], None]) -> None:
        """Subscribes to every kind, since a quota may count any (`count/…`)."""
        self._enqueue = enqueue
        self._unsubscribe = self._client.subscribe_all(self._on_change)

    def stop(self) -> None:
        self._unsubscribe()

    def keys_for(self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None) -> Iterator[str]:
        yield key_of(new)

    def _on_change(self, resource: str, kind: str, new: Unstructured, old: Unstructured | None) -> None:
        if kind == "MODIFIED" and not (resource == "pods" and old is not None and is_finished(new) != is_finished(old)):
            return
        if resource in (RESOURCE, "events"):
            return
        for quota in self._cache.orphans(RESOURCE, namespace_of(new)):
            self._enqueue(key_of(quota))

    def sync(self, key: str, now: float) -> float | None:
        quota = self._cache.get(RESOURCE, key)
        if quota is None:
            return None
        status = {"hard": quota["spec"].get("hard") or {}, "used": usage(quota, self)}
        self._executor.execute(ReconcileResult((UpdateStatus(RESOURCE, quota, status),)), now)
        return None

    def get(self, resource: str, namespace: str, name: str) -> Unstructured | None:
        """For `usage`, which reads objects through this class."""
        return next((obj for obj in self.list(resource, namespace) if obj["metadata"]["name"] == name), None)

    def list(self, resource: str, namespace: str = "") -> list[Unstructured]:
        return self._client.list(resource, namespace)
