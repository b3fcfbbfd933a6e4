"""Lists and watches one kind, and hands every change to a handler as a delta, in order.

    list (in pages) ─► Put …, Deleted for what is no longer there ─► synced ─► watch ─► Put, Deleted …

`kube.informers` runs one for each kind; the handler is the scheduler's cache. A broken watch resumes from the last
resourceVersion; one that is too old (410) leads to a new list. A server that does not answer is asked again with
exponential backoff.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence

import msgspec

from windlass.cluster.delta import Deleted, Delta, Put
from windlass.kube.backoff import Backoff
from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, Forbidden, ResourceExpired, ServerUnavailable, Status, api_error
from windlass.kube.request import Request
from windlass.kube.resources import Resource
from windlass.model.codec import Unreadable, decode_kind

log = logging.getLogger(__name__)

PAGE_SIZE = 1000
WATCH_SECONDS = 300
"""The server ends a watch after this long or twice that; it goes on where it was."""
IDLE_TIMEOUT_SECONDS = 2 * WATCH_SECONDS + 60.0
LONGEST_PAUSE = 10.0
MIN_WATCH_SECONDS = 1.0
"""A watch that ends sooner than this counts as a failure, so that a server that hangs up at once isn't hammered."""

DeltaHandler = Callable[[Sequence[Delta]], None]
Decode = Callable[[msgspec.Raw, str, str], object]
"""Called with an object, its kind and its API version."""


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, frozen=True):
    """All of it is required: in place of a list, `{}` would mean that everything was deleted."""

    metadata: _ListMeta
    items: list[msgspec.Raw] | None


