"""TLS and passwords on the exporter's port, by the file that dcgm-exporter takes (`--web-config-file`).

`metrics_server` asks for the TLS of each connection and whether a request may be answered. The file, certificates and
keys are read again when they change; what is wrong then leaves the last good ones in force, and is an error at the
start. What the format has and this doesn't do is refused by name: protection that isn't there must not look as if.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import ssl
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from windlass.model.errors import InputError
from windlass.node.config_source import read_yaml

TLS_VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
CLIENT_AUTH_TYPES = {
    "": ssl.CERT_NONE,
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
MOST_KEPT = 64
_HASH = re.compile(r"\$2[aby]\$(?:0[4-9]|1[0-6])\$[./A-Za-z0-9]{53}")
"""With a cost that is over before a scrape times out."""
MAX_PASSWORD_BYTES = 72
"""What bcrypt looks at; the rest of a longer password never counted."""
_TLS_FIELDS = ("cert_file", "key_file", "client_auth_type", "client_ca_file", "min_version", "max_version")


class LoadedWebConfig(msgspec.Struct, frozen=True):
    """One reading of the file."""

    tls: Any
    """An SSL context; None for plain HTTP."""
    users: dict[str, str]
    """Password hashes (bcrypt) by name; empty for everybody."""
    files: tuple[Path, ...]
    """What a change of which makes it stale."""


class WebConfig:
    def __init__(self, path: Path, log: Callable[[str], None] = lambda line: None) -> None:
        self._path = path
        self._log = log
        self._lock = threading.Lock()
        self._known: set[bytes] = set()
        """Digests of passwords that were right: comparing one with its hash is slow on purpose."""
        self._rules = load_web_config(path)
        self._seen = self._stamps()

    def tls_context(self) -> ssl.SSLContext | None:
        found: ssl.SSLContext | None = self._follow().tls
        return found

    def allows(self, authorization: str) -> bool:
        """Whether a request with this header may be answered."""
        users = self._follow().users
        if not users:
            return True
        name, password = _basic(authorization)
        expected = users.get(name)
        if expected is None or not password:
            return False
        digest = hashlib.sha256(b"\0".join((name.encode(), expected.encode(), password))).digest()
        with self._lock:
            if digest in self._known:
                return True
            if not password_matches(password, expected):
                return False
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known.add(digest)
        return True

    def _follow(self) -> LoadedWebConfig:
        with self._lock:
            seen = self._stamps()
            if seen != self._seen:
                self._seen = seen
                try:
                    self._rules = load_web_config(self._path)
                except InputError as error:
                    self._log(f"the last good web config stays in force: {error}")
                else:
                    self._log("the web config has changed")
                    self._seen = self._stamps()
            return self._rules

    def _stamps(self) -> list[tuple[int, int] | None]:
        return [_stamp(path) for path in (self._path, *self._rules.files)]


def load_web_config(path: Path) -> LoadedWebConfig:
    raw = read_yaml(path)
    try:
        top = _mapping(raw if raw is not None else {}, "", ("tls_server_config", "basic_auth_users"))
        tls = _mapping(top.get("tls_server_config") or {}, "tls_server_config", _TLS_FIELDS)
        users = _users(top.get("basic_auth_users") or {})
        files = {
            field: path.parent / _text(tls[field], f"tls_server_config.{field}")
            for field in ("cert_file", "key_file", "client_ca_file")
            if tls.get(field)
        }
        context = _context(tls, files) if tls else None
    except InputError as error:
        raise error.with_context(file=str(path)) from None
    return LoadedWebConfig(context, users, tuple(files.values()))


def _context(tls: Mapping[str, Any], files: Mapping[str, Path]) -> ssl.SSLContext:
    where = "tls_server_config"
    for field in ("cert_file", "key_file"):
        if field not in files:
            raise InputError("is required", path=f"{where}.{field}", remedy="name a file in PEM")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _one_of(TLS_VERSIONS, tls.get("min_version", "TLS12"), f"{where}.min_version")
    context.maximum_version = _one_of(TLS_VERSIONS, tls.get("max_version", "TLS13"), f"{where}.max_version")
    clients = _one_of(CLIENT_AUTH_TYPES, tls.get("client_auth_type", ""), f"{where}.client_auth_type")
    if (clients == ssl.CERT_NONE) != ("client_ca_file" not in files):
        raise InputError(
            "client_ca_file and a client_auth_type that verifies go together", path=where, remedy="give both"
        )
    try:
        context.load_cert_chain(files["cert_file"], files["key_file"])
        if "client_ca_file" in files:
            context.load_verify_locations(files["client_ca_file"])
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"can't be loaded: {error.strerror or error}", path=where) from None
    context.verify_mode = clients
    return context


def _users(raw: Any) -> dict[str, str]:
    if not isinstance(raw, Mapping):
        raise InputError("must be a map", path="basic_auth_users", remedy="write name: hash by bcrypt")
    for name, secret in raw.items():
        path = f"basic_auth_users.{str(name)[:64]}"
        if not isinstance(secret, str) or not _HASH.fullmatch(secret):
            raise InputError("is no hash by bcrypt", path=path, remedy="make one with htpasswd -nBC 10 NAME")
    return {str(name): secret for name, secret in raw.items()}


def password_matches(password: bytes, secret: str) -> bool:
    """Whether the hash is that of the password."""
    import bcrypt  # only those who configure passwords load it

    try:
        return bcrypt.checkpw(password[:MAX_PASSWORD_BYTES], secret.encode())
    except ValueError:  # a hash of the right form whose salt no program would have made
        return False


def _basic(authorization: str) -> tuple[str, bytes]:
    kind, _, encoded = authorization.partition(" ")
    try:
        name, _, password = base64.b64decode(encoded, validate=True).partition(b":")
        return (name.decode(), password) if kind.lower() == "basic" and b"\0" not in password else ("", b"")
    except (binascii.Error, ValueError):
        return "", b""


def _mapping(raw: Any, path: str, fields: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping):
        raise InputError("must be a map", path=path, remedy=f"it has the fields {', '.join(fields)}")
    for name in raw:
        if name not in fields:
            where = f"{path}.{str(name)[:64]}".lstrip(".")
            raise InputError("is not done here", path=where, remedy=f"the fields are {', '.join(fields)}")
    return raw


def _text(raw: Any, path: str) -> str:
    if not isinstance(raw, str):
        raise InputError("must be text", path=path, remedy="put it between quotation marks")
    return raw


def _one_of(choices: Mapping[str, Any], raw: Any, path: str) -> Any:
    if not isinstance(raw, str) or raw not in choices:
        names = ", ".join(filter(None, choices))
        raise InputError(f"{str(raw)[:64]!r} is not done here", path=path, remedy=f"use {names}")
    return choices[raw]


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
