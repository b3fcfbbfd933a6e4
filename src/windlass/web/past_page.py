"""The past on the page: the Time and Team views, as JSON out of the recorded ledger.

`web.page` routes to it. Reading is done in one thread, since what has been read is kept in memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from aiohttp import web

from windlass.telemetry.summaries import Summaries
from windlass.telemetry.team_view import make_team_view
from windlass.telemetry.time_view import EVERYBODY, Audience, make_time_view
from windlass.telemetry.usage_history import SLOT_SECONDS
from windlass.web.page_state import ObjectSource
from windlass.web.session import RequestRefused
from windlass.web.viewers import Viewer
from windlass.web.visible_objects import VisibleObjects

MAX_SECONDS = 31 * 86_400
NO_HISTORY = "No past is recorded here: run `windlass scheduler --history FOLDER`, and name that folder here too."
NOTHING_YET = "Nothing is recorded yet: what the scheduler sees is written once a minute."
T = TypeVar("T")


class ViewerSource(Protocol):
    async def viewer(self, request: web.BaseRequest) -> Viewer: ...


class PastPage:
    def __init__(self, source: ObjectSource, access: ViewerSource, history: Path | None) -> None:
        self._source, self._access, self._history = source, access, history
        self._summaries = Summaries(history) if history is not None else None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="windlass-past")

    def start(self) -> None:
        """Reads what there is, in the background."""
        if self._summaries is not None:
            now = int(time.time())
            self._pool.submit(self._summaries.load, now - MAX_SECONDS, now)

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def time(self, request: web.Request) -> web.StreamResponse:
        audience, (start, end) = await self._audience(request), _range(request)
        summaries = self._recorded()
        return _json(await self._read(lambda: make_time_view(summaries, start, end, audience)))

    async def teams(self, request: web.Request) -> web.StreamResponse:
        audience, (start, end) = await self._audience(request), _range(request)
        self._recorded()
        folder = self._history
        assert folder is not None  # `_recorded` has refused the others
        return _json(await self._read(lambda: make_team_view(folder, start, end, audience)))

    async def _audience(self, request: web.Request) -> Audience:
        viewer = await self._access.viewer(request)
        if viewer.namespaces is None:
            return EVERYBODY
        return Audience(viewer.namespaces, VisibleObjects(self._source, viewer).queues())

    def _recorded(self) -> Summaries:
        if self._summaries is None:
            raise RequestRefused(404, NO_HISTORY)
        if not self._summaries.has_any():
            raise RequestRefused(404, NOTHING_YET)
        return self._summaries

    async def _read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _range(request: web.Request) -> tuple[int, int]:
    """`from` and `to` in seconds since 1970; the last day where they are missing."""
    now = int(time.time())
    try:
        end = int(request.query.get("to", now))
        start = int(request.query.get("from", end - 86_400))
    except ValueError:
        raise RequestRefused(400, "`from` and `to` are seconds since 1970.") from None
    if not 0 <= start <= end - SLOT_SECONDS or end - start > MAX_SECONDS or end > now + 86_400:
        raise RequestRefused(400, "The range has to be between five minutes and 31 days long, and in the past.")
    return start, end


def _json(document: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(document), content_type="application/json")
