"""GET: one object, a list, or a watch. `server` routes here."""

from __future__ import annotations

from aiohttp import web

from windlass.embedded.api.kinds import Kind
from windlass.embedded.registry.listing import parse_version
from windlass.embedded.registry.registry import Registry
from windlass.embedded.registry.selection import Selection
from windlass.embedded.server.authentication import USER_KEY
from windlass.embedded.server.negotiation import TABLE, ObjectEncoder, negotiate_format
from windlass.embedded.server.query import list_query
from windlass.embedded.server.request_target import Target
from windlass.embedded.server.responses import respond, respond_with_object
from windlass.embedded.server.watch_memory import WatchMemory
from windlass.embedded.server.watch_stream import WatchStream
from windlass.embedded.server.work_meter import LARGE_LIST, LARGE_SELECTOR, WorkMeter
from windlass.model.unstructured import Unstructured

_SCALE = Kind("Scale", "scales", "autoscaling", "v1")


class ReadHandlers:
    def __init__(self, registry: Registry, meter: WorkMeter) -> None:
        self._registry, self._meter = registry, meter
        self._memory = WatchMemory()

    async def get(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        query = request.query
        if query.get("resourceVersion"):
            self._registry.listing.check_not_in_future(parse_version(query["resourceVersion"]))
        form = negotiate_format(request.headers.get("Accept", ""))
        if target.subresource == "scale":
            scale = self._registry.scale_subresource.get(target.kind, target.namespace, target.name)
            return await respond_with_object(request, self._scale_table(scale) if form.shape == TABLE else scale)
        encoder = ObjectEncoder(self._registry, target.kind, form, query.get("includeObject", ""))
        body = encoder.encode_object(self._registry.context.get(target.kind, target.namespace, target.name))
        await self._registry.store.wait_durable()
        return await respond(request, body, form.media_type)

    def _scale_table(self, scale: Unstructured) -> Unstructured:
        version = {"resourceVersion": scale["metadata"]["resourceVersion"]}
        return self._registry.machinery.table(_SCALE, [scale], self._registry.context.clock(), list_meta=version)

    async def list(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        kind, query = target.kind, list_query(request.query, target.watch)
        if target.name:  # the deprecated watch path of one object
            query = query.for_name(target.name)
        form = negotiate_format(request.headers.get("Accept", ""))
        encoder = ObjectEncoder(self._registry, kind, form, request.query.get("includeObject", ""))
        count = len(self._registry.store.storage(kind.storage_resource))
        is_large = count > LARGE_LIST and not 0 < query.limit <= LARGE_LIST
        is_large |= len(query.label_selector) + len(query.field_selector) > LARGE_SELECTOR
        with self._meter.measure(request[USER_KEY].name, is_large):
            selectable = self._registry.machinery.selectable_fields(kind) if query.field_selector else ()
            selection = Selection.parse(kind, query.label_selector, query.field_selector, selectable)
            stream, body = None, b""
            if query.watch:
                stream = WatchStream(self._registry, target, query, selection, encoder, self._memory)
                stream.collect()
            else:
                body = encoder.encode_list(self._registry.listing.page(kind, target.namespace, query, selection))
        if stream is not None:
            return await stream.serve(request)
        await self._registry.store.wait_durable()
        return await respond(request, body, form.media_type)
