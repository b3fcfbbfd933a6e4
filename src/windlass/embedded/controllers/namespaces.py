"""Namespaces that are deleted are emptied first; every living one has its service account and the cluster's CA."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind
from windlass.embedded.controllers.cache import Cache
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.objects import is_deleting, name_of, parse_time, uid_of, with_condition
from windlass.model.unstructured import Unstructured

RETRY_SECONDS = 0.5
GRACE_SECONDS = 2.0
"""Before a namespace is emptied: `kubectl delete -f` deletes it first and then, by name, what the file has inside.
Kubernetes' controller waits five."""
ROOT_CA_CONFIG_MAP = "kube-root-ca.crt"


class Discovery(Protocol):
    """What is served, besides the verbs themselves."""

    def resources(self) -> Sequence[str]: ...

    def kind(self, resource: str) -> Kind: ...


class NamespaceController:
    name = "namespace-controller"
    resources = ("namespaces",)

    def __init__(self, client: Client, discovery: Discovery, cache: Cache) -> None:
        self._door, self._catalogue, self._cache = client, discovery, cache

    def keys_for(
        self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None
    ) -> Iterator[str]:
        if event_type != "DELETED" and is_deleting(new):
            yield name_of(new)

    def sync(self, key: str, now: float) -> float | None:
        namespace = self._cache.get("namespaces", key)
        if namespace is None or not is_deleting(namespace):
            return None
        begins = parse_time(namespace["metadata"].get("deletionTimestamp")) + GRACE_SECONDS
        if now < begins:
            return begins
        left = self._empty(key)
        if left:
            self._tell(namespace, left, now)
            return now + RETRY_SECONDS
        spec = {**(namespace.get("spec") or {}), "finalizers": []}
        self._door.update("namespaces", "", key, {**namespace, "spec": spec}, "finalize")
        return None

    def _empty(self, name: str) -> dict[str, int]:
        """Delete everything inside; returns what has not gone at once, by resource."""
        left: dict[str, int] = {}
        for resource in self._catalogue.resources():
            if not self._catalogue.kind(resource).namespaced:
                continue
            for thing in self._door.list(resource, name):
                if not is_deleting(thing):
                    self._delete(resource, name, thing)
            remaining = len(self._door.list(resource, name))
            if remaining:
                left[resource] = remaining
        return left

    def _delete(self, resource: str, namespace: str, thing: Unstructured) -> None:
        try:
            self._door.delete(resource, namespace, name_of(thing), uid=uid_of(thing))
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    def _tell(self, namespace: Unstructured, left: dict[str, int], now: float) -> None:
        said = ", ".join(f"{resource} has {count} resource instances" for resource, count in left.items())
        new = {
            "type": "NamespaceContentRemaining",
            "status": "True",
            "reason": "SomeResourcesRemain",
            "message": f"Some resources are remaining: {said}",
        }
        status = namespace.get("status") or {}
        conditions = with_condition(status.get("conditions") or (), new, now)
        if conditions != status.get("conditions"):
            merge = {"status": {"conditions": conditions}}
            self._door.patch("namespaces", "", name_of(namespace), merge, "status")


class ServiceAccountController:
    """What a pod expects to find: the service account `default`, and the certificate that the API server shows."""

    name = "serviceaccount-controller"
    resources = ("namespaces", "serviceaccounts", "configmaps")

    def __init__(self, client: Client, cache: Cache, ca: str = "") -> None:
        self._door, self._cache, self._ca = client, cache, ca

    def keys_for(
        self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None
    ) -> Iterator[str]:
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
            self._door.create("serviceaccounts", key, account)
        known = self._cache.get("configmaps", f"{key}/{ROOT_CA_CONFIG_MAP}")
        data = {"ca.crt": self._ca}
        if known is None:
            config = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": ROOT_CA_CONFIG_MAP},
                "data": data,
            }
            self._door.create("configmaps", key, config)
        elif known.get("data") != data:
            self._door.patch("configmaps", key, ROOT_CA_CONFIG_MAP, {"data": data})
        return None
