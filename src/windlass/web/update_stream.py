"""The stream that keeps open pages up to date: one snapshot each, then what changed, a few times a second at most.

Reads `web.page_state`; `web.page` connects browsers to it. Changes are encoded once for all pages. A page that lags
behind gets a new snapshot instead of a growing backlog.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from windlass.web.page_state import ObjectSource, PageState

UPDATE_SECONDS = 0.25
"""Seconds between two updates."""
MAX_BACKLOG = 16
"""Updates that a page may lag behind before it gets a new snapshot."""
KEEPALIVE_SECONDS = 15.0
"""Seconds without an update after which a comment is sent, to notice dead connections."""


class Subscriber:
    """One open page."""

    def __init__(self) -> None:
        self.pending: list[bytes] = []
        self.needs_snapshot = True
        self.has_updates = asyncio.Event()
        self.has_updates.set()

    def enqueue(self, update: bytes) -> None:
        if len(self.pending) >= MAX_BACKLOG:
            self.pending.clear()
            self.needs_snapshot = True
        elif not self.needs_snapshot:
            self.pending.append(update)
        self.has_updates.set()


class UpdateStream:
    def __init__(self, source: ObjectSource) -> None:
        self._changed = asyncio.Event()
        self._state = PageState(source, self._changed.set)
        self._readers: set[Subscriber] = set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._send_changes(), name="page-live")

    async def stop(self) -> None:
        self._state.close()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for reader in self._readers:
            reader.has_updates.set()

    @property
    def has_readers(self) -> bool:
        return bool(self._readers)

    async def stream_to(self, write: Callable[[bytes], object]) -> None:
        """Writes server-sent events with the awaitable `write` until it fails or is cancelled."""
        reader = Subscriber()
        self._readers.add(reader)
        try:
            while True:
                await self._write_next(reader, write)
        finally:
            self._readers.discard(reader)

    async def _write_next(self, reader: Subscriber, write: Callable[[bytes], object]) -> None:
        try:
            async with asyncio.timeout(
                KEEPALIVE_SECONDS
            ):  # `wait_for` may lose a cancellation that comes with the news
                await reader.has_updates.wait()
        except TimeoutError:
            await _send(write, b": still here\n\n")
            return
        reader.has_updates.clear()
        if reader.needs_snapshot:
            self._flush()  # what is pending belongs to the others; this one gets all of it
            reader.pending.clear()
            reader.needs_snapshot = False
            await _send(write, _event("snapshot", self._state.snapshot()))
        pending, reader.pending = reader.pending, []
        for update in pending:
            await _send(write, update)

    async def _send_changes(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(UPDATE_SECONDS)
            self._flush()

    def _flush(self) -> None:
        self._changed.clear()
        if not self._readers:
            return  # nobody looks: views are made when somebody does
        document = self._state.drain_changes()
        if document:
            update = _event("delta", document)
            for reader in self._readers:
                reader.enqueue(update)


async def _send(write: Callable[[bytes], object], data: bytes) -> None:
    written = write(data)
    if asyncio.iscoroutine(written):
        await written


def _event(name: str, document: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + document + b"\n\n"
