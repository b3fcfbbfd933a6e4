"""Who may come in: a bearer token, and a Host and Origin that are ours.

`server.server` asks before anything else. Without the token nothing is answered, not even whether it is there. A page
of another site that resolves its name to loopback sends its own name as Host, or its own Origin, and is refused.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Collection

import msgspec
from aiohttp import web

from windlass.embedded.api.errors import ApiError

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class User(msgspec.Struct, frozen=True):
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""


USER_KEY = web.RequestKey("user", User)
ADMIN = User("system:admin", ("system:masters", "system:authenticated"))


class Authenticator:
    def __init__(self, token: str, hosts: Collection[str] = ()) -> None:
        """`hosts`: names besides those of loopback under which the server may be called."""
        self._token = token.encode()
        self._names = frozenset((*LOOPBACK, *(_bracketed(host) for host in hosts)))
        self._any = bool({"0.0.0.0", "[::]"} & self._names)
        self._guests: dict[str, tuple[User, float]] = {}

    def issue_token(self, user: User, until: float) -> str:
        """A token for somebody else, e.g. a service account, that is good until a moment."""
        now = time.time()
        self._guests = {token: guest for token, guest in self._guests.items() if guest[1] > now}
        token = secrets.token_urlsafe(48)
        self._guests[token] = user, until
        return token

    def authenticate(self, request: web.BaseRequest) -> User:
        headers = request.headers
        host = headers.get("Host", "")
        if not self._ours(host):
            raise ApiError(403, "Forbidden", f"forbidden: the host {host!r} is not a name of this server")
        origin = headers.get("Origin")
        if origin is not None and origin != f"https://{host}":
            raise ApiError(403, "Forbidden", f"forbidden: requests of the origin {origin!r} are not allowed")
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise ApiError.unauthorized()
        if hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._token):
            return ADMIN
        user, until = self._guests.get(token, (ADMIN, 0.0))
        if until <= time.time():
            raise ApiError.unauthorized()
        return user

    def _ours(self, host: str) -> bool:
        name, colon, port = host.rpartition(":")
        if not colon or not port.isdigit():
            name = host
        return name.lower() in self._names or (self._any and bool(name))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host.lower()
