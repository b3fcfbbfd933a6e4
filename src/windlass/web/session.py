"""Who may see the page: the token of the printed link, once, then a cookie that other sites can't use.

`web.page` asks `Sessions` before anything else. The link's token is traded for an HttpOnly, SameSite=Strict cookie and
disappears from the address bar by a redirect. The Host header must be one that we were told (a name that an attacker
points at loopback is not), requests that a browser marks as another site's are refused, and a request that changes
something needs our own Origin and a header that a form can't send.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable

from aiohttp import web

COOKIE = "windlass-page"
PAGE_HEADER = "X-Windlass-Page"
MOST_SESSIONS = 256


class Refused(Exception):
    """The request is not answered; `reason` is what its sender is told."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Sessions:
    def __init__(self, token: str, hosts: Callable[[], set[str]]) -> None:
        self._token, self._hosts = token, hosts
        self._known: list[str] = []

    def check_address(self, request: web.BaseRequest) -> None:
        """Refuses what was not sent to us by our own name, or was sent by another site's page."""
        if request.headers.get("Host", "").lower() not in self._hosts():
            raise Refused(421, "This server answers only under the address that it printed.")
        site = request.headers.get("Sec-Fetch-Site", "none")
        navigation = request.headers.get("Sec-Fetch-Mode") == "navigate" and request.method == "GET"
        if site not in ("none", "same-origin") and not navigation:
            raise Refused(403, "Requests of other sites are refused.")
        origin = request.headers.get("Origin")
        if origin is not None and not self._is_ours(origin, request):
            raise Refused(403, "Requests of other sites are refused.")

    def check_session(self, request: web.BaseRequest) -> None:
        given = request.cookies.get(self.cookie_name(request), "")
        if not any(hmac.compare_digest(given.encode(), known.encode()) for known in self._known):
            raise Refused(401, "Open the link that `windlass up` printed: it has the token of this page.")

    def check_change(self, request: web.BaseRequest) -> None:
        """For a request that changes something: it must say that our own page sent it."""
        if (
            not self._is_ours(request.headers.get("Origin", ""), request)
            or PAGE_HEADER not in request.headers
        ):
            raise Refused(403, "Only the page itself may change something.")

    def trade(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        """The link's token for a cookie."""
        given = request.query.get("token", "")
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            raise Refused(
                401, "This token is not the one that `windlass up` printed; it is a new one at every start."
            )
        session = secrets.token_urlsafe(32)
        self._known = [*self._known[-MOST_SESSIONS + 1 :], session]
        secure = request.secure
        response.set_cookie(
            self.cookie_name(request), session, httponly=True, samesite="Strict", secure=secure, path="/"
        )

    @staticmethod
    def cookie_name(request: web.BaseRequest) -> str:
        """Cookies are not kept apart by port, so the name has it: two clusters on a machine don't end each other's."""
        return f"{COOKIE}-{request.headers.get('Host', '').rpartition(':')[2]}"

    @staticmethod
    def _is_ours(origin: str, request: web.BaseRequest) -> bool:
        return origin == f"{request.scheme}://{request.headers.get('Host', '')}"
