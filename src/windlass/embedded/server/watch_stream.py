"""A watch: existing objects if requested, then every change once it is durable, one JSON object per line.

Used by `read_handlers`. Changes are encoded once for all watchers; a watcher collects the ones that it wants and
writes them in one piece. The first change after a pause is written at once; with more watchers, each collects
longer before it writes again, so that many watchers cost each a few milliseconds of delay instead of overloading
the server. A watcher that reads too slowly is ended (`watch_memory`). The objects that exist at the beginning are
encoded while they are sent, a piece at a time.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque

import msgspec
from aiohttp import web

from windlass.embedded.api.errors import ApiError
from windlass.embedded.registry.listing import ListQuery, parse_version
from windlass.embedded.registry.registry import Registry
from windlass.embedded.registry.selection import Selection
from windlass.embedded.server.negotiation import ObjectEncoder
from windlass.embedded.server.request_target import Target
from windlass.embedded.server.responses import watch_error_event
from windlass.embedded.server.watch_memory import WatchMemory
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
PIECE_BYTES = 64 << 10
"""Written at a time; the connection itself keeps some such pieces for a slow reader."""


Event = bytes | tuple[str, StoredObject]
"""A line, or the type and the object of one that is still to be encoded."""


class WatchStream:
    """One watch, from its request to its end."""

    def __init__(
        self,
        registry: Registry,
        target: Target,
        query: ListQuery,
        selection: Selection | None,
        encoder: ObjectEncoder,
        memory: WatchMemory,
    ) -> None:
        self._memory = memory
        self._registry, self._target, self._query = registry, target, query
        self._selection, self._encoder = selection, encoder
        self._initial: deque[StoredObject] = deque()
        self._initial_end = 0
        """The version of the bookmark after the initial events; 0 for none."""
        self._pending: deque[Event] = deque()
        self._pending_bytes = 0
        self._error: ApiError | None = None
        self._transport: asyncio.Transport | None = None
        self._has_work = asyncio.Event()
        self._is_over = self._is_live = False
        self._bookmark_due = False
        self._last_version = 0
        """The last version that was sent or filtered out."""
        self._sends_all_as_stored = encoder.sends_stored_bytes and selection is None

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Sends until the client disconnects or the time is up; `collect` comes first."""
        loop = asyncio.get_running_loop()
        self._is_live, self._transport = True, request.transport
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
            if self._error is not None:
                await response.write(watch_error_event(self._error))
            else:
                await self._send_initial(response)
                await self._pump(response)
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            if not request.transport or request.transport.is_closing():
                return response  # the client has disconnected, as most watches end
            raise
        finally:
            self._is_over = True
            self._drop_pending()
            stop()
            for timer in timers:
                timer.cancel()
        return response

    def collect(self) -> None:
        """Collects the first events. An error of this stage is sent as the watch's only event.

        Between this and `serve` the loop must not turn, or changes would be missed.
        """
        self._error = self._collect_initial()

    def _collect_initial(self) -> ApiError | None:
        query, store = self._query, self._registry.store
        storage = store.storage(self._target.kind.storage_resource)
        version = parse_version(query.resource_version) if query.resource_version else 0
        if query.send_initial_events or (query.send_initial_events is None and version == 0):
            if version > store.version:
                self._registry.listing.check_not_in_future(version)
            self._last_version = store.version
            found = storage.list_current(self._target.namespace)
            selection = self._selection
            self._initial.extend(item for item in found if selection is None or selection.matches_stored(item))
            self._initial_end = store.version if query.send_initial_events and query.allow_bookmarks else 0
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

    async def _send_initial(self, response: web.StreamResponse) -> None:
        piece = bytearray()
        while self._initial:
            piece += encode_watch_event(ADDED, self._encoder.encode_event(self._initial.popleft()))
            if len(piece) >= PIECE_BYTES:
                await response.write(bytes(piece))
                piece.clear()
        if self._initial_end:
            piece += encode_watch_event(BOOKMARK, self._encoder.encode_bookmark(self._initial_end, True))
        if piece:
            await response.write(bytes(piece))

    def _next_piece(self) -> bytes:
        lines, size = [], 0
        while self._pending and size < PIECE_BYTES:
            event = self._pending.popleft()
            size += _size(event)
            if not isinstance(event, bytes):  # only now: the first table that is sent has the columns
                event = encode_watch_event(event[0], self._encoder.encode_event(event[1]))
            lines.append(event)
        self._pending_bytes -= size
        self._memory.add(-size)
        return b"".join(lines)

    async def _pump(self, response: web.StreamResponse) -> None:
        while True:
            if self._pending:
                await response.write(self._next_piece())
                if self._pending:
                    continue
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
                self._append((kind, stored))

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

    def _append(self, event: Event) -> None:
        self._pending.append(event)
        self._pending_bytes += _size(event)
        self._memory.add(_size(event))
        if self._is_live and self._memory.is_exceeded_by(self._pending_bytes):
            self._drop_pending()
            self._is_over = True
            if self._transport is not None:
                self._transport.abort()  # what it has not read of earlier pieces goes, too
        self._has_work.set()

    def _drop_pending(self) -> None:
        self._memory.add(-self._pending_bytes)
        self._pending.clear()
        self._initial.clear()
        self._pending_bytes = 0

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


def _size(event: Event) -> int:
    return len(event) if isinstance(event, bytes) else len(event[1].raw)


def _state_before_leaving(change: Change) -> StoredObject:
    """The last state inside the selection, with the version of the change that took it out."""
    assert change.old is not None  # it was in the selection before
    tree = change.old.tree
    tree = {**tree, "metadata": {**tree["metadata"], "resourceVersion": str(change.version)}}
    return StoredObject(change.key, change.version, msgspec.json.encode(tree), tree)
