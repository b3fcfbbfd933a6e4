"""Options of writes and deletions: the query parameters, parsed once.

`server.query` makes them from HTTP requests, `in_process_client` for callers in this process; `registry` applies
them.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"
FOREGROUND, BACKGROUND, ORPHAN = "Foreground", "Background", "Orphan"


def _ignore_warning(_: str) -> None:
    """The default: warnings are dropped."""


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    dry_run: bool = False
    field_manager: str = ""
    """The given field manager, else the user agent up to its first slash."""
    field_validation: str = WARN
    """How unknown fields are treated."""
    subresource: str = ""
    force: bool = False
    """Server-side apply takes over fields of other managers."""
    warn: Callable[[str], object] = _ignore_warning
    """Gets warnings for the client."""


class DeleteOptions(msgspec.Struct, frozen=True, kw_only=True):
    dry_run: bool = False
    grace_seconds: int | None = None
    propagation: str = ""
    """Empty for the kind's default."""
    uid: str = ""
    resource_version: str = ""


IN_PROCESS_OPTIONS = WriteOptions(field_manager="windlass", field_validation=IGNORE)
