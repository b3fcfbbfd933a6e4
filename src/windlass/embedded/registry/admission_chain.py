"""Defaulting, admission and validation in the order of Kubernetes' API server.

    create   decode → managed fields → admit → prepare → validate → quota
    update   decode → prepare → validate → managed fields → quota

`writer` passes objects and gets back objects of its own. The rules themselves are in `embedded.api`.
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.embedded.api import admission, crds, resource_quota, server_side_apply
from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.timestamps import format_time
from windlass.embedded.registry.context import Context
from windlass.embedded.registry.options import WriteOptions
from windlass.model.unstructured import Unstructured

CRD = "customresourcedefinitions.apiextensions.k8s.io"


class StoreLookup:
    """Read access to the store, for admission."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def get(self, resource: str, namespace: str, name: str) -> Unstructured | None:
        kind = self._context.kinds.by_resource(resource)
        stored = None if kind is None else self._context.find(kind, namespace, name)
        return None if stored is None else stored.tree

    def list(self, resource: str, namespace: str) -> Iterable[Unstructured]:
        kind = self._context.kinds.by_resource(resource)
        if kind is None:
            return ()
        storage = self._context.store.storage(kind.storage_resource)
        return [stored.tree for stored in storage.list_current(namespace)]


class AdmissionChain:
    def __init__(self, context: Context) -> None:
        self._context, self._machinery = context, context.machinery
        self.lookup = StoreLookup(context)

    def decode(self, kind: Kind, tree: object, options: WriteOptions, patched: bool = False) -> Unstructured:
        """A new object, with every field of the right type."""
        decoded, warnings = self._machinery.decode(kind, tree, options.field_validation, patched=patched)
        for warning in warnings:
            options.warn(warning)
        return decoded

    def check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        """Nothing can be created in a namespace that does not exist or is being deleted."""
        if not kind.namespaced:
            return
        namespaces = self._context.kind("namespaces")
        found = self._context.find(namespaces, "", namespace)
        if found is None:
            raise ApiError.not_found(namespaces, namespace)
        if "deletionTimestamp" in found.tree["metadata"]:
            message = f"namespace {namespace} is being terminated"
            reason = f"unable to create new content in namespace {namespace} because it is being terminated"
            refusal = ApiError.forbidden(kind, name, reason)
            cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
            refusal.details = {**(refusal.details or {}), "causes": [cause]}
            raise refusal

    def admit_create(self, kind: Kind, tree: Unstructured, options: WriteOptions, track_fields: bool) -> Unstructured:
        """The object to store; raises if it is not valid."""
        if track_fields:  # before admission adds fields that the client did not write
            tree = self._with_managed_fields(kind, None, tree, options)
        admission.admit(kind, tree, self.lookup)
        tree = self._machinery.prepare_create(kind, tree)
        self._machinery.validate_create(kind, tree)
        if kind.resource == CRD:
            tree = crds.with_status(tree, self._context.kinds, self._now())
        return tree

    def admit_update(
        self, kind: Kind, tree: Unstructured, old: Unstructured, options: WriteOptions, track_fields: bool
    ) -> Unstructured:
        subresource = options.subresource
        tree = self._machinery.prepare_update(kind, tree, old, subresource)
        self._machinery.validate_update(kind, tree, old, subresource)
        if kind.resource == CRD and not subresource:
            tree = crds.with_status(tree, self._context.kinds, self._now())
        return self._with_managed_fields(kind, old, tree, options) if track_fields else tree

    def charge_quota(self, kind: Kind, tree: Unstructured, old: Unstructured | None, dry_run: bool) -> None:
        """Charges the quotas of its namespace; 403 if one is exceeded."""
        if not kind.namespaced:
            return
        for changed in resource_quota.charge(kind, tree, old, self.lookup):
            if not dry_run:
                metadata = changed["metadata"]
                key = metadata["namespace"], metadata["name"]
                self._context.store.put("resourcequotas", key, {**changed, "metadata": dict(metadata)})

    def _with_managed_fields(
        self, kind: Kind, old: Unstructured | None, tree: Unstructured, options: WriteOptions
    ) -> Unstructured:
        manager, subresource = options.field_manager, options.subresource
        return server_side_apply.track_managed_fields(
            self._machinery, kind, old, tree, manager, self._now(), subresource=subresource
        )

    def _now(self) -> str:
        return format_time(self._context.clock())
