"""A plan: everything that one call of `decide` decided, in order.

A value: complete when `decide` returns, frozen, comparable, and the same after a round trip through JSON
(`msgspec.json`). Nothing in it refers to the state that it was decided on.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from windlass.model.decision import Admit, Ask, Bind, Decision, Evict, Hold, Reserve, Resize, WithdrawAsk


class Plan(msgspec.Struct, frozen=True):
    binds: tuple[Bind, ...] = ()
    holds: tuple[Hold, ...] = ()
    """In the order of the decision. The first ones are explained (`Verdict.is_explained`), as many as the engine is
    configured to."""
    admits: tuple[Admit, ...] = ()
    evicts: tuple[Evict, ...] = ()
    reserves: tuple[Reserve, ...] = ()
    resizes: tuple[Resize, ...] = ()
    asks: tuple[Ask, ...] = ()
    withdrawals: tuple[WithdrawAsk, ...] = ()

    @property
    def decisions(self) -> Iterator[Decision]:
        """In the order of execution: asks, evictions, changed sizes, admissions, binds, reservations, holds."""
        yield from self.withdrawals
        yield from self.asks
        yield from self.evicts
        yield from self.resizes
        yield from self.admits
        yield from self.binds
        yield from self.reserves
        yield from self.holds
