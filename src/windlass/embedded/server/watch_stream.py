"""A watch: existing objects if requested, then every change once it is durable, one JSON object per line.

Used by `read_handlers`. Changes are encoded once for all watchers; a watcher collects the ones that it wants and
writes them in one piece. The first change after a pause is written at once; with more watchers, each collects
longer before it writes again, so that many watchers cost each a few milliseconds of delay instead of overloading
the server. A watcher that reads too slowly is ended: listing again costs less than buffering everything.
"""

from __future__ import annotations

import asyncio
import random

import msgspec
from aiohttp import web

from windlass.embedded.api.errors import ApiError
from windlass.embedded.registry.listing import ListQuery, parse_version
from windlass.embedded.registry.registry import Registry
from windlass.embedded.registry.selection import Selection
from windlass.embedded.server.negotiation import ObjectEncoder
from windlass.embedded.server.request_target import Target
from windlass.embedded.server.responses import watch_error_event
from windlass.embedded.store.resource_storage import Compacted
from windlass.embedded.store.stored_object import (
    ADDED,
    DELETED,
    MODIFIED,
    Change,
    StoredObject,
    encode_watch_event,
)

BOOKMARK = "BOOKMARK"
BOOKMARK_SECONDS = 60.0
MIN_WATCH_TIMEOUT_SECONDS = 1800
BATCH_SECONDS_PER_WATCHER = 0.0001
"""Cost of a write to one watcher; the pause between two writes is this times the number of watchers."""
MIN_BATCH_SECONDS, MAX_BATCH_SECONDS = 0.002, 0.2
MAX_PENDING_BYTES = 64 << 20
"""Limit for bytes that a slow reader has not read."""


class WatchStream:
    """One watch, from its request to its end."""

    def __init__(
        self,
        registry: Registry,
        target: Target,
        query: ListQuery,
        selection: Selection | None,
        encoder: ObjectEncoder,
    ) -> None:
        self._registry, self._target, self._query = registry, target, query
        self._selection, self._encoder = selection, encoder
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._has_work = asyncio.Event()
        self._is_over = self._is_live = False
        self._bookmark_due = False
        self._last_version = 0
        """The last version that was sent or filtered out."""
        self._sends_all_as_stored = encoder.sends_stored_bytes and selection is None

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        error = self._collect_initial()
        self._is_live = True
        stop = self._registry.store.subscribe_durable(self._target.kind.storage_resource, self._on_change)
        timers = [loop.call_later(self._timeout_seconds(), self._on_timeout)]
        if self._query.allow_bookmarks:
            timers.append(loop.call_later(BOOKMARK_SECONDS, self._on_bookmark_timer))
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
        )
        response.enable_chunked_encoding()
        try:
            await self._registry.store.wait_durable()
            await response.prepare(request)
            if error is not None:
                await response.write(watch_error_event(error))
            else:
                await self._pump(response)
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            if not request.transport or request.transport.is_closing():
                return response  # the client has disconnected, as most watches end
            raise
        finally:
            self._is_over = True
            stop()
            for timer in timers:
                timer.cancel()
        return response

    def _collect_initial(self) -> ApiError | None:
        """Collects the first events. An error of this stage is sent as the watch's only event."""
        query, store = self._query, self._registry.store
        storage = store.storage(self._target.kind.storage_resource)
        version = parse_version(query.resource_version) if query.resource_version else 0
        if query.send_initial_events or (query.send_initial_events is None and version == 0):
            if version > store.version:
                self._registry.listing.check_not_in_future(version)
            self._last_version = store.version
            for stored in storage.list_current(self._target.namespace):
                if self._selection is None or self._selection.matches_stored(stored):
                    self._append(encode_watch_event(ADDED, self._encoder.encode_event(stored)))
            if query.send_initial_events and query.allow_bookmarks:
                self._append(encode_watch_event(BOOKMARK, self._encoder.encode_bookmark(store.version, True)))
            return None
        if version == 0:  # sendInitialEvents=false without a version: from now on
            self._last_version = store.version
            return None
        try:
            changes = storage.changes_since(version)
        except Compacted as error:
            return ApiError.expired(f"too old resource version: {version} ({error.oldest})")
        self._last_version = version
        for change in changes:
            if change.version <= store.durable_version:
                self._on_change(change)
        return None

    async def _pump(self, response: web.StreamResponse) -> None:
        while True:
            if self._pending:
                lines, self._pending, self._pending_bytes = self._pending, [], 0
                await response.write(b"".join(lines))
                pause = min(self._registry.store.watcher_count * BATCH_SECONDS_PER_WATCHER, MAX_BATCH_SECONDS)
                if pause > MIN_BATCH_SECONDS and not self._is_over:
                    await asyncio.sleep(pause)
                continue
            if self._bookmark_due:
                self._bookmark_due = False
                version = max(self._last_version, self._registry.store.durable_version)
                self._append(encode_watch_event(BOOKMARK, self._encoder.encode_bookmark(version, False)))
                continue
            if self._is_over:
                return
            self._has_work.clear()
            await self._has_work.wait()

    def _on_change(self, change: Change) -> None:
        if change.version <= self._last_version or self._is_over:
            return
        self._last_version = change.version
        namespace = self._target.namespace
        if namespace and change.new.key[0] != namespace:
            return
        if self._sends_all_as_stored:
            self._append(change.watch_event)
            return
        event = self._filtered(change)
        if event is not None:
            kind, stored = event
            if kind == change.type and stored is change.new and self._encoder.can_send_stored_bytes(stored):
                self._append(change.watch_event)
            else:
                self._append(encode_watch_event(kind, self._encoder.encode_event(stored)))

    def _filtered(self, change: Change) -> tuple[str, StoredObject] | None:
        """The change as seen through the selectors: an object may enter or leave the selection."""
        selection = self._selection
        if selection is None:
            return change.type, change.new
        matched_before = change.old is not None and selection.matches_stored(change.old)
        if change.type == DELETED:
            return (DELETED, change.new) if matched_before else None
        matches_now = selection.matches_stored(change.new)
        if matches_now:
            return (MODIFIED if matched_before else ADDED), change.new
        return (DELETED, _state_before_leaving(change)) if matched_before else None

    def _append(self, line: bytes) -> None:
        self._pending.append(line)
        self._pending_bytes += len(line)
        if self._pending_bytes > MAX_PENDING_BYTES and self._is_live:
            self._pending, self._is_over = [], True
        self._has_work.set()

    def _timeout_seconds(self) -> float:
        if self._query.timeout:
            return max(0.0, float(self._query.timeout))
        return MIN_WATCH_TIMEOUT_SECONDS * random.uniform(1.0, 2.0)

    def _on_timeout(self) -> None:
        """The watch's time is up. Clients that read bookmarks get a last one, from which their next watch starts."""
        self._bookmark_due = self._query.allow_bookmarks
        self._is_over = True
        self._has_work.set()

    def _on_bookmark_timer(self) -> None:
        self._bookmark_due = True
        self._has_work.set()
        if not self._is_over:
            asyncio.get_running_loop().call_later(BOOKMARK_SECONDS, self._on_bookmark_timer)


def _state_before_leaving(change: Change) -> StoredObject:
    """The last state inside the selection, with the version of the change that took it out."""
    assert change.old is not None  # it was in the selection before
    tree = change.old.tree
    tree = {**tree, "metadata": {**tree["metadata"], "resourceVersion": str(change.version)}}
    return StoredObject(change.key, change.version, msgspec.json.encode(tree), tree)
