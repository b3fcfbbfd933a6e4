"""The page's web application: its files, its live stream, the past, and the buttons that fail simulated hardware.

`cli.up` creates it with `make_page` and serves it on its own listener, `cli.observe` does so for a real cluster. A
browser can't read or write Kubernetes objects through it; the only writes are faults of the sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec
from aiohttp import web

from windlass.model.errors import WindlassError
from windlass.web.assets import Asset, load_assets
from windlass.web.one_time_links import OneTimeLinks
from windlass.web.page_state import ObjectSource
from windlass.web.past_page import PastPage
from windlass.web.past_sources import PastSource
from windlass.web.session import RequestRefused, Sessions
from windlass.web.stream_pool import StreamPool
from windlass.web.token_access import SignIn
from windlass.web.viewers import Viewer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
LARGEST_BODY = 16_384
"""A bearer token with many groups in it has some thousand bytes."""
RECHECK_SECONDS = 30.0
"""How often an open page's rights are asked for again."""
REAL_GPUS_EVENT = b"event: real\ndata: {}\n\n"
"""Tells the page that GPUs are real, so that it shows no fault buttons."""
REFUSAL_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
    '<meta name="viewport" content="width=device-width"><title>Windlass</title><h1>Windlass</h1><p>{}</p></html>\n'
)


class FaultInjector(Protocol):
    """Fails and heals `node/x` and `gpu/x:3`. Returns a message; raises `InputError` if it can't."""

    def fail(self, target: str, xid: int | None = None) -> str: ...

    def heal(self, target: str) -> str: ...


class FaultRequest(msgspec.Struct, forbid_unknown_fields=True):
    action: str
    target: str
    xid: int | None = None


class Access(Protocol):
    """Who may look: by a link (`web.session`), or by the cluster's own authentication (`web.token_access`)."""

    def check_host(self, request: web.BaseRequest) -> None: ...

    async def enter(self, request: web.BaseRequest) -> web.Response | None: ...

    async def viewer(self, request: web.BaseRequest) -> Viewer: ...

    def check_write(self, request: web.BaseRequest) -> None: ...


def make_page(
    source: ObjectSource,
    faults: FaultInjector | None,
    links: OneTimeLinks,
    hosts: Callable[[], set[str]],
    past: PastSource | None = None,
    micro_prices: Mapping[str, int] | None = None,
) -> web.Application:
    """`hosts` are the `name:port` under which the page is served; `faults` is None where nothing is simulated."""
    return make_application(source, faults, Sessions(links, hosts), past, micro_prices)


def make_application(
    source: ObjectSource,
    faults: FaultInjector | None,
    access: Access,
    past_source: PastSource | None,
    micro_prices: Mapping[str, int] | None = None,
) -> web.Application:
    """`micro_prices`: of a GPU-hour by model, in millionths of the currency."""
    streams = StreamPool(source)
    page = _Page(streams, access, load_assets(), faults)
    past = PastPage(source, access, past_source, micro_prices)
    app = web.Application(middlewares=[_guard(access)], client_max_size=LARGEST_BODY)
    app.router.add_get("/", page.index)
    app.router.add_get("/live", page.live)
    app.router.add_get("/time", past.time)
    app.router.add_get("/teams", past.teams)
    app.router.add_get("/job", past.job)
    app.router.add_get("/allocation/compute", past.allocation)
    app.router.add_post("/faults", page.faults)
    if isinstance(access, SignIn):
        access.add_routes(app)
    app.router.add_get("/{path:.+}", page.asset)

    async def run(_: web.Application) -> Any:
        past.start()
        yield
        past.stop()
        await streams.stop()

    app.cleanup_ctx.append(run)
    return app


class _Page:
    def __init__(
        self, streams: StreamPool, access: Access, assets: dict[str, Asset], faults: FaultInjector | None
    ) -> None:
        self._streams, self._access, self._assets, self._faults = streams, access, assets, faults

    async def index(self, request: web.Request) -> web.StreamResponse:
        return await self._access.enter(request) or self._file("index.html")

    async def asset(self, request: web.Request) -> web.StreamResponse:
        # Without a session check: assets hold nothing about the cluster, and browsers fetch icons without a cookie.
        return self._file(request.match_info["path"])

    async def live(self, request: web.Request) -> web.StreamResponse:
        viewer = await self._access.viewer(request)
        response = web.StreamResponse(
            headers={**HEADERS, "Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            if self._faults is None:
                await response.write(REAL_GPUS_EVENT)
            await self._stream_while_allowed(request, viewer, response.write)
        return response

    async def _stream_while_allowed(
        self, request: web.Request, viewer: Viewer, write: Callable[[bytes], object]
    ) -> None:
        """Ends when the viewer may see something else than before, or nothing: the browser then asks anew."""
        streaming = asyncio.create_task((await self._streams.of(viewer)).stream_to(write))
        try:
            while not (await asyncio.wait((streaming,), timeout=RECHECK_SECONDS))[0]:
                if await self._access.viewer(request) != viewer:
                    return
            await streaming
        except RequestRefused:
            return
        finally:
            streaming.cancel()
            await asyncio.gather(streaming, return_exceptions=True)

    async def faults(self, request: web.Request) -> web.StreamResponse:
        await self._access.viewer(request)
        self._access.check_write(request)
        if self._faults is None:
            raise RequestRefused(409, "Faults can be injected only into simulated nodes; these are real.")
        try:
            order = msgspec.json.decode(await request.read(), type=FaultRequest)
        except msgspec.MsgspecError as error:
            raise RequestRefused(400, f"Not a fault request: {error}") from None
        if order.action not in ("fail", "heal"):
            raise RequestRefused(400, f"{order.action[:64]!r} is neither fail nor heal.")
        try:
            answer = (
                self._faults.fail(order.target, order.xid)
                if order.action == "fail"
                else self._faults.heal(order.target)
            )
        except (WindlassError, ValueError) as error:
            raise RequestRefused(422, str(error)) from None
        return web.json_response({"message": answer})

    def _file(self, path: str) -> web.StreamResponse:
        asset = self._assets.get(path)
        if asset is None:
            if path == "index.html":
                raise RequestRefused(503, "This copy of Windlass has no built page: run `make page` in its folder.")
            raise RequestRefused(404, "There is no such file.")
        return web.Response(body=asset.content, content_type=asset.kind, charset=asset.charset, headers=asset.headers)


def _guard(access: Access) -> Any:
    """Before and after every request: the address is ours, and the answer has the headers that protect the page."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            access.check_host(request)
            response = await handler(request)
        except RequestRefused as refused:
            response = _refusal(request, refused)
        except web.HTTPException as problem:
            response = web.Response(status=problem.status, text=f"{problem.reason}\n")
        if not response.prepared:
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            response.headers.setdefault("Cache-Control", "no-store")
        return response

    return guard


def _refusal(request: web.Request, refused: RequestRefused) -> web.Response:
    """A page for a person who came by the address bar, a line for a program."""
    if "text/html" not in request.headers.get("Accept", ""):
        return web.Response(status=refused.status, text=refused.reason + "\n")
    shown = re.sub("`(.*?)`", r"<code>\1</code>", html.escape(refused.reason))
    return web.Response(status=refused.status, text=REFUSAL_PAGE.format(shown), content_type="text/html")
