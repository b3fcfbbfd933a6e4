"""Defaults, admission and validation: what `embedded.api` knows, asked in the order in which an API server asks.

    create   decode → managed fields → admit → prepare → validate → quota
    change   decode → prepare → validate → managed fields → quota

`registry.writer` calls it with trees and gets trees back that are its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.embedded.api import admission, crds, resource_quota, server_side_apply
from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind
from windlass.embedded.registry.context import Context
from windlass.embedded.registry.metadata import format_time
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
        return [
            stored.tree
            for stored in self._context.store.storage(kind.storage_resource).list_current(namespace)
        ]


class AdmissionChain:
    def __init__(self, context: Context) -> None:
        self._context, self._machinery = context, context.machinery
        self.lookup = StoreLookup(context)

    def decode(self, kind: Kind, tree: object, options: WriteOptions, patched: bool = False) -> Unstructured:
        """A tree of our own, with every type as it should be."""
        made, warnings = self._machinery.decode(kind, tree, options.field_validation, patched=patched)
        for warning in warnings:
            options.warn(warning)
        return made

    def check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        """Nothing is made in a namespace that isn't there, or that is going."""
        if not kind.namespaced:
            return
        spaces = self._context.kind("namespaces")
        found = self._context.find(spaces, "", namespace)
        if found is None:
            raise ApiError.not_found(spaces, namespace)
        if "deletionTimestamp" in found.tree["metadata"]:
            message = f"namespace {namespace} is being terminated"
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            refusal = ApiError.forbidden(kind, name, why)
            cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
            refusal.details = {**(refusal.details or {}), "causes": [cause]}
            raise refusal

    def admit_create(
        self, kind: Kind, tree: Unstructured, options: WriteOptions, track_fields: bool
    ) -> Unstructured:
        """What is stored in the end; refuses what is not valid."""
        if track_fields:  # before admission adds what its maker didn't write
            tree = self._tracked(kind, None, tree, options)
        admission.admit(kind, tree, self.lookup)
        tree = self._machinery.prepare_create(kind, tree)
        self._machinery.validate_create(kind, tree)
        if kind.resource == CRD:
            tree = crds.with_status(tree, self._context.kinds, self._now())
        return tree

    def admit_update(
        self, kind: Kind, tree: Unstructured, old: Unstructured, options: WriteOptions, track_fields: bool
    ) -> Unstructured:
        """The same for a change."""
        subresource = options.subresource
        tree = self._machinery.prepare_update(kind, tree, old, subresource)
        self._machinery.validate_update(kind, tree, old, subresource)
        if kind.resource == CRD and not subresource:
            tree = crds.with_status(tree, self._context.kinds, self._now())
        return self._tracked(kind, old, tree, options) if track_fields else tree

    def charge_quota(self, kind: Kind, tree: Unstructured, old: Unstructured | None, dry_run: bool) -> None:
        """Take what the object needs from the quotas of its namespace; 403 where there is not enough."""
        if not kind.namespaced:
            return
        for changed in resource_quota.charge(kind, tree, old, self.lookup):
            if not dry_run:
                metadata = changed["metadata"]
                key = metadata["namespace"], metadata["name"]
                self._context.store.put("resourcequotas", key, {**changed, "metadata": dict(metadata)})

    def _tracked(
        self, kind: Kind, old: Unstructured | None, tree: Unstructured, options: WriteOptions
    ) -> Unstructured:
        return server_side_apply.track_managed_fields(
            self._machinery,
            kind,
            old,
            tree,
            options.field_manager,
            self._now(),
            subresource=options.subresource,
        )

    def _now(self) -> str:
        return format_time(self._context.clock())
