"""GET: one object, a list, or a watch."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from windlass.embedded.api.kinds import Kind
from windlass.embedded.registry.listing import parse_version
from windlass.embedded.registry.registry import Registry
from windlass.embedded.registry.selecting import Selection
from windlass.embedded.server.answers import answer, document
from windlass.embedded.server.forms import TABLE, Writing, form_of
from windlass.embedded.server.paths import Target
from windlass.embedded.server.query import list_query
from windlass.embedded.server.watching import Watching

Tree = dict[str, Any]

_SCALE = Kind("Scale", "scales", "autoscaling", "v1")


class Reading:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def get(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        query = request.query
        if query.get("resourceVersion"):
            self._registry.listing.check_reached(parse_version(query["resourceVersion"]))
        form = form_of(request.headers.get("Accept", ""))
        if target.subresource == "scale":
            scale = self._registry.scaling.get(target.kind, target.namespace, target.name)
            return await document(request, self._scale_table(scale) if form.shape == TABLE else scale)
        writing = Writing(self._registry, target.kind, form, query.get("includeObject", ""))
        body = writing.one(self._registry.context.stored(target.kind, target.namespace, target.name))
        await self._registry.store.wait()
        return await answer(request, body, form.media_type)

    def _scale_table(self, scale: Tree) -> Tree:
        version = {"resourceVersion": scale["metadata"]["resourceVersion"]}
        return self._registry.machinery.table(
            _SCALE, [scale], self._registry.context.clock(), list_meta=version
        )

    async def list(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        kind, query = target.kind, list_query(request.query, target.watch)
        if target.name:  # the old path of a watch on one object
            query = query.only(target.name)
        form = form_of(request.headers.get("Accept", ""))
        selectable = self._registry.machinery.selectable(kind) if query.fields else ()
        selection = Selection.parse(kind, query.selector, query.fields, selectable)
        writing = Writing(self._registry, kind, form, request.query.get("includeObject", ""))
        if query.watch:
            watching = Watching(self._registry, target, query, selection, writing)
            return await watching.serve(request)
        page = self._registry.listing.page(kind, target.namespace, query, selection)
        body = writing.page(page)
        await self._registry.store.wait()
        return await answer(request, body, form.media_type)
