"""Authentication: a bearer token, and a Host and Origin of this server.

`server` calls it before anything else. Without the token no request is answered. The check of Host and Origin stops
web pages of other sites that resolve their name to loopback (DNS rebinding).
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec
from aiohttp import web

from windlass.embedded.api.errors import ApiError
from windlass.model.digits import is_digits

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class User(msgspec.Struct, frozen=True):
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""


class _IssuedToken(NamedTuple):
    user: User
    until: float
    is_valid: Callable[[], bool]


def service_account_groups(namespace: str) -> tuple[str, ...]:
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")


MAX_TOKENS = 10_000
"""Issued and not expired; beyond it the oldest goes."""
AUTHENTICATED = "system:authenticated"
USER_KEY = web.RequestKey("user", User)
ADMIN = User("system:admin", ("system:masters", AUTHENTICATED))


class Authenticator:
    def __init__(self, token: str, hosts: Collection[str] = ()) -> None:
        """`hosts`: names besides loopback under which the server may be called."""
        self._token = token.encode()
        self._names = frozenset((*LOOPBACK, *(_bracketed(host) for host in hosts)))
        self._allows_any_host = bool({"0.0.0.0", "[::]"} & self._names)
        self._issued: dict[str, _IssuedToken] = {}

    def issue_token(self, user: User, until: float, is_valid: Callable[[], bool] = lambda: True) -> str:
        """A token for another user, such as a service account, valid until a given time, and while it is valid."""
        now = time.time()
        self._issued = {token: issued for token, issued in self._issued.items() if issued.until > now}
        while len(self._issued) >= MAX_TOKENS:
            self._issued.pop(next(iter(self._issued)))
        token = secrets.token_urlsafe(48)
        self._issued[token] = _IssuedToken(user, until, is_valid)
        return token

    def user_of(self, token: str) -> User | None:
        """None for a token that is none, or no longer."""
        if hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._token):
            return ADMIN
        issued = self._issued.get(token)
        if issued is None or issued.until <= time.time() or not issued.is_valid():
            return None
        return issued.user

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
        user = self.user_of(token)
        if user is None:
            raise ApiError.unauthorized()
        return user

    def _is_allowed_host(self, host: str) -> bool:
        name, colon, port = host.rpartition(":")
        if not colon or not is_digits(port):
            name = host
        return name.lower() in self._names or (self._allows_any_host and bool(name))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host.lower()
