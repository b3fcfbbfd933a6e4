"""One-time links to the page: each opens it once, for one browser.

`windlass up` prints the first; `windlass page` asks for another at a route of the API server, behind its token.
`web.session` spends them.

    POST  /windlass/page       → {"kind": "PageLink", "url": "http://127.0.0.1:7480/?token=…"}
"""

from __future__ import annotations

import hmac
import secrets

import msgspec
from aiohttp import web

from windlass.embedded.api.errors import ApiError
from windlass.model.names.windlass import WINDLASS_API_VERSION

PREFIX = "/windlass/page"
MOST_OPEN = 64
"""Links that wait to be opened; a further one closes the oldest."""


class OneTimeLinks:
    def __init__(self) -> None:
        self.address = ""
        """Where the page is served, once that is known: `http://127.0.0.1:7480`."""
        self._open: list[str] = []

    def create(self) -> str:
        """The address of the page with a code that nobody has used."""
        code = secrets.token_urlsafe(24)
        self._open = [*self._open[1 - MOST_OPEN :], code]
        return f"{self.address}/?token={code}"

    def redeem(self, code: str) -> bool:
        """Whether the code was good; it isn't from now on."""
        given = code.encode("utf-8", "surrogateescape")
        kept = [unused for unused in self._open if not hmac.compare_digest(unused.encode(), given)]
        good = len(kept) < len(self._open)
        self._open = kept
        return good

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """The route on the API server."""
        if request.method != "POST":
            raise ApiError(405, "MethodNotAllowed", "use POST: every answer is a new link")
        document = {"apiVersion": WINDLASS_API_VERSION, "kind": "PageLink", "url": self.create()}
        headers = {"Cache-Control": "no-store"}
        return web.Response(body=msgspec.json.encode(document), content_type="application/json", headers=headers)
