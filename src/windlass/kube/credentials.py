"""Credentials for the API server: headers and a client certificate, which both may change while the process runs.

Made by `kube.client_config`; `kube.client` asks for headers before each request and reports a 401.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from windlass.model.errors import ClusterUnreachable

REREAD_SECONDS = 60.0
"""A token file is read again after this long; the kubelet rewrites a service account's token well before it ends."""


class ClientCertificate(msgspec.Struct, frozen=True):
    """A client certificate and its key, in PEM."""

    certificate: bytes = b""
    key: bytes = b""


class Credentials(Protocol):
    async def headers(self) -> dict[str, str]:
        """Headers of the next request."""

    async def client_certificate(self) -> ClientCertificate:
        """For the TLS handshake; empty where there is none."""

    def invalidate(self) -> bool:
        """Called after a 401: drops cached credentials. Returns False if another try can't help."""


class StaticCredentials:
    """Credentials written into a kubeconfig: a token, a user name and password, a certificate, or none."""

    def __init__(
        self,
        headers: dict[str, str] | None = None,
        client_certificate: ClientCertificate = ClientCertificate(),  # noqa: B008 - frozen
    ) -> None:
        self._headers, self._identity = headers or {}, client_certificate

    async def headers(self) -> dict[str, str]:
        return self._headers

    async def client_certificate(self) -> ClientCertificate:
        return self._identity

    def invalidate(self) -> bool:
        return False


class TokenFileCredentials:
    """A token in a file that is rewritten, such as a service account's by the kubelet."""

    def __init__(
        self,
        path: Path,
        client_certificate: ClientCertificate = ClientCertificate(),  # noqa: B008  # frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._identity, self._clock = path, client_certificate, clock
        self._token, self._read_at = "", float("-inf")

    async def headers(self) -> dict[str, str]:
        if self._clock() - self._read_at > REREAD_SECONDS:
            self._read()
        return bearer_header(self._token)

    async def client_certificate(self) -> ClientCertificate:
        return self._identity

    def invalidate(self) -> bool:
        before, self._read_at = self._token, float("-inf")
        self._read()
        return self._token != before

    def _read(self) -> None:
        try:
            found, why = self._path.read_text().strip(), "it is empty"
        except OSError as error:
            found, why = "", str(error.strerror)
        except UnicodeDecodeError:
            found, why = "", "it is not text"
        if found and not is_valid_header_value(found):
            found, why = "", "it has characters that an HTTP header can't have"
        if not found and not self._token:
            raise ClusterUnreachable(f"{self._path}: the token can't be read: {why}")
        self._token = found or self._token  # an unreadable file may be in the middle of a rotation: keep the last token
        self._read_at = self._clock()


def is_valid_header_value(token: str) -> bool:
    return token.isascii() and token.isprintable()


def bearer_header(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic_auth_header(username: str, password: str) -> dict[str, str]:
    pair = base64.b64encode(f"{username}:{password}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}
