"""Authentication of the page: a one-time link, then a cookie.

`web.page` calls `Sessions` before anything else. The link's code (`web.one_time_links`) is exchanged for an HttpOnly,
SameSite=Strict cookie and removed from the address bar. The Host header must be a known one (against DNS rebinding),
cross-site requests are refused, and a write needs the page's own Origin and a header that a form can't send.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable

from aiohttp import web

from windlass.web.one_time_links import OneTimeLinks
from windlass.web.viewers import EVERYTHING, Viewer

COOKIE = "windlass-page"
PAGE_HEADER = "X-Windlass-Page"
MOST_SESSIONS = 256
OTHER_SITES = "Requests from other sites are refused."
NEW_LINK_HINT = "`windlass page` prints a new one."
REDIRECT_PAGE = (
    '<!doctype html><meta http-equiv="refresh" content="0; url=/"><title>Windlass</title><a href="/">Windlass</a>'
)


class RequestRefused(Exception):
    """The request is refused; `reason` is the body of the response."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


def check_site(request: web.BaseRequest) -> None:
    """Refuses what another site's page has sent."""
    site = request.headers.get("Sec-Fetch-Site", "none")
    navigation = request.headers.get("Sec-Fetch-Mode") == "navigate" and request.method == "GET"
    if site not in ("none", "same-origin") and not navigation:
        raise RequestRefused(403, OTHER_SITES)


class Sessions:
    def __init__(self, links: OneTimeLinks, hosts: Callable[[], set[str]]) -> None:
        self._links, self._hosts = links, hosts
        self._known: list[str] = []

    def check_host(self, request: web.BaseRequest) -> None:
        """Refuses requests with a foreign Host, and cross-site requests."""
        if request.headers.get("Host", "").lower() not in self._hosts():
            raise RequestRefused(421, "This server answers only at the address that `windlass up` printed.")
        check_site(request)
        origin = request.headers.get("Origin")
        if origin is not None and not self._is_ours(origin, request):
            raise RequestRefused(403, OTHER_SITES)

    async def enter(self, request: web.BaseRequest) -> web.Response | None:
        """The answer to the page's address, where that is not the page itself."""
        if "token" in request.query:
            return self.start_session(request)
        self.check_session(request)
        return None

    async def viewer(self, request: web.BaseRequest) -> Viewer:
        self.check_session(request)
        return EVERYTHING

    def check_session(self, request: web.BaseRequest) -> None:
        if not self._is_known(request):
            raise RequestRefused(401, f"This page is opened by a link, which works once. {NEW_LINK_HINT}")

    def _is_known(self, request: web.BaseRequest) -> bool:
        given = request.cookies.get(self.cookie_name(request), "").encode("utf-8", "surrogateescape")
        return any(hmac.compare_digest(given, known.encode()) for known in self._known)

    def check_write(self, request: web.BaseRequest) -> None:
        """For a request that changes something: it must say that our own page sent it."""
        if not self._is_ours(request.headers.get("Origin", ""), request) or PAGE_HEADER not in request.headers:
            raise RequestRefused(403, "Only requests from the page may change the cluster.")

    def start_session(self, request: web.BaseRequest) -> web.Response:
        """By a link: its code for a cookie, and on to the page. Who has a cookie needs no code."""
        is_known, answer = self._is_known(request), _onward(request)
        if self._links.redeem(request.query.get("token", "")):
            if not is_known:
                self._admit(request, answer)
        elif not is_known and not _from_elsewhere(request):
            why = "This link was used already, or is of an earlier `windlass up`. A link works once."
            raise RequestRefused(401, f"{why} {NEW_LINK_HINT}")
        return answer

    def _admit(self, request: web.BaseRequest, answer: web.Response) -> None:
        session = secrets.token_urlsafe(32)
        self._known = [*self._known[1 - MOST_SESSIONS :], session]
        name, secure = self.cookie_name(request), request.secure
        answer.set_cookie(name, session, httponly=True, samesite="Strict", secure=secure, path="/")

    @staticmethod
    def cookie_name(request: web.BaseRequest) -> str:
        """Cookies are not kept apart by port, so the name has it: two clusters on a machine don't end each other's."""
        return f"{COOKIE}-{request.headers.get('Host', '').rpartition(':')[2]}"

    @staticmethod
    def _is_ours(origin: str, request: web.BaseRequest) -> bool:
        return origin == f"{request.scheme}://{request.headers.get('Host', '')}"


def _from_elsewhere(request: web.BaseRequest) -> bool:
    """The link was clicked on another site, which is why the browser keeps our cookie to itself for now."""
    return request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")


def _onward(request: web.BaseRequest) -> web.Response:
    """To the page, without the code in the address. A redirect that another site began brings no cookie along; a step
    that our own answer takes does."""
    if _from_elsewhere(request):
        return web.Response(text=REDIRECT_PAGE, content_type="text/html")
    return web.Response(status=303, headers={"Location": "/"})