class _Name(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    uid: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Name = _Name()


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


_NAMES = msgspec.json.Decoder(_Named)
_EVENTS = msgspec.json.Decoder(_Event)


class Informer:
    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        handler: DeltaHandler,
        *,
        required: bool = True,
        page: int = PAGE_SIZE,
        decode: Decode = decode_kind,
    ) -> None:
        self._decode = decode
        self._required = required
        self._client, self.resource, self._handler, self._page = client, resource, handler, page
        self._known: dict[str, str] = {}
        """Key → resourceVersion that the handler has."""
        self._version = ""
        self._backoff = Backoff(most=LONGEST_PAUSE)
        self._stale, self._fresh = asyncio.Event(), asyncio.Event()
        self.synced = asyncio.Event()
        """Set once the first list is through."""
        self.forbidden = False
        """Whether the last request for this kind was answered with 403."""
        self.restarts = 0
        """Watches that ended for another reason than their timeout."""
        self.relists = -1
        self.last_heard_at = 0.0
        """When the server last sent anything, by the loop's clock."""

    async def run(self) -> None:
        """Runs until cancelled. 404 is retried: `kube.informers` decides whether the kind has been removed."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch_unless_stale()
                self._backoff.reset()
                continue
            except ResourceExpired:
                log.info("%s: the watch is too far behind; listing again", self.resource.plural)
                self._version = ""
                pause = 0.0 if self.relists < 1 else self._backoff.next()
            except (ApiError, ServerUnavailable, msgspec.MsgspecError) as error:
                self.forbidden = isinstance(error, Forbidden)
                if self.forbidden and not self._required:
                    self.synced.set()  # an optional kind that we may not read must not delay the start
                    self._fresh.set()
                pause = self._backoff.next(getattr(error, "retry_after", 0.0))
                log.warning("%s: %s; trying again in %.1f s", self.resource.plural, error, pause)
            self.restarts += 1
            await asyncio.sleep(pause)

    def clear(self, successor: Informer | None = None) -> None:
        """Reports all objects as deleted, except those that the successor has, which watches another version."""
        kept = successor._known if successor is not None else {}
        self._handler([self._deleted(key) for key in self._known if key not in kept])
        self._known, self._version = {}, ""
        self._fresh.set()

    async def relist(self) -> None:
        """Lists again and returns when that is done: the handler's state is then no older than this call."""
        self._stale.set()
        self._fresh.clear()
        await self._fresh.wait()

    async def _watch_unless_stale(self) -> None:
        """Watches until the server ends the watch or `relist` is called."""
        watch = asyncio.create_task(self._watch())
        stale = asyncio.create_task(self._stale.wait())
        try:
            await asyncio.wait((watch, stale), return_when=asyncio.FIRST_COMPLETED)
            if watch.done():
                watch.result()
            else:
                self._version = ""
        finally:
            watch.cancel()
            stale.cancel()
            await asyncio.gather(watch, stale, return_exceptions=True)

    async def _list(self) -> None:
        """Lists page by page; objects that were known and are not listed any more are reported as deleted."""
        self._stale.clear()
        found: dict[str, str] = {}
        token, limit = "", self._page
        while True:
            query = [("limit", str(limit))] if limit else []
            query += [("continue", token)] if token else []
            request = Request("GET", self.resource.collection, tuple(query))
            try:
                page = await self._client.read(request, _Page)
            except ResourceExpired:
                if not token:
                    raise
                # The continue token expired: list everything in one request. The handler has the pages so far.
                self._known |= found
                token, limit, found = "", 0, {}
                continue
            self._handler([delta for raw in page.items or () if (delta := self._put(raw, found)) is not None])
            token = page.metadata.continue_
            if not token:
                break
        self._handler([self._deleted(key) for key in self._known.keys() - found.keys()])
        self._known, self._version = found, page.metadata.resource_version
        self.relists += 1
        self.forbidden = False
        self._note_contact()
        self.synced.set()
        if not self._stale.is_set():
            self._fresh.set()

    async def _watch(self) -> None:
        """Watches until the server ends the watch."""
        began = asyncio.get_running_loop().time()
        query = (
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", self._version),
            ("timeoutSeconds", str(random.randint(WATCH_SECONDS, 2 * WATCH_SECONDS))),
        )
        request = Request("GET", self.resource.collection, query)
        async with contextlib.aclosing(self._client.stream_lines(request, IDLE_TIMEOUT_SECONDS)) as lines:
            async for line in lines:
                self._note_contact()
                self._handle_event(_EVENTS.decode(line))
        if self._note_contact() - began < MIN_WATCH_SECONDS:
            raise ServerUnavailable(f"{self.resource.plural}: the watch ended at once")

    def _handle_event(self, event: _Event) -> None:
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=Status)
            raise api_error(status.code, bytes(event.object), f"watch {self.resource.plural}")
        named = _NAMES.decode(event.object).metadata
        if event.type == "DELETED":
            key = self._key(named)
            self._known.pop(key, None)
            self._handler([self._deleted(key)])
        elif event.type != "BOOKMARK":
            delta = self._put(event.object, self._known)
            if delta is not None:
                self._handler([delta])
        self._version = named.resource_version or self._version
        self._backoff.reset()

    def _put(self, raw: msgspec.Raw, known: dict[str, str]) -> Delta | None:
        """The delta for an object; None if the handler has this resourceVersion already."""
        named = _NAMES.decode(raw).metadata
        key = self._key(named)
        known_version = self._known.get(key)
        known[key] = named.resource_version
        if known_version == named.resource_version and known_version:
            return None
        obj = self._decode(raw, self.resource.kind, self.resource.api_version)
        if isinstance(obj, Unreadable):
            obj = msgspec.structs.replace(
                obj,
                name=obj.name or named.name,
                namespace=obj.namespace or named.namespace,
                uid=named.uid,
                api_version=self.resource.api_version,
            )
        return Put(obj)

    def _deleted(self, key: str) -> Deleted:
        return Deleted(self.resource.kind, key, self.resource.group)

    def _key(self, named: _Name) -> str:
        return f"{named.namespace}/{named.name}" if self.resource.namespaced else named.name

    def _note_contact(self) -> float:
        self.last_heard_at = asyncio.get_running_loop().time()
        return self.last_heard_at
