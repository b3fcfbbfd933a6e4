"""Kubeconfig files as kubectl reads them: several files merged, one context chosen, paths made absolute.

Read by `kube.client_config`, which makes credentials of the outcome. Of entries of the same name the first file's
wins, whole; a path in a file is relative to that file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from windlass.model.errors import InputError

_PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


class ExecEnv(msgspec.Struct, frozen=True):
    name: str = ""
    value: str = ""


class ExecSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A program that prints credentials."""

    command: str
    args: list[str] | None = None
    env: list[ExecEnv] | None = None
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


class ClusterEntry(msgspec.Struct, frozen=True, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class UserEntry(msgspec.Struct, frozen=True, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    exec: ExecSpec | None = None
    auth_provider: dict[str, Any] | None = None
    as_: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: list[str] = msgspec.field(default_factory=list)
    as_user_extra: dict[str, list[str]] = msgspec.field(default_factory=dict)


class ContextEntry(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class ResolvedContext(msgspec.Struct, frozen=True):
    """One context, with its cluster and user."""

    name: str
    cluster: ClusterEntry
    user: UserEntry
    namespace: str


class MergedKubeconfig(msgspec.Struct):
    """All files together."""

    current_context: str = ""
    clusters: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    users: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    contexts: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    files: list[Path] = msgspec.field(default_factory=list)


def kubeconfig_files(explicit: str, environment: Mapping[str, str]) -> list[Path]:
    """The files that count: the one that is named, else those of KUBECONFIG, else the one in the home folder."""
    if explicit:
        path = Path(explicit).expanduser()
        if not path.is_file():
            raise InputError("there is no such kubeconfig", file=explicit, remedy="check --kubeconfig")
        return [path]
    named = environment.get("KUBECONFIG", "")
    if named:
        return [Path(path).expanduser() for path in named.split(os.pathsep) if path]
    return [Path(environment["HOME"]) / ".kube" / "config"] if environment.get("HOME") else []


def load_kubeconfig(files: Sequence[Path]) -> MergedKubeconfig:
    """Files that don't exist are passed over, as kubectl does."""
    merged = MergedKubeconfig()
    for path in files:
        if path.is_file():
            _merge(merged, path)
    return merged


def resolve_context(merged: MergedKubeconfig, context: str = "") -> ResolvedContext:
    """The context of that name, or the current one."""
    files = ", ".join(str(path) for path in merged.files)
    name = context or merged.current_context
    if not name:
        raise InputError("no context is chosen", file=files, path="current-context", remedy="use --context")
    entry = merged.contexts.get(name)
    if entry is None:
        known = ", ".join(sorted(merged.contexts)) or "none"
        raise InputError(f"there is no context {name!r}", file=files, remedy=f"known: {known}")
    chosen = _read(entry, ContextEntry, f"contexts[{name}]", files)
    cluster = _named(merged.clusters, chosen.cluster, "clusters", files)
    user = _named(merged.users, chosen.user, "users", files) if chosen.user else {}
    return ResolvedContext(
        name,
        _read(cluster, ClusterEntry, f"clusters[{chosen.cluster}]", files),
        _read(user, UserEntry, f"users[{chosen.user}]", files),
        chosen.namespace or "default",
    )


def _merge(merged: MergedKubeconfig, path: Path) -> None:
    try:
        document = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader) or {}
    except yaml.YAMLError as error:
        raise InputError(f"is not YAML: {error}", file=str(path)) from None
    if not isinstance(document, dict):
        raise InputError("is not a kubeconfig", file=str(path), remedy="a kubeconfig is a mapping")
    merged.files.append(path)
    merged.current_context = merged.current_context or str(document.get("current-context") or "")
    for field, into, inner in (
        ("clusters", merged.clusters, "cluster"),
        ("users", merged.users, "user"),
        ("contexts", merged.contexts, "context"),
    ):
        for name, value in _entries(document.get(field), field, inner, str(path)):
            into.setdefault(name, _absolute(value, path.absolute().parent))


def _entries(found: object, field: str, inner: str, file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and content of each entry of a list."""
    if not isinstance(found or [], list):
        raise InputError("is not a list", file=file, path=field, remedy=f"entries have a name and a {inner}")
    for index, entry in enumerate(found if isinstance(found, list) else ()):
        where = f"{field}[{index}]"
        if not isinstance(entry, dict):
            raise InputError("is not a mapping", file=file, path=where, remedy=f"give it a name and a {inner}")
        value = entry.get(inner) or {}
        if not isinstance(value, dict):
            raise InputError("is not a mapping", file=file, path=f"{where}.{inner}")
        yield str(entry.get("name") or ""), value


def _absolute(entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    made = {key: value for key, value in entry.items() if value is not None}
    for field in _PATHS:
        if isinstance(made.get(field), str) and made[field]:
            made[field] = str(folder / made[field])
    plugin = made.get("exec")
    program = plugin.get("command") if isinstance(plugin, dict) else ""
    if isinstance(program, str) and "/" in program:
        made["exec"] = {**made["exec"], "command": str(folder / program)}
    return made


def _named(entries: dict[str, dict[str, Any]], name: str, field: str, files: str) -> dict[str, Any]:
    if name not in entries:
        raise InputError(f"there is no entry {name!r}", file=files, path=field)
    return entries[name]


T = TypeVar("T", ClusterEntry, UserEntry, ContextEntry)


def _read(entry: dict[str, Any], struct: type[T], path: str, files: str) -> T:
    try:
        return msgspec.convert(entry, struct)
    except msgspec.ValidationError as error:
        raise InputError(str(error), file=files, path=path) from None
