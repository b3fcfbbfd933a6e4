"""A watch: what there is, if wanted, then every change as it becomes durable, one JSON object a line.

Changes are encoded once for all who watch; a watcher collects those that it wants and writes them in one piece. The
first change after a pause goes out at once; the more watchers there are, the longer each collects before it writes
again, so that a crowd costs each of its members some milliseconds and not everybody the server. A watcher that reads
too slowly is ended: it lists again, which costs less than keeping everything.
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
"""What a write to one watcher costs; so much time for each is left between two writes to one."""
MIN_BATCH_SECONDS, MAX_BATCH_SECONDS = 0.002, 0.2
MAX_PENDING_BYTES = 64 << 20
"""Bytes that may wait for a slow reader."""


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
        self._selection, self._writing = selection, encoder
        self._pending: list[bytes] = []
        self._size = 0
        self._wake = asyncio.Event()
        self._over = self._live = False
        self._bookmark_due = False
        self._seen = 0
        """The last version that was told or passed over."""
        self._plain = encoder.sends_stored_bytes and selection is None

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        refused = self._begin()
        self._live = True
        stop = self._registry.store.subscribe_durable(self._target.kind.storage_resource, self._hear)
        timers = [loop.call_later(self._seconds(), self._end)]
        if self._query.allow_bookmarks:
            timers.append(loop.call_later(BOOKMARK_SECONDS, self._want_bookmark))
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
        )
        response.enable_chunked_encoding()
        try:
            await self._registry.store.wait_durable()
            await response.prepare(request)
            if refused is not None:
                await response.write(watch_error_event(refused))
            else:
                await self._pump(response)
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            if not request.transport or request.transport.is_closing():
                return response  # the client has gone, which is how most watches end
            raise
        finally:
            self._over = True
            stop()
            for timer in timers:
                timer.cancel()
        return response

    def _begin(self) -> ApiError | None:
        """Collect what is to be told first. An error of this stage is told as the watch's only event."""
        query, store = self._query, self._registry.store
        shelf = store.storage(self._target.kind.storage_resource)
        version = parse_version(query.resource_version) if query.resource_version else 0
        if query.send_initial_events or (query.send_initial_events is None and version == 0):
            if version > store.version:
                self._registry.listing.check_not_in_future(version)
            self._seen = store.version
            for stored in shelf.list_current(self._target.namespace):
                if self._selection is None or self._selection.matches_stored(stored):
                    self._put(encode_watch_event(ADDED, self._writing.encode_event(stored)))
            if query.send_initial_events and query.allow_bookmarks:
                self._put(encode_watch_event(BOOKMARK, self._writing.encode_bookmark(store.version, True)))
            return None
        if version == 0:  # sendInitialEvents=false without a version: from now on
            self._seen = store.version
            return None
        try:
            changes = shelf.changes_since(version)
        except Compacted as gone:
            return ApiError.expired(f"too old resource version: {version} ({gone.oldest})")
        self._seen = version
        for change in changes:
            if change.version <= store.durable_version:
                self._hear(change)
        return None

    async def _pump(self, response: web.StreamResponse) -> None:
        while True:
            if self._pending:
                lines, self._pending, self._size = self._pending, [], 0
                await response.write(b"".join(lines))
                rest = min(self._registry.store.watcher_count * BATCH_SECONDS_PER_WATCHER, MAX_BATCH_SECONDS)
                if rest > MIN_BATCH_SECONDS and not self._over:
                    await asyncio.sleep(rest)
                continue
            if self._bookmark_due:
                self._bookmark_due = False
                version = max(self._seen, self._registry.store.durable_version)
                self._put(encode_watch_event(BOOKMARK, self._writing.encode_bookmark(version, False)))
                continue
            if self._over:
                return
            self._wake.clear()
            await self._wake.wait()

    def _hear(self, change: Change) -> None:
        if change.version <= self._seen or self._over:
            return
        self._seen = change.version
        namespace = self._target.namespace
        if namespace and change.new.key[0] != namespace:
            return
        if self._plain:
            self._put(change.watch_event)
            return
        told = self._filtered(change)
        if told is not None:
            kind, stored = told
            if kind == change.type and stored is change.new and self._writing.can_send_stored_bytes(stored):
                self._put(change.watch_event)
            else:
                self._put(encode_watch_event(kind, self._writing.encode_event(stored)))

    def _filtered(self, change: Change) -> tuple[str, StoredObject] | None:
        """What the change is to somebody who sees only what the selectors take in."""
        selection = self._selection
        if selection is None:
            return change.type, change.new
        before = change.old is not None and selection.matches_stored(change.old)
        if change.type == DELETED:
            return (DELETED, change.new) if before else None
        now = selection.matches_stored(change.new)
        if now:
            return (MODIFIED if before else ADDED), change.new
        return (DELETED, _left(change)) if before else None

    def _put(self, line: bytes) -> None:
        self._pending.append(line)
        self._size += len(line)
        if self._size > MAX_PENDING_BYTES and self._live:
            self._pending, self._over = [], True
        self._wake.set()

    def _seconds(self) -> float:
        if self._query.timeout:
            return max(0.0, float(self._query.timeout))
        return MIN_WATCH_TIMEOUT_SECONDS * random.uniform(1.0, 2.0)

    def _end(self) -> None:
        """Its time is up. Who reads bookmarks gets a last one, so that the next watch begins there."""
        self._bookmark_due = self._query.allow_bookmarks
        self._over = True
        self._wake.set()

    def _want_bookmark(self) -> None:
        self._bookmark_due = True
        self._wake.set()
        if not self._over:
            asyncio.get_running_loop().call_later(BOOKMARK_SECONDS, self._want_bookmark)


def _left(change: Change) -> StoredObject:
    """What has left a selection: its last state inside, with the version of the change that took it out."""
    assert change.old is not None  # it was in the selection before
    tree = change.old.tree
    tree = {**tree, "metadata": {**tree["metadata"], "resourceVersion": str(change.version)}}
    return StoredObject(change.key, change.version, msgspec.json.encode(tree), tree)
