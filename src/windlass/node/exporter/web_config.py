"""TLS and basic authentication on the exporter's port, by the file that dcgm-exporter takes (`--web-config-file`).

`metrics_server` asks for the TLS context of each connection and whether a request is authorized. The file,
certificates and keys are read again when they change; an error at the start is fatal, later the last good version
stays in force. Fields of the format that are not implemented are refused by name, so that nobody relies on
protection that is not there.
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
MAX_CACHED = 64
_HASH = re.compile(r"\$2[aby]\$(?:0[4-9]|1[0-6])\$[./A-Za-z0-9]{53}")
"""Costs 4 to 16: with more, a scrape would time out."""
MAX_PASSWORD_BYTES = 72
"""bcrypt ignores the rest of a longer password."""
_TLS_FIELDS = ("cert_file", "key_file", "client_auth_type", "client_ca_file", "min_version", "max_version")


class LoadedWebConfig(msgspec.Struct, frozen=True):
    """One version of the file."""

    tls: Any
    """An SSL context; None for plain HTTP."""
    users: dict[str, str]
    """bcrypt hashes by user name; empty if no authentication is needed."""
    files: tuple[Path, ...]
    """Certificates and keys, whose change means a reload."""


class WebConfig:
    def __init__(self, path: Path, log: Callable[[str], None] = lambda line: None) -> None:
        self._path = path
        self._log = log
        self._lock = threading.Lock()
        self._accepted: set[bytes] = set()
        """Digests of accepted credentials, since bcrypt is slow on purpose."""
        self._loaded = load_web_config(path)
        self._versions = self._current_versions()

    def tls_context(self) -> ssl.SSLContext | None:
        found: ssl.SSLContext | None = self._reload_if_changed().tls
        return found

    def allows(self, authorization: str) -> bool:
        """Whether a request with this header is authorized."""
        users = self._reload_if_changed().users
        if not users:
            return True
        name, password = _basic(authorization)
        expected = users.get(name)
        if expected is None or not password:
            return False
        digest = hashlib.sha256(b"\0".join((name.encode(), expected.encode(), password))).digest()
        with self._lock:
            if digest in self._accepted:
                return True
            if not password_matches(password, expected):
                return False
            if len(self._accepted) >= MAX_CACHED:
                self._accepted.clear()
            self._accepted.add(digest)
        return True

    def _reload_if_changed(self) -> LoadedWebConfig:
        with self._lock:
            versions = self._current_versions()
            if versions != self._versions:
                self._versions = versions
                try:
                    self._loaded = load_web_config(self._path)
                except InputError as error:
                    self._log(f"the last good web config stays in force: {error}")
                else:
                    self._log("the web config has changed")
                    self._versions = self._current_versions()
            return self._loaded

    def _current_versions(self) -> list[tuple[int, int] | None]:
        return [_file_version(path) for path in (self._path, *self._loaded.files)]


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
    path = "tls_server_config"
    for field in ("cert_file", "key_file"):
        if field not in files:
            raise InputError("is required", path=f"{path}.{field}", remedy="name a file in PEM")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _one_of(TLS_VERSIONS, tls.get("min_version", "TLS12"), f"{path}.min_version")
    context.maximum_version = _one_of(TLS_VERSIONS, tls.get("max_version", "TLS13"), f"{path}.max_version")
    verify_mode = _one_of(CLIENT_AUTH_TYPES, tls.get("client_auth_type", ""), f"{path}.client_auth_type")
    if (verify_mode == ssl.CERT_NONE) != ("client_ca_file" not in files):
        message = "client_ca_file and a client_auth_type that verifies need each other"
        raise InputError(message, path=path, remedy="give both")
    try:
        context.load_cert_chain(files["cert_file"], files["key_file"])
        if "client_ca_file" in files:
            context.load_verify_locations(files["client_ca_file"])
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"can't be loaded: {error.strerror or error}", path=path) from None
    context.verify_mode = verify_mode
    return context


def _users(raw: Any) -> dict[str, str]:
    if not isinstance(raw, Mapping):
        raise InputError("must be a map", path="basic_auth_users", remedy="write name: bcrypt hash")
    for name, secret in raw.items():
        path = f"basic_auth_users.{str(name)[:64]}"
        if not isinstance(secret, str) or not _HASH.fullmatch(secret):
            raise InputError("is not a bcrypt hash", path=path, remedy="make one with htpasswd -nBC 10 NAME")
    return {str(name): secret for name, secret in raw.items()}


def password_matches(password: bytes, secret: str) -> bool:
    """Whether the hash is that of the password."""
    import bcrypt  # only loaded where passwords are configured

    try:
        return bcrypt.checkpw(password[:MAX_PASSWORD_BYTES], secret.encode())
    except ValueError:  # a hash of the right form with a salt that no program makes
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
            raise InputError("is not supported", path=where, remedy=f"the fields are {', '.join(fields)}")
    return raw


def _text(raw: Any, path: str) -> str:
    if not isinstance(raw, str):
        raise InputError("must be text", path=path, remedy="put it in quotation marks")
    return raw


def _one_of(choices: Mapping[str, Any], raw: Any, path: str) -> Any:
    if not isinstance(raw, str) or raw not in choices:
        names = ", ".join(filter(None, choices))
        raise InputError(f"{str(raw)[:64]!r} is not supported", path=path, remedy=f"use {names}")
    return choices[raw]


def _file_version(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
