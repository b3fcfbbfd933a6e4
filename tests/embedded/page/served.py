"""The page on made-up objects, without a cluster: a server in a thread, which tests feed, cut off and start anew.

The listening socket is kept all the time. While nobody serves it, browsers' connections wait in its queue, as they
would for a machine that doesn't answer; nobody else can take the port meanwhile.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from aiohttp import web
from tests.embedded.page.feed import Feed

from windlass.telemetry.prometheus import Prometheus
from windlass.web.one_time_links import OneTimeLinks
from windlass.web.page import make_page
from windlass.web.past_sources import past_source

PATIENCE = 60.0


class Orders:
    """What the page's buttons asked for."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def fail(self, target: str, xid: int | None = None) -> str:
        self.given.append(f"fail {target} {xid}")
        return f"failed {target} with Xid {xid}"

    def heal(self, target: str) -> str:
        self.given.append(f"heal {target}")
        return f"healed {target}"


class Served:
    """`simulated` is false where nothing can be broken, as with real GPUs."""

    def __init__(
        self, simulated: bool = True, history: Path | None = None, prometheus: Prometheus | None = None
    ) -> None:
        self.feed, self.orders, self._simulated = Feed(), Orders(), simulated
        self._history, self._prometheus = history, prometheus
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._host = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="page")
        self._thread.start()
        self.start_anew()

    def put(self, resource: str, *objects: dict[str, Any]) -> None:
        self._do(_call(lambda: self.feed.put(resource, *objects)))

    def remove(self, resource: str, obj: dict[str, Any]) -> None:
        self._do(_call(lambda: self.feed.remove(resource, obj)))

    def link(self) -> str:
        return self._links.create()

    def start_anew(self) -> None:
        """A server that knows no browser."""
        self._links = OneTimeLinks()
        self._links.address = f"http://{self._host}"
        self._do(self._start())

    def stop(self) -> None:
        self._do(self._runner.cleanup())

    def cut(self) -> None:
        """Nobody is answered any more, and who was is hung up on."""
        self._do(self._cut())

    def mend(self) -> None:
        self._do(self._listen())

    def close(self) -> None:
        self.stop()
        self._do(_end_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()
        self._socket.close()

    async def _start(self) -> None:
        faults = self.orders if self._simulated else None
        past = past_source(self._history, self._prometheus)
        app = make_page(self.feed, faults, self._links, lambda: {self._host}, past)
        self._runner = web.AppRunner(app, shutdown_timeout=1)
        await self._runner.setup()
        await self._listen()

    async def _listen(self) -> None:
        self._site = web.SockSite(self._runner, self._socket.dup())
        await self._site.start()

    async def _cut(self) -> None:
        await self._site.stop()
        server = self._runner.server
        assert server is not None
        for connection in server.connections:
            if connection.transport is not None:
                connection.transport.abort()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)


async def _end_all() -> None:
    """Handlers of connections that were hung up on may still be about to notice."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _call(act: Callable[[], None]) -> None:
    act()
