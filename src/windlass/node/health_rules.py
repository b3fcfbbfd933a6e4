"""Thresholds and overrides of GPU health: when a reading or an Xid makes a device unhealthy.

The plugin process builds the rules from its environment; `health` applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from windlass.node.xid import lookup_xid

_EVERY_XID = ("all", "xids")
MAX_DIGITS = 9


class HealthRules(msgspec.Struct, frozen=True, kw_only=True):
    quiet_seconds: float = 30.0
    """Seconds after the last fatal Xid before the validator runs again."""
    throttled_seconds: float = 60.0
    """Seconds of uninterrupted slowdown by heat or the power brake that make a GPU unhealthy."""
    unread_seconds: float = 60.0
    """Seconds after which a problem ends whose value the driver no longer gives."""
    replays_per_minute: float = 600.0
    link_errors_per_minute: float = 60.0
    ignored_xids: frozenset[int] = frozenset()
    """These are not even logged."""
    counted_xids: frozenset[int] = frozenset()
    """Fatal even if the catalogue says otherwise or they are ignored too."""
    ignores_all_xids: bool = False
    counts_all_xids: bool = False
    watches_readings: bool = True
    """Whether counters, throttling and links count. A lost GPU is always unhealthy."""

    def is_ignored(self, code: int) -> bool:
        return not self._is_forced(code) and (self.ignores_all_xids or code in self.ignored_xids)

    def is_fatal(self, code: int) -> bool:
        """Whether an Xid makes a device unusable."""
        return self._is_forced(code) or (not self.is_ignored(code) and lookup_xid(code).is_fatal)

    def _is_forced(self, code: int) -> bool:
        return self.counts_all_xids or code in self.counted_xids


def health_rules_from_environment(
    environment: Mapping[str, str],
    rules: HealthRules | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> HealthRules:
    """NVIDIA's two variables, comma-separated: Xids to ignore and Xids to count.

    Either may contain `xids` or `all`; ignoring `all` disables the checks of readings too. An Xid that is counted
    by number counts even if all are ignored.
    """
    disabled = _items(environment, "DP_DISABLE_HEALTHCHECKS", log)
    enabled = _items(environment, "DP_ENABLE_HEALTHCHECKS", log)
    return msgspec.structs.replace(
        rules or HealthRules(),
        ignored_xids=_xids(disabled),
        counted_xids=_xids(enabled),
        ignores_all_xids=not disabled.isdisjoint(_EVERY_XID),
        counts_all_xids=not enabled.isdisjoint(_EVERY_XID),
        watches_readings="all" not in disabled,
    )


def _items(environment: Mapping[str, str], variable: str, log: Callable[[str], None]) -> frozenset[str]:
    items = frozenset(item.strip().lower() for item in environment.get(variable, "").split(","))
    for item in sorted(items.difference(_EVERY_XID, ("",))):
        if not _is_xid(item):
            log(f"warning: {variable}: ignoring malformed Xid value {item[:64]!r}")
    return items


def _xids(items: frozenset[str]) -> frozenset[int]:
    return frozenset(int(item) for item in items if _is_xid(item))


def _is_xid(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
