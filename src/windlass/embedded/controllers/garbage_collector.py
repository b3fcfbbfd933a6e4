"""Garbage collection: what is owned goes when its owners are gone; foreground and orphan deletion.

`GarbageCollector` hears of every kind, also of those that CustomResourceDefinitions add later, through
`subscribe_all`. It keeps who exists and who depends on whom, and nothing else of the objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.objects import is_deleting, key_of, split_key, uid_of
from windlass.model.unstructured import Unstructured

FOREGROUND_FINALIZER, ORPHAN_FINALIZER = "foregroundDeletion", "orphan"
ObjectKey = tuple[str, str]
"""Resource and key."""
ResourceChangeHandler = Callable[[str, str, Unstructured, "Unstructured | None"], None]


class AllKindsClient(Client, Protocol):
    """The verbs, for all kinds."""

    def find(self, resource: str, namespace: str, name: str) -> Unstructured | None: ...

    def resources(self) -> Sequence[str]: ...

    def kind(self, resource: str) -> Kind: ...

    def subscribe_all(self, handler: ResourceChangeHandler) -> Callable[[], None]: ...


class GarbageCollector:
    name = "garbage-collector"
    resources: Sequence[str] = ()

    def __init__(self, client: AllKindsClient) -> None:
        self._verbs = client
        self._alive: dict[str, ObjectKey] = {}
        self._dependents: dict[str, set[ObjectKey]] = {}
        self._wake: Callable[[str], None] = lambda key: None
        self._stop: Callable[[], None] = lambda: None

    def start(self, enqueue: Callable[[str], None]) -> None:
        """Look at everything that exists, and hear of every change; `wake` puts a key into the loop's queue."""
        self._wake = enqueue
        self._stop = self._verbs.subscribe_all(self._hear)
        for resource in self._verbs.resources():
            for thing in self._verbs.list(resource):
                self._know(resource, thing)
                if is_deleting(thing) and thing["metadata"].get("finalizers"):
                    enqueue(f"{resource}|{key_of(thing)}")  # begun by a process that was killed since
        for resource, key in {place for places in self._dependents.values() for place in places}:
            enqueue(f"{resource}|{key}")

    def stop(self) -> None:
        self._stop()

    def keys_for(
        self, resource: str, event_type: str, new: Unstructured, old: Unstructured | None
    ) -> Iterator[str]:
        return iter(())

    def sync(self, key: str, now: float) -> float | None:
        resource, _, name = key.partition("|")
        if resource not in self._verbs.resources():
            return None  # its definition is gone, and it with it
        thing = self._verbs.find(resource, *split_key(name))
        if thing is None:
            return None
        finalizers = thing["metadata"].get("finalizers") or ()
        if is_deleting(thing) and ORPHAN_FINALIZER in finalizers:
            self._orphan(resource, thing)
        elif is_deleting(thing) and FOREGROUND_FINALIZER in finalizers:
            self._foreground(resource, thing)
        if not is_deleting(thing):
            self._collect(resource, thing)
        return None

    def _hear(self, resource: str, kind: str, new: Unstructured, old: Unstructured | None) -> None:
        if old is not None:
            self._unknow(resource, old)
        place = f"{resource}|{key_of(new)}"
        if kind == "DELETED":
            self._bereave(uid_of(new))
            for reference in new["metadata"].get("ownerReferences") or ():
                self._wake_owner(reference)
            return
        self._know(resource, new)
        owners = new["metadata"].get("ownerReferences")
        if owners and (old is None or owners != old["metadata"].get("ownerReferences")):
            self._wake(place)
        if is_deleting(new) and new["metadata"].get("finalizers"):
            self._wake(place)

    def _bereave(self, uid: str) -> None:
        for resource, key in self._dependents.get(uid, ()):
            self._wake(f"{resource}|{key}")

    def _wake_owner(self, reference: Unstructured) -> None:
        """An owner that waits for its last dependent hears that one is gone."""
        place = self._alive.get(reference.get("uid", ""))
        if place is not None:
            self._wake("|".join(place))

    def _know(self, resource: str, thing: Unstructured) -> None:
        place = (resource, key_of(thing))
        self._alive[uid_of(thing)] = place
        for reference in thing["metadata"].get("ownerReferences") or ():
            self._dependents.setdefault(reference.get("uid", ""), set()).add(place)

    def _unknow(self, resource: str, thing: Unstructured) -> None:
        place = (resource, key_of(thing))
        self._alive.pop(uid_of(thing), None)
        for reference in thing["metadata"].get("ownerReferences") or ():
            held = self._dependents.get(reference.get("uid", ""))
            if held is not None:
                held.discard(place)
                if not held:
                    del self._dependents[reference.get("uid", "")]

    def _collect(self, resource: str, thing: Unstructured) -> None:
        """Delete it if none of its owners is left, or only such as wait for it to go."""
        references = thing["metadata"].get("ownerReferences") or []
        living = [each for each in references if self._stands(each)]
        if not references or len(living) == len(references):
            return
        if living:
            merge = {"metadata": {"uid": uid_of(thing), "ownerReferences": living}}
            self._verbs.patch(resource, *split_key(key_of(thing)), merge)
            return
        waiting = any(self._waits(each) for each in references)
        self._delete(
            resource, thing, "Foreground" if waiting and self._has_dependents(thing) else "Background"
        )

    def _stands(self, reference: Unstructured) -> bool:
        """Whether the owner keeps its dependents; an owner of a kind that isn't served is nobody's to judge."""
        place = self._alive.get(reference.get("uid", ""))
        if place is None:
            return not self._serves(reference)
        return not self._waits(reference)

    def _waits(self, reference: Unstructured) -> bool:
        place = self._alive.get(reference.get("uid", ""))
        owner = self._verbs.find(place[0], *split_key(place[1])) if place is not None else None
        if owner is None or not is_deleting(owner):
            return False
        return FOREGROUND_FINALIZER in (owner["metadata"].get("finalizers") or ())

    def _serves(self, reference: Unstructured) -> bool:
        group = str(reference.get("apiVersion", "")).rpartition("/")[0]
        kinds = (self._verbs.kind(resource) for resource in self._verbs.resources())
        return any(kind.group == group and kind.kind == reference.get("kind") for kind in kinds)

    def _has_dependents(self, thing: Unstructured) -> bool:
        return bool(self._dependents.get(uid_of(thing)))

    def _foreground(self, resource: str, owner: Unstructured) -> None:
        blocking = 0
        for place in tuple(self._dependents.get(uid_of(owner), ())):
            thing = self._verbs.find(place[0], *split_key(place[1]))
            if thing is None:
                continue
            blocking += any(
                each.get("uid") == uid_of(owner) and each.get("blockOwnerDeletion")
                for each in thing["metadata"]["ownerReferences"]
            )
            if not is_deleting(thing):
                self._collect(place[0], thing)
        if not blocking or not self._dependents.get(uid_of(owner)):
            self._take_off(resource, owner, FOREGROUND_FINALIZER)

    def _orphan(self, resource: str, owner: Unstructured) -> None:
        for place in tuple(self._dependents.get(uid_of(owner), ())):
            thing = self._verbs.find(place[0], *split_key(place[1]))
            if thing is None:
                continue
            others = [e for e in thing["metadata"]["ownerReferences"] if e.get("uid") != uid_of(owner)]
            merge = {"metadata": {"uid": uid_of(thing), "ownerReferences": others or None}}
            self._verbs.patch(place[0], *split_key(place[1]), merge)
        self._take_off(resource, owner, ORPHAN_FINALIZER)

    def _take_off(self, resource: str, owner: Unstructured, finalizer: str) -> None:
        left = [each for each in owner["metadata"]["finalizers"] if each != finalizer]
        merge = {"metadata": {"uid": uid_of(owner), "finalizers": left or None}}
        try:
            self._verbs.patch(resource, *split_key(key_of(owner)), merge)
        except ApiError as error:
            if error.code != 404:
                raise

    def _delete(self, resource: str, thing: Unstructured, propagation: str) -> None:
        namespace, name = split_key(key_of(thing))
        try:
            self._verbs.delete(resource, namespace, name, propagation=propagation, uid=uid_of(thing))
        except ApiError as error:
            if error.code not in (404, 409):
                raise
