"""Empties deleted namespaces; gives every other namespace its service account and the cluster's CA. Run by
`controller_manager`.
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.embedded.api.errors import ignore_api_errors
from windlass.embedded.api.timestamps import parse_time
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.controller_loop import AGAIN
from windlass.embedded.controllers.garbage_collector import AllKindsClient
from windlass.embedded.controllers.objects import condition, is_deleting, name_of, uid_of, with_condition
from windlass.model.unstructured import Unstructured

RETRY_SECONDS = 0.5
GRACE_SECONDS = 2.0
"""Delay before a namespace is emptied, since `kubectl delete -f` deletes the namespace first and then, by name, what is
in it. Kubernetes' controller waits five seconds."""
DELETIONS_A_TURN = 50
ROOT_CA_CONFIG_MAP = "kube-root-ca.crt"


class NamespaceController:
    name = "namespace-controller"
    resources = ("namespaces",)

    def __init__(self, client: AllKindsClient, cache: Cache) -> None:
        self._client, self._cache = client, cache

    def keys_for(self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None) -> Iterator[str]:
        if event_type != "DELETED" and is_deleting(new):
            yield name_of(new)

    def sync(self, key: str, now: float) -> float | None:
        namespace = self._cache.get("namespaces", key)
        if namespace is None or not is_deleting(namespace):
            return None
        start_at = parse_time(namespace["metadata"].get("deletionTimestamp")) + GRACE_SECONDS
        if now < start_at:
            return start_at
        remaining, is_complete = self._delete_content(key)
        if not is_complete:
            return AGAIN
        if remaining:
            self._write_condition(namespace, remaining, now)
            return now + RETRY_SECONDS
        spec = {**(namespace.get("spec") or {}), "finalizers": []}
        self._client.update("namespaces", "", key, {**namespace, "spec": spec}, "finalize")
        return None

    def _delete_content(self, name: str) -> tuple[dict[str, int], bool]:
        """Deletes what is inside; returns how many objects remain, by resource, and whether all were asked to go:
        everybody waits meanwhile, so that many go in parts."""
        remaining_by_resource: dict[str, int] = {}
        deletions = 0
        for resource in self._client.resources():
            if not self._client.kind(resource).namespaced:
                continue
            for obj in self._client.list(resource, name):
                if not is_deleting(obj):
                    if deletions == DELETIONS_A_TURN:
                        return {}, False
                    deletions += 1
                    with ignore_api_errors(404, 409):
                        self._client.delete(resource, name, name_of(obj), uid=uid_of(obj))
            remaining = len(self._client.list(resource, name))
            if remaining:
                remaining_by_resource[resource] = remaining
        return remaining_by_resource, True

    def _write_condition(self, namespace: Unstructured, remaining: dict[str, int], now: float) -> None:
        counts = [f"{resource} has {count} resource instances" for resource, count in remaining.items()]
        message = f"Some resources are remaining: {', '.join(counts)}"
        new = condition("NamespaceContentRemaining", "True", "SomeResourcesRemain", message)
        status = namespace.get("status") or {}
        conditions = with_condition(status.get("conditions") or (), new, now)
        if conditions != status.get("conditions"):
            merge = {"status": {"conditions": conditions}}
            self._client.patch("namespaces", "", name_of(namespace), merge, "status")


class ServiceAccountController:
    """Creates the service account `default` and the ConfigMap with the API server's CA in every namespace."""

    name = "serviceaccount-controller"
    resources = ("namespaces", "serviceaccounts", "configmaps")

    def __init__(self, client: Client, cache: Cache, ca: str = "") -> None:
        self._client, self._cache, self._ca = client, cache, ca

    def keys_for(self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None) -> Iterator[str]:
        if resource == "namespaces":
            yield name_of(new)
        elif name_of(new) in ("default", ROOT_CA_CONFIG_MAP):
            yield str(new["metadata"]["namespace"])

    def sync(self, key: str, now: float) -> float | None:
        namespace = self._cache.get("namespaces", key)
        if namespace is None or is_deleting(namespace):
            return None
        if self._cache.get("serviceaccounts", f"{key}/default") is None:
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            self._client.create("serviceaccounts", key, account)
        known = self._cache.get("configmaps", f"{key}/{ROOT_CA_CONFIG_MAP}")
        data = {"ca.crt": self._ca}
        if known is None:
            config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": ROOT_CA_CONFIG_MAP}}
            self._client.create("configmaps", key, {**config, "data": data})
        elif known.get("data") != data:
            self._client.patch("configmaps", key, ROOT_CA_CONFIG_MAP, {"data": data})
        return None
