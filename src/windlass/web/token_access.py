"""Access to the page of a real cluster: the bearer token of each request, or a session that a token has begun.

An OIDC proxy in front sends the viewer's token with every request. Without one, a person signs in with a token once
(`kubectl create token`), and a cookie stands for it. The token is asked about again and again (`web.viewers`), so that
a session ends with the token's time, and rights that are taken away are gone within two minutes.
"""

from __future__ import annotations

import html
import secrets
import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

from aiohttp import web

from windlass.kube.errors import ApiError, ServerUnavailable
from windlass.web.session import OTHER_SITES, RequestRefused, check_site
from windlass.web.viewers import Viewer, Viewers

COOKIE = "windlass-observe"
MAX_SESSIONS = 1024
SESSION_SECONDS = 12 * 3600.0
SIGN_IN_POLICY = "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
SIGN_IN_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
    '<meta name="viewport" content="width=device-width"><title>Windlass: sign in</title><h1>Windlass</h1>{problem}'
    '<form method="post" action="/sign-in"><p><label for="token">A token of this cluster</label></p>'
    '<p><input id="token" name="token" type="password" autocomplete="off" required size="60" autofocus></p>'
    "<p><button>Sign in</button></p></form>"
    "<p>For example: <code>kubectl create token NAME --namespace NAMESPACE --duration 8h</code>. "
    "You see the work of the namespaces whose pods the token may list.</p></html>\n"
)


@runtime_checkable
class SignIn(Protocol):
    def add_routes(self, app: web.Application) -> None: ...


class TokenAccess:
    """The page's `Access` and `SignIn`."""

    def __init__(self, viewers: Viewers, clock: Callable[[], float] = time.monotonic) -> None:
        self._viewers, self._clock = viewers, clock
        self._sessions: dict[str, tuple[str, float]] = {}
        """Cookie → token, and when it began."""

    def add_routes(self, app: web.Application) -> None:
        for path in ("/healthz", "/readyz"):
            app.router.add_get(path, _healthy)
        app.router.add_post("/sign-in", self.sign_in)
        app.router.add_post("/sign-out", self.sign_out)

    def check_host(self, request: web.BaseRequest) -> None:
        """Any name will do: whoever asks needs a token, and a cookie belongs to the name that it was given under."""
        check_site(request)

    def check_write(self, request: web.BaseRequest) -> None:
        raise RequestRefused(403, "This page only shows the cluster; it changes nothing.")

    async def enter(self, request: web.BaseRequest) -> web.Response | None:
        if not self._token(request):
            return _sign_in_page(200)
        viewer = await self._ask(self._token(request))
        if viewer is None:
            return _sign_in_page(401, "The session has ended, or the cluster does not know the token.")
        return None

    async def viewer(self, request: web.BaseRequest) -> Viewer:
        token = self._token(request)
        viewer = await self._ask(token) if token else None
        if viewer is None:
            raise RequestRefused(401, "Sign in with a token of the cluster.")
        return viewer

    async def sign_in(self, request: web.Request) -> web.StreamResponse:
        _check_same_origin(request)
        token = str((await request.post()).get("token", "")).strip()
        viewer = await self._ask(token) if token else None
        if viewer is None:
            return _sign_in_page(401, "The cluster does not know this token, or its time is over.")
        cookie = secrets.token_urlsafe(32)
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[cookie] = (token, self._clock())
        answer = web.Response(status=303, headers={"Location": "/"})
        is_secure = request.secure or request.headers.get("X-Forwarded-Proto") == "https"
        answer.set_cookie(COOKIE, cookie, httponly=True, samesite="Strict", secure=is_secure, path="/")
        return answer

    async def sign_out(self, request: web.Request) -> web.StreamResponse:
        _check_same_origin(request)
        self._sessions.pop(request.cookies.get(COOKIE, ""), None)
        answer = web.Response(status=303, headers={"Location": "/"})
        answer.del_cookie(COOKIE, path="/")
        return answer

    async def _ask(self, token: str) -> Viewer | None:
        try:
            viewer = await self._viewers.of_token(token)
        except (ApiError, ServerUnavailable) as error:
            raise RequestRefused(503, f"The cluster can't be asked who you are: {error}") from None
        if viewer is not None and viewer.sees_nothing:
            raise RequestRefused(403, f"{viewer.name} may list pods in no namespace, so there is nothing to show.")
        return viewer

    def _token(self, request: web.BaseRequest) -> str:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return token.strip()
        cookie = request.cookies.get(COOKIE, "")
        token, began = self._sessions.get(cookie, ("", 0.0))
        if token and self._clock() - began > SESSION_SECONDS:
            del self._sessions[cookie]
            return ""
        return token


async def _healthy(request: web.Request) -> web.StreamResponse:
    return web.Response(text="ok\n")


def _check_same_origin(request: web.BaseRequest) -> None:
    """A form of another site must not sign anybody in or out."""
    origin = request.headers.get("Origin", "")
    if urlsplit(origin).netloc != request.headers.get("Host", ""):
        raise RequestRefused(403, OTHER_SITES)


def _sign_in_page(status: int, problem: str = "") -> web.Response:
    shown = f'<p role="alert">{html.escape(problem)}</p>' if problem else ""
    return web.Response(
        status=status,
        text=SIGN_IN_PAGE.format(problem=shown),
        content_type="text/html",
        headers={"Content-Security-Policy": SIGN_IN_POLICY},
    )
