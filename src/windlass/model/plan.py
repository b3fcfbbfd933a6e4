"""A plan: everything that one call of `decide` decided, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from windlass.model.decision import Bind, Decision, Hold


class Plan(msgspec.Struct, frozen=True):
    """`holds` may be made as they are read: a long queue of what waits costs nothing until somebody asks."""

    binds: Sequence[Bind]
    holds: Sequence[Hold]

    @property
    def decisions(self) -> Iterator[Decision]:
        yield from self.binds
        yield from self.holds
