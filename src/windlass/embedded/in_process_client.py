"""API client for code in this process: the same admission, validation and semantics as over HTTPS, without HTTPS.

Controllers, runtimes and the page use it. Every verb is synchronous and runs on the loop's thread. Returned objects
are shared: copy before changing them. Objects passed in are copied.

    client = InProcessClient(Registry(Store()))
    pod = client.create("pods", "default", {...})
    stop = client.subscribe("pods", lambda kind, new, old: ...)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from windlass.embedded.api.json_trees import deep_copy
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.patches import merge_patch
from windlass.embedded.registry.options import IN_PROCESS_OPTIONS, DeleteOptions
from windlass.embedded.registry.registry import Registry
from windlass.embedded.registry.selection import Selection
from windlass.embedded.store.stored_object import Change
from windlass.model.unstructured import Unstructured

ChangeHandler = Callable[[str, Unstructured, Unstructured | None], None]
"""Called with ADDED, MODIFIED or DELETED, the new state (for DELETED the last), and the old one."""
ResourceChangeHandler = Callable[[str, str, Unstructured, Unstructured | None], None]
"""Like `ChangeHandler`, with the resource's name first."""


class InProcessClient:
    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def get(self, resource: str, namespace: str, name: str) -> Unstructured:
        kind = self._kind(resource)
        return self.registry.context.from_stored(kind, self.registry.context.get(kind, namespace, name))

    def find(self, resource: str, namespace: str, name: str) -> Unstructured | None:
        """The object, or None."""
        kind = self._kind(resource)
        stored = self.registry.context.find(kind, namespace, name)
        return None if stored is None else self.registry.context.from_stored(kind, stored)

    def list(
        self, resource: str, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> list[Unstructured]:
        """Ordered by namespace and name."""
        kind = self._kind(resource)
        storage = self.registry.store.storage(kind.storage_resource)
        found = (self.registry.context.from_stored(kind, item) for item in storage.list_current(namespace))
        selection = Selection.parse(kind, label_selector, field_selector)
        if selection is None:
            return [*found]
        return [tree for tree in found if selection.matches(tree)]

    def create(self, resource: str, namespace: str, obj: Unstructured) -> Unstructured:
        kind = self._kind(resource)
        return self.registry.writer.create(kind, namespace, deep_copy(obj), IN_PROCESS_OPTIONS).tree

    def update(
        self, resource: str, namespace: str, name: str, obj: Unstructured, subresource: str = ""
    ) -> Unstructured:
        """409 if `metadata.resourceVersion` is given and stale."""
        options = msgspec.structs.replace(IN_PROCESS_OPTIONS, subresource=subresource)
        kind = self._kind(resource)
        if subresource == "scale":
            return self.registry.scale_subresource.update(kind, namespace, name, deep_copy(obj), options)
        return self.registry.writer.update(kind, namespace, name, deep_copy(obj), options).tree

    def patch(
        self, resource: str, namespace: str, name: str, merge: Unstructured, subresource: str = ""
    ) -> Unstructured:
        """A JSON merge patch."""
        options = msgspec.structs.replace(IN_PROCESS_OPTIONS, subresource=subresource)
        patched = deep_copy(merge)
        return self.registry.writer.modify(
            self._kind(resource), namespace, name, lambda old: merge_patch(old, patched), options
        ).tree

    def delete(
        self,
        resource: str,
        namespace: str,
        name: str,
        *,
        grace: int | None = None,
        propagation: str = "Background",
        uid: str = "",
    ) -> None:
        options = DeleteOptions(grace_seconds=grace, propagation=propagation, uid=uid)
        self.registry.deleter.delete(self._kind(resource), namespace, name, options)

    def bind(
        self, namespace: str, name: str, node: str, annotations: dict[str, str] | None = None, uid: str = ""
    ) -> None:
        metadata = {"name": name, "annotations": annotations or {}, **({"uid": uid} if uid else {})}
        binding = {"metadata": metadata, "target": {"kind": "Node", "name": node}}
        self.registry.pod_subresources.bind(namespace, name, binding)

    def evict(self, namespace: str, name: str, grace: int | None = None) -> None:
        """429 if a disruption budget allows no disruption."""
        self.registry.pod_subresources.evict(namespace, name, DeleteOptions(grace_seconds=grace))

    def resources(self) -> Sequence[str]:
        """Every stored kind, built-in and custom, by the name that the other verbs take."""
        kinds = self.registry.kinds
        return tuple(dict.fromkeys(kind.storage_resource for kind in kinds if "list" in kind.verbs))

    def kind(self, resource: str) -> Kind:
        return self._kind(resource)

    def subscribe(self, resource: str, handler: ChangeHandler) -> Callable[[], None]:
        """The handler is called after each change, in order. Returns the function that unsubscribes."""

        def listener(change: Change) -> None:
            handler(change.type, change.new.tree, None if change.old is None else change.old.tree)

        return self.registry.store.subscribe(self._kind(resource).storage_resource, listener)

    def subscribe_all(self, handler: ResourceChangeHandler) -> Callable[[], None]:
        """For all kinds, also those that are defined later."""

        def listener(change: Change) -> None:
            old = None if change.old is None else change.old.tree
            handler(change.resource, change.type, change.new.tree, old)

        return self.registry.store.subscribe("*", listener)

    def _kind(self, resource: str) -> Kind:
        return self.registry.context.kind(resource)
