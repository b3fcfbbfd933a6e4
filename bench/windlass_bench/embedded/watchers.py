"""Many watchers that only count: how many events each has had, and when all have had all.

Each is a TLS connection of its own. `embedded.run` opens them before it writes.
"""

from __future__ import annotations

import asyncio
import contextlib

from windlass_bench.embedded.contenders import ServerProcess

MARK = b'{"type":"'
"""Every event of a watch begins with it; objects inside have it escaped, if at all."""
LAST_CHUNK = b"\r\n0\r\n\r\n"
"""The server has ended the watch."""


class _Counter(asyncio.Protocol):
    def __init__(self, request: bytes, crowd: WatcherPool) -> None:
        self._request, self._crowd = request, crowd
        self._tail = b""
        self._begun = False
        self.events = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self._begun:
            self._begun = True
            self._crowd.opened()
        joined = self._tail + data
        found = joined.count(MARK)
        self._tail = joined[-len(MARK) + 1 :]
        if found:
            self.events += found
            self._crowd.heard(self, found)
        if data.endswith(LAST_CHUNK):
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._crowd.left(self)

    def close(self) -> None:
        self._transport.close()


class WatcherPool:
    """Watchers of one collection, from a version on."""

    def __init__(self, server: ServerProcess, path: str, count: int) -> None:
        self._server, self._path, self._count = server, path, count
        self._watchers: list[_Counter] = []
        self._opened = 0
        self._all_open, self._all_heard = asyncio.Event(), asyncio.Event()
        self._wanted = self._lost = 0
        self.events = self.served = 0
        self.closing = False

    async def open(self, version: str) -> None:
        server = self._server
        lines = (
            f"GET {self._path}?watch=1&resourceVersion={version}&timeoutSeconds=3000 HTTP/1.1",
            f"Host: 127.0.0.1:{server.port}",
            f"Authorization: Bearer {server.token}",
            "Accept: application/json",
        )
        request = "\r\n".join(lines).encode() + b"\r\n\r\n"
        loop = asyncio.get_running_loop()
        for start in range(0, self._count, 50):  # not so many handshakes at once that some time out
            batch = min(50, self._count - start)
            made = await asyncio.gather(
                *(
                    loop.create_connection(
                        lambda: _Counter(request, self),
                        server.host,
                        server.port,
                        ssl=server.context,
                        server_hostname=server.host,
                        ssl_handshake_timeout=300,
                    )
                    for _ in range(batch)
                )
            )
            self._watchers += [protocol for _, protocol in made]
        await asyncio.wait_for(self._all_open.wait(), 300)

    def opened(self) -> None:
        self._opened += 1
        if self._opened == self._count:
            self._all_open.set()

    def heard(self, watcher: _Counter, found: int) -> None:
        self.events += found
        if self._wanted and watcher.events >= self._wanted > watcher.events - found:
            self.served += 1
            self._look()

    def left(self, watcher: _Counter) -> None:
        """The server has hung up; it does so with a watcher that it finds too slow."""
        if not self.closing and (not self._wanted or watcher.events < self._wanted):
            self._lost += 1
            self._look()

    def _look(self) -> None:
        if self._wanted and self.served + self._lost >= self._count:
            self._all_heard.set()

    async def wait_for_events(self, events: int, seconds: float) -> int:
        """How many watchers have had so many events, when all have or have lost their server, or the time is up."""
        self._wanted = events
        self.served = sum(watcher.events >= events for watcher in self._watchers)
        self._look()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._all_heard.wait(), seconds)
        return self.served

    def close(self) -> None:
        self.closing = True
        for watcher in self._watchers:
            watcher.close()
