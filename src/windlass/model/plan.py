"""A plan: everything that one call of `decide` decided, in order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import overload

import msgspec

from windlass.model.decision import Admit, Bind, Decision, Evict, Hold, Reserve


class HoldsAsRead(Sequence[Hold]):
    """Holds that are put into words as somebody reads them."""

    @abstractmethod
    def _at(self, index: int) -> Hold:
        """The hold at that place, counted from the start."""

    def __iter__(self) -> Iterator[Hold]:
        return (self._at(index) for index in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> Hold: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Hold]: ...
    def __getitem__(self, index: int | slice) -> Hold | Sequence[Hold]:
        if isinstance(index, slice):
            return [self._at(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self._at(index % len(self))


class ExplainableHolds(HoldsAsRead):
    """Holds whose verdicts can be asked for more than the decision itself needed to know."""

    @abstractmethod
    def explained(self, index: int) -> Hold:
        """The hold with what binds it, what would free it and what would help worked out."""


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
        yield from self._carried_out
        yield from self.holds

    @property
    def explained_decisions(self) -> Iterator[Decision]:
        """The same, with the holds explained."""
        yield from self._carried_out
        yield from self.explained

    @property
    def explained(self) -> Iterator[Hold]:
        """The holds with what would help; see `placement.explain` for what that costs and how far it goes.

        To be read before the next decision with the same memo: after that, the holds are as they were decided.
        """
        if not isinstance(self.holds, ExplainableHolds):
            yield from self.holds
            return
        for index in range(len(self.holds)):
            yield self.holds.explained(index)

    @property
    def _carried_out(self) -> Iterator[Decision]:
        yield from self.evicts
        yield from self.admits
        yield from self.binds
        yield from self.reserves
