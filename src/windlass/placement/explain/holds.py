"""The holds of a plan, made as they are read, and explained where that is asked for.

`engine` chains here what lone pods and workloads are held for; `Plan.holds` is one of these.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from windlass.model.decision import Hold
from windlass.model.plan import ExplainableHolds
from windlass.placement.explain.advisor import MOST_EXPLAINED, Advisor


class ExplainedHolds(ExplainableHolds):
    def __init__(self, parts: Sequence[Sequence[Hold]], advisor: Advisor) -> None:
        self._parts, self._advisor = parts, advisor
        self._explained: list[Hold] = []

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def _at(self, index: int) -> Hold:
        return self._advisor.refined(self._plain(index))

    def explained(self, index: int) -> Hold:
        """Those before it are explained first: what is left of the budget must not depend on who is asked about."""
        if index >= MOST_EXPLAINED:
            return self[index]
        while len(self._explained) <= index:
            self._explained.append(self._advisor.explained(self[len(self._explained)]))
        return self._explained[index]

    def without(self, workloads: Container[str]) -> ExplainedHolds:
        """Those of other workloads."""
        return ExplainedHolds([[hold for hold in self if hold.workload not in workloads]], self._advisor)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # like any other list

    def _plain(self, index: int) -> Hold:
        for part in self._parts:
            if index < len(part):
                return part[index]
            index -= len(part)
        raise IndexError(index)
