"""Parses an API path into kind, namespace, name and subresource, for routing in `server`.

/api/v1/namespaces/default/pods/p/status
/apis/batch/v1/jobs
"""

from __future__ import annotations

import msgspec

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind, Kinds


class Target(msgspec.Struct, frozen=True):
    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False
    """Whether the deprecated path `/api/v1/watch/…` was used."""


def parse_target(path: str, kinds: Kinds) -> Target | None:
    """None if the path is not about objects."""
    parts = path.split("/")
    if parts[-1] == "":
        parts.pop()
    if len(parts) < 4:
        return None
    if parts[1] == "api":
        group, version, rest = "", parts[2], parts[3:]
    elif parts[1] == "apis" and len(parts) > 4:
        group, version, rest = parts[2], parts[3], parts[4:]
    else:
        return None
    watch = rest[0] == "watch" and len(rest) > 1
    return _target(kinds, group, version, rest[1:] if watch else rest, watch)


def _target(kinds: Kinds, group: str, version: str, rest: list[str], watch: bool) -> Target:
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    kind = kinds.by_path(group, version, rest[0])
    if kind is None or len(rest) > 3 or not all(rest):
        raise ApiError.no_such_path()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if bool(namespace) != kind.namespaced and (namespace or name):
        raise ApiError.no_such_path()
    if subresource and not kind.has_subresource(subresource):
        raise ApiError.no_such_path()
    return Target(kind, namespace, name, subresource, watch)
