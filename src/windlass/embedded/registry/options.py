"""What a request says beside its object: the query parameters of writes and deletions, read once.

Made by `server.query` from the wire and by `verbs` for callers in this process; `registry` acts on them.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"
FOREGROUND, BACKGROUND, ORPHAN = "Foreground", "Background", "Orphan"


def _unheard(_: str) -> None:
    """A warning that nobody waits for."""


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    dry_run: bool = False
    field_manager: str = ""
    """The field manager: asked for, else the first word of the user agent."""
    field_validation: str = WARN
    """What becomes of unknown fields."""
    subresource: str = ""
    force: bool = False
    """Of server-side apply: take fields from other managers."""
    warn: Callable[[str], object] = _unheard
    """Takes what the client should read beside the answer."""

    def with_manager(self, manager: str, subresource: str = "") -> WriteOptions:
        """The same, of a manager (if one is named) and for a subresource."""
        if not manager and not subresource:
            return self
        return msgspec.structs.replace(
            self, field_manager=manager or self.field_manager, subresource=subresource
        )


class DeleteOptions(msgspec.Struct, frozen=True, kw_only=True):
    dry_run: bool = False
    grace_seconds: int | None = None
    propagation: str = ""
    """Empty: the kind's default."""
    uid: str = ""
    resource_version: str = ""


IN_PROCESS_OPTIONS = WriteOptions(field_manager="windlass", field_validation=IGNORE)
