"""Accepts connections, and lets nobody hold many without having shown a token.

A connection is a stranger until its first request is authenticated. Strangers have some seconds for the handshake and
that request; there is room for a limited number of them, and beyond it the oldest goes. `server` and the page of
`windlass up` listen with one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Callable

BACKLOG = 1024
STRANGER_SECONDS = 10.0
"""Until the first authenticated request."""
MAX_STRANGERS = 256
LEAST_SECONDS = 1.0
"""A stranger has this long, however many there are: a thousand watchers may connect at once."""
RETRY_SECONDS = 0.1
"""When there are no descriptors left."""


class _Stranger:
    def __init__(self, now: float) -> None:
        self.since = now
        self.task: asyncio.Task[None] | None = None
        self.transport: asyncio.BaseTransport | None = None

    def drop(self) -> None:
        if isinstance(self.transport, asyncio.Transport):
            self.transport.abort()
        elif self.task is not None:
            self.task.cancel()


class Listener:
    def __init__(self, factory: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None = None) -> None:
        self._factory, self._tls = factory, tls
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._strangers: dict[asyncio.BaseProtocol | _Stranger, _Stranger] = {}
        self._has_room = asyncio.Event()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [listener.getsockname()[:2] for listener in self._sockets]

    async def start(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, _, _, _, address in dict.fromkeys(infos):
                self._sockets.append(_listen(family, address))
        except OSError:
            self._close_sockets()
            raise
        self._accepting = [loop.create_task(self._accept(listener)) for listener in self._sockets]

    async def close(self) -> None:
        """Accepts no more; open connections are the factory's."""
        for task in (*self._accepting, *(stranger.task for stranger in self._strangers.values() if stranger.task)):
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        self._close_sockets()

    def welcome(self, protocol: asyncio.BaseProtocol | None) -> None:
        """The connection has shown a token."""
        if protocol is not None and self._strangers.pop(protocol, None) is not None:
            self._has_room.set()

    def _close_sockets(self) -> None:
        for listener in self._sockets:
            listener.close()
        self._sockets = []

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._make_room()
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:  # no descriptors are left, or the client has gone already
                await asyncio.sleep(RETRY_SECONDS)
                continue
            stranger = _Stranger(time.monotonic())
            self._strangers[stranger] = stranger
            stranger.task = loop.create_task(self._greet(connection, stranger))

    async def _make_room(self) -> None:
        """Waits until the oldest stranger may be dropped, if there are too many."""
        while len(self._strangers) >= MAX_STRANGERS:
            key, oldest = next(iter(self._strangers.items()))
            left = oldest.since + LEAST_SECONDS - time.monotonic()
            if left <= 0:
                self._drop(key)
                continue
            self._has_room.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._has_room.wait()

    async def _greet(self, connection: socket.socket, stranger: _Stranger) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(STRANGER_SECONDS):
                transport, protocol = await loop.connect_accepted_socket(self._factory, connection, ssl=self._tls)
        except (OSError, TimeoutError, asyncio.CancelledError):
            connection.close()
            return
        finally:
            self._strangers.pop(stranger, None)
            self._has_room.set()
        stranger.transport = transport
        self._strangers[protocol] = stranger
        left = stranger.since + STRANGER_SECONDS - time.monotonic()
        loop.call_later(max(0.0, left), self._drop, protocol)

    def _drop(self, key: asyncio.BaseProtocol | _Stranger) -> None:
        """Ends a connection that is still a stranger's."""
        stranger = self._strangers.pop(key, None)
        if stranger is not None:
            stranger.drop()
            self._has_room.set()


def _listen(family: int, address: object) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)  # type: ignore[arg-type]
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
