"""Authentication: a bearer token, and a Host and Origin of this server.

`server` calls it before anything else. Without the token no request is answered. The check of Host and Origin stops
web pages of other sites that resolve their name to loopback (DNS rebinding).
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
        """`hosts`: names besides loopback under which the server may be called."""
        self._token = token.encode()
        self._names = frozenset((*LOOPBACK, *(_bracketed(host) for host in hosts)))
        self._allows_any_host = bool({"0.0.0.0", "[::]"} & self._names)
        self._issued: dict[str, tuple[User, float]] = {}

    def issue_token(self, user: User, until: float) -> str:
        """A token for another user, such as a service account, valid until a given time."""
        now = time.time()
        self._issued = {token: issued for token, issued in self._issued.items() if issued[1] > now}
        token = secrets.token_urlsafe(48)
        self._issued[token] = user, until
        return token

    def authenticate(self, request: web.BaseRequest) -> User:
        headers = request.headers
        host = headers.get("Host", "")
        if not self._is_allowed_host(host):
            raise ApiError(403, "Forbidden", f"forbidden: the host {host!r} is not a name of this server")
        origin = headers.get("Origin")
        if origin is not None and origin != f"https://{host}":
            raise ApiError(403, "Forbidden", f"forbidden: requests of the origin {origin!r} are not allowed")
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise ApiError.unauthorized()
        if hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._token):
            return ADMIN
        user, until = self._issued.get(token, (ADMIN, 0.0))
        if until <= time.time():
            raise ApiError.unauthorized()
        return user

    def _is_allowed_host(self, host: str) -> bool:
        name, colon, port = host.rpartition(":")
        if not colon or not port.isdigit():
            name = host
        return name.lower() in self._names or (self._allows_any_host and bool(name))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host.lower()
