"""Everything that controllers read: the objects of each kind, and who owns what.

`controllers.loop` feeds it from the in-process verbs, synchronously after each committed change, so what a controller
reads here includes its own last write. It holds references to the store's trees, not copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from windlass.embedded.controllers.objects import key_of, uid_of
from windlass.model.unstructured import Unstructured

ChangeHandler = Callable[[str, Unstructured, "Unstructured | None"], None]
ResourceChangeHandler = Callable[[str, str, Unstructured, "Unstructured | None"], None]
"""Resource, type of the change, the object as it is (or last was), and as it was before."""


class ListerWatcher(Protocol):
    """The part of the verbs that is needed here."""

    def list(
        self, resource: str, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> list[Unstructured]: ...

    def subscribe(self, resource: str, handler: ChangeHandler) -> Callable[[], None]: ...


class Cache:
    def __init__(self, source: ListerWatcher) -> None:
        self._source = source
        self._objects: dict[str, dict[str, Unstructured]] = {}
        self._owned: dict[tuple[str, str], dict[str, Unstructured]] = {}
        self._orphans: dict[tuple[str, str], dict[str, Unstructured]] = {}
        self._on_node: dict[str, dict[str, Unstructured]] = {}
        self._stops: list[Callable[[], None]] = []
        self.handlers: list[ResourceChangeHandler] = []

    def watch(self, resource: str) -> None:
        """Know the objects of a kind from now on; those that exist are told as ADDED."""
        if resource in self._objects:
            return
        self._objects[resource] = {}
        self._stops.append(self._source.subscribe(resource, self._teller(resource)))
        for thing in self._source.list(resource):
            self._take(resource, "ADDED", thing)

    def close(self) -> None:
        while self._stops:
            self._stops.pop()()

    def is_watching(self, resource: str) -> bool:
        return resource in self._objects

    def get(self, resource: str, key: str) -> Unstructured | None:
        return self._objects[resource].get(key)

    def all(self, resource: str) -> Iterable[Unstructured]:
        return list(self._objects[resource].values())

    def owned(self, resource: str, uid: str) -> list[Unstructured]:
        """Objects that refer to the owner, as its controller or not."""
        return list(self._owned.get((resource, uid), {}).values())

    def orphans(self, resource: str, namespace: str) -> list[Unstructured]:
        """Objects that nobody controls."""
        return list(self._orphans.get((resource, namespace), {}).values())

    def pods_on_node(self, name: str) -> list[Unstructured]:
        """Pods that are bound to the node."""
        return list(self._on_node.get(name, {}).values())

    def _teller(self, resource: str) -> ChangeHandler:
        return lambda kind, new, old: self._take(resource, kind, new)

    def _take(self, resource: str, kind: str, new: Unstructured) -> None:
        key = key_of(new)
        objects = self._objects[resource]
        old = objects.get(key)
        if old is not None:
            self._forget(resource, key, old)
        if kind == "DELETED":
            objects.pop(key, None)
        else:
            objects[key] = new
            self._remember(resource, key, new)
        for hear in self.handlers:
            hear(resource, kind, new, old)

    def _remember(self, resource: str, key: str, thing: Unstructured) -> None:
        references = thing["metadata"].get("ownerReferences") or ()
        for reference in references:
            self._owned.setdefault((resource, reference.get("uid", "")), {})[key] = thing
        if not any(reference.get("controller") for reference in references):
            place = (resource, thing["metadata"].get("namespace", ""))
            self._orphans.setdefault(place, {})[key] = thing
        node = _node_of(resource, thing)
        if node:
            self._on_node.setdefault(node, {})[key] = thing

    def _forget(self, resource: str, key: str, thing: Unstructured) -> None:
        for reference in thing["metadata"].get("ownerReferences") or ():
            place = (resource, reference.get("uid", ""))
            held = self._owned.get(place)
            if held is not None and held.pop(key, None) is not None and not held:
                del self._owned[place]
        nobody = self._orphans.get((resource, thing["metadata"].get("namespace", "")))
        if nobody is not None:
            nobody.pop(key, None)
        here = self._on_node.get(_node_of(resource, thing))
        if here is not None:
            here.pop(key, None)


def _node_of(resource: str, thing: Unstructured) -> str:
    return str((thing.get("spec") or {}).get("nodeName") or "") if resource == "pods" else ""


def same_object(one: Unstructured | None, other: Unstructured) -> bool:
    """Not only the same name: the same life."""
    return one is not None and uid_of(one) == uid_of(other)
