"""The holds of a plan as people are told of them: with what would help, where that has been worked out.

`scheduler.loop` asks for explanations in the thread that decided, since they are worked out on the state of that very
decision; `scheduler.carry` writes them on pods and Workloads. What was worked out once is told for as long as nothing
else holds the workload, so that its words don't change with every decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from windlass.model.decision import Hold
from windlass.model.plan import HoldsAsRead, Plan
from windlass.model.verdict import Verdict
from windlass.placement.explain.advisor import MOST_EXPLAINED

Known = Mapping[str, tuple[Verdict, Hold]]
"""Workload → why it was held, and the same explained."""
MOST_REMEMBERED = 1_000


class ToldHolds(HoldsAsRead):
    def __init__(self, holds: Sequence[Hold], known: Known) -> None:
        self._holds, self._known = holds, known

    def __len__(self) -> int:
        return len(self._holds)

    def _at(self, index: int) -> Hold:
        hold = self._holds[index]
        verdict, explained = self._known.get(hold.workload, (None, hold))
        return explained if verdict == hold.verdict else hold


class Explanations:
    def __init__(self, is_news: Callable[[], bool]) -> None:
        """`is_news`: something waits to be decided on, and explaining has to stop."""
        self._is_news = is_news
        self._known: dict[str, tuple[Verdict, Hold]] = {}

    def work_out(self, plan: Plan) -> None:
        """Of the first holds, as many as there is time for; before the next decision is made."""
        fresh: dict[str, tuple[Verdict, Hold]] = {}
        for index, hold in enumerate(plan.explained):
            if index >= MOST_EXPLAINED:
                break
            fresh[hold.workload] = plan.holds[index].verdict, hold
            if self._is_news():
                break
        older = list(self._known.items())[-MOST_REMEMBERED:]
        self._known = {**{name: one for name, one in older if name not in fresh}, **fresh}

    def told(self, plan: Plan) -> Plan:
        """The plan with what is known of its holds."""
        if not self._known or not plan.holds:
            return plan
        return msgspec.structs.replace(plan, holds=ToldHolds(plan.holds, self._known))
