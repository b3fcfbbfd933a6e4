"""When something about a GPU counts against it: thresholds, and what a user wants ignored or counted.

Made from the environment by the plugin process; asked by `health`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from windlass.node.xid import lookup_xid

_EVERY_XID = ("all", "xids")
LONGEST_NUMBER = 9


class HealthRules(msgspec.Struct, frozen=True, kw_only=True):
    """When something counts."""

    quiet_seconds: float = 30.0
    """After the last fatal Xid, before the validator is asked again."""
    throttled_seconds: float = 60.0
    """Of being slowed down by heat or a power brake without a break."""
    replays_per_minute: float = 600.0
    link_errors_per_minute: float = 60.0
    ignored_xids: frozenset[int] = frozenset()
    """Not even told."""
    counted_xids: frozenset[int] = frozenset()
    """Fatal whatever the catalogue says, and whatever is ignored."""
    ignores_all_xids: bool = False
    counts_all_xids: bool = False
    watches_readings: bool = True
    """Counters, throttling and links; a GPU that is lost counts in any case."""

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
    """The original's two variables, comma-separated: Xids to ignore, and Xids to count after all.

    Either may say `xids` or `all`; to ignore `all` switches the other checks off too. What is counted by its number
    counts also where everything is ignored.
    """
    off = _words(environment, "DP_DISABLE_HEALTHCHECKS", log)
    on = _words(environment, "DP_ENABLE_HEALTHCHECKS", log)
    return msgspec.structs.replace(
        rules or HealthRules(),
        ignored_xids=_numbers(off),
        counted_xids=_numbers(on),
        ignores_all_xids=not off.isdisjoint(_EVERY_XID),
        counts_all_xids=not on.isdisjoint(_EVERY_XID),
        watches_readings="all" not in off,
    )


def _words(environment: Mapping[str, str], variable: str, log: Callable[[str], None]) -> frozenset[str]:
    words = frozenset(word.strip().lower() for word in environment.get(variable, "").split(","))
    for word in sorted(words.difference(_EVERY_XID, ("",))):
        if not _is_number(word):
            log(f"warning: {variable}: ignoring malformed Xid value {word[:64]!r}")
    return words


def _numbers(words: frozenset[str]) -> frozenset[int]:
    return frozenset(int(word) for word in words if _is_number(word))


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= LONGEST_NUMBER
