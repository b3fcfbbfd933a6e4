"""The past on the page: the Time, Team and Job views, as JSON out of `web.past_sources`.

`web.page` routes to it. Reading is done in one thread, since what has been read is kept in memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import msgspec
from aiohttp import web

from windlass.model.errors import InputError, WindlassError
from windlass.telemetry.opencost import AGGREGATES, allocation_set, parse_step, parse_window, steps
from windlass.telemetry.team_view import make_team_view, visible_usage
from windlass.telemetry.time_view import EVERYBODY, Audience
from windlass.telemetry.usage_history import SLOT_SECONDS
from windlass.web.page_state import ObjectSource
from windlass.web.past_sources import PastSource
from windlass.web.pods import job_key_of
from windlass.web.session import RequestRefused
from windlass.web.viewers import Viewer
from windlass.web.visible_objects import VisibleObjects

MAX_SECONDS = 31 * 86_400
NO_HISTORY = (
    "No past is recorded here: run `windlass scheduler --history FOLDER` and name that folder here too, or a "
    "Prometheus (--prometheus URL)."
)
NOTHING_YET = "Nothing is recorded yet: what the scheduler sees is written once a minute."
T = TypeVar("T")


class ViewerSource(Protocol):
    async def viewer(self, request: web.BaseRequest) -> Viewer: ...


class PastPage:
    def __init__(
        self,
        source: ObjectSource,
        access: ViewerSource,
        past: PastSource | None,
        micro_prices: Mapping[str, int] | None = None,
    ) -> None:
        self._source, self._access, self._past, self._prices = source, access, past, micro_prices or {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="windlass-past")

    def start(self) -> None:
        """Reads what there is, in the background."""
        if self._past is not None:
            now = int(time.time())
            self._pool.submit(self._past.load, now - MAX_SECONDS, now)

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def time(self, request: web.Request) -> web.StreamResponse:
        audience, (start, end) = await self._audience(request), _range(request)
        past = self._recorded()
        return _json(await self._read(lambda: past.time(start, end, audience)))

    async def teams(self, request: web.Request) -> web.StreamResponse:
        audience, (start, end) = await self._audience(request), _range(request)
        past = self._recorded()
        return _json(await self._read(lambda: make_team_view(past.usage(start, end), audience)))

    async def allocation(self, request: web.Request) -> web.StreamResponse:
        """As OpenCost answers: a list of windows, each with what every namespace, job, user or queue held."""
        audience, query = await self._audience(request), request.query
        past = self._recorded()
        try:
            start, end = parse_window(query.get("window", "1d"), int(time.time()))
            by = AGGREGATES.get(query.get("aggregate", "namespace"))
            step = parse_step(query["step"]) if "step" in query else end - start
        except InputError as error:
            raise RequestRefused(400, str(error)) from None
        if by is None:
            raise RequestRefused(400, f"`aggregate` is one of {', '.join(AGGREGATES)}.")
        if end - start > MAX_SECONDS:
            raise RequestRefused(400, "The window is 31 days long at most.")
        is_whole = query.get("accumulate", "false") == "true"
        prices = self._prices

        def read() -> object:
            windows = [(start, end)] if is_whole else steps(start, end, step)
            usages = (visible_usage(past.usage(*window), audience) for window in windows)
            return {"code": 200, "data": [allocation_set(usage, by, prices) for usage in usages]}

        return _json(await self._read(read))

    async def job(self, request: web.Request) -> web.StreamResponse:
        """`key`: `namespace/Kind/name`, as the live stream names a job."""
        audience, (start, end) = await self._audience(request), _range(request)
        name = _job_name(request.query.get("key", ""))
        if not audience.may_see_job(name):
            raise RequestRefused(404, "There is no such job, or you may not list the pods of its namespace.")
        past, pods = self._recorded(), self._living_pods(name)
        return _json(await self._read(lambda: past.job(name, pods, start, end, audience)))

    def _living_pods(self, job: str) -> list[str]:
        kind, _, path = job.partition(" ")
        namespace, _, name = path.partition("/")
        trees = (tree for tree in self._source.list("pods") if tree["metadata"].get("namespace") == namespace)
        return [tree["metadata"]["name"] for tree in trees if job_key_of(tree) == (namespace, kind, name)]

    async def _audience(self, request: web.Request) -> Audience:
        viewer = await self._access.viewer(request)
        if viewer.sees_everything:
            return EVERYBODY
        return Audience(viewer.namespaces, VisibleObjects(self._source, viewer).queues(), viewer.sees_nodes)

    def _recorded(self) -> PastSource:
        if self._past is None:
            raise RequestRefused(404, NO_HISTORY)
        if not self._past.has_any():
            raise RequestRefused(404, NOTHING_YET)
        return self._past

    async def _read(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except WindlassError as error:  # a Prometheus that does not answer
            raise RequestRefused(502, str(error)) from None


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


def _job_name(key: str) -> str:
    """`Kind namespace/name`, as the ledger names it."""
    parts = key.split("/")
    if len(parts) != 3 or not all(parts):
        raise RequestRefused(400, "`key` is namespace/Kind/name.")
    namespace, kind, name = parts
    return f"{kind} {namespace}/{name}"


def _json(document: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(document), content_type="application/json")
