"""What those that wait are told: the holds of a plan with what would help, where that has been worked out.

`scheduler.loop` asks for explanations in the thread that decided, before the next decision; `apply.executor` writes
them on pods and Workloads. What was worked out once is told for as long as nothing else holds the workload, so that
its words don't change with every decision.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from windlass.model.decision import Hold
from windlass.model.plan import Plan
from windlass.model.verdict import Verdict
from windlass.placement.explain.advisor import MAX_EXPLAINED_HOLDS

MOST_REMEMBERED = 1_000


class ExplanationCache:
    def __init__(self, must_stop: Callable[[], bool]) -> None:
        """`is_news`: something waits to be decided on, and explaining has to stop."""
        self._is_news = must_stop
        self._known: dict[str, tuple[Verdict, Hold]] = {}
        """Workload → why it was held, and the same explained."""

    def compute(self, plan: Plan, explained: Callable[[Hold], Hold]) -> None:
        """Of the first holds, as many as there is time for."""
        fresh: dict[str, tuple[Verdict, Hold]] = {}
        for hold in plan.holds[:MAX_EXPLAINED_HOLDS]:
            fresh[hold.workload] = hold.verdict, explained(hold)
            if self._is_news():
                break
        older = list(self._known.items())[-MOST_REMEMBERED:]
        self._known = {**{name: one for name, one in older if name not in fresh}, **fresh}

    def with_explanations(self, plan: Plan) -> Plan:
        """The plan with what is known of its holds."""
        if not self._known or not plan.holds:
            return plan
        return msgspec.structs.replace(plan, holds=tuple(map(self._told, plan.holds)))

    def _told(self, hold: Hold) -> Hold:
        verdict, explained = self._known.get(hold.workload, (None, hold))
        return explained if verdict == hold.verdict else hold
