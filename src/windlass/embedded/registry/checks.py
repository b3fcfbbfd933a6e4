"""Defaults, admission and validation: what `embedded.api` knows, asked in the order in which an API server asks."""

from __future__ import annotations

from typing import Any

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind
from windlass.embedded.registry.context import Context
from windlass.embedded.registry.options import WriteOptions

Tree = dict[str, Any]


class Checks:
    def __init__(self, context: Context) -> None:
        self._context = context

    def namespace(self, kind: Kind, namespace: str, name: str) -> None:
        """Nothing is made in a namespace that isn't there, or that is going."""
        if not kind.namespaced:
            return
        spaces = self._context.kind("namespaces")
        found = self._context.find(spaces, "", namespace)
        if found is None:
            raise ApiError.not_found(spaces, namespace)
        if "deletionTimestamp" in found.tree["metadata"]:
            message = f"namespace {namespace} is being terminated"
            refusal = ApiError.forbidden(
                kind,
                name,
                f"unable to create new content in namespace {namespace} because it is being terminated",
            )
            cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
            refusal.details = {**(refusal.details or {}), "causes": [cause]}
            raise refusal

    def creation(self, kind: Kind, tree: Tree, options: WriteOptions) -> None:
        """Defaults and admission in place; refuses what is not valid."""

    def change(self, kind: Kind, tree: Tree, old: Tree, options: WriteOptions, managed: bool) -> None:
        """The same for a change."""
