"""The refusals that the store knows of: put in as deltas, dropped when they end, or what they were about is another."""

from __future__ import annotations

from collections.abc import Callable

from windlass.model.refusal import NO_REFUSALS, Refusal, Refusals, index_refusals

MAX_KEPT = 1_000
"""The oldest go first: a server that refuses everything must not fill the memory."""


class RefusalCache:
    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], Refusal] = {}
        self._found: Refusals | None = NO_REFUSALS

    def put(self, refusal: Refusal) -> None:
        self._known.pop(refusal.key, None)
        self._known[refusal.key] = refusal
        if len(self._known) > MAX_KEPT:
            del self._known[next(iter(self._known))]
        self._found = None

    def pod_added(self, pod: str, uid: str) -> None:
        self._keep(lambda one: one.pod != pod or one.uid == uid)

    def budget_changed(self, budget: str) -> None:
        """It is counted anew, and may allow now what it refused."""
        self._keep(lambda one: one.budget != budget)

    def active_at(self, now: int) -> Refusals:
        """Those that are in force."""
        self._keep(lambda one: one.until > now)
        if self._found is None:
            self._found = index_refusals(self._known.values())
        return self._found

    def _keep(self, stays: Callable[[Refusal], bool]) -> None:
        if not self._known:
            return
        kept = {name: one for name, one in self._known.items() if stays(one)}
        if len(kept) < len(self._known):
            self._known, self._found = kept, None
