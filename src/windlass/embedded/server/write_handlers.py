"""POST, PUT, PATCH and DELETE: decodes body and options, calls `registry`, and responds once the change is durable.

`server` routes here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec
from aiohttp import web

from windlass.embedded.api import strategy
from windlass.embedded.api.errors import ApiError, required
from windlass.embedded.api.json_trees import deep_copy
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.rbac import RBAC_GROUP
from windlass.embedded.registry.options import STRICT, WriteOptions
from windlass.embedded.registry.registry import Registry
from windlass.embedded.registry.selection import Selection
from windlass.embedded.server import request_body
from windlass.embedded.server.authentication import USER_KEY
from windlass.embedded.server.authorization import Authorizer
from windlass.embedded.server.negotiation import ObjectEncoder, negotiate_format
from windlass.embedded.server.query import delete_options, list_query, write_options
from windlass.embedded.server.request_target import Target
from windlass.embedded.server.responses import respond, respond_with_object
from windlass.embedded.server.work_meter import LARGE_BODY_BYTES, WorkMeter
from windlass.embedded.store.stored_object import StoredObject
from windlass.model.names.kubernetes import META_API_VERSION
from windlass.model.unstructured import Unstructured

TURN_SECONDS = 0.02
"""How long a deletion of many objects runs before others may."""
_ORPHAN_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them "
    "or set propagationPolicy=Orphan to suppress this warning"
)
_PATCH_OPTIONS = Kind("PatchOptions", "", "meta.k8s.io", "v1")
_MANAGER_REQUIRED = required("fieldManager", "is required for apply patch")


class WriteHandlers:
    def __init__(self, registry: Registry, meter: WorkMeter, authorizer: Authorizer) -> None:
        self._registry, self._meter, self._authorizer = registry, meter, authorizer

    def _write(
        self,
        request: web.BaseRequest,
        target: Target,
        write: Callable[[WriteOptions], StoredObject],
        options: WriteOptions,
    ) -> StoredObject:
        """Everything that a write does between two turns of the loop."""
        with self._measure(request):
            if target.kind.group == RBAC_GROUP:
                # What would be stored decides whether its writer may grant that.
                planned = write(msgspec.structs.replace(options, dry_run=True))
                before = self._registry.context.find(target.kind, *planned.key)
                old = None if before is None else before.tree
                self._authorizer.check_grant(request[USER_KEY], target.kind, planned.tree, old)
            return write(options)

    def _measure(self, request: web.BaseRequest) -> AbstractContextManager[None]:
        """Around everything that a write does between two turns of the loop."""
        return self._meter.measure(request[USER_KEY].name, (request.content_length or 0) > LARGE_BODY_BYTES)

    async def create(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        tree = await self._decode_object(request, target)
        options, warnings = self._options(request, target, "CreateOptions")
        key = target.kind, target.namespace
        stored = self._write(
            request, target, lambda chosen: self._registry.writer.create(*key, _copy(target, tree), chosen), options
        )
        return await self._respond(request, target, stored, 201, warnings)

    async def update(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        tree = await self._decode_object(request, target)
        options, warnings = self._options(request, target, "UpdateOptions")
        registry, kind = self._registry, target.kind
        if target.subresource == "scale":
            scale = registry.scale_subresource.update(kind, target.namespace, target.name, tree, options)
            return await self._respond_status(request, scale)
        before = registry.context.find(kind, target.namespace, target.name)
        key = kind, target.namespace, target.name
        stored = self._write(
            request, target, lambda chosen: registry.writer.update(*key, _copy(target, tree), chosen), options
        )
        return await self._respond(request, target, stored, 201 if before is None else 200, warnings)

    async def patch(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        body, media = await request_body.read_body(request), request_body.content_type(request)
        kind, registry = target.kind, self._registry
        accepted: tuple[str, ...] = request_body.PATCH_MEDIA_TYPES
        if kind.custom and target.subresource != "scale":
            accepted = tuple(media_type for media_type in accepted if media_type != request_body.STRATEGIC_PATCH)
        if media not in accepted:
            raise ApiError.unsupported_media_type(accepted)
        patch = await request_body.off_loop(request_body.decode_patch, body, media)
        options, warnings = self._options(request, target, "PatchOptions")
        key = kind, target.namespace, target.name
        if media == request_body.APPLY_PATCH:
            if not request.query.get("fieldManager"):
                raise ApiError.invalid(_PATCH_OPTIONS, "", [_MANAGER_REQUIRED])
            before = registry.context.find(*key)
            stored = self._write(
                request, target, lambda chosen: registry.writer.apply(*key, _copy(target, patch), chosen), options
            )
            return await self._respond(request, target, stored, 201 if before is None else 200, warnings)
        if target.subresource == "scale":
            scale = registry.scale_subresource.patch(*key, patch, media, options)
            return await self._respond_status(request, scale)
        stored = self._write(
            request, target, lambda chosen: registry.writer.patch(*key, _copy(target, patch), media, chosen), options
        )
        return await self._respond(request, target, stored, 200, warnings)

    async def delete(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        options = delete_options(request.query, await self._delete_body(request))
        kind, registry = target.kind, self._registry
        stored, is_removed = registry.deleter.delete(kind, target.namespace, target.name, options)
        warnings = [_ORPHAN_WARNING] if kind.resource == "jobs.batch" and not options.propagation else []
        if not is_removed or kind.storage_resource in strategy.RETURN_DELETED_OBJECT:
            return await self._respond(request, target, stored, 200, warnings)
        details = {"name": target.name, "group": kind.group, "kind": kind.plural}
        details["uid"] = stored.tree["metadata"].get("uid", "")
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        nonempty_details = {key: value for key, value in details.items() if value}
        return await self._respond_status(request, {**status, "details": nonempty_details}, warnings)

    async def delete_collection(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        options = delete_options(request.query, await self._delete_body(request))
        kind, registry = target.kind, self._registry
        query = list_query(request.query)
        selection = Selection.parse(
            kind, query.label_selector, query.field_selector, registry.machinery.selectable_fields(kind)
        )
        page = registry.listing.page(kind, target.namespace, query, selection)
        started = time.monotonic()
        for stored in page.items:
            if registry.context.find(kind, *stored.key) is not None:
                registry.deleter.delete(kind, *stored.key, options)
            if time.monotonic() - started > TURN_SECONDS:
                await asyncio.sleep(0)  # others come in between, as they do in Kubernetes
                started = time.monotonic()
        form = negotiate_format(request.headers.get("Accept", ""))
        body = ObjectEncoder(registry, kind, form, request.query.get("includeObject", "")).encode_list(page)
        await registry.store.wait_durable()
        return await respond(request, body, form.media_type)

    async def _decode_object(self, request: web.BaseRequest, target: Target) -> Unstructured:
        media, body, kind = (
            request_body.content_type(request),
            await request_body.read_body(request),
            target.kind,
        )
        tree = await request_body.off_loop(request_body.decode_object, body, media, kind)
        if request.query.get("fieldValidation") == STRICT and media == request_body.JSON:
            twice = ", ".join(f'duplicate field "{path}"' for path in request_body.duplicate_fields(body))
            if twice:
                message = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'
                raise ApiError.bad_request(f"{message}: strict decoding error: {twice}")
        return tree

    async def _delete_body(self, request: web.BaseRequest) -> Unstructured | None:
        """The DeleteOptions, if the client sent any."""
        body = await request_body.read_body(request)
        if not body:
            return None
        tree = await request_body.off_loop(request_body.decode_object, body, request_body.content_type(request))
        kind_name = tree.get("kind")
        if kind_name not in (None, "", "DeleteOptions"):
            version = tree.get("apiVersion") or META_API_VERSION
            raise ApiError.bad_request(
                f'no kind "{kind_name}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
            )
        return tree

    def _options(self, request: web.BaseRequest, target: Target, name: str) -> tuple[WriteOptions, list[str]]:
        warnings: list[str] = []
        agent = request.headers.get("User-Agent", "")
        return write_options(request.query, agent, target.subresource, name, warnings), warnings

    async def _respond(
        self, request: web.BaseRequest, target: Target, stored: StoredObject, status: int, warnings: list[str]
    ) -> web.StreamResponse:
        form = negotiate_format(request.headers.get("Accept", ""))
        include = request.query.get("includeObject", "")
        body = ObjectEncoder(self._registry, target.kind, form, include).encode_object(stored)
        if not self._registry.store.is_durable:
            await self._registry.store.wait_durable()
        return await respond(request, body, form.media_type, status, warnings)

    async def _respond_status(
        self, request: web.BaseRequest, tree: Unstructured, warnings: list[str] | None = None
    ) -> web.StreamResponse:
        await self._registry.store.wait_durable()
        return await respond_with_object(request, tree, warnings=warnings or ())


def _copy(target: Target, value: Any) -> Any:
    """A write may change what it is given; only one that is tried first needs it twice."""
    return deep_copy(value) if target.kind.group == RBAC_GROUP else value
