"""Refusals of the API server. The store puts them in as deltas; they are dropped when they expire, and when the pod or
the disruption budget that they concern has changed."""

from __future__ import annotations

from collections.abc import Callable

from windlass.model.refusal import NO_REFUSALS, Refusal, Refusals, index_refusals

MAX_KEPT = 1_000
"""Beyond that the oldest are dropped, so that a server that refuses everything doesn't fill the memory."""

LONGEST_SECONDS = 120
"""No refusal is respected for longer. One that ends later is from before the clock was set back."""


class RefusalCache:
    def __init__(self) -> None:
        self._refusals: dict[tuple[str, str, str], Refusal] = {}
        self._index: Refusals | None = NO_REFUSALS

    def put(self, refusal: Refusal) -> None:
        self._refusals.pop(refusal.key, None)
        self._refusals[refusal.key] = refusal
        if len(self._refusals) > MAX_KEPT:
            del self._refusals[next(iter(self._refusals))]
        self._index = None

    def pod_added(self, pod: str, uid: str) -> None:
        if self._refusals:  # asked of every pod
            self._keep(lambda refusal: refusal.pod != pod or refusal.uid == uid)

    def budget_changed(self, budget: str) -> None:
        """A changed budget may allow now what it refused."""
        self._keep(lambda refusal: refusal.budget != budget)

    def active_at(self, now: int) -> Refusals:
        self._keep(lambda refusal: now < refusal.until <= now + LONGEST_SECONDS)
        if self._index is None:
            self._index = index_refusals(self._refusals.values())
        return self._index

    def _keep(self, keeps: Callable[[Refusal], bool]) -> None:
        if not self._refusals:
            return
        kept = {key: refusal for key, refusal in self._refusals.items() if keeps(refusal)}
        if len(kept) < len(self._refusals):
            self._refusals, self._index = kept, None
