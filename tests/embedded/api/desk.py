"""A server without a server: objects in a dict, and every write through the functions of `embedded.api` in order.

What the real API server answers to the same requests is what it is compared with in `test_against_kubernetes.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.embedded.api import admission, resource_quota, server_side_apply
from windlass.embedded.api.crds import with_status
from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.json_trees import deep_copy
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.machinery import Machinery
from windlass.model.unstructured import Unstructured

NOW = "2026-11-15T12:00:00Z"
APPLY = "application/apply-patch+yaml"


class Desk:
    def __init__(self) -> None:
        self.machinery = Machinery()
        self.objects: dict[tuple[str, str, str], Unstructured] = {}
        self.warnings: list[str] = []
        self._count = 0

    # ---- what admission may read

    def get(self, resource: str, namespace: str, name: str) -> Unstructured | None:
        return self.objects.get((resource, namespace, name))

    def list(self, resource: str, namespace: str) -> Iterable[Unstructured]:
        return [obj for key, obj in self.objects.items() if key[:2] == (resource, namespace)]

    # ---- writes

    def create(
        self, obj: Unstructured, manager: str = "test", field_validation: str = "Ignore", uid: str = ""
    ) -> Unstructured:
        kind = self.kind_of(obj)
        made, self.warnings = self.machinery.decode(kind, obj, field_validation)
        return self._create(kind, made, manager, uid)

    def _create(self, kind: Kind, made: Unstructured, manager: str, uid: str = "") -> Unstructured:
        self._count += 1
        metadata = made["metadata"]
        metadata["uid"] = uid or f"00000000-0000-0000-0000-{self._count:012}"
        metadata["creationTimestamp"] = NOW
        if kind.namespaced:
            metadata["namespace"] = "default"
        if manager:
            made = server_side_apply.track_managed_fields(self.machinery, kind, None, made, manager, NOW)
        admission.admit(kind, made, self)
        made = self.machinery.prepare_create(kind, made)
        self.machinery.validate_create(kind, made)
        if kind.kind == "CustomResourceDefinition":
            made = with_status(made, self.machinery.kinds, NOW)
            self.machinery.serve_crd(made)
        for changed in resource_quota.charge(kind, made, None, self):
            self._store(self.machinery.kinds.by_resource("resourcequotas"), changed)
        return self._store(kind, made)

    def patch(
        self,
        like: Unstructured,
        patch: Any,
        content_type: str,
        manager: str = "test",
        *,
        subresource: str = "",
        force: bool = False,
    ) -> Unstructured:
        """`like` says which object: apiVersion, kind and name."""
        kind = self.kind_of(like)
        live = self.objects.get(self._key(kind, like))
        if content_type == APPLY:
            asked = server_side_apply.apply(
                self.machinery, kind, live, patch, manager, NOW, force=force, subresource=subresource
            )
            if live is None:
                made, self.warnings = self.machinery.decode(kind, asked)
                return self._create(kind, made, "")
        else:
            assert live is not None
            asked = self.machinery.patch(kind, live, patch, content_type)
        new, self.warnings = self.machinery.decode(kind, asked, patched=True)
        assert live is not None
        new = self.machinery.prepare_update(kind, new, live, subresource)
        self.machinery.validate_update(kind, new, live, subresource)
        if content_type != APPLY:
            new = server_side_apply.track_managed_fields(
                self.machinery, kind, live, new, manager, NOW, subresource=subresource
            )
        return self._store(kind, new)

    def kind_of(self, obj: Unstructured) -> Kind:
        kind = self.machinery.kinds.by_kind(obj["apiVersion"], obj["kind"])
        assert kind is not None, obj["kind"]
        return kind

    def _key(self, kind: Kind, obj: Unstructured) -> tuple[str, str, str]:
        return kind.resource, "default" if kind.namespaced else "", obj["metadata"]["name"]

    def _store(self, kind: Kind | None, obj: Unstructured) -> Unstructured:
        assert kind is not None
        self.objects[self._key(kind, obj)] = obj
        return deep_copy(obj)


def refusal(act: Any) -> str:
    """The message of the `ApiError` that an action ends in; empty if it doesn't."""
    try:
        act()
    except ApiError as problem:
        return problem.message
    return ""
