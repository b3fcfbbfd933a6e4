"""A plan: everything that one call of `decide` decided, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from windlass.model.decision import Admit, Bind, Decision, Evict, Hold, Reserve


class Plan(msgspec.Struct, frozen=True):
    """`holds` may be made as they are read: a long queue of what waits costs nothing until somebody asks."""

    binds: Sequence[Bind]
    holds: Sequence[Hold]
    admits: Sequence[Admit] = ()
    evicts: Sequence[Evict] = ()
    reserves: Sequence[Reserve] = ()

    @property
    def decisions(self) -> Iterator[Decision]:
        """In an order in which they can be carried out: who goes, who comes, where to, what is kept, who waits."""
        yield from self.evicts
        yield from self.admits
        yield from self.binds
        yield from self.reserves
        yield from self.holds
