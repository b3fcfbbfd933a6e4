"""The objects that controllers read: by kind, owner and node.

Updated synchronously after each committed change by the in-process client's subscriptions, so what a controller
reads includes its own last write. It holds references to the store's objects, not copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.objects import key_of
from windlass.model.unstructured import Unstructured

ResourceChangeHandler = Callable[[str, str, Unstructured, "Unstructured | None"], None]
"""Resource, event type, the object now (or last), and the object before."""


class Cache:
    def __init__(self, source: Client) -> None:
        self._source = source
        self._objects: dict[str, dict[str, Unstructured]] = {}
        self._owned: dict[tuple[str, str], dict[str, Unstructured]] = {}
        self._orphans: dict[tuple[str, str], dict[str, Unstructured]] = {}
        self._on_node: dict[str, dict[str, Unstructured]] = {}
        self._waiting_pods: Counter[str] = Counter()
        self._unsubscribe: list[Callable[[], None]] = []
        self.handlers: list[ResourceChangeHandler] = []

    def watch(self, resource: str) -> None:
        """Starts watching a kind; handlers get existing objects as ADDED."""
        if resource in self._objects:
            return
        self._objects[resource] = {}
        handler = partial(self._apply_change, resource)
        self._unsubscribe.append(self._source.subscribe(resource, handler))
        for obj in self._source.list(resource):
            self._apply_change(resource, "ADDED", obj, None)

    def close(self) -> None:
        while self._unsubscribe:
            self._unsubscribe.pop()()

    def is_watching(self, resource: str) -> bool:
        return resource in self._objects

    def get(self, resource: str, key: str) -> Unstructured | None:
        return self._objects[resource].get(key)

    def all(self, resource: str) -> Iterable[Unstructured]:
        return list(self._objects[resource].values())

    def owned(self, resource: str, uid: str) -> list[Unstructured]:
        """Objects that refer to the owner, as controller or not."""
        return list(self._owned.get((resource, uid), {}).values())

    def orphans(self, resource: str, namespace: str) -> list[Unstructured]:
        """Objects without a controller."""
        return list(self._orphans.get((resource, namespace), {}).values())

    def pods_on_node(self, name: str) -> list[Unstructured]:
        """Pods bound to the node."""
        return list(self._on_node.get(name, {}).values())

    def waiting_pods(self, namespace: str) -> int:
        """How many pods of the namespace have no node."""
        return self._waiting_pods[namespace]

    def _apply_change(self, resource: str, kind: str, new: Unstructured, _: Unstructured | None) -> None:
        key = key_of(new)
        objects = self._objects[resource]
        old = objects.get(key)
        if old is not None:
            self._unindex(resource, key, old)
        if kind == "DELETED":
            objects.pop(key, None)
        else:
            objects[key] = new
            self._index(resource, key, new)
        for handler in self.handlers:
            handler(resource, kind, new, old)

    def _index(self, resource: str, key: str, obj: Unstructured) -> None:
        references = obj["metadata"].get("ownerReferences") or ()
        for reference in references:
            self._owned.setdefault((resource, reference.get("uid", "")), {})[key] = obj
        if not any(reference.get("controller") for reference in references):
            orphans_key = (resource, obj["metadata"].get("namespace", ""))
            self._orphans.setdefault(orphans_key, {})[key] = obj
        node = _node_of(resource, obj)
        if node:
            self._on_node.setdefault(node, {})[key] = obj
        elif resource == "pods":
            self._waiting_pods[obj["metadata"].get("namespace", "")] += 1

    def _unindex(self, resource: str, key: str, obj: Unstructured) -> None:
        for reference in obj["metadata"].get("ownerReferences") or ():
            owner_key = (resource, reference.get("uid", ""))
            owned = self._owned.get(owner_key)
            if owned is not None and owned.pop(key, None) is not None and not owned:
                del self._owned[owner_key]
        orphans = self._orphans.get((resource, obj["metadata"].get("namespace", "")))
        if orphans is not None:
            orphans.pop(key, None)
        node = _node_of(resource, obj)
        if node in self._on_node:
            self._on_node[node].pop(key, None)
        if resource == "pods" and not node:
            self._waiting_pods -= Counter((obj["metadata"].get("namespace", ""),))


def _node_of(resource: str, obj: Unstructured) -> str:
    return str((obj.get("spec") or {}).get("nodeName") or "") if resource == "pods" else ""
