"""Garbage collection: deletes dependents whose owners are gone; foreground and orphan deletion.

Run by `controller_manager`. Hears of every kind through `subscribe_all`, also those that CustomResourceDefinitions
add later. Keeps only which objects exist and which depend on which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from windlass.embedded.api.errors import ignore_api_errors
from windlass.embedded.api.kinds import Kind
from windlass.embedded.controllers.adoption import other_references
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.objects import is_deleting, key_of, split_key, uid_of
from windlass.model.unstructured import Unstructured

FOREGROUND_FINALIZER, ORPHAN_FINALIZER = "foregroundDeletion", "orphan"
ObjectKey = tuple[str, str]
"""Resource and `namespace/name`."""
ResourceChangeHandler = Callable[[str, str, Unstructured, "Unstructured | None"], None]


class AllKindsClient(Client, Protocol):
    """The client, for all kinds."""

    def find(self, resource: str, namespace: str, name: str) -> Unstructured | None: ...

    def resources(self) -> Sequence[str]: ...

    def kind(self, resource: str) -> Kind: ...

    def subscribe_all(self, handler: ResourceChangeHandler) -> Callable[[], None]: ...


class GarbageCollector:
    name = "garbage-collector"
    resources: Sequence[str] = ()

    def __init__(self, client: AllKindsClient) -> None:
        self._client = client
        self._existing: dict[str, ObjectKey] = {}
        self._dependents: dict[str, set[ObjectKey]] = {}
        self._enqueue: Callable[[str], None] = lambda key: None
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self, enqueue: Callable[[str], None]) -> None:
        """Indexes and enqueues what exists, and subscribes to every change."""
        self._enqueue = enqueue
        self._unsubscribe = self._client.subscribe_all(self._on_change)
        for resource in self._client.resources():
            for obj in self._client.list(resource):
                self._index(resource, obj)
                if is_deleting(obj) and obj["metadata"].get("finalizers"):
                    enqueue(f"{resource}|{key_of(obj)}")  # a deletion that an earlier process began
        for resource, key in {item for items in self._dependents.values() for item in items}:
            enqueue(f"{resource}|{key}")

    def stop(self) -> None:
        self._unsubscribe()

    def keys_for(self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None) -> Iterator[str]:
        return iter(())

    def sync(self, key: str, now: float) -> float | None:
        resource, _, name = key.partition("|")
        if resource not in self._client.resources():
            return None  # its CustomResourceDefinition was deleted
        obj = self._client.find(resource, *split_key(name))
        if obj is None:
            return None
        finalizers = obj["metadata"].get("finalizers") or ()
        if is_deleting(obj) and ORPHAN_FINALIZER in finalizers:
            self._orphan_dependents(resource, obj)
        elif is_deleting(obj) and FOREGROUND_FINALIZER in finalizers:
            self._delete_in_foreground(resource, obj)
        if not is_deleting(obj):
            self._collect(resource, obj)
        return None

    def _on_change(self, resource: str, kind: str, new: Unstructured, old: Unstructured | None) -> None:
        if old is not None:
            self._unindex(resource, old)
        key = f"{resource}|{key_of(new)}"
        if kind == "DELETED":
            for object_key in self._dependents.get(uid_of(new), ()):
                self._enqueue("|".join(object_key))
            for reference in new["metadata"].get("ownerReferences") or ():
                owner = self._existing.get(reference.get("uid", ""))
                if owner is not None:  # in foreground deletion it waits for its last dependent
                    self._enqueue("|".join(owner))
            return
        self._index(resource, new)
        owners = new["metadata"].get("ownerReferences")
        if owners and (old is None or owners != old["metadata"].get("ownerReferences")):
            self._enqueue(key)
        if is_deleting(new) and new["metadata"].get("finalizers"):
            self._enqueue(key)

    def _index(self, resource: str, obj: Unstructured) -> None:
        object_key = (resource, key_of(obj))
        self._existing[uid_of(obj)] = object_key
        for reference in obj["metadata"].get("ownerReferences") or ():
            self._dependents.setdefault(reference.get("uid", ""), set()).add(object_key)

    def _unindex(self, resource: str, obj: Unstructured) -> None:
        object_key = (resource, key_of(obj))
        self._existing.pop(uid_of(obj), None)
        for reference in obj["metadata"].get("ownerReferences") or ():
            dependents = self._dependents.get(reference.get("uid", ""))
            if dependents is not None:
                dependents.discard(object_key)
                if not dependents:
                    del self._dependents[reference.get("uid", "")]

    def _collect(self, resource: str, obj: Unstructured) -> None:
        """Deletes it if no owner is left, or only owners in foreground deletion."""
        references = obj["metadata"].get("ownerReferences") or []
        solid = [reference for reference in references if self._keeps_dependents(reference)]
        if not references or len(solid) == len(references):
            return
        if solid:
            merge = {"metadata": {"uid": uid_of(obj), "ownerReferences": solid}}
            self._client.patch(resource, *split_key(key_of(obj)), merge)
            return
        owner_waits = any(self._waits_for_dependents(reference) for reference in references)
        in_foreground = owner_waits and self._dependents.get(uid_of(obj))
        self._delete(resource, obj, "Foreground" if in_foreground else "Background")

    def _keeps_dependents(self, reference: Unstructured) -> bool:
        """Whether the owner exists outside foreground deletion; one of a kind that is not served counts as
        existing.
        """
        owner = self._existing.get(reference.get("uid", ""))
        if owner is None:
            return not self._is_served(reference)
        return not self._waits_for_dependents(reference)

    def _waits_for_dependents(self, reference: Unstructured) -> bool:
        owner_key = self._existing.get(reference.get("uid", ""))
        owner = self._client.find(owner_key[0], *split_key(owner_key[1])) if owner_key is not None else None
        if owner is None or not is_deleting(owner):
            return False
        return FOREGROUND_FINALIZER in (owner["metadata"].get("finalizers") or ())

    def _is_served(self, reference: Unstructured) -> bool:
        group = str(reference.get("apiVersion", "")).rpartition("/")[0]
        kinds = (self._client.kind(resource) for resource in self._client.resources())
        return any(kind.group == group and kind.kind == reference.get("kind") for kind in kinds)

    def _delete_in_foreground(self, resource: str, owner: Unstructured) -> None:
        blocking = 0
        for dependent in tuple(self._dependents.get(uid_of(owner), ())):
            obj = self._client.find(dependent[0], *split_key(dependent[1]))
            if obj is None:
                continue
            blocking += any(
                reference.get("uid") == uid_of(owner) and reference.get("blockOwnerDeletion")
                for reference in obj["metadata"]["ownerReferences"]
            )
            if not is_deleting(obj):
                self._collect(dependent[0], obj)
        if not blocking or not self._dependents.get(uid_of(owner)):
            self._remove_finalizer(resource, owner, FOREGROUND_FINALIZER)

    def _orphan_dependents(self, resource: str, owner: Unstructured) -> None:
        for dependent in tuple(self._dependents.get(uid_of(owner), ())):
            obj = self._client.find(dependent[0], *split_key(dependent[1]))
            if obj is None:
                continue
            others = other_references(obj, owner)
            merge = {"metadata": {"uid": uid_of(obj), "ownerReferences": others or None}}
            self._client.patch(dependent[0], *split_key(dependent[1]), merge)
        self._remove_finalizer(resource, owner, ORPHAN_FINALIZER)

    def _remove_finalizer(self, resource: str, owner: Unstructured, finalizer: str) -> None:
        remaining = [name for name in owner["metadata"]["finalizers"] if name != finalizer]
        merge = {"metadata": {"uid": uid_of(owner), "finalizers": remaining or None}}
        with ignore_api_errors(404):
            self._client.patch(resource, *split_key(key_of(owner)), merge)

    def _delete(self, resource: str, obj: Unstructured, propagation: str) -> None:
        namespace, name = split_key(key_of(obj))
        with ignore_api_errors(404, 409):
            self._client.delete(resource, namespace, name, propagation=propagation, uid=uid_of(obj))
